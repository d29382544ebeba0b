package server_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/serverless"
)

// shout is a worker.
func shout(_ context.Context, t *serverless.Task) ([]byte, error) { return bytes.ToUpper(t.Input), nil }

// jobsOnly are stores for jobs alone.
func jobsOnly() server.Stores {
	return server.Stores{Endpoints: memory.NewEndpoints(), Jobs: memory.NewJobs()}
}

// ask makes a request without a network.
func ask(t *testing.T, h http.Handler, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	w, req := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer "+testKey)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	h.ServeHTTP(w, req)
	return w
}

func TestAServiceWithoutAStoreIsNotFoundAndTheOthersWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := server.New(t.Context(), &server.Options{Stores: jobsOnly(), Workers: shouter, Keys: []httpapi.Key{{Secret: testKey, User: "ann", Scopes: []string{"*"}}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		ended := later(func() error { return s.Run(ctx) })
		h := s.Handler()
		if w := ask(t, h, "POST", "/v2/shout/runsync", `{"input":{"a":"b"}}`); !strings.Contains(w.Body.String(), `{"A":"B"}`) {
			t.Errorf("runsync answers %d %s, want what the worker made", w.Code, w.Body)
		}
		for _, path := range []string{"/v2/pods", "/v2/registries", "/v2/templates", "/v2/network-volumes", "/v2/account/ssh-keys", "/v2/catalog/cpus"} {
			if w := ask(t, h, "GET", path, ""); w.Code != http.StatusNotFound {
				t.Errorf("GET %s = %d %s, want 404", path, w.Code, w.Body)
			}
		}
		end()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if w := ask(t, h, "GET", "/v2/shout/health", ""); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("after the end: %d with Retry-After %q, want 503 and when to try again", w.Code, w.Header().Get("Retry-After"))
		}
	})
}

func TestNobodyIsLetInWithoutAnAuthenticator(t *testing.T) {
	t.Parallel()
	s, err := server.New(t.Context(), &server.Options{Stores: memoryStores(t), Catalog: catalog.Local(2, 2)})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/v2/pods": 401, "/v2/echo/health": 401, "/healthz": 200, "/readyz": 200} {
		if w := ask(t, s.Handler(), "GET", path, ""); w.Code != want {
			t.Errorf("GET %s = %d, want %d", path, w.Code, want)
		}
	}
}

