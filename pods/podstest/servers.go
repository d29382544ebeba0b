package podstest

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/serverless/servers"
)

// Servers are what two servers share, and a runtime for the host of each. Containers of the
// runtimes are healthy within seconds, and run until they are stopped.
type Servers struct {
	Stores   [2]pods.PodStore // of the same records
	Leases   servers.Store
	Runtimes [2]pods.Runtime
}

// serversLease is short, so that the suite need not wait for long where time is real.
const serversLease = 3 * time.Second

// TestServers runs two services over one store: pods are placed on the hosts of both, and each
// acts on its own. It takes some seconds, and may run in a bubble of testing/synctest.
func TestServers(t *testing.T, x Servers) {
	const size = 8
	b := startServer(t, &x, 1, "b", size)
	a := startServer(t, &x, 0, "a", 2)
	r := pods.CreateRequest{Name: "p", Image: "img", CPU: &pods.CPURequest{ID: "cpu3c", VCPU: size}}
	var p *pods.Pod
	wait(t, "a places a pod on the host of b", func() (err error) {
		p, err = a.Create(t.Context(), "ann", r)
		return err
	})
	if p.Placement.Host != "b" {
		t.Fatalf("placed on %q, want b", p.Placement.Host)
	}
	if _, err := b.Create(t.Context(), "ann", r); !errors.Is(err, pods.ErrNoCapacity) {
		t.Errorf("Create of what a has placed = %v, want ErrNoCapacity", err)
	}
	status := func(s *server, want pods.Status) {
		t.Helper()
		wait(t, "the pod is "+string(want), func() error {
			p, err := s.Get(t.Context(), "ann", p.ID)
			if err == nil && p.Status() != want {
				err = errors.New("it is " + string(p.Status()))
			}
			return err
		})
	}
	act := func(s *server, a pods.Action) {
		t.Helper()
		if _, err := s.Act(t.Context(), "ann", p.ID, a); err != nil {
			t.Fatalf("%s = %v", a, err)
		}
	}
	status(a, pods.Running)
	act(a, pods.Stop)
	status(a, pods.Exited)
	act(b, pods.Start)
	status(a, pods.Running)
	if list, err := x.Runtimes[0].List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("containers at the server without the pod: %v, %v", list, err)
	}

	b.die()
	act(a, pods.Stop) // it waits for the server
	wait(t, "the death of b is seen", func() error {
		if list, err := a.HostStates(t.Context()); err != nil || len(list) != 1 {
			return errors.Join(err, errors.New("its host is listed"))
		}
		return nil
	})
	if p, err := a.Get(t.Context(), "ann", p.ID); err != nil || p.Status() != pods.Running {
		t.Errorf("a pod of a dead server: %v, %v, want it as it was seen last", p, err)
	}
	b = startServer(t, &x, 1, "b", size)
	status(b, pods.Exited)
	if err := a.Terminate(t.Context(), "ann", p.ID); err != nil {
		t.Fatal(err)
	}
	wait(t, "the pod is gone", func() error {
		list, err := x.Runtimes[1].List(t.Context())
		if _, gone := x.Stores[0].Get(t.Context(), p.ID); len(list) > 0 || !errors.Is(gone, pods.ErrNotFound) {
			err = errors.Join(err, errors.New("it is there"))
		}
		return err
	})
}

// A server is a service with one host, of its name.
type server struct {
	*pods.Service
	die func()
}

func startServer(t *testing.T, x *Servers, i int, name string, vcpus int) *server {
	t.Helper()
	joined, err := servers.Join(t.Context(), x.Leases, &servers.Options{Lease: serversLease})
	if err != nil {
		t.Fatal(err)
	}
	s, err := pods.New(x.Stores[i], catalog.Sample(), []pods.Host{
		{ID: name, DataCenter: "US-TX-3", Runtime: x.Runtimes[i], VCPU: map[string]int{"cpu3c": vcpus}},
	}, &pods.Options{Server: joined, ServerName: name, Overcommit: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	die := func() { cancel(); running.Wait() }
	t.Cleanup(die)
	return &server{s, die}
}

// wait calls f until it returns nil.
func wait(t *testing.T, what string, f func() error) {
	t.Helper()
	err := io.EOF
	for began := time.Now(); err != nil && time.Since(began) < time.Minute; {
		if err = f(); err != nil {
			time.Sleep(20 * time.Millisecond)
		}
	}
	if err != nil {
		t.Fatalf("not seen: %s: %v", what, err)
	}
}
