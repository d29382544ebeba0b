package double_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/httpapi/apitest"
	"github.com/podyard/podyard/httpapi/double"
)

const webImage = "org/web:1"

// web returns a handler that takes a minute for /slow, and no time for others.
func web(s *apitest.Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ping":
			return
		case "/slow":
			if s.Sleep(r.Context(), time.Minute) != nil {
				return
			}
		}
		fmt.Fprintf(w, "%s %s", r.Method, r.URL.Path)
	})
}

const webSettings = `{"name":"web","type":"LOAD_BALANCER","image":"` + webImage + `","cpu":[{"id":"cpu3c","vcpuCount":2}],
	"workers":{"min":0,"max":3},"scaling":{"type":"REQUEST_COUNT","requestCount":1}}`

// balanced starts a server with a load-balancing endpoint that is made by a request. It has 0 to 3
// workers, which take 20 s to start and end after 10 s without a request.
func balanced(t *testing.T, o *double.Options) (s *apitest.Server, endpoint string) {
	t.Helper()
	s = apitest.StartWith(t, o)
	s.ImageHTTP(webImage, web(s), &double.ImageOptions{ColdStart: 20 * time.Second})
	return s, want(t, s, 201, "POST", "/v2/serverless", webSettings).field("id")
}

// A webAnswer is the answer of a worker.
type webAnswer struct {
	code         int
	body, worker string
}

func (a webAnswer) String() string { return fmt.Sprintf("%d %s", a.code, a.body) }

// ask makes a request to a worker, which is on its way when ask returns.
func ask(t *testing.T, s *apitest.Server, endpoint, path string) <-chan webAnswer {
	t.Helper()
	before := len(s.Double.Requests())
	got := make(chan webAnswer, 1)
	ctx := t.Context()
	go func() {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, double.BaseURL+"/lb/"+endpoint+path, nil)
		if err != nil {
			got <- webAnswer{body: err.Error()}
			return
		}
		res, err := s.Client().Do(r)
		if err != nil {
			got <- webAnswer{body: err.Error()}
			return
		}
		defer res.Body.Close()
		b, _ := io.ReadAll(res.Body) // an answer that is cut short is not the expected one
		got <- webAnswer{res.StatusCode, string(b), res.Header.Get("X-Runpod-Worker-Id")}
	}()
	for len(s.Double.Requests()) == before {
		time.Sleep(time.Millisecond)
	}
	s.Advance(0)
	return got
}

// now returns an answer that must be there.
func now(t *testing.T, answer <-chan webAnswer) webAnswer {
	t.Helper()
	select {
	case a := <-answer:
		return a
	case <-time.After(10 * time.Second):
		t.Fatal("there is no answer after 10 s of wall time")
		return webAnswer{}
	}
}

func wantAnswer(t *testing.T, want string, answer <-chan webAnswer) webAnswer {
	t.Helper()
	a := now(t, answer)
	if got := a.String(); got != want {
		t.Errorf("the answer is %q, want %q", got, want)
	}
	return a
}

func wantNoAnswer(t *testing.T, when string, answer <-chan webAnswer) {
	t.Helper()
	select {
	case a := <-answer:
		t.Errorf("%s there is an answer: %v", when, a)
	default:
	}
}

func TestALoadBalancingEndpointStartsWorkersForItsRequests(t *testing.T) {
	s, id := balanced(t, nil)
	first := ask(t, s, id, "/a")
	wantStatuses(t, s, id, "the first request starts the first worker", starting)
	s.Advance(20*time.Second - time.Millisecond)
	wantNoAnswer(t, "before the cold start is over", first)
	s.Advance(time.Millisecond)
	a := wantAnswer(t, "200 GET /a", first)
	if a.worker == "" {
		t.Error("the answer names no worker")
	}
	wantStatuses(t, s, id, "after the answer", idle)
	s.Advance(10*time.Second - time.Millisecond)
	wantStatuses(t, s, id, "before it has been idle for 10 s", idle)
	s.Advance(time.Millisecond)
	wantStatuses(t, s, id, "scaled to zero")
}

func wantStatuses(t *testing.T, s *apitest.Server, endpoint, when string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, workers(t, s, endpoint)); diff != "" {
		t.Errorf("%s (%v), workers (-want +got):\n%s", when, s.Now().Sub(double.DefaultStart), diff)
	}
}

