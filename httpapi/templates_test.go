package httpapi_test

import (
	"strings"
	"testing"
)

func TestEndpointsAreMadeFromTemplatesOfWorkers(t *testing.T) {
	withEndpoints(t, nil, func(w *testAPI) {
		const rest = `"name":"n","type":"QUEUE","cpu":[{"id":"cpu5c","vcpuCount":2}],"scaling":{"type":"QUEUE_DELAY","queueDelay":1}`
		template := func(body string) string {
			return w.want(201, "POST", "/v2/templates", body, as(aliceFree)).field("id")
		}
		worker := template(`{"name":"w","image":"org/w:1","serverless":true,"args":"go","env":{"A":"t","B":"t"},"disk":9,"allowedCudaVersions":["12.8"]}`)
		pod := template(`{"name":"p","image":"org/p:1"}`)
		a := w.want(201, "POST", "/v2/serverless", `{`+rest+`,"templateId":"`+worker+`","env":{"B":"b"},"disk":11}`, as(alicesEndpoints))
		w.has(a, `"image":"org/w:1"`, `"args":"go"`, `"disk":11`, `"env":{"A":"t","B":"b"}`)
		id := a.field("id")
		a = w.want(201, "POST", "/v2/serverless", `{"name":"g","type":"QUEUE","gpu":{"pools":["ADA_24"]},"scaling":{"type":"QUEUE_DELAY","queueDelay":1},"templateId":"`+worker+`"}`, as(alicesEndpoints))
		w.has(a, `"allowedCudaVersions":["12.8"]`)
		a = w.want(201, "POST", "/v2/serverless", `{"name":"g","type":"QUEUE","gpu":{"pools":["ADA_24"],"minCudaVersion":"12.1"},"scaling":{"type":"QUEUE_DELAY","queueDelay":1},"templateId":"`+worker+`"}`, as(alicesEndpoints))
		w.has(a, `"allowedCudaVersions":[]`, `"minCudaVersion":"12.1"`)
		a = w.want(200, "PATCH", "/v2/serverless/"+id, `{"templateId":"podyard-hello","env":{"C":"c"}}`, as(alicesEndpoints))
		w.has(a, `"image":"podyard/hello"`, `"args":""`, `"env":{"C":"c"}`)
		for target, method := range map[string]string{"/v2/serverless": "POST", "/v2/serverless/" + id: "PATCH"} {
			body := `{"templateId":"`
			if method == "POST" {
				body = `{` + rest + `,"templateId":"`
			}
			if got := w.want(422, method, target, body+pod+`"}`, as(alicesEndpoints)).faults(t); got != `/templateId: template "`+pod+`" is for pods` {
				t.Errorf("%s with a template of pods: %s", method, got)
			}
			w.want(404, method, target, body+`nothere"}`, as(alicesEndpoints))
			w.want(404, method, target, body+worker+`"}`, as(bobsEndpoints))
		}
		if got := w.want(422, "POST", "/v2/serverless", `{`+rest+`,"templateId":""}`, as(alicesEndpoints)).faults(t); got != "/image: is required | /templateId: must not be empty" {
			t.Errorf("an empty templateId: %s", got)
		}
	})
}

// has fails the test unless the answer contains all pieces.
func (w *testAPI) has(a answer, pieces ...string) {
	w.t.Helper()
	for _, p := range pieces {
		if !strings.Contains(a.body, p) {
			w.t.Errorf("the answer lacks %s: %s", p, a.body)
		}
	}
}
