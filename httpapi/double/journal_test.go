package double_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi/apitest"
	"github.com/podyard/podyard/httpapi/double"
	"github.com/podyard/podyard/httpapi/worker"
	"github.com/podyard/podyard/serverless"
)

func TestJournalShowsNoSecret(t *testing.T) {
	s := apitest.Start(t)
	s.Queue("q")
	const secret = "hunter2-the-secret"
	s3 := `"s3Config":{"accessId":"a","accessSecret":"` + secret + `","bucketName":"b","endpointUrl":"http://s3.test"}`
	want(t, s, 201, "POST", "/v2/registries", `{"name":"r","username":"u","password":"`+secret+`"}`)
	want(t, s, 200, "POST", "/v2/q/run", `{"input":{"a":1},`+s3+`}`)
	call(t, s, "POST", "/v2/q/run", `{"input":{"a":1},`+s3)                                            // not JSON
	call(t, s, "POST", "/v2/q/run", `{"input":{},`+strings.Replace(s3, "s3C", `s\u0033C`, 1)+`}`)      // the same name
	call(t, s, "POST", "/v2/registries", `{"name":"r","username":"u","PASSWORD":"`+secret+`"}`)        // a refused one
	call(t, s, "GET", "/v2/pods", "", "Authorization: Bearer "+secret, "Cookie: session="+secret)      // a wrong key
	want(t, s, 200, "GET", "/v2/q/job-take-batch/w1?batch_size=2", "", "Authorization: Bearer "+s.Key) // s3Config is for the worker
	want(t, s, 200, "GET", "/v2/q/requests?full=true", "")
	for what, v := range map[string]any{"requests": s.Double.Requests(), "jobs": s.Double.Jobs(), "webhooks": s.Double.Webhooks(), "faults": s.Double.Faults()} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{secret, s.Key} {
			if strings.Contains(string(b), text) {
				t.Errorf("the %s have %q in them: %s", what, text, b)
			}
		}
	}
	s.RequireRequest(t, apitest.RequestMatch{Operation: "run", Body: obj{"input": obj{"a": 1}, "s3Config": "[redacted]"}, Status: 200})
	s.RequireRequest(t, apitest.RequestMatch{Operation: "createRegistry", Body: obj{"name": "r", "password": "[redacted]"}, Status: 201})
}

// A failingTB records how a Require method ends the test.
type failingTB struct {
	testing.TB
	text string
}

func (f *failingTB) Helper() {}

func (f *failingTB) Fatal(args ...any) {
	f.text = fmt.Sprint(args...)
	panic(f)
}

// failure returns the text with which f ends its test; empty if it does not.
func failure(t *testing.T, f func(testing.TB)) (text string) {
	t.Helper()
	tb := &failingTB{TB: t}
	defer func() {
		if p := recover(); p != nil && p != tb {
			panic(p)
		}
		text = tb.text
	}()
	f(tb)
	return ""
}

