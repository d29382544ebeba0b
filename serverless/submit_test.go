package serverless_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
)

const (
	badTimeout = "/policy/executionTimeout: must be from 5000 to 604800000 milliseconds"
	badTTL     = "/policy/ttl: must be from 10000 to 604800000 milliseconds"
	badInput   = "/input: must be a JSON object"
	badWebhook = "/webhook: must be an absolute http or https URL"
)

func TestPolicyIsAcceptedUpToItsBounds(t *testing.T) {
	const week = 7 * 24 * time.Hour
	for _, tt := range []struct {
		name   string
		change func(time.Duration) func(*serverless.Request)
		lo, hi time.Duration
		fault  string
	}{
		{"executionTimeout", withTimeout, 5 * time.Second, week, badTimeout},
		{"ttl", withTTL, 10 * time.Second, week, badTTL},
	} {
		s := serverless.New(memory.NewJobs(), twoEndpoints(t), nil)
		for _, d := range []time.Duration{tt.lo, tt.lo + time.Millisecond, tt.hi - time.Millisecond, tt.hi} {
			submitEcho(t, s, tt.change(d))
		}
		for _, d := range []time.Duration{-time.Hour, 0, tt.lo - time.Millisecond, tt.lo - 1, tt.hi + 1, tt.hi + time.Millisecond} {
			r := serverless.Request{Input: []byte(`{}`)}
			tt.change(d)(&r)
			_, err := s.Submit(t.Context(), "alice", "echo", r)
			if kind, list := faults(t, err); kind != problem.Invalid || !cmp.Equal(list, []string{tt.fault}) {
				t.Errorf("%s %v is refused with %v %q, want 422 %q", tt.name, d, kind, list, tt.fault)
			}
		}
	}
}

func TestInputIsOneJSONObject(t *testing.T) {
	s := serverless.New(memory.NewJobs(), twoEndpoints(t), nil)
	for _, in := range []string{`{}`, " \r\n\t{\"a\":[1,{}]} ", `{"a":1,"a":2}`, `{"big":123456789012345678901234567890}`} {
		ref := submitEcho(t, s, withInput(in))
		if got := string(mustGet(t, s, ref).Input); got != in {
			t.Errorf("input %q is kept as %q, want it byte by byte", in, got)
		}
	}
	for in, want := range map[string]string{
		``: "/input: is required", ` `: badInput, `[]`: badInput, `null`: badInput, `1`: badInput, `"{}"`: badInput,
		`{`: badInput, `{}{}`: badInput, `{"a":}`: badInput, "{\"a\":\"\n\"}": badInput,
	} {
		_, err := s.Submit(t.Context(), "alice", "echo", serverless.Request{Input: []byte(in)})
		if _, list := faults(t, err); !cmp.Equal(list, []string{want}) {
			t.Errorf("input %q is refused with %q, want %q", in, list, want)
		}
	}
}

func TestWebhookIsAnAbsoluteWebAddress(t *testing.T) {
	s := serverless.New(memory.NewJobs(), twoEndpoints(t), nil)
	for _, u := range []string{"http://a", "https://a.example/x?y=z", "HTTPS://a.example", "http://a.example:65535/", "http://a.example:/", "http://[::1]:80/"} {
		if j := mustGet(t, s, submitEcho(t, s, withWebhook(u))); j.Webhook != u || j.Flags&queue.HasWebhook == 0 {
			t.Errorf("webhook %q is kept as %q, flags %v", u, j.Webhook, j.Flags)
		}
	}
	for _, u := range []string{"a", "/x", "a.example/x", "//a.example/x", "ftp://a.example", "http://", "http:///x", "https://:443/", "http:a.example", "file:///etc/passwd", "http://a b/", "\x00", " http://a"} {
		_, err := s.Submit(t.Context(), "alice", "echo", serverless.Request{Input: []byte(`{}`), Webhook: u})
		if _, list := faults(t, err); !cmp.Equal(list, []string{badWebhook}) {
			t.Errorf("webhook %q is refused with %q, want %q", u, list, badWebhook)
		}
	}
	const credentials, port = "/webhook: must have no user name and no password", "/webhook: must have a port from 1 to 65535, or none"
	for u, want := range map[string]string{
		"http://user:pass@a.example:8080/": credentials, "https://token@a.example": credentials, "https://@a.example": credentials, "https://a:b@c:0": credentials,
		"http://a.example:0/": port, "http://a.example:65536": port, "https://[::1]:99999/x": port, "http://a.example:18446744073709551617": port,
	} {
		_, err := s.Submit(t.Context(), "alice", "echo", serverless.Request{Input: []byte(`{}`), Webhook: u})
		if _, list := faults(t, err); !cmp.Equal(list, []string{want}) {
			t.Errorf("webhook %q, which nobody can send, is refused with %q, want %q", u, list, want)
		}
	}
}