func TestRequestsInFlightScaleALoadBalancingEndpoint(t *testing.T) {
	s, id := balanced(t, nil)
	var list []<-chan webAnswer
	for range 3 {
		list = append(list, ask(t, s, id, "/slow"))
	}
	wantStatuses(t, s, id, "a worker for each request", starting, starting, starting)
	s.Advance(20 * time.Second)
	if got := workers(t, s, id); len(got) != 3 || !slices.Contains(got, running) {
		t.Errorf("after the cold start: workers = %v, want three, and the first one has the requests", got)
	}
	first := ask(t, s, id, "/a")
	second := ask(t, s, id, "/b")
	if a, b := wantAnswer(t, "200 GET /a", first).worker, wantAnswer(t, "200 GET /b", second).worker; a == b {
		t.Errorf("two requests have the worker %s, want those in turn that have none", a)
	}
	s.Advance(time.Minute - time.Millisecond)
	for _, answer := range list {
		wantNoAnswer(t, "before the handlers are done", answer)
	}
	s.Advance(time.Millisecond)
	for _, answer := range list {
		wantAnswer(t, "200 GET /slow", answer)
	}
}

func TestRunUntilIdleGoesOnForRequests(t *testing.T) {
	s, id := balanced(t, nil)
	answer := ask(t, s, id, "/slow")
	if got := s.RunUntilIdle(); got != 80*time.Second {
		t.Errorf("RunUntilIdle = %v, want 80s: a cold start and a minute", got)
	}
	wantAnswer(t, "200 GET /slow", answer)
}

func TestARequestThatGetsNoWorkerIsRefusedByTheClock(t *testing.T) {
	s, id := balanced(t, nil)
	s.Fault(double.Fault{Name: double.FaultBalancedHealth, Endpoint: id})
	answer := ask(t, s, id, "/")
	s.Advance(2*time.Minute - time.Millisecond)
	wantNoAnswer(t, "before two minutes", answer)
	s.Advance(time.Millisecond)
	if a := now(t, answer); a.code != 400 || !strings.Contains(a.body, "no workers available") {
		t.Errorf("the answer is %v, want a refusal after two minutes", a)
	}
}

func TestAReleaseReplacesWorkersWhenTheirRequestsHaveEnded(t *testing.T) {
	s, id := balanced(t, nil)
	old := ask(t, s, id, "/slow")
	s.Advance(30 * time.Second)
	want(t, s, 200, "PATCH", "/v2/serverless/"+id, `{"env":{"A":"2"}}`)
	fresh := ask(t, s, id, "/new")
	wantNoAnswer(t, "a worker that drains gets no request:", fresh)
	s.Advance(20 * time.Second)
	b := wantAnswer(t, "200 GET /new", fresh)
	wantNoAnswer(t, "before its handler is done", old)
	s.Advance(30 * time.Second)
	if a := wantAnswer(t, "200 GET /slow", old); a.worker == b.worker {
		t.Errorf("both requests have the worker %s", a.worker)
	}
	wantStatuses(t, s, id, "the old worker has ended, and the new one has been idle for long enough")
}

func TestFaultsOfTheWorkersOfALoadBalancingEndpoint(t *testing.T) {
	s, id := balanced(t, nil)
	first := ask(t, s, id, "/a")
	s.Advance(20 * time.Second)
	dead := wantAnswer(t, "200 GET /a", first).worker

	s.Fault(double.Fault{Name: double.FaultBalancedWorker, Endpoint: id, Count: 1})
	if a := now(t, ask(t, s, id, "/a")); a.code != 502 || a.worker != dead {
		t.Errorf("a worker that closes the connection = %v of %q, want 502 of %q", a, a.worker, dead)
	}
	if a := now(t, ask(t, s, id, "/a")); a.code != 200 || a.worker != dead {
		t.Errorf("after a check it is %v of %q, want 200 of %q", a, a.worker, dead)
	}

	s.Fault(double.Fault{Name: double.FaultWorkerDies, Endpoint: id, Count: 1})
	if a := now(t, ask(t, s, id, "/a")); a.code != 502 {
		t.Errorf("a worker that dies = %v, want 502", a)
	}
	next := ask(t, s, id, "/a")
	wantNoAnswer(t, "without a worker", next)
	s.Advance(30 * time.Second)
	if a := now(t, next); a.code != 200 || a.worker == dead {
		t.Errorf("the next request = %v of %q, want an answer of another worker than %q", a, a.worker, dead)
	}
}

func TestAnUnhealthyWorkerGetsNoRequests(t *testing.T) {
	s, id := balanced(t, nil)
	first := ask(t, s, id, "/a")
	s.Advance(20 * time.Second)
	now(t, first)
	heal := s.Fault(double.Fault{Name: double.FaultBalancedHealth, Endpoint: id})
	s.Advance(5 * time.Second)
	answer := ask(t, s, id, "/a")
	wantNoAnswer(t, "while it is not healthy", answer)
	heal()
	s.Advance(time.Second) // in which it is checked again
	wantAnswer(t, "200 GET /a", answer)
}

