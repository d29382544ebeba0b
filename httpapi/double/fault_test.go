package double_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/apitest"
	"github.com/podyard/podyard/httpapi/double"
	"github.com/podyard/podyard/serverless"
)

// startFaulty starts a server with everything to which faults can apply.
func startFaulty(t *testing.T) *apitest.Server {
	t.Helper()
	s := apitest.StartWith(t, &double.Options{Keys: []httpapi.Key{{Secret: "other", User: "tester", Scopes: []string{"*"}}}})
	s.Handle("echo", echo)
	s.HandleWorker("chunks", serverless.WorkerFunc(func(ctx context.Context, k *serverless.Task) ([]byte, error) {
		for i := range 5 {
			if err := k.Emit(ctx, fmt.Append(nil, i)); err != nil {
				return nil, err
			}
		}
		return []byte(`"all"`), nil
	}))
	return s
}

// errAny stands for any error of the client.
var errAny = errors.New("any error")

// Each row sets one fault and has the result. done: the request had its effect.
func TestFaultsOfRequests(t *testing.T) {
	for _, tt := range []struct {
		fault  double.Fault
		code   int
		header string
		err    error
		done   bool
	}{
		{fault: double.Fault{Name: double.FaultStatus}, code: 500},
		{fault: double.Fault{Name: double.FaultStatus, Status: 503}, code: 503},
		{fault: double.Fault{Name: double.FaultRateLimited, RetryAfter: 7}, code: 429, header: "Retry-After: 7"},
		{fault: double.Fault{Name: double.FaultExpiredKey}, code: 401, header: "Www-Authenticate: Bearer"},
		{fault: double.Fault{Name: double.FaultForbidden}, code: 403},
		{fault: double.Fault{Name: double.FaultGateway}, code: 502, header: "Content-Type: text/html"},
		{fault: double.Fault{Name: double.FaultReset}, err: syscall.ECONNRESET},
		{fault: double.Fault{Name: double.FaultNoAnswer, Delay: time.Millisecond}, err: io.EOF},
		{fault: double.Fault{Name: double.FaultNoHTTP}, err: errAny},
		{fault: double.Fault{Name: double.FaultSlowBody, Delay: time.Microsecond, Bytes: 20}, code: 200, done: true},
		{fault: double.Fault{Name: double.FaultTruncated, Bytes: 1000}, err: io.ErrUnexpectedEOF, done: true},
		{fault: double.Fault{Name: double.FaultEmpty}, err: io.EOF},
		{fault: double.Fault{Name: double.FaultTruncated}, err: io.ErrUnexpectedEOF, done: true},
		{fault: double.Fault{Name: double.FaultGarbage}, code: 200, done: true},
		{fault: double.Fault{Name: double.FaultLostAnswer}, err: io.EOF, done: true},
		{fault: double.Fault{Name: double.FaultStore}, code: 503},
	} {
		for _, over := range []string{"in process", "socket"} {
			t.Run(tt.fault.Name+" "+over, func(t *testing.T) {
				s := startFaulty(t)
				tt.fault.Count, tt.fault.Operation, tt.fault.Endpoint = 1, "run", "echo"
				s.Fault(tt.fault)
				c, url := s.Client(), double.BaseURL
				if over == "socket" {
					tr := &http.Transport{DialContext: (&net.Dialer{}).DialContext}
					defer tr.CloseIdleConnections()
					c, url = &http.Client{Transport: tr}, s.URL()
				}
				send := func() (answer, error) {
					return try(t, c, "POST", url+"/v2/echo/run", `{"input":{"a":1}}`, "Authorization: Bearer "+s.Key)
				}
				a, err := send()
				switch {
				case tt.err == nil && (err != nil || a.code != tt.code):
					t.Errorf("run = %d %s, %v, want %d", a.code, a.body, err, tt.code)
				case tt.err != nil && (err == nil || tt.err != errAny && !errors.Is(err, tt.err) && !errors.Is(err, io.ErrUnexpectedEOF)):
					t.Errorf("run = %d %s, %v, want %v", a.code, a.body, err, tt.err)
				}
				if name, value, ok := strings.Cut(tt.header, ": "); ok && a.header.Get(name) != value {
					t.Errorf("%s = %q, want %q", name, a.header.Get(name), value)
				}
				n := -1
				if tt.done {
					n = 1
				}
				s.RequireJob(t, apitest.JobMatch{Endpoint: "echo", Times: n})
				s.RequireRequest(t, apitest.RequestMatch{Operation: "run", Fault: tt.fault.Name, Times: 1})
				if a, err := send(); err != nil || a.code != 200 {
					t.Errorf("the second run = %d %s, %v, want 200: the fault was for one", a.code, a.body, err)
				}
			})
		}
	}
}

