package httpapi_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/problem"
)

// A requestObserver writes a line for each event.
type requestObserver struct {
	mu     sync.Mutex
	lines  []string
	active int
}

func (o *requestObserver) add(line string, active int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.active += active
	if line != "" {
		o.lines = append(o.lines, line)
	}
}

func (o *requestObserver) RequestBegan(string) { o.add("", 1) }
func (o *requestObserver) RequestEnded(area, operation string, status int, _ time.Duration, parent string) {
	o.add(strings.TrimSpace(fmt.Sprint(area, " ", operation, " ", status, " ", parent)), -1)
}
func (o *requestObserver) RequestLimited(limit string) { o.add("limited: "+limit, 0) }
func (o *requestObserver) KeyRefused(reason string)    { o.add("key: "+reason, 0) }

func TestAnObserverSeesEachRequestWithItsOperation(t *testing.T) {
	o := &requestObserver{}
	bubbleWith(t, func(opts *httpapi.Options) { opts.Observer = o }, func(w *testAPI) {
		w.want(http.StatusOK, "POST", "/v2/idle/run", `{"input":{}}`, "Traceparent: "+traceparent)
		w.call("GET", "/v2/pods/nothere", "", as(aliceFree))
		w.call("GET", "/v2/nowhere/at/all", "", as(aliceFree))
		w.call("GET", "/v2/pods", "", "Authorization:")
		w.call("GET", "/v2/pods", "", "Authorization: Basic a")
		w.call("GET", "/v2/pods", "", "Authorization: Bearer wrong")
		w.call("GET", "/v2/admin/state", "", as(aliceFree))
		want := []string{
			"jobs run 200 " + traceparent, "pods getPod 404", "none none 404", "key: missing", "pods listPods 401",
			"key: malformed", "pods listPods 401", "key: invalid", "pods listPods 401", "key: forbidden", "admin adminState 403",
		}
		if !slices.Equal(o.lines, want) || o.active != 0 {
			t.Errorf("events:\n%s\nwant:\n%s\n%d requests are active", strings.Join(o.lines, "\n"), strings.Join(want, "\n"), o.active)
		}
	})
}

// An accessLog is what a request has written.
type accessLog struct {
	ID, Level, Path, Operation, Endpoint, Record, User, From string
	Status, Bytes                                            int
}

func TestTheAccessLogHasALineForEachRequestAndNoSecrets(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	bubbleWith(t, func(opts *httpapi.Options) { opts.Access, opts.Logger = true, log }, func(w *testAPI) {
		for _, row := range []struct {
			method, path, body string
			headers            []string
			want               accessLog
		}{
			{"POST", "/v2/idle/run?token=hunter2", `{"input":{"secret":"hunter2"}}`, []string{as(aliceFree), "X-Request-Id: mine-1"}, accessLog{"mine-1", "INFO", "/v2/idle/run", "run", "idle", "made", "alice", "192.0.2.7", 200, 1}},
			{"GET", "/v2/idle/health", "", []string{as(aliceFree), `X-Request-Id: a" hunter2`}, accessLog{"", "DEBUG", "/v2/idle/health", "health", "idle", "", "alice", "192.0.2.7", 200, 1}},
			{"GET", "/v2/pods/nothere", "", []string{"Authorization: Bearer hunter2", "X-Request-Id: " + strings.Repeat("x", 129)}, accessLog{"", "INFO", "/v2/pods/nothere", "getPod", "", "nothere", "", "192.0.2.7", 401, 1}},
			{"GET", "/v2/idle/nothing/here?key=hunter2", "", nil, accessLog{"", "INFO", "/v2/idle/nothing/here", "none", "", "", "", "192.0.2.7", 404, 1}},
			{"GET", "/v2/serverless/idle/workers", "", []string{as(aliceFree)}, accessLog{"", "INFO", "/v2/serverless/idle/workers", "listEndpointWorkers", "idle", "idle", "alice", "192.0.2.7", 403, 1}},
			{"GET", "/v2/" + strings.Repeat("x", 300), "", nil, accessLog{"", "INFO", "/v2/" + strings.Repeat("x", 196) + "...", "none", "", "", "", "192.0.2.7", 404, 1}},
		} {
			text.Reset()
			a := w.call(row.method, row.path, row.body, row.headers...)
			var got accessLog
			if err := json.Unmarshal(text.Bytes(), &got); err != nil || strings.Count(text.String(), "\n") != 1 {
				t.Fatalf("%s %s: %v, the log is %q", row.method, row.path, err, text.String())
			}
			if id := a.header.Get("X-Request-Id"); id != got.ID || id == "" || row.want.ID != "" && id != row.want.ID {
				t.Errorf("%s %s: the answer has the request id %q, the log %q, want %q", row.method, row.path, id, got.ID, row.want.ID)
			}
			if got.Bytes != len(a.body) {
				t.Errorf("%s %s: %d bytes, want %d", row.method, row.path, got.Bytes, len(a.body))
			}
			if row.want.Record == "made" {
				row.want.Record = a.field("id")
			}
			got.ID, got.Bytes = row.want.ID, row.want.Bytes
			if got != row.want {
				t.Errorf("%s %s: %+v, want %+v", row.method, row.path, got, row.want)
			}
			if strings.Contains(text.String(), "hunter2") {
				t.Errorf("%s %s: a secret is in the log: %s", row.method, row.path, text.String())
			}
		}
	})
}

