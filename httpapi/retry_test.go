package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

const policy = `"queue":{"retry":{"attempts":2,"delay":60000,"jitter":0}}`

func TestAWorkerSaysThatNoOtherAttemptWouldHelp(t *testing.T) {
	for body, again := range map[string]bool{
		`{"error":"no"}`:                                true,
		`{"error":"no","output":{"retry":true}}`:        true,
		`{"error":"no","output":{"retry":false,"x":1}}`: false,
		`{"error":"no","output":[{"retry":false}]}`:     true,
		`{"error":"no","retry":false}`:                  false,
		`{"error":"no","retry":0}`:                      true,
	} {
		bubble(t, func(w *testAPI) {
			h := w.hand("w1")
			id := w.want(http.StatusOK, "POST", "/v2/idle/run", `{"input":{},`+policy+`}`).field("id")
			h.take()
			if a := h.report("job-done", id, body); a.body != accepted {
				t.Fatalf("job-done answers %s, want %s", a.body, accepted)
			}
			want := map[bool]string{true: "IN_QUEUE", false: "FAILED"}[again]
			if a := w.statusOf(id); a.field("status") != want {
				t.Errorf("after %s the job is %s, want %s", body, a.body, want)
			}
		})
	}
}

func TestBetweenAttemptsAJobIsInQueueAndHealthCountsItsEndOnce(t *testing.T) {
	bubble(t, func(w *testAPI) {
		h := w.hand("w1")
		id := w.want(http.StatusOK, "POST", "/v2/idle/run", `{"input":{},`+policy+`}`).field("id")
		h.take()
		advance(time.Second)
		h.report("job-done", id, `{"error":"first"}`)
		if a := w.statusOf(id); a.body != `{"id":"`+id+`","status":"IN_QUEUE"}` {
			t.Errorf("between its attempts the job is %s, want IN_QUEUE and nothing of the failure", a.body)
		}
		advance(59 * time.Second)
		if got := w.call("GET", "/v2/idle/health", ""); !strings.Contains(got.body, `"failed":0`) || !strings.Contains(got.body, `"retried":1`) {
			t.Errorf("health = %s, want failed 0, retried 1", got.body)
		}
		advance(time.Second)
		if got := h.take(); got != id {
			t.Fatalf("job-take gives %q, want %q at the end of the delay", got, id)
		}
		advance(2 * time.Second)
		h.report("job-done", id, `{"error":"second"}`)
		want := `{"delayTime":0,"error":"second","executionTime":2000,"id":"` + id + `","status":"FAILED","workerId":"w1"}`
		if a := w.statusOf(id); a.body != want {
			t.Errorf("at its end the job is %s, want %s", a.body, want)
		}
		if got := w.call("GET", "/v2/idle/health", ""); !strings.Contains(got.body, `"failed":1`) || !strings.Contains(got.body, `"retried":1`) {
			t.Errorf("health = %s, want failed 1, retried 1", got.body)
		}
	})
}

func TestAJobStartsAfterAnInstant(t *testing.T) {
	bubble(t, func(w *testAPI) {
		h := w.hand("w1")
		at := time.Now().Add(10 * time.Second).UTC().Format(time.RFC3339)
		id := w.want(http.StatusOK, "POST", "/v2/idle/run", `{"input":{},"queue":{"startAfter":"`+at+`"}}`).field("id")
		begin := time.Now()
		if got := h.take(); got != id || time.Since(begin) != 10*time.Second {
			t.Errorf("job-take gives %q after %v, want the job after 10s", got, time.Since(begin))
		}
	})
}