func TestFaultMatchesOperationEndpointAndKey(t *testing.T) {
	for _, tt := range []struct {
		fault double.Fault
		hits  string // of the requests below
	}{
		{double.Fault{}, "health run other getPod"},
		{double.Fault{Operation: "health"}, "health"},
		{double.Fault{Endpoint: "echo"}, "health run other"},
		{double.Fault{Endpoint: "echo", Operation: "run"}, "run other"},
		{double.Fault{Key: "other"}, "other"},
		{double.Fault{Endpoint: "chunks"}, ""},
	} {
		s := startFaulty(t)
		tt.fault.Name, tt.fault.Status = double.FaultStatus, 418
		s.Fault(tt.fault)
		var hits []string
		for _, r := range []struct{ name, method, path, body, header string }{
			{"health", "GET", "/v2/echo/health", "", "X: y"},
			{"run", "POST", "/v2/echo/run", `{"input":{}}`, "X: y"},
			{"other", "POST", "/v2/echo/run", `{"input":{}}`, "Authorization: other"},
			{"getPod", "GET", "/v2/pods/x", "", "X: y"},
		} {
			if call(t, s, r.method, r.path, r.body, r.header).code == 418 {
				hits = append(hits, r.name)
			}
		}
		if got := strings.Join(hits, " "); got != tt.hits {
			t.Errorf("%+v hits %q, want %q", tt.fault, got, tt.hits)
		}
	}
}

func TestFaultHasCountAndProbabilityBySeed(t *testing.T) {
	pattern := func(seed uint64) string {
		s := apitest.StartWith(t, &double.Options{Seed: seed})
		s.Handle("echo", echo)
		s.Fault(double.Fault{Name: double.FaultStatus, Probability: 0.5, Count: 20})
		var b strings.Builder
		for range 60 {
			fmt.Fprint(&b, call(t, s, "GET", "/v2/echo/health", "").code/100)
		}
		return b.String()
	}
	one := pattern(1)
	if n := strings.Count(one, "5"); n != 20 || !strings.Contains(one[:20], "2") {
		t.Errorf("%s has %d faults, want 20, and not all of the first", one, n)
	}
	if pattern(1) != one {
		t.Error("the same seed gives other faults")
	}
	if pattern(2) == one {
		t.Error("another seed gives the same faults")
	}
}

func TestFaultLatencyIsOfVirtualOrWallTime(t *testing.T) {
	s := startFaulty(t)
	s.Fault(double.Fault{Name: double.FaultLatency, Delay: time.Hour, Count: 1})
	got := make(chan answer, 1)
	go func() {
		a, _ := try(t, s.Client(), "GET", double.BaseURL+"/v2/echo/health", "")
		got <- a
	}()
	for len(s.Double.Requests()) == 0 {
		s.Advance(0)
	}
	s.Advance(time.Hour)
	if a := <-got; a.code != 200 {
		t.Errorf("health after its delay = %d, want 200", a.code)
	}
	s.Fault(double.Fault{Name: double.FaultLatency, Delay: time.Millisecond, Count: 1})
	want(t, s, 200, "GET", "/v2/echo/health", "")
}