// A leavingAuth has the client go away while its key is looked up.
type leavingAuth struct {
	leave func()
	fault error // nil: the look ends because the client has left
}

func (a leavingAuth) Authenticate(ctx context.Context, _ string) (httpapi.Identity, error) {
	a.leave()
	return httpapi.Identity{}, fmt.Errorf("look up a key: %w", cmp.Or(a.fault, ctx.Err()))
}

func TestOnlyWhatFailsBecauseTheClientWentAwayIsNoFaultOfTheServer(t *testing.T) {
	for name, c := range map[string]struct {
		fault  error
		want   string
		status string
		logged bool
	}{
		"the client went away":    {nil, "pods listPods 499", `"status":499`, false},
		"the store failed, too":   {errors.New("broken"), "pods listPods 500", `"status":500`, true},
		"the store was not there": {problem.Newf(problem.Unavailable, "away: %w", context.Canceled), "pods listPods 499", `"status":499`, false},
	} {
		t.Run(name, func(t *testing.T) {
			var text bytes.Buffer
			o := &requestObserver{}
			ctx, leave := context.WithCancel(t.Context())
			bubbleWith(t, func(opts *httpapi.Options) {
				opts.Observer, opts.Access, opts.Logger = o, true, slog.New(slog.NewJSONHandler(&text, nil))
				opts.Auth = leavingAuth{leave, c.fault}
			}, func(w *testAPI) {
				r := httptest.NewRequestWithContext(ctx, "GET", "/v2/pods", nil)
				r.Header.Set("Authorization", "Bearer x")
				w.handler.ServeHTTP(httptest.NewRecorder(), r)
				if want := []string{c.want}; !slices.Equal(o.lines, want) {
					t.Errorf("events %q, want %q", o.lines, want)
				}
				if log := text.String(); !strings.Contains(log, c.status) || strings.Contains(log, "ERROR") != c.logged {
					t.Errorf("the log is %s, want %s, and an error: %t", log, c.status, c.logged)
				}
			})
		})
	}
}

func TestWithoutAnAccessLogAnswersHaveNoRequestID(t *testing.T) {
	bubble(t, func(w *testAPI) {
		if a := w.want(http.StatusOK, "GET", "/v2/pods", "", "X-Request-Id: mine"); a.header.Get("X-Request-Id") != "" {
			t.Errorf("the answer has the header %q", a.header.Get("X-Request-Id"))
		}
	})
}

func TestWhatIsForOperatorsIsRefusedToOthers(t *testing.T) {
	bubble(t, func(w *testAPI) {
		w.handler = httpapi.ForOperators(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("inside")) }), &w.options)
		for header, want := range map[string]int{as(operatorFree): 200, as(adminFree): 403, as(aliceFree): 403, "Authorization: Bearer wrong": 401, "Authorization:": 401} {
			if a := w.call("GET", "/metrics", "", header); a.status != want || (a.body == "inside") != (want == 200) {
				t.Errorf("with %s: %d %s, want %d", header, a.status, a.body, want)
			}
		}
	})
}
