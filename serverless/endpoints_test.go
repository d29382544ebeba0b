package serverless_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
)

func TestEndpointHasTheDocumentedDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := endpointService()
		got, err := s.CreateEndpoint(t.Context(), "alice", cpuEndpoint())
		if err != nil {
			t.Fatal(err)
		}
		want := &serverless.Endpoint{
			Owner: "alice", Name: "cpu", Created: time.Now().UTC(),
			Container:   serverless.Container{Image: "org/worker:1", Disk: 50},
			CPU:         []serverless.EndpointCPU{{ID: "cpu5c", VCPU: 4, Memory: 8}},
			Workers:     serverless.WorkerLimits{Min: 0, Max: 3, Idle: 10 * time.Second},
			Scaling:     serverless.Scaling{Type: serverless.QueueDelay, Delay: 4 * time.Second},
			ExecTimeout: 300 * time.Second, FlashBoot: serverless.FlashBootOff, Version: 1,
			Releases: []serverless.Release{{Version: 1, User: "alice", Created: time.Now().UTC()}},
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(serverless.Endpoint{}, "ID"), cmpopts.IgnoreFields(serverless.Release{}, "ID")); diff != "" {
			t.Errorf("CreateEndpoint (-want +got):\n%s", diff)
		}
		short := regexp.MustCompile(`^[0-9a-z]{14}$`)
		if !short.MatchString(got.ID) || !short.MatchString(got.Releases[0].ID) {
			t.Errorf("ids are %q and %q, want 14 letters and digits", got.ID, got.Releases[0].ID)
		}
		stored, err := s.GetEndpoint(t.Context(), "alice", got.ID)
		if diff := cmp.Diff(got, stored); diff != "" || err != nil {
			t.Errorf("GetEndpoint (%v, -want +got):\n%s", err, diff)
		}
	})
}

func TestEndpointOfAnotherUserDoesNotExist(t *testing.T) {
	s := endpointService()
	e, err := s.CreateEndpoint(t.Context(), "alice", cpuEndpoint())
	if err != nil {
		t.Fatal(err)
	}
	rename := serverless.UpdateEndpointRequest{EndpointSettings: serverless.EndpointSettings{Name: new("mine")}}
	for name, do := range map[string]func() error{
		"Get":    func() error { _, err := s.GetEndpoint(t.Context(), "bob", e.ID); return err },
		"Update": func() error { _, err := s.UpdateEndpoint(t.Context(), "bob", e.ID, rename); return err },
		"Delete": func() error { return s.DeleteEndpoint(t.Context(), "bob", e.ID) },
		"Check":  func() error { return s.CheckEndpoint(t.Context(), "bob", e.ID) },
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

func TestSharedEndpointIsSeenByAllAndChangedByNobody(t *testing.T) {
	s := endpointService()
	r := cpuEndpoint()
	r.Env = map[string]string{"TOKEN": "hidden"}
	if _, err := s.DeclareEndpoint(t.Context(), "shared", r); err != nil {
		t.Fatal(err)
	}
	r.Env = map[string]string{"TOKEN": "hidden too"}
	if _, err := s.DeclareEndpoint(t.Context(), "shared", r); err != nil {
		t.Fatal(err)
	}
	got, err := s.GetEndpoint(t.Context(), "bob", "shared")
	if err != nil {
		t.Fatal(err)
	}
	if got.Container.Env != nil || got.Version != 2 || fmt.Sprint(got.Releases[1].Diff) != "[{env [] []}]" {
		t.Errorf("everybody sees env %v and the change %v of version %d, want no value of it", got.Container.Env, got.Releases[1].Diff, got.Version)
	}
	if list, err := s.ListEndpoints(t.Context(), "bob"); err != nil || len(list) != 1 || list[0].Container.Env != nil {
		t.Errorf("ListEndpoints = %v, %v, want the shared one without its env", list, err)
	}
	_, err = s.UpdateEndpoint(t.Context(), "bob", "shared", serverless.UpdateEndpointRequest{})
	if !errors.Is(err, serverless.ErrSharedEndpoint) || problem.KindOf(err) != problem.Forbidden {
		t.Errorf("UpdateEndpoint = %v, want ErrSharedEndpoint", err)
	}
	if err := s.DeleteEndpoint(t.Context(), "bob", "shared"); !errors.Is(err, serverless.ErrSharedEndpoint) {
		t.Errorf("DeleteEndpoint = %v, want ErrSharedEndpoint", err)
	}
	if e, err := s.Endpoint(t.Context(), "shared"); err != nil || e.Container.Env["TOKEN"] != "hidden too" {
		t.Errorf("the workers' environment is %v, %v, want the last declared", e.Container.Env, err)
	}
}

func TestDeclaredEndpointKeepsItsHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := endpointService()
		first, err := s.DeclareEndpoint(t.Context(), "py", cpuEndpoint())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		same, err := s.DeclareEndpoint(t.Context(), "py", cpuEndpoint())
		if diff := cmp.Diff(first, same); diff != "" || err != nil {
			t.Errorf("declared again as it was (%v, -want +got):\n%s", err, diff)
		}
		r := cpuEndpoint()
		r.Image, r.Workers.Max = new("org/worker:2"), new(5)
		e, err := s.DeclareEndpoint(t.Context(), "py", r)
		if err != nil {
			t.Fatal(err)
		}
		if !e.Created.Equal(first.Created) || e.Version != 2 || len(e.Releases) != 2 || e.Workers.Max != 5 || e.Owner != "" {
			t.Errorf("declared with another image = %+v, want version 2 with two releases, made when it was", e)
		}
	})
}