func TestAnswersOfALoadBalancingEndpointAreTheSameEveryTime(t *testing.T) {
	story := func() string {
		s, id := balanced(t, &double.Options{Seed: 7})
		var log strings.Builder
		var list []<-chan webAnswer
		for i := range 6 {
			list = append(list, ask(t, s, id, fmt.Sprintf("/%d", i)), ask(t, s, id, "/slow"))
			s.Advance(7 * time.Second)
			log.WriteString(want(t, s, 200, "GET", "/v2/serverless/"+id+"/workers", "").body)
		}
		s.RunUntilIdle()
		for _, answer := range list {
			a := now(t, answer)
			fmt.Fprintln(&log, a, a.worker)
		}
		s.Advance(time.Hour)
		log.WriteString(want(t, s, 200, "GET", "/v2/serverless/"+id+"/decisions", "").body)
		return log.String()
	}
	one := story()
	for range 5 {
		if diff := cmp.Diff(one, story()); diff != "" {
			t.Fatalf("the second time (-want +got):\n%s", diff)
		}
	}
}

func TestAdminSaysWhatWorkersAnswer(t *testing.T) {
	a := newAdmin(t)
	own := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ping" {
			fmt.Fprint(w, "forwarded "+r.URL.Path+" of "+r.Host)
		}
	}))
	defer own.Close()
	a.ask(200, "POST", "/_test/images", "/_test/images", `{"image":"org/script:*","coldStartMs":1000,"answers":[
		{"path":"/generate*","afterMs":60000,"json":{"text":"a cat"}},
		{"method":"GET","path":"/teapot","status":418,"headers":{"x-tea":"green"},"text":"short"}]}`)
	a.ask(200, "POST", "/_test/images", "/_test/images", `{"image":"org/own","forward":"`+own.URL+`"}`)
	for id, image := range map[string]string{"script": "org/script:1", "own": "org/own"} {
		a.ask(200, "PUT", "/_test/endpoints/{endpoint}", "/_test/endpoints/"+id, `{"type":"LOAD_BALANCER","image":"`+image+`","workers":{"max":1}}`)
	}
	generate := ask(t, a.Server, "script", "/generate?n=1")
	a.ask(200, "POST", "/_test/clock/advance", "/_test/clock/advance", `{"ms":61000}`)
	wantAnswer(t, `200 {"text":"a cat"}`, generate)
	wantAnswer(t, "418 short", ask(t, a.Server, "script", "/teapot"))
	if got := now(t, ask(t, a.Server, "script", "/other")); got.code != 404 {
		t.Errorf("a path without an answer = %v, want 404", got)
	}
	forwarded := ask(t, a.Server, "own", "/x")
	a.ask(200, "POST", "/_test/clock/advance", "/_test/clock/advance", `{"ms":2000}`)
	wantAnswer(t, "200 forwarded /x of podyard.test", forwarded)
}

// A worker of the other kind never comes into being.
func TestAnImageServesTheKindOfEndpointThatItIsFor(t *testing.T) {
	s := apitest.Start(t)
	s.ImageHTTP(webImage, web(s), nil)
	s.Image(workImage, minute(s), nil)
	s.Declare("jobs", obj{"image": webImage, "workers": obj{"max": 1}})
	s.Declare("web", obj{"type": "LOAD_BALANCER", "image": workImage, "workers": obj{"max": 1}})
	job := run(t, s, "jobs", `{"input":{}}`)
	answer := ask(t, s, "web", "/")
	s.Advance(2 * time.Minute)
	if got := status(t, s, "jobs", job); got != "IN_QUEUE" {
		t.Errorf("the job is %s, want IN_QUEUE", got)
	}
	if a := now(t, answer); a.code != 400 {
		t.Errorf("the request = %v, want a refusal", a)
	}
}

func TestHandleHTTPWaitsByTheClock(t *testing.T) {
	s := apitest.Start(t)
	s.HandleHTTP("web", web(s))
	answer := ask(t, s, "web", "/slow")
	s.Advance(time.Minute - time.Millisecond)
	wantNoAnswer(t, "before the handler is done", answer)
	for len(answer) == 0 { // the handler may begin to wait after the request is on its way
		s.Advance(time.Second)
	}
	wantAnswer(t, "200 GET /slow", answer)
}