func TestAllFaultsOfARequestComeTogetherInTheDocumentedOrder(t *testing.T) {
	q := memory.NewJobs()
	s := serverless.New(q, twoEndpoints(t), nil)
	r := serverless.Request{Input: []byte(`[]`), Webhook: "ftp://x", Extra: []byte(`7`)}
	withTTL(time.Second)(&r)
	withTimeout(time.Second)(&r)
	r.Violations.Add(problem.Invalid, "/policy/lowPriority", "must be a boolean") // what a decoder found
	_, err := s.Submit(t.Context(), "alice", "echo", r)
	kind, list := faults(t, err)
	want := []string{badInput, badWebhook, badTimeout, "/policy/lowPriority: must be a boolean", badTTL, "/s3Config: must be a JSON object"}
	if diff := cmp.Diff(want, list); diff != "" || kind != problem.Invalid {
		t.Errorf("%v, faults (-want +got):\n%s", kind, diff)
	}
	if n := q.Len(); n != 0 {
		t.Errorf("a refused request left %d jobs, want none", n)
	}
}

func TestDecoderFaultOfAPlaceHidesTheSecondOne(t *testing.T) {
	s := serverless.New(memory.NewJobs(), twoEndpoints(t), nil)
	var r serverless.Request
	r.Violations.Add(problem.Invalid, "/input", "must be an object, is a number")
	_, err := s.Submit(t.Context(), "alice", "echo", r)
	if _, list := faults(t, err); !cmp.Equal(list, []string{"/input: must be an object, is a number"}) {
		t.Errorf("faults are %q, want only the decoder's", list)
	}
}

func TestLimitsThatARequestLeavesOutAreTheDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		submitted := serverless.At(time.Now())
		j := mustGet(t, s, submitEcho(t, s))
		if j.ExecTimeout != 10*time.Minute || j.Expires != submitted+86400000 || j.Retain != 30*time.Minute || j.Flags != 0 {
			t.Errorf("executionTimeout %v, ttl %d, retention %v, flags %v, want 10m, 86400000, 30m, none", j.ExecTimeout, j.Expires-submitted, j.Retain, j.Flags)
		}
		if j.Submitted != submitted || j.Queued != submitted {
			t.Errorf("submitted at %d, queued at %d, want %d", j.Submitted, j.Queued, submitted)
		}
		low := submitEcho(t, s, func(r *serverless.Request) { r.Policy.LowPriority = true })
		if mustGet(t, s, low).Flags != queue.LowPriority {
			t.Error("lowPriority is not kept")
		}
	})
}

