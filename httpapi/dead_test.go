package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/serverless"
)

// keepDead has the endpoint idle keep dead letters for a week.
func keepDead(w *testAPI) {
	w.t.Helper()
	_, err := w.jobs.Endpoints().Update(w.t.Context(), "idle", func(e *serverless.Endpoint) error {
		q := e.QueueSettings()
		q.DeadLetter = 7 * 24 * time.Hour
		e.Queue = &q
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

const bobs = "Authorization: " + bobFree

func TestADeadLetterOutlivesItsJobAndIsRedrivenOnce(t *testing.T) {
	bubble(t, func(w *testAPI) {
		keepDead(w)
		h := w.hand("w1")
		id := w.want(http.StatusOK, "POST", "/v2/idle/run", `{"input":{"a":1},"s3Config":{"bucketName":"b"},"queue":{"priority":7,"key":"k"},"policy":{"ttl":60000}}`).field("id")
		h.take()
		advance(time.Second)
		h.report("job-done", id, `{"error":"no","output":{"x":1}}`)
		if a := w.want(http.StatusOK, "GET", "/v2/idle/dead", "", bobs); a.body != `{"dead":[]}` {
			t.Errorf("bob's dead letters are %s, want none", a.body)
		}
		advance(time.Hour)
		if a := w.call("GET", "/v2/idle/status/"+id, ""); a.status != http.StatusNotFound {
			t.Errorf("the job is %d after its ttl, want 404", a.status)
		}
		a := w.want(http.StatusOK, "GET", "/v2/idle/dead/"+id, "")
		job := `{"delayTime":0,"error":"no","executionTime":1000,"id":"` + id + `","input":{"a":1},"output":{"x":1},"status":"FAILED","workerId":"w1"}`
		if want := `"job":` + job; !strings.Contains(a.body, want) || !strings.Contains(a.body, `"failedAt":"2000-01-01T00:00:01.000Z","expiresAt":"2000-01-08T00:00:01.000Z"`) {
			t.Errorf("the dead letter is %s, want %s in it, and a week", a.body, want)
		}
		for _, req := range []string{"GET /v2/idle/dead/" + id, "POST /v2/idle/dead/" + id + "/redrive", "DELETE /v2/idle/dead/" + id} {
			method, path, _ := strings.Cut(req, " ")
			w.want(http.StatusNotFound, method, path, "", bobs)
		}
		again := w.want(http.StatusOK, "POST", "/v2/idle/dead/"+id+"/redrive", "")
		if again.field("id") == id || again.field("status") != "IN_QUEUE" {
			t.Errorf("redrive answers %s, want a new job that is IN_QUEUE", again.body)
		}
		got := w.call("GET", h.path("job-take"), "", h.key())
		if want := `{"id":"` + again.field("id") + `","input":{"a":1},"s3Config":{"bucketName":"b"}}`; got.body != want {
			t.Errorf("the worker gets %s, want %s", got.body, want)
		}
		w.want(http.StatusNotFound, "POST", "/v2/idle/dead/"+id+"/redrive", "")
	})
}

func TestAnOperatorSeesTheDeadLettersOfAll(t *testing.T) {
	bubble(t, func(w *testAPI) {
		keepDead(w)
		h := w.hand("w1")
		id := w.want(http.StatusOK, "POST", "/v2/idle/run", `{"input":{}}`).field("id")
		h.take()
		h.report("job-done", id, `{"error":"no"}`)
		operator := "Authorization: " + operatorFree
		if a := w.want(http.StatusOK, "GET", "/v2/idle/dead", "", operator); a.body != `{"dead":[]}` {
			t.Errorf("the operator's own dead letters are %s, want none", a.body)
		}
		a := w.want(http.StatusOK, "GET", "/v2/idle/dead?owner=*", "", operator)
		if !strings.Contains(a.body, `{"dead":[{"owner":"alice","item":{"failedAt":`) {
			t.Errorf("all dead letters are %s, want that of alice, with her name", a.body)
		}
		a = w.want(http.StatusOK, "DELETE", "/v2/idle/dead/"+id, "", operator)
		if a.body != `{"id":"`+id+`"}` || a.header.Get("Podyard-Owner") != "alice" {
			t.Errorf("DELETE = %s of %q, want the id, of alice", a.body, a.header.Get("Podyard-Owner"))
		}
		w.want(http.StatusNotFound, "GET", "/v2/idle/dead/"+id, "")
	})
}

func TestTheAttemptsOfAJobAreListed(t *testing.T) {
	bubble(t, func(w *testAPI) {
		h := w.hand("w1")
		id := w.want(http.StatusOK, "POST", "/v2/idle/run", `{"input":{},`+policy+`}`).field("id")
		leases := `"leases":[],"leaseCount":0,"firstChunkAt":null`
		check := func(want string) {
			t.Helper()
			if a := w.want(http.StatusOK, "GET", "/v2/idle/attempts/"+id, ""); a.body != `{"attempts":[`+want+`],`+leases+`}` {
				t.Errorf("attempts are %s\nwant %s", a.body, want)
			}
		}
		check("")
		h.take()
		check(`{"number":1,"status":"IN_PROGRESS","error":null,"worker":"w1","startedAt":"2000-01-01T00:00:00.000Z","completedAt":null,"delay":null}`)
		advance(time.Second)
		h.report("job-done", id, `{"error":"first"}`)
		first := `{"number":1,"status":"FAILED","error":"first","worker":"w1","startedAt":"2000-01-01T00:00:00.000Z","completedAt":"2000-01-01T00:00:01.000Z","delay":60000}`
		const lease = `"leases":[{"run":0,"attempt":1,"worker":"w1","startedAt":"2000-01-01T00:00:00.000Z","firstChunkAt":null,"endedAt":"2000-01-01T00:00:01.000Z","end":"failed","readyAt":"2000-01-01T00:01:01.000Z"}],"leaseCount":1,`
		leases = lease + `"firstChunkAt":null`
		check(first)
		advance(time.Minute)
		h.take()
		h.report("job-stream", id, `{"output":0}`)
		leases = lease + `"firstChunkAt":"2000-01-01T00:01:01.000Z"`
		h.report("job-done", id, `{"output":1}`)
		check(first + `,{"number":2,"status":"COMPLETED","error":null,"worker":"w1","startedAt":"2000-01-01T00:01:01.000Z","completedAt":"2000-01-01T00:01:01.000Z","delay":null}`)
	})
}

func TestTheSettingOfAnEndpointsQueueKeepsDeadLetters(t *testing.T) {
	bubble(t, func(w *testAPI) {
		w.want(http.StatusOK, "PATCH", "/v2/serverless/idle/queue", `{"deadLetter":60000,"retry":{"attempts":2,"delay":1000,"jitter":0}}`, "Authorization: Bearer "+operatorFree)
		h := w.hand("w1")
		id := w.want(http.StatusOK, "POST", "/v2/idle/run", `{"input":{}}`).field("id")
		for range 2 { // as the endpoint's policy says
			if got := h.take(); got != id {
				t.Fatalf("job-take gives %q, want %q", got, id)
			}
			h.report("job-done", id, `{"error":"no"}`)
		}
		one := w.want(http.StatusOK, "GET", "/v2/idle/dead/"+id, "").member(t, "job", "error")
		listed := w.want(http.StatusOK, "GET", "/v2/idle/dead", "").member(t, "dead").([]any)[0].(map[string]any)["job"].(map[string]any)
		if listed["error"] != one || one != "no" || listed["input"] != nil {
			t.Errorf("the dead letter is %v in the list, and its error by id is %v", listed, one)
		}
		advance(time.Minute)
		w.want(http.StatusNotFound, "GET", "/v2/idle/dead/"+id, "")
	})
}