func TestTheAreasShareTheirQuotas(t *testing.T) {
	t.Parallel()
	s, err := server.New(t.Context(), &server.Options{Stores: memoryStores(t), Catalog: catalog.Local(2, 2), API: httpapi.Options{
		Auth: keys(t), Quotas: ratelimit.NewWindows(ratelimit.Quotas{Minute: 2}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range []http.Handler{s.Handler(), s.Control(), s.Control()} {
		if w, want := ask(t, h, "GET", "/v2/pods", ""), []int{200, 200, 429}[i]; w.Code != want {
			t.Errorf("request %d = %d, want %d", i+1, w.Code, want)
		}
	}
}

func TestAServerRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := server.New(t.Context(), &server.Options{Stores: jobsOnly()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		ended := later(func() error { return s.Run(ctx) })
		synctest.Wait()
		l := &trackedListener{}
		if err := s.Run(ctx, server.On(l, nil)); err == nil || !l.closed {
			t.Errorf("a second Run = %v with its listener closed: %v, want an error and true", err, l.closed)
		}
		end()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
}

func TestAServerIsNotReadyWhileItsStoresRefuseWork(t *testing.T) {
	t.Parallel()
	stores := jobsOnly()
	full := problem.New(problem.Unavailable, "the store is short of disk space")
	var refused error
	stores.Ready = func() error { return refused }
	s, err := server.New(t.Context(), &server.Options{Stores: stores})
	if err != nil {
		t.Fatal(err)
	}
	probe := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
		return w
	}
	for _, refused = range []error{nil, full, nil} {
		want := 200
		if refused != nil {
			want = 503
		}
		w := probe("/readyz")
		if w.Code != want || (w.Header().Get("Retry-After") != "") != (want == 503) {
			t.Errorf("with %v /readyz = %d, Retry-After %q, want %d", refused, w.Code, w.Header().Get("Retry-After"), want)
		}
		if w := probe("/healthz"); w.Code != 200 {
			t.Errorf("with %v /healthz = %d, want 200", refused, w.Code)
		}
	}
}

func TestBeforeTheEndAServerIsNotReadyAndDoesAllElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := server.New(t.Context(), &server.Options{
			Stores: jobsOnly(), Workers: shouter, DrainWait: time.Minute,
			Keys: []httpapi.Key{{Secret: testKey, User: "ann", Scopes: []string{"*"}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ask := func(method, path, body string) int {
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
			r.Header.Set("Authorization", "Bearer "+testKey)
			s.Handler().ServeHTTP(w, r)
			return w.Code
		}
		ctx, end := context.WithCancel(t.Context())
		ended := later(func() error { return s.Run(ctx) })
		synctest.Wait()
		end()
		time.Sleep(59 * time.Second)
		synctest.Wait()
		for path, want := range map[string]int{"GET /readyz": 503, "GET /healthz": 200, "POST /v2/shout/runsync": 200} {
			method, path, _ := strings.Cut(path, " ")
			if got := ask(method, path, `{"input":{}}`); got != want {
				t.Errorf("a second before the end %s = %d, want %d", path, got, want)
			}
		}
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if got := ask("POST", "/v2/shout/run", `{"input":{}}`); got != 503 {
			t.Errorf("after the end run = %d, want 503", got)
		}
	})
}

// A trackedListener records whether it was closed.
type trackedListener struct {
	net.Listener
	closed bool
}

func (l *trackedListener) Close() error { l.closed = true; return nil }

// shouter is the endpoint shout.
var shouter = []server.Worker{{Endpoint: "shout", Worker: serverless.WorkerFunc(shout)}}

func TestWhatIsWrongWithTheOptionsIsSaidByNew(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]*server.Options{
		"no stores for jobs": {Workers: shouter},
		"reserved":           {Stores: jobsOnly(), Workers: []server.Worker{{Endpoint: "pods", Worker: serverless.WorkerFunc(shout)}}},
		"\"shout\" is nil":   {Stores: jobsOnly(), Workers: []server.Worker{{Endpoint: "shout"}}},
		"unknown scope":      {Keys: []httpapi.Key{{Secret: "k", User: "u", Scopes: []string{"all"}}}},
		"host":               {Stores: memoryStores(t), Catalog: catalog.Local(2, 2), Hosts: []pods.Host{{ID: "none"}}},
	} {
		if s, err := server.New(t.Context(), o); s != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v, %v, want an error with %q", s, err, want)
		}
	}
}

func TestAWorkerOfAUsersEndpointIsRefused(t *testing.T) {
	t.Parallel()
	stores := jobsOnly()
	if err := stores.Endpoints.Create(t.Context(), &serverless.Endpoint{ID: "shout", Owner: "ann"}); err != nil {
		t.Fatal(err)
	}
	if _, err := server.New(t.Context(), &server.Options{Stores: stores, Workers: shouter}); !errors.Is(err, serverless.ErrEndpointExists) {
		t.Errorf("New = %v, want that the endpoint is a user's", err)
	}
}

// A closing is a runtime or store that records when it was closed.
type closing struct {
	*memory.Runtime
	name string
	list *[]string
	err  error
}

func (c closing) Close(context.Context) error { *c.list = append(*c.list, c.name); return c.err }

func TestRuntimesAreClosedInTheirOrderThenStores(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context, s *server.Server) error{
		"Run": func(ctx context.Context, s *server.Server) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return s.Run(ctx)
		},
		"Close": func(ctx context.Context, s *server.Server) error { return s.Close(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var list []string
				bad, worse := errors.New("bad"), errors.New("worse")
				stores := memoryStores(t)
				stores.Close = func() error { list = append(list, "stores"); return worse }
				first := closing{memory.NewRuntime(nil), "first", &list, bad}
				second := closing{memory.NewRuntime(nil), "second", &list, nil}
				s, err := server.New(t.Context(), &server.Options{Stores: stores, Catalog: catalog.Local(2, 2), Runtimes: []server.Closer{first, second}})
				if err != nil {
					t.Fatal(err)
				}
				if err := end(t.Context(), s); !errors.Is(err, bad) || !errors.Is(err, worse) {
					t.Errorf("%s = %v, want the errors of the runtime and of the stores", name, err)
				}
				if err := s.Close(t.Context()); err != nil {
					t.Errorf("a Close after it = %v, want nil", err)
				}
				if want := []string{"first", "second", "stores"}; !slices.Equal(list, want) {
					t.Errorf("closed were %v, want %v", list, want)
				}
			})
		})
	}
}