func TestRequestOverridesTheTimeoutOfItsEndpoint(t *testing.T) {
	eps := twoEndpoints(t)
	if err := eps.Create(t.Context(), &serverless.Endpoint{ID: "slow", Name: "slow", ExecTimeout: time.Hour}); err != nil {
		t.Fatal(err)
	}
	s := serverless.New(memory.NewJobs(), eps, nil)
	for _, tt := range []struct {
		endpoint string
		change   func(*serverless.Request)
		want     time.Duration
	}{
		{"echo", func(*serverless.Request) {}, 10 * time.Minute},
		{"slow", func(*serverless.Request) {}, time.Hour},
		{"slow", withTimeout(5 * time.Second), 5 * time.Second},
	} {
		r := serverless.Request{Input: []byte(`{}`)}
		tt.change(&r)
		j, err := s.Submit(t.Context(), "alice", tt.endpoint, r)
		if err != nil || j.ExecTimeout != tt.want {
			t.Errorf("%s: timeout is %v, %v, want %v", tt.endpoint, j.ExecTimeout, err, tt.want)
		}
	}
}

func TestJobIDsAreUUIDsOfVersion4WithTheirAffixes(t *testing.T) {
	s := serverless.New(memory.NewJobs(), twoEndpoints(t), nil)
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}-u1$`)
	seen := map[serverless.JobID]bool{}
	for i := range 1000 {
		ref := submitEcho(t, s, func(r *serverless.Request) { r.Sync = i%2 == 1 })
		uuid, sync := strings.CutPrefix(string(ref.ID), "sync-")
		if sync != (i%2 == 1) || !form.MatchString(uuid) || seen[ref.ID] {
			t.Fatalf("id of a job with Sync %v is %q (seen before: %v)", i%2 == 1, ref.ID, seen[ref.ID])
		}
		seen[ref.ID] = true
	}
}

func TestSameRandomnessMakesTheSameIDs(t *testing.T) {
	var got [2][]serverless.JobID
	for i := range got {
		s := serverless.New(memory.NewJobs(), twoEndpoints(t), &serverless.Options{Rand: rand.NewChaCha8([32]byte{7})})
		for range 5 {
			got[i] = append(got[i], submitEcho(t, s).ID)
		}
	}
	if diff := cmp.Diff(got[0], got[1]); diff != "" {
		t.Errorf("ids of the second service (-first +second):\n%s", diff)
	}
}

func TestSubmitFailsWithoutRandomBytes(t *testing.T) {
	q := memory.NewJobs()
	s := serverless.New(q, twoEndpoints(t), &serverless.Options{Rand: bytes.NewReader(make([]byte, 15))})
	if _, err := s.Submit(t.Context(), "alice", "echo", serverless.Request{Input: []byte(`{}`)}); err == nil || q.Len() != 0 {
		t.Errorf("Submit without randomness = %v and left %d jobs, want an error and none", err, q.Len())
	}
}

func TestTakenJobIDIsReportedAndKeepsTheFirstJob(t *testing.T) {
	same := append(make([]byte, 16), make([]byte, 16)...)
	s := serverless.New(memory.NewJobs(), twoEndpoints(t), &serverless.Options{Rand: bytes.NewReader(same)})
	ref := submitEcho(t, s, withInput(`{"n":1}`))
	if _, err := s.Submit(t.Context(), "alice", "echo", serverless.Request{Input: []byte(`{"n":2}`)}); !errors.Is(err, queue.ErrExists) {
		t.Errorf("Submit under a taken id = %v, want ErrExists", err)
	}
	if got := string(mustGet(t, s, ref).Input); got != `{"n":1}` {
		t.Errorf("input of the first job is %s now", got)
	}
}

func TestEveryOperationReportsAnUnknownEndpoint(t *testing.T) {
	s := serverless.New(memory.NewJobs(), twoEndpoints(t), nil)
	ctx, ref := t.Context(), serverless.Ref{Endpoint: "nope", ID: "x"}
	for name, call := range map[string]func() error{
		"Submit":     func() error { _, err := s.Submit(ctx, "alice", "nope", serverless.Request{}); return err },
		"runsync":    func() error { _, err := s.SubmitAndWait(ctx, "alice", "nope", serverless.Request{}); return err },
		"Get":        func() error { _, err := s.Get(ctx, "alice", ref); return err },
		"Wait":       func() error { _, err := s.Wait(ctx, "alice", ref, time.Minute); return err },
		"SetTTL":     func() error { _, err := s.SetTTL(ctx, "alice", ref, time.Minute); return err },
		"Cancel":     func() error { _, err := s.Cancel(ctx, "alice", ref); return err },
		"Retry":      func() error { _, err := s.Retry(ctx, "alice", ref); return err },
		"Purge":      func() error { _, err := s.Purge(ctx, "alice", "nope"); return err },
		"Health":     func() error { _, err := s.Health(ctx, "nope"); return err },
		"Requests":   func() error { _, err := s.Requests(ctx, "alice", "nope", serverless.RequestsQuery{}); return err },
		"Deliveries": func() error { _, err := s.Deliveries(ctx, "alice", ref); return err },
		"Redeliver":  func() error { _, err := s.Redeliver(ctx, "alice", ref); return err },
		"Serve":      func() error { return s.Serve(ctx, "nope", serverless.WorkerFunc(echo), nil) },
		"Stream": func() error {
			return s.Stream(ctx, "alice", ref, serverless.StreamQuery{}, func(serverless.StreamPart) error { return nil })
		},
	} {
		if err := call(); !errors.Is(err, serverless.ErrNoEndpoint) {
			t.Errorf("%s on an unknown endpoint = %v, want ErrNoEndpoint", name, err)
		}
	}
}

func TestReservedWordsAreNoEndpointIDs(t *testing.T) {
	for id := range strings.FieldsSeq("pods serverless templates network-volumes registries catalog billing clusters account openapi.json") {
		if !endpoints.IsReserved(id) || endpoints.CheckID(id) == nil {
			t.Errorf("%q can be an endpoint id, want it reserved", id)
		}
	}
	for _, id := range []string{"", "a/b", "a.b", "a b", "é", strings.Repeat("a", 64), "..", "%2e"} {
		if endpoints.CheckID(id) == nil {
			t.Errorf("%q can be an endpoint id", id)
		}
	}
	for _, id := range []string{"a", "Pods", "echo_1-x", strings.Repeat("a", 63)} {
		if err := endpoints.CheckID(id); err != nil {
			t.Errorf("%q is no endpoint id: %v", id, err)
		}
	}
}

func TestWaitAndTTLOfAQueryHaveBounds(t *testing.T) {
	for _, tt := range []struct {
		name   string
		check  func(time.Duration) error
		lo, hi time.Duration
		want   string
	}{
		{"wait", serverless.CheckWait, time.Second, 5 * time.Minute, "wait must be from 1000 to 300000 milliseconds"},
		{"ttl", serverless.CheckTTL, time.Second, 7 * 24 * time.Hour, "ttl must be from 1000 to 604800000 milliseconds"},
	} {
		for _, d := range []time.Duration{tt.lo, tt.hi} {
			if err := tt.check(d); err != nil {
				t.Errorf("%s %v: %v", tt.name, d, err)
			}
		}
		for _, d := range []time.Duration{-1, 0, tt.lo - 1, tt.hi + 1} {
			if err := tt.check(d); problem.KindOf(err) != problem.Invalid || problem.Of(err).Detail != tt.want {
				t.Errorf("%s %v = %v, want 422 %q", tt.name, d, err, tt.want)
			}
		}
	}
}

func TestAQueueWithoutADatabaseHasNoTransactions(t *testing.T) {
	s := serverless.New(memory.NewJobs(), twoEndpoints(t), nil)
	if _, err := s.SubmitTx(t.Context(), nil, "alice", "echo", serverless.Request{Input: []byte(`{}`)}); !errors.Is(err, queue.ErrNoTx) || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("SubmitTx = %v, want ErrNoTx", err)
	}
}
