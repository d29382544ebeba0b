package serverless_test

import (
	"context"
	"fmt"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// start returns a running service with an endpoint that w serves.
func start(ctx context.Context, endpoint string, w serverless.Worker) *serverless.Service {
	s := serverless.New(memory.NewJobs(), memory.NewEndpoints(), nil)
	if err := s.EnsureEndpoint(ctx, endpoint); err != nil {
		panic(err)
	}
	go s.Run(ctx)
	if w != nil {
		go s.Serve(ctx, endpoint, w, nil)
	}
	return s
}

// The smallest use: a queue in memory, one endpoint, and a Go function that does its jobs.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s := serverless.New(memory.NewJobs(), memory.NewEndpoints(), nil)
	if err := s.EnsureEndpoint(ctx, "greet"); err != nil {
		fmt.Println(err)
		return
	}
	go s.Run(ctx) // ends when ctx does
	go s.Serve(ctx, "greet", serverless.JSON(func(_ context.Context, in struct{ Name string }) (string, error) {
		return "hello, " + in.Name, nil
	}), nil)

	j, err := s.SubmitAndWait(ctx, "alice", "greet", serverless.Request{Input: []byte(`{"name":"Ada"}`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(j.Status, string(j.Output))
	// Output: COMPLETED "hello, Ada"
}

// An input that does not fit the type fails the job and names the field.
func ExampleJSON() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	type in struct {
		Width, Height int
	}
	s := start(ctx, "area", serverless.JSON(func(_ context.Context, r in) (int, error) {
		return r.Width * r.Height, nil
	}))
	for _, input := range []string{`{"width":6,"height":7}`, `{"width":"six"}`} {
		j, err := s.SubmitAndWait(ctx, "alice", "area", serverless.Request{Input: []byte(input)})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(j.Status, string(j.Output), j.ErrorText() != "")
	}
	// Output:
	// COMPLETED 42 false
	// FAILED  true
}

// A WorkerFunc works on bytes: the input and the output are JSON, as they are on the wire.
func ExampleWorkerFunc() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s := start(ctx, "echo", serverless.WorkerFunc(func(_ context.Context, t *serverless.Task) ([]byte, error) {
		return t.Input, nil
	}))
	j, err := s.SubmitAndWait(ctx, "alice", "echo", serverless.Request{Input: []byte(`{"n": 1.50}`)})
	fmt.Println(string(j.Output), err)
	// Output: {"n": 1.50} <nil>
}

// A worker emits chunks; a reader of the stream gets each once.
func ExampleService_Stream() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s := start(ctx, "count", serverless.WorkerFunc(func(ctx context.Context, t *serverless.Task) ([]byte, error) {
		for i := range 3 {
			if err := t.Emit(ctx, fmt.Appendf(nil, "%d", i)); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}))
	j, err := s.SubmitAndWait(ctx, "alice", "count", serverless.Request{Input: []byte(`{}`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	for ended := false; !ended; {
		err := s.Stream(ctx, "alice", j.Ref, serverless.StreamQuery{}, func(p serverless.StreamPart) error {
			for _, item := range p.Items {
				fmt.Println(string(item))
			}
			ended = p.Status.Terminal()
			return nil
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	// Output:
	// {"output":0}
	// {"output":1}
	// {"output":2}
}

// A queued job that is cancelled never runs.
func ExampleService_Cancel() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s := start(ctx, "idle", nil) // nobody works on it
	j, err := s.Submit(ctx, "alice", "idle", serverless.Request{Input: []byte(`{}`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(j.Status)
	j, err = s.Cancel(ctx, "alice", j.Ref)
	fmt.Println(j.Status, err)
	// Output:
	// IN_QUEUE
	// CANCELLED <nil>
}

// Why says in words what a job waits for.
func ExampleService_Why() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s := start(ctx, "idle", nil)
	j, err := s.Submit(ctx, "alice", "idle", serverless.Request{Input: []byte(`{}`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	why, err := s.Why(ctx, "alice", j.Ref)
	fmt.Println(why, err)
	// Output: it waits for a worker; there is none; the service starts none for this endpoint <nil>
}

// A worker elsewhere takes a job, renews its lease and reports the result. The routes of
// the worker protocol are these calls.
func ExampleService_Take() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s := start(ctx, "remote", nil)
	j, err := s.Submit(ctx, "alice", "remote", serverless.Request{Input: []byte(`{"n":1}`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	jobs, err := s.Take(ctx, "remote", "worker-1", 1)
	if err != nil || len(jobs) != 1 {
		fmt.Println(jobs, err)
		return
	}
	if err := s.Ping(ctx, "remote", "worker-1", []serverless.JobID{jobs[0].ID}); err != nil {
		fmt.Println(err)
		return
	}
	err = s.Report(ctx, queue.Op{Ref: jobs[0].Ref, Kind: queue.OpFinish, Worker: "worker-1", Status: serverless.Completed, Payload: []byte(`"done"`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	j, err = s.Get(ctx, "alice", j.Ref)
	fmt.Println(j.Status, string(j.Output), j.Worker, err)
	// Output: COMPLETED "done" worker-1 <nil>
}

// Health counts the jobs and workers of an endpoint.
func ExampleService_Health() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s := start(ctx, "idle", nil)
	for range 3 {
		if _, err := s.Submit(ctx, "alice", "idle", serverless.Request{Input: []byte(`{}`)}); err != nil {
			fmt.Println(err)
			return
		}
	}
	h, err := s.Health(ctx, "idle")
	fmt.Println(h.Jobs.Queued, "queued,", h.Workers.Running, "workers", err)
	// Output: 3 queued, 0 workers <nil>
}

// Purge cancels what is queued; what runs goes on.
func ExampleService_Purge() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s := start(ctx, "idle", nil)
	for range 3 {
		if _, err := s.Submit(ctx, "alice", "idle", serverless.Request{Input: []byte(`{}`)}); err != nil {
			fmt.Println(err)
			return
		}
	}
	n, err := s.Purge(ctx, "alice", "idle")
	fmt.Println(n, err)
	// Output: 3 <nil>
}

// A policy limits one job: how long it may run and how long it lives.
func ExamplePolicy() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s := start(ctx, "idle", nil)
	tooShort, ttl := time.Second, time.Hour
	_, err := s.Submit(ctx, "alice", "idle", serverless.Request{
		Input: []byte(`{}`), Policy: serverless.Policy{ExecutionTimeout: &tooShort, TTL: &ttl},
	})
	fmt.Println(problem.Of(err).Status, problem.Of(err).Errors)
	// Output: 422 [/policy/executionTimeout: must be from 5000 to 604800000 milliseconds]
}

// printer is a Sender that prints what it would post.
type printer struct{ sent chan struct{} }

func (p printer) Send(_ context.Context, d *serverless.Delivery) (status int, err error) {
	fmt.Println(d.Job.Webhook, d.Job.Status)
	close(p.sent)
	return 200, nil
}

// A Sender posts webhooks; backend/webhook has one for the network.
func ExampleSender() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	p := printer{make(chan struct{})}
	s := serverless.New(memory.NewJobs(), memory.NewEndpoints(), &serverless.Options{Sender: p})
	if err := s.EnsureEndpoint(ctx, "idle"); err != nil {
		fmt.Println(err)
		return
	}
	go s.Run(ctx)
	j, err := s.Submit(ctx, "alice", "idle", serverless.Request{Input: []byte(`{}`), Webhook: "https://example.com/done"})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := s.Cancel(ctx, "alice", j.Ref); err != nil {
		fmt.Println(err)
		return
	}
	<-p.sent
	// Output: https://example.com/done CANCELLED
}
