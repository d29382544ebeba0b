package httpapi_test

import (
	"strings"
	"testing"
)

func TestOptionsOfAPodAreSetMemberByMemberAndShownNowhereElse(t *testing.T) {
	bubble(t, func(w *testAPI) {
		const as = "Authorization: Bearer " + adminFree
		template := w.want(201, "POST", "/v2/templates", `{"name":"t","image":"img","podyard":{"shmSize":512,"restart":"always"}}`, as).field("id")
		pod := w.want(201, "POST", "/v2/pods", `{"name":"p","templateId":"`+template+`","cpu":{"id":"cpu3c","vcpuCount":2},"podyard":{"restart":"on-failure","stopGrace":0,"user":"1000:100","idle":{"for":60000}}}`, as)
		at := "/v2/pods/" + pod.field("id")
		options := func(want string) {
			t.Helper()
			if got := strings.TrimSpace(w.want(200, "GET", at+"/options", "", as).body); got != want {
				t.Errorf("options = %s\nwant      %s", got, want)
			}
		}
		options(`{"stopGrace":0,"shmSize":512,"user":"1000:100","restart":"on-failure","maxRestarts":5,"stopAfter":null,"idle":{"for":60000,"gpu":5,"cpu":5},"exposeHttp":"open"}`)
		w.want(200, "PATCH", at, `{"podyard":{"stopGrace":null,"user":null,"idle":null,"shmSize":null,"stopAfter":3600000,"exposeHttp":"key"}}`, as)
		options(`{"stopGrace":10000,"shmSize":2048,"user":null,"restart":"on-failure","maxRestarts":5,"stopAfter":3600000,"idle":null,"exposeHttp":"key"}`)
		w.want(200, "PATCH", at, `{"name":"other","podyard":{}}`, as)
		options(`{"stopGrace":10000,"shmSize":2048,"user":null,"restart":"on-failure","maxRestarts":5,"stopAfter":3600000,"idle":null,"exposeHttp":"key"}`)
		for _, path := range []string{at, "/v2/pods", "/v2/templates/" + template} {
			if body := w.want(200, "GET", path, "", as).body; strings.Contains(body, "podyard\"") || strings.Contains(body, "stopGrace") {
				t.Errorf("%s shows options: %s", path, body)
			}
		}
	})
}

func TestOptionsOfAPodThatAreNotValidAreNamed(t *testing.T) {
	bubble(t, func(w *testAPI) {
		for options, place := range map[string]string{
			`7`:                              "/podyard: must be an object",
			`{"grace":1}`:                    "/podyard/grace: unknown property",
			`{"stopGrace":-1}`:               "/podyard/stopGrace: must be 0 to 600000 ms",
			`{"stopGrace":600001}`:           "/podyard/stopGrace: must be 0 to 600000 ms",
			`{"shmSize":0}`:                  "/podyard/shmSize: must be 1 to",
			`{"user":"a b"}`:                 "/podyard/user: must be a user",
			`{"user":7}`:                     "/podyard/user: must be a string",
			`{"restart":"sometimes"}`:        "/podyard/restart: must be one of never, on-failure, always",
			`{"maxRestarts":0}`:              "/podyard/maxRestarts: must be 1 to 1000",
			`{"stopAfter":999}`:              "/podyard/stopAfter: must be 1000 to",
			`{"stopAfter":9e18}`:             "/podyard/stopAfter: must be 1000 to",
			`{"idle":{}}`:                    "/podyard/idle/for: is required",
			`{"idle":{"for":1000}}`:          "/podyard/idle/for: must be 60000 to",
			`{"idle":{"for":1e6,"x":1}}`:     "/podyard/idle/x: unknown property",
			`{"idle":{"for":1e6,"gpu":101}}`: "/podyard/idle/gpu: must be 0 to 100 percent",
			`{"exposeHttp":"all"}`:           "/podyard/exposeHttp: must be one of open, key",
		} {
			for path, body := range map[string]string{
				"/v2/pods":      `{"name":"p","image":"img","cpu":{"id":"cpu3c","vcpuCount":2},"podyard":` + options + `}`,
				"/v2/templates": `{"name":"t","image":"img","podyard":` + options + `}`,
			} {
				if got := w.want(422, "POST", path, body, "Authorization: Bearer "+adminFree).body; !strings.Contains(got, place) {
					t.Errorf("%s %s: %s, want %q in it", path, options, got, place)
				}
			}
		}
	})
}
