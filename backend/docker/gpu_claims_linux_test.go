package docker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/internal/enginetest"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/problem"
)

// A service is a pods service of one user on a Runtime.
type service struct {
	*pods.Service

	t  *testing.T
	rt *Runtime
}

const testGPU = "TEST GPU"

// newService returns a service whose host has these GPUs.
func newService(t *testing.T, rt *Runtime, devices ...string) *service {
	t.Helper()
	n := len(devices)
	listing := catalog.Local(4, 8, catalog.GPUType{
		ID: testGPU, Name: testGPU, Manufacturer: catalog.NVIDIA, Memory: 8, Secure: true, MaxCount: catalog.MaxCount{Secure: n},
	})
	s, err := pods.New(memory.NewPods(), listing, []pods.Host{{
		ID: "local", DataCenter: catalog.LocalDataCenter, Runtime: rt, GPUs: []pods.HostGPUs{{Type: testGPU, Devices: devices}},
		VCPU: map[string]int{catalog.HostFlavor: 4}, Memory: 8,
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
	return &service{s, t, rt}
}

func (s *service) create() (*pods.Pod, error) {
	args := "gpus"
	return s.Create(s.t.Context(), "alice", pods.CreateRequest{Name: "g", Image: plain, Args: &args, GPU: &pods.GPURequest{ID: testGPU}})
}

// until polls the service until ok.
func (s *service) until(what string, ok func() bool) {
	s.t.Helper()
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late.C:
			s.t.Fatalf("never %s", what)
		}
	}
}

// become waits until a pod has a status.
func (s *service) become(id string, want pods.Status) (p *pods.Pod) {
	s.t.Helper()
	s.until("is the pod "+string(want), func() bool {
		var err error
		if p, err = s.Get(s.t.Context(), "alice", id); err != nil {
			s.t.Fatal(err)
		}
		return p.Status() == want
	})
	return p
}

// next creates a pod as soon as there is room for one.
func (s *service) next() (p *pods.Pod) {
	s.t.Helper()
	s.until("is there room for a pod", func() bool {
		var err error
		if p, err = s.create(); err != nil && !errors.Is(err, pods.ErrNoCapacity) {
			s.t.Fatalf("Create = %v, want nil or no room", err)
		}
		return err == nil
	})
	return p
}

// finds returns the next pod, and the GPU node that its program found.
func (s *service) finds() (id, node string) {
	s.t.Helper()
	p := s.next()
	s.become(p.ID, pods.Running)
	return p.ID, s.rt.lines(s.t, p.ID, 1)[0]
}

func TestTwoPodsNeverShareAGPUInContainers(t *testing.T) {
	suite.SkipUnlessLong(t)
	const zero, full = "/dev/nvidia0-test is 1:5", "/dev/nvidia1-test is 1:7"
	withEngine(t, func(t *testing.T, d *enginetest.Engine) {
		has := zeroAndFull(t)
		b := newCDIFixture(t, d, has)
		s := newService(t, b.open(d), gpuName("a"), gpuName("b"))
		first, node := s.finds()
		second, other := s.finds()
		if got := []string{node, other}; !slices.Equal(got, []string{zero, full}) {
			t.Errorf("two pods find %q, want one GPU each", got)
		}
		_, err := s.create()
		if doc := problem.Of(err); !errors.Is(err, pods.ErrNoCapacity) || doc.Status != 400 || !strings.Contains(doc.Detail, testGPU) {
			t.Errorf("a third Create = %v (%d %q), want a 400 that names the type", err, doc.Status, doc.Detail)
		}
		if err := s.Terminate(t.Context(), "alice", first); err != nil {
			t.Fatal(err)
		}
		third, node := s.finds()
		if node != zero {
			t.Errorf("the next pod finds %q, want the GPU that was freed", node)
		}

		// If CDI no longer knows the GPU, the pod must not run without it.
		has.Devices = has.Devices[:1]
		b.write(has)
		if err := s.Terminate(t.Context(), "alice", second); err != nil {
			t.Fatal(err)
		}
		if p := s.become(s.next().ID, pods.Errored); !strings.Contains(p.Seen.Reason, gpuName("b")) {
			t.Errorf("pod is in ERROR because of %q, want its GPU named", p.Seen.Reason)
		}
		s.become(third, pods.Running)
	})
}
