package serverless_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
)

func TestEndpointOfAnotherUserDoesNotExist(t *testing.T) {
	s := serverless.New(memory.NewJobs(), memory.NewEndpoints(), nil)
	e, err := s.CreateEndpoint(t.Context(), "alice", cpuEndpoint())
	if err != nil {
		t.Fatal(err)
	}
	rename := endpoints.UpdateRequest{Settings: endpoints.Settings{Name: new("mine")}}
	for name, do := range map[string]func() error{
		"GetEndpoint":    func() error { _, err := s.GetEndpoint(t.Context(), "bob", e.ID); return err },
		"UpdateEndpoint": func() error { _, err := s.UpdateEndpoint(t.Context(), "bob", e.ID, rename); return err },
		"DeleteEndpoint": func() error { return s.DeleteEndpoint(t.Context(), "bob", e.ID) },
		"CheckEndpoint":  func() error { _, err := s.CheckEndpoint(t.Context(), "bob", e.ID); return err },
		"Submit": func() error {
			_, err := s.Submit(t.Context(), "bob", e.ID, serverless.Request{Input: []byte(`{}`)})
			return err
		},
	} {
		if err := do(); !errors.Is(err, serverless.ErrNoEndpoint) {
			t.Errorf("%s by another user = %v, want ErrNoEndpoint", name, err)
		}
	}
	if list, err := s.ListEndpoints(t.Context(), "bob"); err != nil || len(list) > 0 {
		t.Errorf("another user's listing has %d endpoints (%v), want none", len(list), err)
	}
	if got, err := s.GetEndpoint(t.Context(), "alice", e.ID); err != nil || got.Name != "cpu" {
		t.Errorf("the endpoint is %v, %v, want it as it was", got, err)
	}
}

func TestAnEndpointThatIsUndeclaredIsGoneWithItsJobsAndAUsersIsNot(t *testing.T) {
	s := serverless.New(memory.NewJobs(), memory.NewEndpoints(), nil)
	bobs, err := s.CreateEndpoint(t.Context(), "bob", cpuEndpoint())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CheckDeclareEndpoint(t.Context(), bobs.ID, cpuEndpoint()); !errors.Is(err, serverless.ErrEndpointExists) {
		t.Errorf("CheckDeclareEndpoint of bob's = %v, want ErrEndpointExists", err)
	}
	if err := s.CheckDeclareEndpoint(t.Context(), "shared", cpuEndpoint()); err != nil {
		t.Errorf("CheckDeclareEndpoint = %v, want nil", err)
	}
	if _, err := s.GetEndpoint(t.Context(), "bob", "shared"); !errors.Is(err, serverless.ErrNoEndpoint) {
		t.Errorf("after the check GetEndpoint = %v, want ErrNoEndpoint", err)
	}
	if _, err := s.DeclareEndpoint(t.Context(), "shared", cpuEndpoint()); err != nil {
		t.Fatal(err)
	}
	var jobs [2]serverless.Ref
	for i, endpoint := range []string{"shared", bobs.ID} {
		j, err := s.Submit(t.Context(), "bob", endpoint, serverless.Request{Input: []byte(`{}`)})
		if err != nil {
			t.Fatal(err)
		}
		jobs[i] = j.Ref
	}
	for range 2 { // the second finds nothing to do
		if err := s.UndeclareEndpoint(t.Context(), "shared"); err != nil {
			t.Errorf("UndeclareEndpoint = %v, want nil", err)
		}
	}
	if err := s.UndeclareEndpoint(t.Context(), bobs.ID); !errors.Is(err, serverless.ErrEndpointExists) {
		t.Errorf("UndeclareEndpoint of bob's = %v, want ErrEndpointExists", err)
	}
	for i, want := range []serverless.Status{serverless.Cancelled, serverless.InQueue} {
		if j, err := s.Get(t.Context(), "bob", jobs[i]); err != nil || j.Status != want {
			t.Errorf("job %d is %v, %v, want %s", i, j, err, want)
		}
	}
}

// TestDeletedEndpointLeavesNoJob has jobs queued and running when their endpoint goes.
func TestDeletedEndpointLeavesNoJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		post := &scriptedSender{}
		queue := memory.NewJobs()
		s := serverless.New(queue, memory.NewEndpoints(), &serverless.Options{Sender: post})
		runService(t, s)
		e, err := s.CreateEndpoint(t.Context(), "alice", cpuEndpoint())
		if err != nil {
			t.Fatal(err)
		}
		var refs []serverless.Ref
		submit := func() {
			j, err := s.Submit(t.Context(), "alice", e.ID, serverless.Request{Input: []byte(`{}`), Webhook: "http://example.com/"})
			if err != nil {
				t.Fatal(err)
			}
			refs = append(refs, j.Ref)
		}
		submit()
		if jobs, err := s.Take(t.Context(), e.ID, "w1", 1); err != nil || len(jobs) != 1 {
			t.Fatalf("Take = %d jobs, %v", len(jobs), err)
		}
		submit()
		submit()
		if err := s.DeleteEndpoint(t.Context(), "alice", e.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := s.GetEndpoint(t.Context(), "alice", e.ID); !errors.Is(err, serverless.ErrNoEndpoint) {
			t.Errorf("GetEndpoint after the delete = %v, want ErrNoEndpoint", err)
		}
		now := serverless.At(time.Now())
		for _, ref := range refs {
			if j, err := queue.Get(t.Context(), now, ref); err != nil || j.Status != serverless.Cancelled {
				t.Errorf("job %s is %v (%v), want CANCELLED", ref.ID, j.Status, err)
			}
		}
		stops, err := s.WaitStops(t.Context(), e.ID, "w1")
		if err != nil || len(stops) != 1 || stops[0] != refs[0].ID {
			t.Errorf("the worker is told to stop %v (%v), want the job it has", stops, err)
		}
		synctest.Wait()
		if got := len(post.sent()); got != 3 {
			t.Errorf("%d webhooks were sent, want one for each job", got)
		}
		if _, err := s.Submit(t.Context(), "alice", e.ID, serverless.Request{Input: []byte(`{}`)}); !errors.Is(err, serverless.ErrNoEndpoint) {
			t.Errorf("Submit after the delete = %v, want ErrNoEndpoint", err)
		}
		if err := s.DeleteEndpoint(t.Context(), "alice", e.ID); !errors.Is(err, serverless.ErrNoEndpoint) {
			t.Errorf("second delete = %v, want ErrNoEndpoint", err)
		}
	})
}

// runService lets s work until the test ends.
func runService(t *testing.T, s *serverless.Service) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
	synctest.Wait()
}

// cpuEndpoint is a request within the rules.
func cpuEndpoint() endpoints.CreateRequest {
	return endpoints.CreateRequest{Type: endpoints.QueueType, Settings: endpoints.Settings{
		Name: new("cpu"), Image: new("org/worker:1"), CPU: []endpoints.CPUSettings{{ID: "cpu5c", VCPU: 4}},
		Scaling: &endpoints.Scaling{Type: endpoints.QueueDelay, Delay: 4 * time.Second},
	}}
}
