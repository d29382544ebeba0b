package httpapi_test

import "testing"

// The answer to a submit of a taken key is the job that is there, with a header that says so.
func TestASubmitOfATakenKeyAnswersWithTheJobThatIsThere(t *testing.T) {
	bubble(t, func(w *testAPI) {
		const active = `{"input":{"n":1},"queue":{"unique":{"key":"k","while":"active"}}}`
		first := w.want(200, "POST", "/v2/idle/run", active)
		again := w.want(200, "POST", "/v2/idle/run", active)
		waited := w.want(200, "POST", "/v2/idle/runsync?wait=1000", active)
		for name, a := range map[string]answer{"run": again, "runsync": waited} {
			if a.field("id") != first.field("id") || a.header.Get("Podyard-Existing") != "true" {
				t.Errorf("%s again = %s with Podyard-Existing %q, want job %s", name, a.body, a.header.Get("Podyard-Existing"), first.field("id"))
			}
		}
		if h := first.header.Get("Podyard-Existing"); h != "" {
			t.Errorf("the first submit has Podyard-Existing %q, want none", h)
		}
		other := w.want(200, "POST", "/v2/idle/run", active, as(bobFree))
		if other.field("id") == first.field("id") || other.header.Get("Podyard-Existing") != "" {
			t.Errorf("another user got %s, want a job of their own", other.body)
		}
		w.want(200, "POST", "/v2/idle/cancel/"+first.field("id"), "")
		if fresh := w.want(200, "POST", "/v2/idle/run", active); fresh.field("id") == first.field("id") {
			t.Error("a submit after the end got the job that has ended")
		}
	})
}

func TestReplaceGivesAQueuedJobTheNewestInput(t *testing.T) {
	bubble(t, func(w *testAPI) {
		const latest = `"queue":{"unique":{"key":"k","while":"queued","onConflict":"replace"}}}`
		first := w.want(200, "POST", "/v2/idle/run", `{"input":{"n":1},`+latest)
		again := w.want(200, "POST", "/v2/idle/run", `{"input":{"n":2},`+latest)
		if again.field("id") != first.field("id") || again.header.Get("Podyard-Existing") != "true" || again.field("status") != "IN_QUEUE" {
			t.Errorf("the second submit = %s, want job %s in the queue", again.body, first.field("id"))
		}
		list := w.want(200, "GET", "/v2/idle/requests?input=true", "").body
		t.Log(list)
	})
}