func TestRequireSaysWhatCameNearest(t *testing.T) {
	s := apitest.Start(t)
	s.Handle("echo", echo)
	run(t, s, "echo", `{"input":{"prompt":"a cat","n":2},"webhook":"http://client.test/a"}`)
	run(t, s, "echo", `{"input":{"prompt":"a dog"}}`)
	for _, tt := range []struct {
		rule string
		f    func(testing.TB)
		says []string // none: no failure
	}{
		{"a job with these members", func(tb testing.TB) {
			s.RequireJob(tb, apitest.JobMatch{Endpoint: "echo", Input: obj{"prompt": "a cat"}, Output: obj{"n": 2}, Times: 1})
		}, nil},
		{"a job that differs in one member", func(tb testing.TB) {
			s.RequireJob(tb, apitest.JobMatch{Input: obj{"prompt": "a cow", "n": 2}})
		}, []string{"found 0 among 2", `input.prompt: want "a cow", got "a cat"`}},
		{"a member that is missing", func(tb testing.TB) {
			s.RequireJob(tb, apitest.JobMatch{Input: obj{"prompt": "a dog", "n": 2}})
		}, []string{"input.n: want 2, it is missing"}},
		{"two where one was asked for", func(tb testing.TB) {
			s.RequireJob(tb, apitest.JobMatch{Endpoint: "echo", Times: 1})
		}, []string{"want 1 job", "found 2 among 2"}},
		{"none where there is one", func(tb testing.TB) {
			s.RequireJob(tb, apitest.JobMatch{Input: obj{"n": 2}, Times: -1})
		}, []string{"want none", "found 1"}},
		{"a request of another status", func(tb testing.TB) {
			s.RequireRequest(tb, apitest.RequestMatch{Operation: "run", Status: 404})
		}, []string{"status: want 404, got 200"}},
		{"an operation that does not exist", func(tb testing.TB) {
			s.RequireRequest(tb, apitest.RequestMatch{Operation: "jump"})
		}, []string{`no operation "jump"`}},
		{"a webhook", func(tb testing.TB) {
			s.RequireWebhook(tb, apitest.WebhookMatch{URL: "http://client.test/*", Body: obj{"status": "COMPLETED"}, Times: 1})
		}, nil},
		{"a webhook to another URL", func(tb testing.TB) {
			s.RequireWebhook(tb, apitest.WebhookMatch{URL: "http://client.test/b"})
		}, []string{`url: want "http://client.test/b", got "http://client.test/a"`}},
	} {
		got := failure(t, tt.f)
		if tt.says == nil && got != "" {
			t.Errorf("%s: failed with %q, want it to hold", tt.rule, got)
		}
		for _, text := range tt.says {
			if !strings.Contains(got, text) {
				t.Errorf("%s: %q does not say %q", tt.rule, got, text)
			}
		}
	}
}

func TestWebhookSignatureIsVerified(t *testing.T) {
	s := apitest.Start(t)
	s.Handle("echo", echo)
	run(t, s, "echo", `{"input":{},"webhook":"http://client.test/"}`)
	d := s.RequireWebhook(t, apitest.WebhookMatch{Times: 1})
	secret := s.Double.WebhookSecret()
	if err := double.VerifyWebhook(secret, s.Now(), d.Header, d.Body); err != nil {
		t.Errorf("the signature of the product = %v, want nil", err)
	}
	for rule, err := range map[string]error{
		"another body":   double.VerifyWebhook(secret, s.Now(), d.Header, append([]byte(" "), d.Body...)),
		"another secret": double.VerifyWebhook("whsec_"+strings.Repeat("A", 44), s.Now(), d.Header, d.Body),
		"no signature":   double.VerifyWebhook(secret, s.Now(), http.Header{}, d.Body),
		"no secret":      double.VerifyWebhook("", s.Now(), d.Header, d.Body),
	} {
		if err == nil {
			t.Errorf("%s: VerifyWebhook = nil, want an error", rule)
		}
	}
}

// A receiver accepts a webhook up to five minutes late or early, by the clock of its timestamp.
func TestWebhookTimestampHasATolerance(t *testing.T) {
	s := apitest.Start(t)
	s.Handle("echo", echo)
	run(t, s, "echo", `{"input":{},"webhook":"http://client.test/"}`)
	d := s.RequireWebhook(t, apitest.WebhookMatch{Times: 1})
	for _, tt := range []struct {
		after time.Duration
		says  string // empty: it is accepted
	}{
		{0, ""},
		{double.WebhookTolerance, ""},
		{double.WebhookTolerance + time.Second, "in the past"},
		{-double.WebhookTolerance, ""},
		{-double.WebhookTolerance - time.Second, "in the future"},
	} {
		err := double.VerifyWebhook(s.Double.WebhookSecret(), d.At.Add(tt.after), d.Header, d.Body)
		if got := fmt.Sprint(err); (err == nil) != (tt.says == "") || !strings.Contains(got, tt.says) && tt.says != "" {
			t.Errorf("%v after the timestamp: VerifyWebhook = %v, want %q", tt.after, err, tt.says)
		}
	}
	h := d.Header.Clone()
	h.Set("Webhook-Timestamp", "soon")
	if err := double.VerifyWebhook(s.Double.WebhookSecret(), d.At, h, d.Body); err == nil || !strings.Contains(err.Error(), "number of seconds") {
		t.Errorf("a timestamp that is no number: VerifyWebhook = %v, want an error that says so", err)
	}
}