// A body in four parts takes three delays, in virtual time here.
func TestFaultSlowBodyArrivesInPieces(t *testing.T) {
	s := startFaulty(t)
	body := want(t, s, 200, "GET", "/v2/echo/health", "").body
	s.Fault(double.Fault{Name: double.FaultSlowBody, Delay: time.Hour, Bytes: (len(body) + 3) / 4, Count: 1})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, double.BaseURL+"/v2/echo/health", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	piece := make([]byte, len(body))
	var got string
	for i := range 4 {
		if i > 0 {
			s.Advance(59 * time.Minute)
			s.Advance(time.Minute)
		}
		n, err := res.Body.Read(piece)
		if err != nil || n == 0 || n == len(body) {
			t.Fatalf("piece %d has %d of %d bytes, %v", i, n, len(body), err)
		}
		got += string(piece[:n])
	}
	if rest, err := io.ReadAll(res.Body); err != nil || got+string(rest) != body {
		t.Errorf("the body is %q and then %q, %v, want %q", got, rest, err, body)
	}
	if spent := s.Now().Sub(double.DefaultStart); spent != 3*time.Hour {
		t.Errorf("it took %v, want 3h", spent)
	}
}

func TestFaultSlowBodyEndsByWallTimeSoThatOneThreadNeverHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startFaulty(t)
		whole := want(t, s, 200, "GET", "/v2/echo/health", "")
		s.Fault(double.Fault{Name: double.FaultSlowBody, Delay: time.Second, Bytes: 1, Count: 1})
		began := time.Now()
		if a := want(t, s, 200, "GET", "/v2/echo/health", ""); a.body != whole.body {
			t.Errorf("the slow body is %q, want %q", a.body, whole.body)
		}
		if got, want := time.Since(began), time.Duration(len(whole.body)-1)*time.Second; got != want {
			t.Errorf("it took %v, want %v", got, want)
		}
	})
}

func TestFaultTruncatedLeavesAsManyBytesAsItSays(t *testing.T) {
	s := startFaulty(t)
	s.Fault(double.Fault{Name: double.FaultTruncated, Bytes: 3, Count: 1})
	a, err := try(t, s.Client(), "GET", double.BaseURL+"/v2/echo/health", "")
	if len(a.body) != 3 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("health = %q, %v, want 3 bytes and an unexpected end", a.body, err)
	}
}

func TestFaultsOfPods(t *testing.T) {
	for _, tt := range []struct {
		name string
		then string
	}{
		{double.FaultPull, "ERROR"}, {double.FaultUnhealthy, "STARTING"},
		{double.FaultCrash, "ERROR"}, {double.FaultOOM, "ERROR"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := startFaulty(t)
			s.Fault(double.Fault{Name: tt.name, Image: "we*", Count: 1})
			id := want(t, s, 201, "POST", "/v2/pods", pod).field("id")
			s.RunUntilIdle()
			s.Advance(time.Minute)
			if got := podStatus(t, s, id); got != tt.then {
				t.Errorf("pod = %s, want %s", got, tt.then)
			}
			other := want(t, s, 201, "POST", "/v2/pods", pod).field("id")
			s.Advance(time.Minute)
			if got := podStatus(t, s, other); got != "RUNNING" {
				t.Errorf("the next pod = %s, want RUNNING", got)
			}
		})
	}
}

func TestFaultNoCapacityIsOfADataCenter(t *testing.T) {
	s := startFaulty(t)
	in := func(dc string) string { return strings.TrimSuffix(pod, "}") + `,"dataCenterIds":["` + dc + `"]}` }
	first := want(t, s, 201, "POST", "/v2/pods", pod).field("dataCenterId")
	s.Fault(double.Fault{Name: double.FaultNoCapacity, DataCenter: first})
	if a := want(t, s, 400, "POST", "/v2/pods", in(first)); !strings.Contains(a.body, first) {
		t.Errorf("the refusal %s does not say where", a.body)
	}
	if got := want(t, s, 201, "POST", "/v2/pods", pod).field("dataCenterId"); got == first {
		t.Errorf("the pod is in %s, which is full", got)
	}
	s.Double.ClearFaults()
	want(t, s, 201, "POST", "/v2/pods", in(first))
}

