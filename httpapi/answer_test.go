package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
)

// What a handler beside the interface holds counts for its user until it is given back, and waits for
// room as answers of the interface do.
func TestAnAnswerBesideTheInterfaceCountsForItsUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := budget.NewInFlight(budget.NewSet(budget.Users{Limits: budget.Limits{ResponseBytes: 1 << 20}}), budget.Totals{}, time.Now)
		used := func() int64 { of, _, _ := f.Responses.InUse("alice"); return of }
		alice := httpapi.Identity{User: "alice"}
		first, second := httpapi.NewAnswer(httptest.NewRecorder(), f, alice), httpapi.NewAnswer(httptest.NewRecorder(), f, alice)
		if err := first.Room(t.Context(), 1<<20); err != nil || used() != 1<<20 {
			t.Errorf("room for 1 MB = %v, and %d bytes count", err, used())
		}
		if err := second.Room(t.Context(), 64<<10); err != nil {
			t.Errorf("room for a small answer = %v", err)
		}
		began := time.Now()
		err := second.Room(t.Context(), 64<<10+1)
		if problem.KindOf(err) != problem.TooManyRequests || second.Err() != err || time.Since(began) != 30*time.Second {
			t.Errorf("without room: %v after %v, and Err is %v", err, time.Since(began), second.Err())
		}
		_, _ = first.Write([]byte("x")) // a recorder takes everything
		if err := http.NewResponseController(first).Flush(); err != nil || used() != 0 {
			t.Errorf("after a flush (%v) %d bytes count", err, used())
		}
		_, _ = second.Write([]byte(strings.Repeat("x", 100_000))) // what is written without room counts anyway
		if used() != 100_000 {
			t.Errorf("a write of 100,000 bytes counts %d", used())
		}
		second.Release()
		for _, id := range []httpapi.Identity{{}, {User: "alice", Exempt: true}} {
			free := httpapi.NewAnswer(httptest.NewRecorder(), f, id)
			if err := free.Room(t.Context(), 1<<30); err != nil || used() != 0 {
				t.Errorf("room for %+v = %v, and %d bytes count", id, err, used())
			}
		}
	})
}

// Two heavy answers of a user are made at once. The requests to the interface that are part of one need
// no turn of their own, or two answers would wait for one another.
func TestAnAnswerAndItsPartsTakeOneTurn(t *testing.T) {
	bubbleWith(t, limitedTo(budget.Limits{}, budget.Totals{}), func(w *testAPI) {
		var answers []*httpapi.Answer
		for range 2 {
			a := httpapi.NewAnswer(httptest.NewRecorder(), w.options.InFlight, httpapi.Identity{User: "alice"})
			if err := a.Turn(w.t.Context()); err != nil {
				w.t.Fatal(err)
			}
			answers = append(answers, a)
		}
		began := time.Now()
		r := httptest.NewRequestWithContext(answers[0].Within(w.t.Context()), http.MethodGet, "/v2/echo/requests", http.NoBody)
		r.Header.Set("Authorization", "Bearer "+aliceKey)
		part := httptest.NewRecorder()
		w.handler.ServeHTTP(part, r)
		if part.Code != http.StatusOK || time.Since(began) > time.Second {
			w.t.Errorf("a part = %d after %v", part.Code, time.Since(began))
		}
		third := httpapi.NewAnswer(httptest.NewRecorder(), w.options.InFlight, httpapi.Identity{User: "alice"})
		if err := third.Turn(w.t.Context()); problem.KindOf(err) != problem.TooManyRequests {
			w.t.Errorf("a third turn = %v, want 429 after 30 s", err)
		}
		answers[0].Release()
		if err := third.Turn(w.t.Context()); err != nil {
			w.t.Errorf("a third turn after one was given back = %v", err)
		}
	})
}

// HEAD of a job has no body, so its output is not read.
func TestHEADOfAJobDoesNotReadItsOutput(t *testing.T) {
	bubbleWith(t, limitedTo(budget.Limits{ResponseBytes: 1 << 20}, budget.Totals{}), func(w *testAPI) {
		job := w.call("POST", "/v2/echo/runsync", `{"input":{"do":"echo","pad":"`+strings.Repeat("x", 100_000)+`"}}`, "Authorization: Bearer "+aliceFree).field("id")
		full := w.options.InFlight.Responses.Hold("alice")
		full.Force(1 << 20)
		w.want(200, "HEAD", "/v2/echo/status/"+job, "", "Authorization: Bearer "+aliceKey)
		w.want(404, "HEAD", "/v2/echo/status/none", "", "Authorization: Bearer "+aliceKey)
		w.want(429, "GET", "/v2/echo/status/"+job, "", "Authorization: Bearer "+aliceKey)
		full.Release()
	})
}