func TestWhatFailsEndsTheServerInOrder(t *testing.T) {
	t.Parallel()
	closed := false
	stores := jobsOnly()
	stores.Close = func() error { closed = true; return nil }
	log := &record{}
	s, err := server.New(t.Context(), &server.Options{Stores: stores, Logger: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, "127.0.0.1:0")
	ended := later(func() error { return s.Run(t.Context(), server.On(l, s.Handler())) })
	l.Close()
	if err := within(t, "the end", ended); !errors.Is(err, net.ErrClosed) || !closed {
		t.Errorf("Run = %v with the stores closed: %v, want the listener's error and true", err, closed)
	}
}

func TestAServiceThatEndsEndsTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("the disk is gone")
		stores := jobsOnly()
		stores.Run = func(context.Context) error { return lost }
		s, err := server.New(t.Context(), &server.Options{Stores: stores})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Run(t.Context()); !errors.Is(err, lost) {
			t.Errorf("Run = %v, want what ended the stores", err)
		}
	})
}

func TestAWorkerThatAsksAtTheEndGetsNoJobAndNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &record{}
		s, err := server.New(t.Context(), &server.Options{Stores: jobsOnly(), API: httpapi.Options{Auth: keys(t)}, Logger: log.logger(), Workers: sleeper})
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		ended := later(func() error { return s.Run(ctx) })
		h, c := s.Handler(), t.Context()
		take := func() int {
			req := httptest.NewRequestWithContext(c, "GET", "/v2/sleep/job-take/elsewhere", nil)
			req.Header.Set("Authorization", "Bearer "+testKey)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req)
			return w.Code
		}
		running := later(func() string { return ask(t, h, "POST", "/v2/sleep/runsync", `{"input":{"ms":3000}}`).Body.String() })
		synctest.Wait()
		before := later(take)
		synctest.Wait()
		began := time.Now()
		end()
		synctest.Wait()
		if code := <-before; code != http.StatusNoContent || time.Since(began) > 0 {
			t.Errorf("a worker that asked before the end gets %d after %v, want 204 at once", code, time.Since(began))
		}
		after := later(take)
		if got := <-running; !strings.Contains(got, "COMPLETED") {
			t.Errorf("the job in progress ends as %s, want COMPLETED", got)
		}
		if code := <-after; code != http.StatusNoContent || time.Since(began) < 3*time.Second {
			t.Errorf("a worker that asks during the end gets %d after %v, want 204 once the jobs have ended", code, time.Since(began))
		}
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if code := take(); code != http.StatusNoContent {
			t.Errorf("a worker that asks after the end gets %d, want 204", code)
		}
		log.wantNoTrouble(t)
	})
}

func TestAJobTooLongForTheEndGoesBackToTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := jobsOnly()
		s, err := server.New(t.Context(), &server.Options{Stores: stores, API: httpapi.Options{Auth: keys(t)}, Drain: 3 * time.Second, Workers: sleeper})
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		ended := later(func() error { return s.Run(ctx) })
		h := s.Handler()
		held := later(func() string { return ask(t, h, "POST", "/v2/sleep/runsync", `{"input":{"ms":60000}}`).Body.String() })
		synctest.Wait()
		began := time.Now()
		end()
		if got := <-held; !strings.Contains(got, `"status":"IN_QUEUE"`) {
			t.Errorf("the caller is answered with %s, want the job IN_QUEUE again", got)
		}
		if err := <-ended; err != nil || time.Since(began) > 4*time.Second {
			t.Errorf("Run = %v after %v, want nil within a second after Drain", err, time.Since(began))
		}
	})
}

