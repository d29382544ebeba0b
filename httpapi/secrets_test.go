package httpapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/pods/secrets"
)

func TestASecretIsShownWithoutItsValue(t *testing.T) {
	bubble(t, func(w *testAPI) {
		made := w.want(201, "POST", "/v2/account/secrets", `{"name":"Db_Password","value":"hunter2","description":"of the database"}`)
		path := "/v2/account/secrets/" + made.field("id")
		answers := made.body + w.want(200, "GET", path, "").body + w.want(200, "PATCH", path, `{"value":"hunter3","description":""}`).body +
			w.want(200, "GET", "/v2/account/secrets", "").body + w.want(200, "GET", "/v2/account/secrets?owner=*", "", asRoot).body
		if strings.Contains(answers, "hunter") {
			t.Errorf("an answer has the value: %s", answers)
		}
		if got := w.want(200, "GET", path, ""); got.field("description") != "" || got.field("name") != "Db_Password" {
			t.Errorf("the secret is %s, want it without a description", got.body)
		}
		for name, want := range map[string]int{"db_password": 1, "DB_PASSWORD": 1, "db": 0} {
			if list := idsOf(t, w.want(200, "GET", "/v2/account/secrets?name="+name, ""), "secrets"); len(list) != want {
				t.Errorf("the list of %s has %d secrets, want %d", name, len(list), want)
			}
		}
		if list := w.want(200, "GET", "/v2/account/secrets", "", "Authorization: Bearer "+bobFree).body; list != `{"secrets":[]}` {
			t.Errorf("the secrets of bob are %s", list)
		}
		w.want(204, "DELETE", path, "")
		w.want(404, "GET", path, "")
	})
}

func TestTheLargestValueFitsIntoABody(t *testing.T) {
	bubble(t, func(w *testAPI) {
		w.want(201, "POST", "/v2/account/secrets", `{"name":"large","value":"`+strings.Repeat("v", secrets.MaxValue)+`"}`)
	})
}

func TestAPodOfATemplateHasTheSecretsOfItsOwnerAndShowsNone(t *testing.T) {
	bubble(t, func(w *testAPI) {
		bob := "Authorization: Bearer " + bobFree
		w.want(201, "POST", "/v2/account/secrets", `{"name":"of_alice","value":"hunter2"}`)
		template := w.want(201, "POST", "/v2/templates", `{"name":"t","image":"i","public":true,"category":"CPU","env":{"KEY":"{{ RUNPOD_SECRET_of_alice }}"}}`)
		const body = `{"name":"p","cpu":{"id":"cpu3c","vcpuCount":2},"templateId":`
		create := body + `"` + template.field("id") + `"}`
		mine, theirs := w.want(201, "POST", "/v2/pods", create), w.want(201, "POST", "/v2/pods", create, bob)
		advance(time.Minute)
		for key, pod := range map[string]answer{"Authorization: Bearer " + aliceFree: mine, bob: theirs} {
			shown := w.want(200, "GET", "/v2/pods/"+pod.field("id"), "", key).body
			if !strings.Contains(shown, `"KEY":"{{ RUNPOD_SECRET_of_alice }}"`) || strings.Contains(shown, "hunter2") {
				t.Errorf("the pod is %s, want the name of the secret and no value", shown)
			}
			log := w.listen(time.Second, "/v2/pods/"+pod.field("id")+"/logs?source=system", key).body
			missing := strings.Contains(log, `secret \"of_alice\" does not exist`) || strings.Contains(log, `secret "of_alice" does not exist`)
			if missing != (key == bob) || strings.Contains(log, "hunter2") {
				t.Errorf("the system log is %s; want the missing secret there: %t", log, key == bob)
			}
		}
	})
}
