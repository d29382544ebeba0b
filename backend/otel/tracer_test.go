package otel_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/podyard/podyard/backend/disk"
	"github.com/podyard/podyard/backend/otel"
	"github.com/podyard/podyard/backend/webhook"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/serverless"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	parent  = "00-" + traceID + "-00f067aa0ba902b7-01"
)

// run runs a server over a directory until stop is called.
func run(t *testing.T, tracer *otel.Tracer, dir string, workers ...server.Worker) (url string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	store, err := disk.Open(ctx, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	sender, err := webhook.New(&webhook.Options{AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := server.New(ctx, &server.Options{
		Stores:  server.Stores{Endpoints: store.Endpoints(), Jobs: tracer.Queue(store.Jobs()), Run: store.Run, Close: store.Close},
		Jobs:    serverless.Options{Sender: tracer.Sender(sender), Observer: tracer.Jobs(nil)},
		Keys:    []httpapi.Key{{Secret: "secret", User: "alice", Scopes: []string{"*"}}, {Secret: "worker", User: "alice", Scopes: []string{"endpoint:shout:work"}}},
		Workers: workers,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Services().Jobs.EnsureEndpoint(ctx, "shout"); err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx, server.On(l, tracer.Handler(srv.Handler()))) }()
	return "http://" + l.Addr().String(), func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	}
}

// tree returns a line for each span of the trace: its name, its kind and the name of its parent.
func tree(spans tracetest.SpanStubs) (list []string) {
	names := map[string]string{"00f067aa0ba902b7": "caller"}
	for _, s := range spans {
		names[s.SpanContext.SpanID().String()] = s.Name
	}
	for _, s := range spans {
		if s.SpanContext.TraceID().String() == traceID {
			list = append(list, fmt.Sprintf("%s (%s) of %s", s.Name, s.SpanKind, names[s.Parent.SpanID().String()]))
		}
	}
	slices.Sort(list)
	return list
}

func TestATraceGoesFromARequestOverARestartToItsWorkerAndItsWebhook(t *testing.T) {
	worker := make(chan string, 1)
	follow(t, worker, nil, server.Worker{Endpoint: "shout", Worker: serverless.WorkerFunc(func(ctx context.Context, _ *serverless.Task) ([]byte, error) {
		worker <- serverless.TraceOf(ctx).Parent
		return []byte(`{}`), nil
	})})
}

// follow submits a job of a trace, starts the server anew, and wants its worker and its webhook to
// get the trace and its spans to have the right parents. start starts a worker that is no part of
// the server; nil: there is none.
func follow(t *testing.T, worker chan string, start func(url string), workers ...server.Worker) {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	tracer := otel.New(provider)
	hooks := make(chan string, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hooks <- r.Header.Get("Traceparent") }))
	defer receiver.Close()
	dir := t.TempDir()

	url, stop := run(t, tracer, dir)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v2/shout/run", strings.NewReader(`{"input":{"secret":"hunter2"},"webhook":"`+receiver.URL+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer secret")
	req.Header.Set("Traceparent", parent)
	res, err := http.DefaultClient.Do(req)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("run = %v, %v", res, err)
	}
	_ = res.Body.Close()
	stop()

	url, stop = run(t, tracer, dir, workers...)
	if start != nil {
		start(url)
	}
	got := map[string]string{}
	for name, ch := range map[string]chan string{"worker": worker, "webhook": hooks} {
		select {
		case got[name] = <-ch:
		case <-time.After(60 * time.Second):
			t.Fatalf("the %s got nothing", name)
		}
	}
	stop()

	for name, p := range got {
		if !strings.HasPrefix(p, "00-"+traceID+"-") || p == parent {
			t.Errorf("the %s got the traceparent %q, want another span of %s", name, p, traceID)
		}
	}
	want := []string{
		"POST /v2/{endpoint}/run (server) of caller", "process shout (consumer) of send shout", "receive shout (consumer) of send shout",
		"send shout (producer) of POST /v2/{endpoint}/run", "webhook POST (client) of send shout",
	}
	if list := tree(spans.GetSpans()); !slices.Equal(list, want) {
		t.Errorf("spans:\n%s\nwant:\n%s", strings.Join(list, "\n"), strings.Join(want, "\n"))
	}
	for _, s := range spans.GetSpans() {
		if strings.Contains(fmt.Sprint(s.Attributes, s.Status), "hunter2") {
			t.Errorf("the span %s has a part of the input: %v", s.Name, s.Attributes)
		}
	}
}

func TestAJobWithoutASampledTraceMakesNoSpans(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	url, stop := run(t, otel.New(provider), t.TempDir(), server.Worker{Endpoint: "shout", Worker: serverless.WorkerFunc(func(context.Context, *serverless.Task) ([]byte, error) {
		return []byte(`{}`), nil
	})})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v2/shout/runsync", strings.NewReader(`{"input":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer secret")
	res, err := http.DefaultClient.Do(req)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("runsync = %v, %v", res, err)
	}
	_ = res.Body.Close()
	stop()
	if list := spans.GetSpans(); len(list) > 0 {
		t.Errorf("%d spans, the first is %s", len(list), list[0].Name)
	}
}
