package double

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/serverless"
)

// ImageOptions say how workers of an image are. The zero value, and nil, work.
type ImageOptions struct {
	// ColdStart is how long a worker is on its way before it comes for its first job.
	// Default: what Options.Images say of the image, else a second.
	ColdStart time.Duration
	// Concurrency is how many jobs a worker has at once. Default 1.
	Concurrency int
}

// An image is what workers of some images run.
type image struct {
	pattern string // in which '*' stands for any characters
	worker  serverless.Worker
	o       ImageOptions
}

func newImage(name string, worker serverless.Worker, o *ImageOptions) (*image, error) {
	i := &image{pattern: name, worker: worker}
	if o != nil {
		i.o = *o
	}
	switch {
	case name == "":
		return nil, errors.New("double: an image needs a name")
	case i.o.ColdStart < 0 || i.o.Concurrency < 0:
		return nil, fmt.Errorf("double: image %q: its cold start and concurrency must not be negative", name)
	}
	return i, nil
}

// teach adds an image, in the place of one with the same pattern.
func (w *world) teach(i *image) {
	w.mu.Lock()
	w.images = slices.DeleteFunc(w.images, func(old *image) bool { return old.pattern == i.pattern })
	w.images = append(w.images, i)
	w.mu.Unlock()
	if i.o.ColdStart > 0 {
		w.containers.AddScript(memory.Script{Image: i.pattern, Load: memory.DefaultScript().Load, Stages: []memory.Stage{
			{Phase: pods.Pulling},
			{Phase: pods.Coming, After: i.o.ColdStart},
			{Phase: pods.Up, Lines: []string{"ready"}},
		}})
	}
	w.services.Jobs.Restaff()
	w.kick()
}

// imageOf is what workers of an image run, nil if nobody has said so. The one that was set
// last comes first.
func (w *world) imageOf(name string) *image {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range slices.Backward(w.images) {
		if like(i.pattern, name) {
			return i
		}
	}
	return nil
}

// A fleet is the product's fleet on the product's simulation of containers: those of images
// that are known run their workers in this process.
type fleet struct {
	*podfleet.Fleet
	world *world
}

var (
	_ serverless.Fleet        = (*fleet)(nil)
	_ serverless.WorkerImages = (*fleet)(nil)
	_ serverless.WorkerLogs   = (*fleet)(nil)
)

// RunsImage implements serverless.WorkerImages.
func (f *fleet) RunsImage(name string) bool { return f.world.imageOf(name) != nil }

// Start implements serverless.Fleet, where FaultNoCapacity leaves it room.
func (f *fleet) Start(ctx context.Context, s serverless.WorkerSpec) error {
	full := f.world.faults.hit(func(a *Fault) bool {
		return a.Name == FaultNoCapacity && a.Operation == "" && a.Key == "" && (a.Endpoint == "" || a.Endpoint == s.Endpoint) &&
			(a.DataCenter == "" || len(s.DataCenterIDs) == 1 && s.DataCenterIDs[0] == a.DataCenter)
	})
	if full != nil {
		return serverless.ErrNoRoom
	}
	f.world.crews.order(podfleet.PodID(s.Endpoint, s.ID), &s)
	return f.Fleet.Start(ctx, s)
}

// crews are the workers in containers.
type crews struct {
	world *world

	mu   sync.Mutex
	list map[string]*hired // by container
}

// A hired worker serves as long as its container is up.
type hired struct {
	spec serverless.WorkerSpec
	seat *seat  // nil: it has not come yet
	end  func() // ends its life; nil: it has not begun
	gone bool
}

func (c *crews) order(podID string, s *serverless.WorkerSpec) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.list[podID] == nil {
		c.list[podID] = &hired{spec: *s}
	}
}

// heard is what the simulation says of a container. What a fault has put in the place of an
// image runs no worker: faulty says so.
func (c *crews) heard(st pods.State, faulty bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.list[st.PodID]
	switch {
	case h == nil:
	case st.Phase == pods.Up && h.seat == nil && !faulty:
		if i := c.world.imageOf(h.spec.Container.Image); i != nil {
			c.come(st.PodID, h, i)
		}
	case st.Phase >= pods.Down:
		delete(c.list, st.PodID)
		h.gone = true
		if h.seat != nil {
			c.leave(h, !st.Stopped)
		}
	}
}

// come has a worker begin, after those that came before it at this instant.
func (c *crews) come(podID string, h *hired, i *image) {
	w := c.world
	l := &local{h.spec.Endpoint, i.worker, max(i.o.Concurrency, 1)}
	h.seat = w.act.reserve(seatKey{l.endpoint, h.spec.ID}, l.concurrency, func() {
		w.containers.Kill(podID, 137, "signal 9")
	})
	w.soon(func(context.Context) {
		w.act.seated(h.seat)
		w.start(func(ctx context.Context) { w.employ(ctx, l, h) })
	})
}

// leave has a worker end whose container has. What it has after a crash is lost.
func (c *crews) leave(h *hired, crashed bool) {
	lost := c.world.act.leaves(h.seat, crashed)
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
	c.world.soon(func(ctx context.Context) {
		_ = c.world.queue.lose(ctx, h.seat.worker, lost) // the store is in memory
		end()
	})
}

// employ is the life of a worker in a container.
func (w *world) employ(ctx context.Context, l *local, h *hired) {
	life, end := context.WithCancel(ctx)
	defer end()
	w.crews.mu.Lock()
	if h.end = end; h.gone {
		end()
	}
	w.crews.mu.Unlock()
	// An error says that it never began: the scaler sees that it does not come.
	_ = w.services.Jobs.Serve(life, l.endpoint, &watched{l.worker, w, h.seat}, &serverless.ServeOptions{
		ID: h.seat.worker, Concurrency: l.concurrency, Drain: -1,
	})
	w.act.rise(h.seat)
}

// reserve adds a worker that is about to begin.
func (a *activity) reserve(k seatKey, capacity int, kill func()) *seat {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &seat{seatKey: k, local: true, hired: true, capacity: capacity, waits: true, looked: a.ready[k.endpoint], end: kill}
	a.seats[k] = s
	return s
}

// seated has a worker waited for: it has begun.
func (a *activity) seated(s *seat) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.waits = false
	a.changed()
}

// leaves takes a worker whose container has ended from those who are waited for. What it
// says of its jobs after a crash, which are lost, is not heard.
func (a *activity) leaves(s *seat, crashed bool) (lost []serverless.Ref) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.capacity = 0
	for _, r := range a.runs {
		switch {
		case r.seat != s:
		case crashed:
			a.dead[r.runKey] = true
			lost = append(lost, r.Ref)
		default:
			r.resting = false // it hands the job back
		}
	}
	a.version++
	a.changed()
	sortRefs(lost)
	return lost
}

// takes reports whether a hired worker is one that takes jobs: one that is to end does not.
func (w *world) takes(s *seat) bool {
	return slices.Contains(w.services.Jobs.ReadyWorkers(s.endpoint), s.worker)
}

// declare is Server.Declare.
func (w *world) declare(ctx context.Context, id string, settings any) error {
	members := map[string]any{"name": id, "type": serverless.QueueType, "scaling": map[string]any{"type": serverless.QueueDelay, "queueDelay": 4}}
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
