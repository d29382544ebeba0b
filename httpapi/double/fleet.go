package double

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/internal/faultplan"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/fleet"
)

// ImageOptions configures the workers of an image. The zero value and nil work.
type ImageOptions struct {
	// ColdStart is how long a worker takes to start before it asks for its first job. Default:
	// as in Options.Images, otherwise a second.
	ColdStart time.Duration
	// Concurrency is how many jobs a worker has at once. Default 1.
	Concurrency int
}

// An image says what the workers of some images run.
type image struct {
	pattern string // '*' matches any characters
	worker  serverless.Worker
	// requests answers the requests of load-balancing endpoints. One of both is nil.
	requests http.Handler
	o        ImageOptions
}

// name completes an image.
func (i *image) name(pattern string, o *ImageOptions) error {
	i.pattern = pattern
	if o != nil {
		i.o = *o
	}
	switch {
	case pattern == "":
		return errors.New("double: an image needs a name")
	case i.o.ColdStart < 0 || i.o.Concurrency < 0:
		return fmt.Errorf("double: image %q: its cold start and concurrency must not be negative", pattern)
	}
	return nil
}

// addImage adds an image, or replaces the one with the same pattern.
func (w *instance) addImage(i *image) {
	w.mu.Lock()
	w.images = slices.DeleteFunc(w.images, func(old *image) bool { return old.pattern == i.pattern })
	w.images = append(w.images, i)
	w.mu.Unlock()
	if i.o.ColdStart > 0 {
		w.containers.AddScript(memory.Script{Image: i.pattern, Load: memory.DefaultScript().Load, Stages: []memory.Stage{
			{Phase: pods.PhasePulling},
			{Phase: pods.PhaseStarting, After: i.o.ColdStart},
			{Phase: pods.PhaseHealthy, Lines: []string{"ready"}},
		}})
	}
	w.services.Jobs.Resync()
	w.wake()
}

// imageOf returns what workers of an image run, or nil. The last one that was set comes first.
func (w *instance) imageOf(name string) *image {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range slices.Backward(w.images) {
		if faultplan.Like(i.pattern, name) {
			return i
		}
	}
	return nil
}

// A workerFleet is the product's fleet on the simulated containers. Containers of known images
// have their workers in this process.
type workerFleet struct {
	*podfleet.Fleet
	instance *instance
}

var (
	_ serverless.Fleet   = (*workerFleet)(nil)
	_ fleet.WorkerImages = (*workerFleet)(nil)
	_ fleet.WorkerLogs   = (*workerFleet)(nil)
	_ fleet.WorkerPorts  = (*workerFleet)(nil)
)

// RunsImage implements fleet.WorkerImages.
func (f *workerFleet) RunsImage(name string) bool { return f.instance.imageOf(name) != nil }

// Start implements serverless.Fleet. It fails where FaultNoCapacity applies.
func (f *workerFleet) Start(ctx context.Context, s fleet.WorkerSpec) error {
	t := &target{faults: f.instance.faults, struck: func(*Fault) {}, could: func(a *Fault) bool {
		return a.Name == FaultNoCapacity && a.Operation == "" && a.Key == "" && (a.Endpoint == "" || a.Endpoint == s.Endpoint)
	}}
	podID := podfleet.PodID(s.Endpoint, s.ID)
	f.instance.workers.order(podID, &s)
	err := f.Fleet.Start(context.WithValue(ctx, targetKey{}, t), s)
	if errors.Is(err, fleet.ErrNoCapacity) {
		f.instance.workers.forget(podID)
	}
	return err
}

// containerWorkers are the workers in containers.
type containerWorkers struct {
	instance *instance

	mu   sync.Mutex
	list map[string]*containerWorker // by container
}

// A containerWorker serves as long as its container runs.
type containerWorker struct {
	spec     fleet.WorkerSpec
	listener *listener    // of a worker that answers requests; nil: it takes jobs, or does not run yet
	state    *workerState // of one that takes jobs; nil: its container does not run yet
	end      func()       // ends the worker; nil: it has not begun
	gone     bool
}

func (c *containerWorkers) order(podID string, s *fleet.WorkerSpec) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.list[podID] == nil {
		c.list[podID] = &containerWorker{spec: *s}
	}
}

// forget removes a worker that got no host.
func (c *containerWorkers) forget(podID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.list, podID)
}

// onState takes a state of a container from the simulation. A faulty container runs no worker,
// because the fault has replaced its image.
func (c *containerWorkers) onState(st pods.ContainerState, faulty bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.list[st.PodID]
	switch {
	case h == nil:
	case st.Phase == pods.PhaseHealthy && h.state == nil && !faulty:
		switch i := c.instance.imageOf(h.spec.Container.Image); {
		case i == nil || h.listener != nil:
		case h.spec.Listener != nil && i.requests != nil:
			c.listen(st.PodID, h, i)
		case h.spec.Listener == nil && i.worker != nil:
			c.begin(st.PodID, h, i)
		}
	case st.Phase >= pods.PhaseExited:
		delete(c.list, st.PodID)
		h.gone = true
		if h.state != nil {
			c.leave(h, !st.Stopped)
		}
		if l := h.listener; l != nil {
			c.instance.schedule(func(context.Context) { l.close() })
		}
	}
}