func TestReceiverOfTheTestGetsWebhooks(t *testing.T) {
	got := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("Webhook-Id")
		w.WriteHeader(http.StatusAccepted)
	}))
	defer receiver.Close()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	s := apitest.StartWith(t, &double.Options{Receiver: tr})
	s.Handle("echo", echo)
	job := run(t, s, "echo", `{"input":{},"webhook":"`+receiver.URL+`/hook"}`)
	s.RequireWebhook(t, apitest.WebhookMatch{Job: job, Status: http.StatusAccepted, Times: 1})
	if id := <-got; !strings.Contains(id, job) {
		t.Errorf("Webhook-Id = %q, want it to name job %s", id, job)
	}
}

func TestScriptGivesOutcomesInOrderAndByInput(t *testing.T) {
	s := apitest.Start(t)
	s.Endpoint("e").
		When(obj{"n": 1}).Reply("one").
		Times(2).Fail("twice").
		With(obj{"why": 1}).Fail("once").
		Reply(nil).
		When(obj{"n": 9}).Stream("a", "b")
	sync := func(input string) string {
		t.Helper()
		a := want(t, s, 200, "POST", "/v2/e/runsync", `{"input":`+input+`}`)
		var j struct {
			Status, Error string
			Output        json.RawMessage
		}
		if err := json.Unmarshal([]byte(a.body), &j); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(j.Status + " " + j.Error + string(j.Output))
	}
	for i, tt := range []struct{ input, want string }{
		{`{"n":1}`, `COMPLETED "one"`},
		{`{"n":2}`, `FAILED twice`},
		{`{"n":2}`, `FAILED twice`},
		{`{"n":2}`, `FAILED once{"why":1}`},
		{`{"n":2}`, `COMPLETED null`},
		{`{"n":2}`, `COMPLETED null`}, // the last one is repeated
		{`{"n":9}`, `COMPLETED ["a","b"]`},
	} {
		if got := sync(tt.input); got != tt.want {
			t.Errorf("job %d with %s = %s, want %s", i, tt.input, got, tt.want)
		}
	}
	s.Endpoint("strict").When(obj{"n": 1}).Times(1).Reply(1)
	for input, says := range map[string]string{`{"n":2}`: "input.n: want 1, got 2", `{}`: "missing"} {
		a := want(t, s, 200, "POST", "/v2/strict/runsync", `{"input":`+input+`}`)
		if !strings.Contains(a.field("error"), says) {
			t.Errorf("the job with %s = %s, want an error that says %q", input, a.body, says)
		}
	}
	want(t, s, 200, "POST", "/v2/strict/runsync", `{"input":{"n":1}}`)
	if a := want(t, s, 200, "POST", "/v2/strict/runsync", `{"input":{"n":1}}`); !strings.Contains(a.body, "used up") {
		t.Errorf("the second job = %s, want an error that says that the outcome is used up", a.body)
	}
	s.Endpoint("bad").Reply(func() {})
	if a := want(t, s, 200, "POST", "/v2/bad/runsync", `{"input":{}}`); !strings.Contains(a.body, "JSON") {
		t.Errorf("a job of a script that cannot be = %s, want an error that says why", a.body)
	}
}

func TestRemoteWorkerThatDiesLosesItsJob(t *testing.T) {
	s := apitest.Start(t)
	s.Queue("remote")
	s.Fault(double.Fault{Name: double.FaultWorkerDies, Endpoint: "remote", Chunks: 1, Count: 1})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 2)
	for _, id := range []string{"w1", "w2"} {
		go func() {
			done <- worker.Run(ctx, serverless.WorkerFunc(func(ctx context.Context, k *serverless.Task) ([]byte, error) {
				for range 3 {
					if err := k.Emit(ctx, []byte(`1`)); err != nil {
						return nil, err
					}
				}
				return []byte(`"all"`), nil
			}), &worker.Options{URL: double.BaseURL + "/v2", Endpoint: "remote", ID: id, Key: s.Key, Client: s.Client(), Drain: time.Millisecond})
		}()
	}
	job := run(t, s, "remote", `{"input":{}}`)
	for status(t, s, "remote", job) != "COMPLETED" {
		s.Advance(0)
	}
	if h := want(t, s, 200, "GET", "/v2/remote/health", ""); !strings.Contains(h.body, `"retried":1`) {
		t.Errorf("health = %s, want one retried", h.body)
	}
	stop()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