func TestDeclarationDoesNotTakeAnIDThatIsNotItsOwn(t *testing.T) {
	s := endpointService()
	e, err := s.CreateEndpoint(t.Context(), "alice", cpuEndpoint())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.DeclareEndpoint(t.Context(), e.ID, cpuEndpoint()); !errors.Is(err, serverless.ErrEndpointExists) {
		t.Errorf("DeclareEndpoint of a user's id = %v, want ErrEndpointExists", err)
	}
	if _, err := s.DeclareEndpoint(t.Context(), "pods", cpuEndpoint()); problem.KindOf(err) != problem.Invalid {
		t.Errorf("DeclareEndpoint of a reserved id = %v, want an invalid id", err)
	}
	r := cpuEndpoint()
	r.Image = nil
	if _, err := s.DeclareEndpoint(t.Context(), "py", r); problem.KindOf(err) != problem.Invalid {
		t.Errorf("DeclareEndpoint without an image = %v, want its faults", err)
	}
}

func TestChangeOfLimitsCountsAtOnceAndIsNoRelease(t *testing.T) {
	s := endpointService()
	e, err := s.CreateEndpoint(t.Context(), "alice", cpuEndpoint())
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.UpdateEndpoint(t.Context(), "alice", e.ID, serverless.UpdateEndpointRequest{EndpointSettings: serverless.EndpointSettings{
		Name: new("other"), Workers: serverless.WorkerSettings{Min: new(1), Max: new(10)}, Timeout: ptr(time.Minute),
		Scaling: &serverless.Scaling{Type: serverless.RequestCount, Count: 2},
	}})
	want := e.Clone()
	want.Name, want.ExecTimeout = "other", time.Minute
	want.Workers.Min, want.Workers.Max = 1, 10
	want.Scaling = serverless.Scaling{Type: serverless.RequestCount, Count: 2}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("UpdateEndpoint (%v, -want +got):\n%s", err, diff)
	}
}

// TestDeletedEndpointLeavesNoJob has jobs queued and running when their endpoint goes.
func TestDeletedEndpointLeavesNoJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		post := &postbox{}
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
		stops, err := s.Stops(t.Context(), e.ID, "w1")
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

func TestIDIsMadeAgainWhenItIsTaken(t *testing.T) {
	// A source that repeats itself gives the second endpoint the first one's ids, and then others.
	same, other := make([]byte, 28), bytes.Repeat([]byte{1}, 28)
	var random []byte
	for _, b := range [][]byte{same, same, same, same, other} {
		random = append(random, b...)
	}
	s := serverless.New(memory.NewJobs(), memory.NewEndpoints(), &serverless.Options{Rand: bytes.NewReader(random)})
	for range 2 {
		if _, err := s.CreateEndpoint(t.Context(), "alice", cpuEndpoint()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.CreateEndpoint(t.Context(), "alice", cpuEndpoint()); err == nil {
		t.Error("CreateEndpoint with an exhausted source = nil, want its error")
	}
}
