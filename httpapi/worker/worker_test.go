package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/worker"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless"
)

// start serves the jobs API with an endpoint "e" on a loopback port until the test ends.
func start(t testing.TB) (s *serverless.Service, url string) {
	t.Helper()
	eps := memory.NewEndpoints()
	if err := eps.Create(t.Context(), &serverless.Endpoint{ID: "e"}); err != nil {
		t.Fatal(err)
	}
	s = serverless.New(memory.NewJobs(), eps, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Run(ctx) })
	keys, err := httpapi.NewKeys([]httpapi.Key{{Secret: "admin", User: "u", Scopes: []string{"endpoint:e:work"}, Exempt: true}}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(httpapi.NewJobs(s, &httpapi.Options{Auth: keys}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close(); cancel(); wg.Wait() })
	return s, srv.URL + "/v2"
}

// work runs a remote worker until the test ends. stop returns its error.
func work(t testing.TB, w serverless.WorkerFunc, o worker.Options) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx, w, &o) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = stop() })
	return stop
}

func submit(t testing.TB, s *serverless.Service, input string) serverless.Job {
	t.Helper()
	j, err := s.SubmitAndWait(t.Context(), "u", "e", serverless.Request{Input: []byte(input), Wait: serverless.MaxWait})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestRemoteWorkerRunsJobsWithItsOwnKey(t *testing.T) {
	s, url := start(t)
	work(t, func(_ context.Context, k *serverless.Task) ([]byte, error) {
		switch {
		case strings.Contains(string(k.Input), "fail"):
			return nil, &serverless.Failure{Text: "no", Output: []byte(`1`)}
		case strings.Contains(string(k.Input), "panic"):
			panic("oh")
		}
		return append(append([]byte(`{"extra":`), k.Extra...), `,"in":`+string(k.Input)+`}`...), nil
	}, worker.Options{URL: url, Endpoint: "e", ID: "w1", Key: s.WorkerKey("e", "w1")})

	j, err := s.SubmitAndWait(t.Context(), "u", "e", serverless.Request{Input: []byte(`{"a":1}`), Extra: []byte(`{"s3Config":{"accessId":"x"}}`), Wait: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(j.Output), `{"extra":{"s3Config":{"accessId":"x"}},"in":{"a":1}}`; got != want || j.Status != serverless.Completed || j.Worker != "w1" {
		t.Errorf("job = %v by %q with %s, want COMPLETED by w1 with %s", j.Status, j.Worker, got, want)
	}
	if j := submit(t, s, `{"x":"fail"}`); j.Status != serverless.Failed || j.ErrorText() != "no" || string(j.Output) != "1" {
		t.Errorf("failed job = %v %q %s, want FAILED no 1", j.Status, j.ErrorText(), j.Output)
	}
	if j := submit(t, s, `{"x":"panic"}`); j.Status != serverless.Failed || j.ErrorText() != "the worker panicked: oh" {
		t.Errorf("panicking job = %v %q, want FAILED and why", j.Status, j.ErrorText())
	}
}

func TestAWorkersContextHasTheTraceContextOfItsJob(t *testing.T) {
	s, url := start(t)
	echo := func(ctx context.Context, k *serverless.Task) ([]byte, error) {
		return json.Marshal([]string{serverless.TraceOf(ctx).Parent, serverless.TraceOf(ctx).State, string(k.Extra)})
	}
	trace := serverless.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: `a=1,b="\`}
	check := func(t *testing.T) {
		t.Helper()
		for _, r := range []serverless.Request{{Trace: trace}, {}, {Trace: serverless.Trace{Parent: "no", State: "a=1"}}} {
			// A job that was on its way to the worker that has just gone comes back with its lease.
			r.Input, r.Wait = []byte(`{}`), 2*time.Minute
			j, err := s.SubmitAndWait(t.Context(), "u", "e", r)
			want, _ := json.Marshal([]string{r.Trace.Valid().Parent, r.Trace.Valid().State, ""})
			if err != nil || string(j.Output) != string(want) {
				t.Errorf("with %+v the worker sees %s, %v, want %s", r.Trace, j.Output, err, want)
			}
		}
	}
	t.Run("remote", func(t *testing.T) {
		stop := work(t, echo, worker.Options{URL: url, Endpoint: "e", ID: "w1", Key: "admin"})
		check(t)
		_ = stop()
	})
	t.Run("of the process", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = s.Serve(ctx, "e", serverless.WorkerFunc(echo), nil) })
		check(t)
		cancel()
		wg.Wait()
	})
}

func TestRemoteWorkerRunsUpToItsConcurrencyAtOnce(t *testing.T) {
	s, url := start(t)
	var mu sync.Mutex
	var now, most int
	work(t, func(ctx context.Context, k *serverless.Task) ([]byte, error) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		for full := false; !full; { // all four slots fill before any job ends
			mu.Lock()
			full = most == 4
			mu.Unlock()
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
		mu.Lock()
		now--
		mu.Unlock()
		return k.Input, nil
	}, worker.Options{URL: url, Endpoint: "e", ID: "w1", Key: "admin", Concurrency: 4})
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			if j := submit(t, s, fmt.Sprintf(`{"i":%d}`, i)); j.Status != serverless.Completed {
				t.Errorf("job %d = %v, want COMPLETED", i, j.Status)
			}
		})
	}
	wg.Wait()
	if most != 4 {
		t.Errorf("%d jobs at once, want 4", most)
	}
}

func TestRemoteWorkerStreamsAndTellsProgress(t *testing.T) {
	s, url := start(t)
	told := make(chan struct{})
	work(t, func(ctx context.Context, k *serverless.Task) ([]byte, error) {
		if err := k.Progress(ctx, []byte(`"half"`)); err != nil {
			return nil, err
		}
		<-told
		for i := range 3 {
			if err := k.Emit(ctx, []byte(fmt.Sprintf(`{"i":%d}`, i))); err != nil {
				return nil, err
			}
		}
		return []byte(`[]`), nil
	}, worker.Options{URL: url, Endpoint: "e", ID: "w1", Key: "admin"})
	j, err := s.Submit(t.Context(), "u", "e", serverless.Request{Input: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	for string(j.Output) != `"half"` {
		if j, err = s.Get(t.Context(), "u", j.Ref); err != nil {
			t.Fatal(err)
		}
	}
	close(told)
	var got []string
	for end := false; !end; {
		err := s.Stream(t.Context(), "u", j.Ref, serverless.StreamQuery{}, func(p serverless.StreamPart) error {
			for _, it := range p.Items {
				got = append(got, string(it))
			}
			end = p.Status.Terminal()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if want := `{"output":{"i":0}} {"output":{"i":1}} {"output":{"i":2}}`; strings.Join(got, " ") != want {
		t.Errorf("streamed %s, want %s", strings.Join(got, " "), want)
	}
}

func TestRemoteWorkerStopsACancelledJob(t *testing.T) {
	s, url := start(t)
	began, ended := make(chan struct{}), make(chan error, 1)
	work(t, func(ctx context.Context, _ *serverless.Task) ([]byte, error) {
		close(began)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, ctx.Err()
	}, worker.Options{URL: url, Endpoint: "e", ID: "w1", Key: "admin"})
	j, err := s.Submit(t.Context(), "u", "e", serverless.Request{Input: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	<-began
	if _, err := s.Cancel(t.Context(), "u", j.Ref); err != nil {
		t.Fatal(err)
	}
	if cause := <-ended; !errors.Is(cause, serverless.ErrCancelled) {
		t.Errorf("cause = %v, want that the job was cancelled", cause)
	}
}

func TestRemoteWorkerFinishesItsJobsWhenItIsToEnd(t *testing.T) {
	s, url := start(t)
	began, end := make(chan struct{}), make(chan struct{})
	stop := work(t, func(_ context.Context, k *serverless.Task) ([]byte, error) {
		close(began)
		<-end
		return k.Input, nil
	}, worker.Options{URL: url, Endpoint: "e", ID: "w1", Key: "admin"})
	j, err := s.Submit(t.Context(), "u", "e", serverless.Request{Input: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	<-began
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	close(end)
	if err := <-stopped; err != nil {
		t.Errorf("Run = %v, want nil when its context ended", err)
	}
	if j, err = s.Get(t.Context(), "u", j.Ref); err != nil || j.Status != serverless.Completed {
		t.Errorf("job = %v, %v, want COMPLETED", j.Status, err)
	}
}

func TestRunEndsWithAnErrorWhenTheKeyIsRefused(t *testing.T) {
	suite.SkipUnlessLong(t)
	s, url := start(t)
	var all sync.WaitGroup // each refusal is answered after some seconds
	for _, key := range []string{"", "unknown", s.WorkerKey("e", "w2"), s.WorkerKey("other", "w1")} {
		all.Go(func() {
			err := worker.Run(t.Context(), serverless.WorkerFunc(nil), &worker.Options{URL: url, Endpoint: "e", ID: "w1", Key: key})
			if err == nil || !strings.Contains(err.Error(), "refuses the key") {
				t.Errorf("Run = %v, want that the key is refused", err)
			}
		})
	}
	all.Wait()
}

func TestFromEnvReadsWhatAFleetGives(t *testing.T) {
	s, url := start(t)
	env := map[string]string{
		"RUNPOD_WEBHOOK_GET_JOB":     url + "/e/job-take/$ID?gpu=x+y",
		"RUNPOD_WEBHOOK_POST_OUTPUT": url + "/e/job-done/$RUNPOD_POD_ID/$ID?gpu=x+y",
		"RUNPOD_WEBHOOK_POST_STREAM": url + "/e/job-stream/$RUNPOD_POD_ID/$ID?gpu=x+y",
		"RUNPOD_WEBHOOK_PING":        url + "/e/ping/$RUNPOD_POD_ID?gpu=x+y",
		"RUNPOD_POD_ID":              "w9", "RUNPOD_AI_API_KEY": s.WorkerKey("e", "w9"), "RUNPOD_PING_INTERVAL": "1000",
	}
	o, err := worker.FromEnv(func(k string) string { return env[k] })
	if err != nil {
		t.Fatal(err)
	}
	work(t, func(_ context.Context, k *serverless.Task) ([]byte, error) { return k.Input, nil }, *o)
	if j := submit(t, s, `{"a":1}`); j.Status != serverless.Completed || j.Worker != "w9" {
		t.Errorf("job = %v by %q, want COMPLETED by w9", j.Status, j.Worker)
	}
	delete(env, "RUNPOD_WEBHOOK_PING")
	if _, err := worker.FromEnv(func(k string) string { return env[k] }); err == nil || !strings.Contains(err.Error(), "RUNPOD_WEBHOOK_PING") {
		t.Errorf("FromEnv = %v, want an error that names what is missing", err)
	}
}

// BenchmarkRemoteHandOver measures a job from submit to its result, with a remote worker
// over loopback.
func BenchmarkRemoteHandOver(b *testing.B) {
	s, url := start(b)
	work(b, func(_ context.Context, k *serverless.Task) ([]byte, error) { return k.Input, nil }, worker.Options{URL: url, Endpoint: "e", ID: "w1", Key: "admin"})
	in, err := json.Marshal(map[string]int{"a": 1})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if j := submit(b, s, string(in)); j.Status != serverless.Completed {
			b.Fatalf("job = %v, want COMPLETED", j.Status)
		}
	}
}

func TestAWorkerOfManySlotsAsksForNoMoreThanAnAnswerHolds(t *testing.T) {
	s, url := start(t)
	work(t, func(_ context.Context, k *serverless.Task) ([]byte, error) { return k.Input, nil },
		worker.Options{URL: url, Endpoint: "e", ID: "w1", Key: "admin", Concurrency: 5000})
	if j := submit(t, s, `{}`); j.Status != serverless.Completed {
		t.Errorf("the job is %v, want COMPLETED: the worker gets none", j.Status)
	}
}

func emitAll(ctx context.Context, k *serverless.Task, chunks [][]byte) error {
	for _, b := range chunks {
		if err := k.Emit(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

func TestAChunkThatCannotBeTakenFailsItsJob(t *testing.T) {
	piece := []byte(`"` + strings.Repeat("x", 1<<20-100) + `"`)
	for name, tt := range map[string]struct {
		chunks [][]byte
		want   string
	}{
		"the stream is full": {slices.Repeat([][]byte{piece}, 70), "a chunk was not taken: the stream is full: too many of its bytes were not read; the limit is 67108864 bytes (64 MB)"},
		"it is too long":     {[][]byte{make([]byte, 21<<20)}, "a chunk or progress value was not taken: it has more than 20971264 bytes"},
		"it is not JSON":     {[][]byte{[]byte("NaN")}, "a chunk or progress value was not taken: it is not JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			s, url := start(t)
			said := make(chan error, 1)
			work(t, func(ctx context.Context, k *serverless.Task) ([]byte, error) {
				said <- emitAll(ctx, k, tt.chunks)
				return []byte(`"done"`), nil // it does not look at errors
			}, worker.Options{URL: url, Endpoint: "e", ID: "w1", Key: "admin"})
			if j := submit(t, s, `{}`); j.Status != serverless.Failed || j.Error != tt.want {
				t.Errorf("the job is %v with %q, want FAILED: %s", j.Status, j.Error, tt.want)
			}
			// The worker may be told to stop before the answer that says why has arrived.
			err, full := <-said, name == "the stream is full"
			if err == nil || errors.Is(err, serverless.ErrStreamFull) != full && !(full && errors.Is(err, serverless.ErrCancelled)) {
				t.Errorf("Emit = %v", err)
			}
		})
	}
}

// answers is a service as a function.
type answers func(*http.Request) (status int, body string)

// RoundTrip holds a request open if its status is 0, as the service does.
func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := a(r)
	if status == 0 {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

func TestAResultThatIsRefusedForNowIsPostedAgain(t *testing.T) {
	for _, refusal := range []int{http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			taken, posted := 0, 0
			service := answers(func(r *http.Request) (int, string) {
				switch part := strings.Split(r.URL.Path, "/"); part[3] {
				case "job-take":
					if taken++; taken == 1 {
						return http.StatusOK, `{"id":"j1","input":{}}`
					}
				case "job-done":
					if posted++; posted == 1 {
						return refusal, ""
					}
					cancel()
					return http.StatusOK, ""
				case "ping":
					return http.StatusOK, ""
				}
				return 0, ""
			})
			err := worker.Run(ctx, serverless.WorkerFunc(func(context.Context, *serverless.Task) ([]byte, error) { return []byte("1"), nil }),
				&worker.Options{URL: "http://service.test/v2", Endpoint: "e", ID: "w1", Key: "k", Client: &http.Client{Transport: service}})
			if err != nil || posted != 2 {
				t.Errorf("after %d the result was posted %d times, Run = %v; want once more, and nil", refusal, posted, err)
			}
		})
	}
}
