package pods_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/podyard/podyard/pods"
)

// A recorder records the specs that its runtime gets, and can refuse calls.
type recorder struct {
	pods.Runtime
	mu          sync.Mutex
	ensured     []pods.Spec
	refuse      bool
	inFlight    map[string]int
	overlapping bool // two calls for one pod at once
	refused     int
}

func (r *recorder) Unwrap() pods.Runtime { return r.Runtime }

func (r *recorder) specs() []pods.Spec {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ensured)
}

var errRefused = errors.New("the host is away")

// begin counts the calls for a pod that are under way.
func (r *recorder) begin(id string) (leave func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inFlight == nil {
		r.inFlight = make(map[string]int)
	}
	r.inFlight[id]++
	r.overlapping = r.overlapping || r.inFlight[id] > 1
	leave = func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.inFlight[id]--
	}
	if r.refuse {
		r.refused++
		return leave, errRefused
	}
	return leave, nil
}

func (r *recorder) Ensure(ctx context.Context, s pods.Spec) error {
	leave, err := r.begin(s.PodID)
	defer leave()
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.ensured = append(r.ensured, s)
	r.mu.Unlock()
	return r.Runtime.Ensure(ctx, s)
}

func (r *recorder) Stop(ctx context.Context, id string, grace time.Duration) error {
	leave, err := r.begin(id)
	defer leave()
	if err != nil {
		return err
	}
	return r.Runtime.Stop(ctx, id, grace)
}

func (r *recorder) Remove(ctx context.Context, id string, grace time.Duration) error {
	leave, err := r.begin(id)
	defer leave()
	if err != nil {
		return err
	}
	return r.Runtime.Remove(ctx, id, grace)
}

func withRecorder(spy *recorder) func(*envConfig) {
	return func(s *envConfig) {
		s.hosts = func(rt pods.Runtime) []pods.Host {
			spy.Runtime = rt
			return pods.SimulatedHosts(s.catalog, spy)
		}
	}
}
