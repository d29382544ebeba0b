package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/httpapi/client"
)

// A script answers requests in the process, one step each, and the last step to all others. It
// uses no sockets, so that the time of a bubble can pass.
type script struct {
	steps    []http.HandlerFunc
	requests []*http.Request
	at       []time.Duration // since the first
	began    time.Time
}

var errCut = errors.New("connection reset")

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.began.IsZero() {
		s.began = time.Now()
	}
	step := s.steps[min(len(s.requests), len(s.steps)-1)]
	s.requests, s.at = append(s.requests, r), append(s.at, time.Since(s.began))
	if step == nil {
		return nil, errCut
	}
	rec := httptest.NewRecorder()
	step(rec, r)
	res := rec.Result()
	res.Request = r
	return res, nil
}

// answer returns a step. headers are names and values.
func answer(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

func scripted(t *testing.T, o client.Options, steps ...http.HandlerFunc) (*client.Client, *script) {
	t.Helper()
	s := &script{steps: steps}
	o.URL, o.HTTP, o.Key = "http://podyard.test/prefix/", &http.Client{Transport: s}, "secret"
	c, err := client.New(&o)
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

const aJob = `{"id":"j","status":"IN_QUEUE"}`

func submit(c *client.Client) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.Jobs("e").Submit(ctx, client.JobRequest{})
		return err
	}
}

func getPod(c *client.Client) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.Pods.Get(ctx, "p")
		return err
	}
}

func createPod(c *client.Client) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.Pods.Create(ctx, client.PodSettings{})
		return err
	}
}

func TestRequestsAreRepeatedWhereThatChangesNothing(t *testing.T) {
	unavailable, refused := answer(503, ""), answer(429, "", "Retry-After", "1")
	full, fine := answer(429, ""), answer(200, aJob)
	for name, row := range map[string]struct {
		additions bool
		call      func(*client.Client) func(context.Context) error
		first     http.HandlerFunc
		want      int // requests
	}{
		"a GET after 503":                              {false, getPod, unavailable, 2},
		"a GET after a broken connection":              {false, getPod, nil, 2},
		"a GET after 502":                              {false, getPod, answer(502, ""), 2},
		"a GET after 504":                              {false, getPod, answer(504, ""), 2},
		"a GET after 500":                              {false, getPod, answer(500, ""), 1},
		"a GET after 404":                              {false, getPod, answer(404, ""), 1},
		"a submit without a key after 503":             {false, submit, unavailable, 1},
		"a submit without a key, broken":               {false, submit, nil, 1},
		"a submit without a key after 429":             {false, submit, refused, 2},
		"a submit with a key after 503":                {true, submit, unavailable, 2},
		"a submit with a key, broken":                  {true, submit, nil, 2},
		"a create without a key after 504":             {false, createPod, answer(504, ""), 1},
		"a create with a key after 504":                {true, createPod, answer(504, ""), 2},
		"a create of the hosted service after a 429":   {false, createPod, full, 2},
		"a create that an earlier attempt still makes": {true, createPod, answer(409, ""), 2},
		"a create without a key after 409":             {false, createPod, answer(409, ""), 1},
		"a create of podyard that nothing helps":       {true, createPod, full, 1},
		"a create of podyard that waiting helps":       {true, createPod, refused, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, client.Options{Additions: row.additions}, row.first, fine)
				err := row.call(c)(t.Context())
				if len(s.requests) != row.want || (err == nil) != (row.want == 2) {
					t.Errorf("%d requests and error %v, want %d requests", len(s.requests), err, row.want)
				}
			})
		})
	}
}

func TestRepetitionsHaveTheSameKeyAndOtherCallsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, client.Options{Additions: true}, answer(503, ""), nil, answer(200, aJob))
		for range 2 {
			if err := submit(c)(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		keys := make([]string, 0, 4)
		for _, r := range s.requests {
			keys = append(keys, r.Header.Get("Idempotency-Key"))
		}
		if len(keys) != 4 || keys[0] == "" || keys[1] != keys[0] || keys[2] != keys[0] || keys[3] == keys[0] || keys[3] == "" {
			t.Errorf("keys of three attempts and another call: %q", keys)
		}
	})
}

func TestKeyOfTheCallerIsSentAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, client.Options{}, nil, answer(200, aJob))
		if _, err := c.Jobs("e").Submit(t.Context(), client.JobRequest{IdempotencyKey: "order-7"}); err != nil {
			t.Fatal(err)
		}
		if got := s.requests[1].Header.Get("Idempotency-Key"); len(s.requests) != 2 || got != "order-7" {
			t.Errorf("%d requests with the key %q, want 2 with order-7", len(s.requests), got)
		}
	})
}

func TestRetryAfterIsRespectedInBothForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().UTC()
		date := answer(503, "", "Date", now.Format(http.TimeFormat), "Retry-After", now.Add(20*time.Second).Format(http.TimeFormat))
		c, s := scripted(t, client.Options{}, answer(429, "", "Retry-After", "7"), date, answer(200, "{}"))
		if err := getPod(c)(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]time.Duration{0, 7 * time.Second, 27 * time.Second}, s.at); diff != "" {
			t.Errorf("times of the attempts (-want +got):\n%s", diff)
		}
	})
}

func TestDelaysDoubleAndRepetitionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, client.Options{Retry: client.Retry{Max: time.Minute, First: time.Second, Longest: 10 * time.Second}}, answer(503, `{"title":"Service Unavailable","detail":"no store"}`))
		began := time.Now()
		err := getPod(c)(t.Context())
		var e *client.Error
		if !errors.As(err, &e) || e.Status != 503 || e.Detail != "no store" {
			t.Errorf("the error is %v, want the last answer", err)
		}
		if took := time.Since(began); took > time.Minute || took < 40*time.Second || len(s.at) < 6 || len(s.at) > 20 {
			t.Errorf("%d attempts in %v, want several within a minute", len(s.at), took)
		}
		for i := 2; i < len(s.at); i++ {
			if d := s.at[i] - s.at[i-1]; d > 15*time.Second {
				t.Errorf("a delay of %v, want at most 10 s and a half of it", d)
			}
		}
	})
}

func TestContextEndsRepetitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, client.Options{}, answer(429, "", "Retry-After", "60"))
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("the user has gone")
		time.AfterFunc(5*time.Second, func() { cancel(why) })
		began := time.Now()
		if err := getPod(c)(ctx); !errors.Is(err, why) || client.StatusOf(err) != 429 || time.Since(began) != 5*time.Second {
			t.Errorf("after %v: %v, want both errors at the end of the context", time.Since(began), err)
		}
		soon, cancelSoon := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancelSoon()
		began = time.Now()
		if err := getPod(c)(soon); client.StatusOf(err) != 429 || time.Since(began) != 0 || len(s.requests) != 2 {
			t.Errorf("after %v: %v, want no wait that is longer than the context", time.Since(began), err)
		}
	})
}

func TestWithoutRepetitionsThereIsOneAttempt(t *testing.T) {
	c, s := scripted(t, client.Options{Retry: client.Retry{Max: -1}}, nil)
	if err := getPod(c)(t.Context()); !errors.Is(err, errCut) || len(s.requests) != 1 {
		t.Errorf("%d requests and %v, want one", len(s.requests), err)
	}
}

func TestDeleteThatWasDoneByAnEarlierAttemptSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := scripted(t, client.Options{}, nil, answer(404, ""))
		if err := c.Pods.Terminate(t.Context(), "p"); err != nil {
			t.Errorf("Terminate = %v, want the lost answer to count", err)
		}
		c, _ = scripted(t, client.Options{}, answer(404, ""))
		if err := c.Pods.Terminate(t.Context(), "p"); client.StatusOf(err) != 404 {
			t.Errorf("Terminate of a pod that is not there = %v, want 404", err)
		}
	})
}

// A server that does not hold polls, as other servers than podyard may do, is asked once a
// second.
func TestPollsThatAreNotHeldAreMadeOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waiting, done := answer(200, `{"id":"j","status":"IN_PROGRESS"}`), answer(200, `{"id":"j","status":"COMPLETED"}`)
		c, s := scripted(t, client.Options{}, waiting, waiting, waiting, done)
		if _, err := c.Jobs("e").Wait(t.Context(), "j"); err != nil || s.at[3] != 3*time.Second {
			t.Errorf("polls at %v, %v", s.at, err)
		}
		empty, end := answer(200, `{"status":"IN_PROGRESS","stream":[]}`), answer(200, `{"status":"COMPLETED","stream":[]}`)
		c, s = scripted(t, client.Options{}, empty, answer(200, `{"status":"IN_PROGRESS","stream":[{"output":1}]}`), empty, end)
		for _, err := range c.Jobs("e").Stream(t.Context(), "j") {
			if err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff([]time.Duration{0, time.Second, time.Second, 2 * time.Second}, s.at); diff != "" {
			t.Errorf("times of reads (-want +got):\n%s", diff)
		}
	})
}

// An array without a header says nothing of the status, which is then asked for.
func TestStreamsWithoutAStatusEndToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, client.Options{}, answer(200, `[{"output":1}]`), answer(200, `[]`), answer(200, `{"id":"j","status":"COMPLETED"}`))
		n := 0
		for _, err := range c.Jobs("e").Stream(t.Context(), "j") {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != 1 || len(s.requests) != 3 {
			t.Errorf("%d chunks after %d requests, want one after three", n, len(s.requests))
		}
	})
}

func TestWaitGoesOnUntilTheJobHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(90 * time.Second)
			answer(200, `{"id":"j","status":"IN_PROGRESS"}`)(w, r)
		}
		c, s := scripted(t, client.Options{}, held, held, answer(503, ""), held, answer(200, `{"id":"j","status":"COMPLETED","output":{"n":1},"delayTime":5}`))
		type out struct{ N int }
		got, err := client.Run[struct{}, out](t.Context(), c.Jobs("e"), struct{}{})
		if err != nil || got.N != 1 || s.requests[0].URL.Path != "/prefix/v2/e/runsync" || s.requests[4].URL.Path != "/prefix/v2/e/status-sync/j" {
			t.Errorf("Run = %+v, %v", got, err)
		}
		c, _ = scripted(t, client.Options{}, answer(200, `{"id":"j","status":"FAILED","error":"out of memory"}`))
		_, err = client.Run[struct{}, out](t.Context(), c.Jobs("e"), struct{}{})
		var failed *client.JobError
		if !errors.As(err, &failed) || failed.Job.ID != "j" || err.Error() != "client: job j is FAILED: out of memory" {
			t.Errorf("Run of a job that fails = %v", err)
		}
	})
}