func TestAnUnusedConnectionDoesNotHoldUpTheEnd(t *testing.T) {
	t.Parallel()
	log := &record{}
	s, err := server.New(t.Context(), &server.Options{Stores: jobsOnly(), Logger: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, "127.0.0.1:0")
	ctx, end := context.WithCancel(t.Context())
	ended := later(func() error { return s.Run(ctx, server.On(l, s.Handler())) })
	client{t, "http://" + l.Addr().String()}.do("GET", "/healthz", "", http.StatusOK)
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	began := time.Now()
	end()
	if err := within(t, "the end", ended); err != nil || time.Since(began) > 4*time.Second { // net/http waits for 5 s
		t.Errorf("Run = %v after %v, want nil at once", err, time.Since(began))
	}
	log.wantNoTrouble(t)
}

func TestAHandlerThatDoesNotEndIsCutOffAndToldOf(t *testing.T) {
	t.Parallel()
	log := &record{}
	s, err := server.New(t.Context(), &server.Options{Stores: jobsOnly(), Logger: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, "127.0.0.1:0")
	came, forever := make(chan bool), make(chan bool)
	defer close(forever)
	stuck := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(came); <-forever })
	ctx, end := context.WithCancel(t.Context())
	ended := later(func() error { return s.Run(ctx, server.On(l, stuck)) })
	c := client{t, "http://" + l.Addr().String()}
	answer := later(func() error { _, _, err := c.send(context.WithoutCancel(t.Context()), "GET", "/", ""); return err })
	within(t, "the request", came)
	end()
	if err := within(t, "the end", ended); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	if err := within(t, "the answer", answer); err == nil {
		t.Error("a request that was never answered ends without an error")
	}
	if text := log.text(); !strings.Contains(text, "requests were cut off") {
		t.Errorf("the log is %q, want that requests were cut off", text)
	}
}

func TestNoWorkerIsStartedOnceTheEndHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan string, 1)
		opts := &server.Options{Stores: memoryStores(t), Catalog: catalog.Local(2, 2), Workers: sleeper, Jobs: serverless.Options{
			WorkerURL: func() string { return "http://127.0.0.1:1/v2" },
		}}
		opts.Hosts = []pods.Host{{
			ID: "here", DataCenter: catalog.LocalDataCenter, Runtime: startWatcher{memory.NewRuntime(nil), asked},
			VCPU: map[string]int{catalog.HostFlavor: 2}, Memory: 2,
		}}
		s, err := server.New(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		declare(t, s, "work", "any")
		ctx, end := context.WithCancel(t.Context())
		ended := later(func() error { return s.Run(ctx) })
		jobs := s.Services().Jobs
		if _, err := jobs.Submit(ctx, "ann", "sleep", serverless.Request{Input: []byte(`{"ms":4000}`)}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		end()
		synctest.Wait()
		if _, err := jobs.Submit(t.Context(), "ann", "work", serverless.Request{Input: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		select {
		case id := <-asked:
			t.Errorf("a container %q was asked for", id)
		default:
		}
	})
}

// A startWatcher reports each start that it gets.
type startWatcher struct {
	*memory.Runtime
	asked chan string
}

func (s startWatcher) Ensure(ctx context.Context, spec pods.Spec) error {
	select {
	case s.asked <- spec.PodID:
	default:
	}
	return s.Runtime.Ensure(ctx, spec)
}

func TestUsagesThatAreNoLongerKeptAreDeletedEachHour(t *testing.T) {
	for keep, want := range map[time.Duration]int{2 * time.Hour: 0, -1: 1} {
		synctest.Test(t, func(t *testing.T) {
			bills, now := memory.NewBilling(), time.Now()
			used := pods.Usage{Owner: "ann", Kind: pods.PodUsage, ID: "p", From: now.Add(-2 * time.Hour), To: now.Add(-time.Hour)}
			if err := bills.Record(t.Context(), []pods.Usage{used}); err != nil {
				t.Fatal(err)
			}
			s, err := server.New(t.Context(), &server.Options{Stores: server.Stores{Billing: bills}, KeepBilling: keep})
			if err != nil {
				t.Fatal(err)
			}
			kept := func() int {
				list, err := bills.Usage(t.Context(), "ann", now.Add(-24*time.Hour), now)
				if err != nil {
					t.Fatal(err)
				}
				return len(list)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := later(func() error { return s.Run(ctx) })
			time.Sleep(time.Hour - time.Minute)
			if n := kept(); n != 1 {
				t.Errorf("%d usages after an hour, want 1", n)
			}
			time.Sleep(2 * time.Hour)
			if n := kept(); n != want {
				t.Errorf("kept for %v, %d usages are there three hours later, want %d", keep, n, want)
			}
			stop()
			if err := within(t, "the end", ended); err != nil {
				t.Error(err)
			}
		})
	}
}
