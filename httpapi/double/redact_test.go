package double_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/podyard/podyard/httpapi/apitest"
)

// Each row makes a request with a secret in it; kept is what the journal keeps of the body.
func TestJournalRedactsEverySecret(t *testing.T) {
	const secret = "hunter2-the-secret"
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl " + secret
	cpu := `"cpu":{"id":"cpu3c","vcpuCount":2}`
	worker := `"type":"QUEUE","image":"i","cpu":[{"id":"cpu3c","vcpuCount":2}],"scaling":{"type":"QUEUE_DELAY","queueDelay":4}`
	for _, tt := range []struct {
		what         string
		method, path string
		body         string
		status       int
		kept         string // of the request's body
	}{
		{"env of a pod", "POST", "/v2/pods", `{"name":"p","image":"i","env":{"TOKEN":"` + secret + `"},` + cpu + `}`, 201, `"env":{"TOKEN":"[redacted]"}`},
		{"env of a change of a pod", "PATCH", "/v2/pods/{pod}", `{"env":{"TOKEN":"` + secret + `"}}`, 200, `{"env":{"TOKEN":"[redacted]"}}`},
		{"env in another letter case", "POST", "/v2/pods", `{"ENV":{"TOKEN":"` + secret + `"}}`, 422, `{"ENV":{"TOKEN":"[redacted]"}}`},
		{"env with an escape in its name", "POST", "/v2/pods", `{"\u0065nv":{"TOKEN":"` + secret + `"}}`, 422, `{"env":{"TOKEN":"[redacted]"}}`},
		{"env twice", "POST", "/v2/pods", `{"env":{"TOKEN":"` + secret + `"},"env":{}}`, 0, `{"env":{}}`},
		{"env that is no object", "POST", "/v2/pods", `{"env":["` + secret + `"]}`, 0, `{"env":"[redacted]"}`},
		{"env in what is not JSON", "POST", "/v2/pods", `{"env":{"TOKEN":"` + secret + `"}`, 400, `[redacted]`},
		{"env of a template", "POST", "/v2/templates", `{"name":"t","image":"i","category":"CPU","env":{"TOKEN":"` + secret + `"}}`, 201, `"env":{"TOKEN":"[redacted]"}`},
		{"env of an endpoint", "POST", "/v2/serverless", `{"name":"e","env":{"TOKEN":"` + secret + `"},` + worker + `}`, 201, `"env":{"TOKEN":"[redacted]"}`},
		{"env of a change of an endpoint", "PATCH", "/v2/serverless/{endpoint}", `{"env":{"TOKEN":"` + secret + `"}}`, 200, `"TOKEN"`},
		{"password of a registry", "POST", "/v2/registries", `{"name":"r2","username":"u","password":"` + secret + `"}`, 201, `"username":"u"`},
		{"a key", "POST", "/v2/account/keys", `{"scopes":["*"],"key":"` + secret + `"}`, 422, `{"key":"[redacted]","scopes":["*"]}`},
		{"keys of an account", "PUT", "/v2/account/ssh-keys", `{"keys":["` + key + `"]}`, 200, `{"keys":["[redacted]"]}`},
		{"s3Config", "POST", "/v2/q/run", `{"input":{"a":1},"s3Config":{"accessSecret":"` + secret + `"}}`, 200, `"input":{"a":1}`},
		{"query of a webhook", "POST", "/v2/echo/run", `{"input":{},"webhook":"http://client.test/hook?v=1&token=` + secret + `"}`, 200, `"http://client.test/hook?v=[redacted]&token=[redacted]"`},
		{"query of a webhook without a name", "POST", "/v2/echo/run", `{"input":{},"webhook":"http://client.test/hook?` + secret + `"}`, 200, `"http://client.test/hook?[redacted]"`},
		{"user of a webhook", "POST", "/v2/echo/run", `{"input":{},"webhook":"http://me:` + secret + `@client.test/hook"}`, 0, `@client.test/hook"`},
		{"a webhook that is no URL", "POST", "/v2/echo/run", `{"input":{},"webhook":"http://[` + secret + `"}`, 422, `"webhook":"[redacted]"`},
	} {
		t.Run(tt.what, func(t *testing.T) {
			m := everything(t)
			m.Double.ClearJournal()
			a := call(t, m.Server, tt.method, m.fill(tt.path), tt.body)
			if tt.status != 0 && a.code != tt.status {
				t.Fatalf("%s %s = %d %s, want %d", tt.method, tt.path, a.code, a.body, tt.status)
			}
			e := m.RequireRequest(t, apitest.RequestMatch{Method: tt.method, Path: m.fill(tt.path), Times: 1})
			if !strings.Contains(e.Body, tt.kept) {
				t.Errorf("the body in the journal is %s, want %s in it", e.Body, tt.kept)
			}
			for _, path := range []string{"/v2/pods", "/v2/templates", "/v2/serverless", "/v2/serverless/{endpoint}/releases", "/v2/registries", "/v2/account/ssh-keys", "/v2/echo/requests?full=true"} {
				want(t, m.Server, 200, "GET", m.fill(path), "")
			}
			m.RunUntilIdle()
			for what, v := range map[string]any{"requests": m.Double.Requests(), "jobs": m.Double.Jobs(), "webhooks": m.Double.Webhooks()} {
				b, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(b), secret) {
					t.Errorf("the %s have the secret in them: %s", what, b)
				}
			}
		})
	}
}

func TestJournalHasNoSecretOfAKeyThatWasMade(t *testing.T) {
	s := apitest.Start(t)
	made := want(t, s, 201, "POST", "/v2/account/keys", `{"scopes":["*"]}`)
	next := want(t, s, 200, "POST", "/v2/account/keys/"+made.field("id")+"/rotate", `{}`)
	want(t, s, 200, "GET", "/v2/pods", "", "Authorization: Bearer "+next.field("key"))
	b, err := json.Marshal(s.Double.Requests())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{made.field("key"), next.field("key")} {
		if a == "" || strings.Contains(string(b), a) {
			t.Errorf("the journal has the secret %q in it: %s", a, b)
		}
	}
}

func TestWebhookIsFoundByItsWholeURL(t *testing.T) {
	s := apitest.Start(t)
	s.Handle("echo", echo)
	run(t, s, "echo", `{"input":{},"webhook":"http://client.test/hook?token=abc"}`)
	for _, url := range []string{"http://client.test/hook?token=abc", "http://client.test/hook?token=[redacted]", "http://client.test/*"} {
		s.RequireWebhook(t, apitest.WebhookMatch{URL: url, Times: 1})
	}
	s.RequireWebhook(t, apitest.WebhookMatch{URL: "http://client.test/hook?token=other", Times: -1})
}

func TestJournalLeavesInputsAlone(t *testing.T) {
	s := apitest.Start(t)
	s.Handle("echo", echo)
	run(t, s, "echo", `{"input":{"webhook":"http://a.test/?b=c","env":{"d":"e"}},"webhook":"http://client.test/?f=g"}`)
	s.RequireRequest(t, apitest.RequestMatch{Operation: "run", Body: obj{"input": obj{"webhook": "http://a.test/?b=c", "env": obj{"d": "e"}}}})
}
