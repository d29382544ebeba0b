package serverless_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
)

// newService runs a service on memory with an endpoint "echo" until the test ends.
func newService(t *testing.T, o *serverless.Options) *serverless.Service {
	t.Helper()
	eps := memory.NewEndpoints()
	if err := eps.Create(t.Context(), &serverless.Endpoint{ID: "echo", Name: "echo"}); err != nil {
		t.Fatal(err)
	}
	s := serverless.New(memory.NewJobs(), eps, o)
	runService(t, s)
	return s
}

// serve runs w on the endpoint until the test ends.
func serve(t *testing.T, s *serverless.Service, w serverless.WorkerFunc, o *serverless.ServeOptions) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Serve(ctx, "echo", w, o) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve = %v, want nil", err)
		}
	})
	synctest.Wait()
}

func echo(_ context.Context, t *serverless.Task) ([]byte, error) { return t.Input, nil }

func TestSubmittedJobRunsAndItsTimingsAreMilliseconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		j, err := s.Submit(t.Context(), "alice", "echo", serverless.Request{Input: []byte(`{"a":1}`)})
		if err != nil || j.Status != serverless.InQueue {
			t.Fatalf("Submit = %v, %v, want IN_QUEUE", j.Status, err)
		}
		time.Sleep(1500 * time.Millisecond)
		serve(t, s, func(_ context.Context, k *serverless.Task) ([]byte, error) {
			time.Sleep(250 * time.Millisecond)
			return k.Input, nil
		}, nil)
		j, err = s.Wait(t.Context(), "alice", j.Ref, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(j.AppendJSON(nil, false)), `{"delayTime":1500,"executionTime":250,"id":"`+string(j.ID)+
			`","output":{"a":1},"status":"COMPLETED","workerId":"local-echo"}`; got != want {
			t.Errorf("job = %s\nwant  %s", got, want)
		}
	})
}