// begin starts a worker, after the others of this instant.
func (c *containerWorkers) begin(podID string, h *containerWorker, i *image) {
	w := c.instance
	l := &localWorker{endpoint: h.spec.Endpoint, worker: i.worker, concurrency: max(i.o.Concurrency, 1)}
	h.state = w.act.reserve(workerKey{l.endpoint, h.spec.ID}, l.concurrency, func() {
		w.containers.Kill(podID, 137, "signal 9")
	})
	w.schedule(func(context.Context) {
		w.act.beginWorker(h.state)
		w.start(func(ctx context.Context) { w.runWorker(ctx, l, h) })
	})
}

// leave ends a worker whose container has ended. After a crash its jobs are lost.
func (c *containerWorkers) leave(h *containerWorker, crashed bool) {
	lost := c.instance.act.removeEnded(h.state, crashed)
	end := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if h.end != nil {
			h.end()
		}
	}
	if len(lost) == 0 {
		if h.end != nil {
			h.end()
		}
		return
	}
	c.instance.schedule(func(ctx context.Context) {
		_ = c.instance.queue.lose(ctx, h.state.worker, lost) // the store is in memory
		end()
	})
}

// runWorker runs a worker in a container until it ends.
func (w *instance) runWorker(ctx context.Context, l *localWorker, h *containerWorker) {
	life, end := context.WithCancel(ctx)
	defer end()
	w.workers.mu.Lock()
	if h.end = end; h.gone {
		end()
	}
	w.workers.mu.Unlock()
	// An error means that it never began; the scaler notices that it does not ask for jobs.
	_ = w.services.Jobs.Serve(life, l.endpoint, &trackedWorker{l.worker, w, h.state}, &serverless.ServeOptions{
		ID: h.state.worker, Concurrency: l.concurrency, Drain: -1,
	})
	w.act.removeWorker(h.state)
}

// reserve adds a worker that is about to begin.
func (a *activity) reserve(k workerKey, capacity int, kill func()) *workerState {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &workerState{workerKey: k, local: true, inContainer: true, capacity: capacity, waits: true, looked: a.ready[k.endpoint], end: kill}
	a.workers[k] = s
	return s
}

// beginWorker notes that a worker has begun, so that it counts as busy until it is at rest.
func (a *activity) beginWorker(s *workerState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.waits = false
	a.changed()
}

// removeEnded removes a worker whose container has ended. After a crash its jobs are lost, and
// its reports about them are ignored.
func (a *activity) removeEnded(s *workerState, crashed bool) (lost []serverless.Ref) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.capacity = 0
	for _, r := range a.runs {
		switch {
		case r.holder != s:
		case crashed:
			a.dead[r.runKey] = true
			lost = append(lost, r.Ref)
		default:
			r.resting = false // it gives the job back
		}
	}
	a.version++
	a.changed()
	sortRefs(lost)
	return lost
}

// takes reports whether a worker in a container takes jobs. A draining one does not.
func (w *instance) takes(s *workerState) bool {
	return slices.Contains(w.services.Jobs.ReadyWorkers(s.endpoint), s.worker)
}

// declare implements Server.Declare.
func (w *instance) declare(ctx context.Context, id string, settings any) error {
	members := map[string]any{"name": id, "type": endpoints.QueueType}
	text, err := json.Marshal(settings)
	if err != nil {
		return fmt.Errorf("the settings: %w", err)
	}
	given, err := decodeAny(text)
	if err != nil {
		return fmt.Errorf("the settings: %w", err)
	}
	o, ok := given.(map[string]any)
	if !ok {
		return errors.New("the settings must be an object")
	}
	if o["cpu"] == nil && o["gpu"] == nil && len(w.catalog.CPUs) > 0 {
		c := &w.catalog.CPUs[0]
		members["cpu"] = []any{map[string]any{"id": c.ID, "vcpuCount": c.VCPU.Min}}
	}
	maps.Copy(members, o)
	switch {
	case o["scaling"] != nil:
	case members["type"] == string(endpoints.LoadBalancerType):
		members["scaling"] = map[string]any{"type": endpoints.RequestCount, "requestCount": 1}
	default:
		members["scaling"] = map[string]any{"type": endpoints.QueueDelay, "queueDelay": 4}
	}
	if text, err = json.Marshal(members); err != nil {
		return err
	}
	r, err := httpapi.DecodeEndpoint(text)
	if err != nil {
		return err
	}
	_, err = w.services.Jobs.DeclareEndpoint(ctx, id, r)
	return err
}
