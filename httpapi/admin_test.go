package httpapi_test

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// runtimes matches the current runtime data of pods.
var runtimes = regexp.MustCompile(`"runtime":\{.*?"ports":\[\]\}`)

const operator = "Authorization: Bearer " + operatorFree

// keyOfAlice returns a key that may create endpoints.
func (w *testAPI) keyOfAlice() string {
	w.t.Helper()
	return w.want(201, "POST", "/v2/account/keys", `{"user":"alice","scopes":["endpoints:write"]}`, operator).field("key")
}

func TestOperatorsCordonHostsAndEndpointsAndSeeIt(t *testing.T) {
	bubble(t, func(w *testAPI) {
		e := w.want(201, "POST", "/v2/serverless", `{"name":"e","type":"QUEUE","image":"i","cpu":[{"id":"cpu3c","vcpuCount":2}],"scaling":{"type":"QUEUE_DELAY","queueDelay":4}}`, "Authorization: Bearer "+w.keyOfAlice()).field("id")
		pod := w.want(201, "POST", "/v2/pods", `{"name":"c","image":"i","cpu":{"id":"cpu3c","vcpuCount":2},"dataCenterIds":["US-TX-3"]}`, "Authorization: Bearer "+aliceFree).field("id")
		for _, row := range []struct{ act, body, want string }{
			{"cordon", `{"host":"us-tx-3-secure"}`, `{"host":{"id":"us-tx-3-secure","dataCenterId":"US-TX-3","state":"cordoned","pods":1,`},
			{"cordon", `{"endpoint":"` + e + `"}`, `{"endpoint":{"id":"` + e + `","owner":"alice","state":"cordoned","jobs":{`},
			{"drain", `{"endpoint":"` + e + `"}`, `"state":"drained"`},
			{"drain", `{"endpoint":"echo"}`, `"owner":null,"state":"drained"`},
		} {
			if a := w.want(200, "POST", "/v2/admin/"+row.act, row.body, operator); !strings.Contains(a.body, row.want) {
				t.Errorf("%s %s = %s, want %s", row.act, row.body, a.body, row.want)
			}
		}
		state := w.want(200, "GET", "/v2/admin/state", "", operator).body
		for _, want := range []string{`"server":null`, `"id":"us-tx-3-secure","dataCenterId":"US-TX-3","state":"cordoned"`, `"state":"drained"`, `{"name":"alice","pods":1,"endpoints":1,"volumes":2,"keys":1}`} {
			if !strings.Contains(state, want) {
				t.Errorf("the state is %s, want %s in it", state, want)
			}
		}
		const more = `{"name":"c","image":"i","cpu":{"id":"cpu3c","vcpuCount":2},"dataCenterIds":["US-TX-3"]}`
		w.want(400, "POST", "/v2/pods", more, "Authorization: Bearer "+aliceFree)
		advance(10 * time.Second)
		w.want(200, "POST", "/v2/admin/drain", `{"host":"us-tx-3-secure","stopPods":true}`, operator)
		advance(10 * time.Second)
		if got := w.want(200, "GET", "/v2/pods/"+pod, "", "Authorization: Bearer "+aliceFree).field("status"); got != "EXITED" {
			t.Errorf("a pod of a drained host is %s, want EXITED", got)
		}
		w.want(400, "POST", "/v2/pods/"+pod+"/action", `{"action":"start"}`, "Authorization: Bearer "+aliceFree)
		w.want(200, "POST", "/v2/admin/uncordon", `{"host":"us-tx-3-secure"}`, operator)
		w.want(200, "POST", "/v2/pods/"+pod+"/action", `{"action":"start"}`, "Authorization: Bearer "+aliceFree)
	})
}

func TestJobsOfDeletedEndpointsAreErasedToo(t *testing.T) {
	bubble(t, func(w *testAPI) {
		made := w.want(201, "POST", "/v2/serverless", `{"name":"e","type":"QUEUE","image":"i","cpu":[{"id":"cpu3c","vcpuCount":2}],"scaling":{"type":"QUEUE_DELAY","queueDelay":4}}`, "Authorization: Bearer "+w.keyOfAlice())
		endpoint := made.field("id")
		w.want(200, "POST", "/v2/"+endpoint+"/run", `{"input":{}}`, "Authorization: Bearer "+aliceFree)
		w.want(204, "DELETE", "/v2/serverless/"+endpoint, "", "Authorization: Bearer "+w.keyOfAlice())
		if body := w.want(200, "DELETE", "/v2/admin/users/alice/jobs", "", operator).body; body != `{"jobs":1}`+"\n" && body != `{"jobs":1}` {
			t.Errorf("the erasure of jobs = %s, want that of one, whose endpoint was deleted", body)
		}
		advance(10 * time.Second)
		if body := w.want(200, "DELETE", "/v2/admin/users/alice/jobs", "", operator).body; !strings.Contains(body, `{"jobs":0}`) {
			t.Errorf("the erasure afterwards = %s, want none", body)
		}
	})
}

func TestAUserIsErasedAndNobodyElse(t *testing.T) {
	bubble(t, func(w *testAPI) {
		f := newFixture(w)
		w.want(200, "PUT", "/v2/account/ssh-keys", `{"keys":["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl a"]}`, "Authorization: Bearer "+aliceFree)
		w.want(201, "POST", "/v2/serverless", `{"name":"e","type":"QUEUE","image":"i","cpu":[{"id":"cpu3c","vcpuCount":2}],"scaling":{"type":"QUEUE_DELAY","queueDelay":4}}`, "Authorization: Bearer "+w.keyOfAlice())
		bobs := func() (all string) {
			for _, path := range []string{"/v2/pods", "/v2/registries", "/v2/network-volumes", "/v2/templates", "/v2/account/secrets", "/v2/idle/requests", "/v2/echo/requests"} {
				all += w.want(200, "GET", path, "", "Authorization: Bearer "+bobFree).body
			}
			return runtimes.ReplaceAllString(all, "")
		}
		before := bobs()
		w.want(409, "DELETE", "/v2/admin/users/root", "", operator)
		calls := 0
		for status := 0; status != 404; calls++ {
			if calls > 10 {
				t.Fatal("the user has something after ten calls")
			}
			status = w.call("DELETE", "/v2/admin/users/alice", "", operator).status
			if status != 200 && status != 202 && status != 404 {
				t.Fatalf("call %d = %d", calls, status)
			}
			advance(10 * time.Second)
		}
		if calls < 2 {
			t.Error("nothing was erased")
		}
		for _, path := range []string{"/v2/pods", "/v2/registries", "/v2/network-volumes", "/v2/templates", "/v2/account/ssh-keys", "/v2/account/secrets"} {
			if body := w.want(200, "GET", path, "", "Authorization: Bearer "+aliceFree).body; !strings.Contains(body, "[]") {
				t.Errorf("GET %s = %s after all was erased", path, body)
			}
		}
		for _, path := range []string{"/v2/idle/requests", "/v2/echo/requests"} {
			if body := w.want(200, "GET", path, "", "Authorization: Bearer "+aliceFree).body; !strings.Contains(body, `"total":0`) {
				t.Errorf("GET %s = %s after all was erased", path, body)
			}
		}
		w.want(404, "GET", f.names.Replace("/v2/echo/status/{done}"), "", "Authorization: Bearer "+aliceFree)
		if after := bobs(); after != before {
			t.Errorf("what bob has changed from\n%s\nto\n%s", before, after)
		}
	})
}