func TestFaultWorkerDiesAfterChunksAndAnotherGoesOn(t *testing.T) {
	s := startFaulty(t)
	s.Fault(double.Fault{Name: double.FaultWorkerDies, Endpoint: "chunks", Chunks: 3, Count: 1})
	job := run(t, s, "chunks", `{"input":{}}`)
	s.Advance(0)
	r := s.RequireJob(t, apitest.JobMatch{ID: job, Status: "COMPLETED", Output: "all"})
	if r.Worker != "local-chunks-2" {
		t.Errorf("worker = %s, want the second one", r.Worker)
	}
	if h := want(t, s, 200, "GET", "/v2/chunks/health", ""); !strings.Contains(h.body, `"retried":1`) {
		t.Errorf("health = %s, want one retried", h.body)
	}
	if a := want(t, s, 200, "GET", "/v2/chunks/stream/"+job+"?format=array", ""); strings.Count(a.body, "output") != 5 {
		t.Errorf("stream = %s, want the five chunks of the second worker only", a.body)
	}
}

func TestFaultWorkerDiesUntilTheJobFails(t *testing.T) {
	s := startFaulty(t)
	s.Fault(double.Fault{Name: double.FaultWorkerDies, Endpoint: "echo"})
	job := run(t, s, "echo", `{"input":{}}`)
	s.RequireJob(t, apitest.JobMatch{ID: job, Status: "FAILED", Error: "worker lost*"})
}

func TestFaultsOfWebhooks(t *testing.T) {
	s := startFaulty(t)
	s.Fault(double.Fault{Name: double.FaultWebhookStatus, Status: 503, Count: 1, Endpoint: "echo"})
	s.Fault(double.Fault{Name: double.FaultWebhookDown})
	run(t, s, "echo", `{"input":{},"webhook":"http://client.test/"}`)
	s.RunUntilIdle()
	s.RequireWebhook(t, apitest.WebhookMatch{Status: 503, Fault: double.FaultWebhookStatus, Times: 1})
	s.RequireWebhook(t, apitest.WebhookMatch{Fault: double.FaultWebhookDown, Times: 2})
	if n := len(s.Double.Webhooks()); n != 3 {
		t.Errorf("%d attempts, want 3", n)
	}
}

func TestFaultWebhookLostAnswerDeliversTwice(t *testing.T) {
	var got []string
	s := apitest.StartWith(t, &double.Options{Receiver: receiver(func(r *http.Request) { got = append(got, r.Header.Get("Webhook-Id")) })})
	s.Handle("echo", echo)
	s.Fault(double.Fault{Name: double.FaultWebhookLost, Count: 1})
	run(t, s, "echo", `{"input":{},"webhook":"http://client.test/"}`)
	s.RunUntilIdle()
	if len(got) != 2 || got[0] != got[1] {
		t.Errorf("the receiver has got %q, want one webhook twice", got)
	}
	s.RequireWebhook(t, apitest.WebhookMatch{Fault: double.FaultWebhookLost, Times: 1})
	s.RequireWebhook(t, apitest.WebhookMatch{Status: 200, Times: 1})
}

// A receiver gets every webhook.
type receiver func(*http.Request)

func (f receiver) RoundTrip(r *http.Request) (*http.Response, error) {
	f(r)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

func TestFaultThatCannotBeIsRefused(t *testing.T) {
	s := startFaulty(t)
	for _, f := range []double.Fault{
		{}, {Name: "nonsense"}, {Name: double.FaultStatus, Count: -1}, {Name: double.FaultStatus, Probability: 1.5},
		{Name: double.FaultStatus, Operation: "nonsense"}, {Name: double.FaultStatus, Status: 42}, {Name: double.FaultLatency},
		{Name: double.FaultSlowBody}, {Name: double.FaultNoAnswer}, {Name: double.FaultTruncated, Bytes: -1},
	} {
		if _, err := s.Double.Fault(f); err == nil {
			t.Errorf("Fault(%+v) = nil, want an error", f)
		}
	}
	if n := len(s.Double.Faults()); n != 0 {
		t.Errorf("%d faults are set, want none", n)
	}
}

func TestThereAreFaultsEnough(t *testing.T) {
	names := map[string]string{}
	for _, n := range double.FaultNames() {
		names[n.Name] = n.Does
		if n.Does == "" {
			t.Errorf("fault %s does not say what it does", n.Name)
		}
	}
	if len(names) < 14 {
		t.Errorf("%d faults, want 14 at least", len(names))
	}
}
