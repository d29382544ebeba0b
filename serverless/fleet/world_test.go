package fleet_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/fleet"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/workers"
)

// A world is a scaler with everything that it works on, in memory and in the test's time: no
// Service, no queue, no processes.
type world struct {
	t         *testing.T
	clock     *clock.Manual
	scaler    *fleet.Scaler
	fleet     *memoryFleet
	registry  *memoryRegistry
	stats     map[string]*queue.Stats
	endpoints map[string]*endpoints.Endpoint
	meter     *uses
	spent     func(owner string) (string, time.Time)
	log       strings.Builder
	ids       int
	steps     int
	woken     int // calls of Wake
}

const (
	bootTime = 2 * time.Second
	idleTime = 10 * time.Second
)

// managed is an endpoint whose workers are the fleet's, and that scales by how long the oldest job has waited.
func managed(id string, lo, hi int) *endpoints.Endpoint {
	return &endpoints.Endpoint{
		ID: id, Owner: "alice", Version: 1, Container: endpoints.Container{Image: "works", Disk: 5},
		Workers: endpoints.WorkerLimits{Min: lo, Max: hi, Idle: idleTime},
		Scaling: endpoints.Scaling{Type: endpoints.QueueDelay, Delay: time.Second},
	}
}

func newWorld(t *testing.T, list ...*endpoints.Endpoint) *world {
	t.Helper()
	w := &world{
		t: t, clock: clock.NewManual(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
		stats: map[string]*queue.Stats{}, endpoints: map[string]*endpoints.Endpoint{}, meter: &uses{},
	}
	w.fleet = &memoryFleet{world: w, instances: map[queue.WorkerID]*fleet.Instance{}}
	w.registry = &memoryRegistry{world: w, views: map[workers.Key]*workers.View{}}
	for _, e := range list {
		w.endpoints[e.ID], w.stats[e.ID] = e, &queue.Stats{}
	}
	w.open(true)
	return w
}

// open creates a scaler over the existing fleet, like a process after a restart.
func (w *world) open(adopt bool) {
	w.scaler = fleet.New(fleet.Options{
		Fleet: w.fleet, Queue: w, Endpoints: w, Registry: w.registry, Clock: w.clock,
		Wake: func(queue.Instant) { w.woken++ }, NewID: w.newID, URL: func() string { return "http://jobs" },
		Env: func(e *endpoints.Endpoint, id queue.WorkerID, url string) map[string]string {
			return map[string]string{"AT": url + "/" + e.ID + "/" + string(id)}
		},
		Adopt: adopt, Deterministic: true, Meter: w.meter,
		Spent: func(_ context.Context, owner string) (why string, until time.Time, err error) {
			if w.spent != nil {
				why, until = w.spent(owner)
			}
			return why, until, nil
		},
		Logger: w.logger(),
	})
	w.fleet.heard = nil
	ctx, cancel := context.WithCancel(context.Background())
	w.fleet.listen = func(f func(fleet.Instance)) { w.fleet.heard = f; cancel() }
	w.scaler.Watch(ctx) // it returns at once, and what it was told to call is kept
	w.run(0)
}

func (w *world) logger() *slog.Logger { return slog.New(slog.NewTextHandler(&w.log, nil)) }

func (w *world) newID() (queue.WorkerID, error) {
	w.ids++
	return queue.WorkerID(fmt.Sprintf("w%03d", w.ids)), nil
}

func (w *world) now() queue.Instant { return queue.At(w.clock.Now()) }

// Step calls the scaler until nothing is due at the instant.
func (w *world) Step(ctx context.Context, now time.Time) (time.Time, error) {
	for range 100 {
		w.steps++
		next := w.scaler.Step(ctx, queue.At(now))
		if next == 0 || next > queue.At(now) {
			return next.Time(), nil
		}
	}
	return time.Time{}, errors.New("the scaler is never done at one instant")
}

// run advances the time.
func (w *world) run(d time.Duration) {
	w.t.Helper()
	if err := w.clock.Advance(w.t.Context(), d, w); err != nil {
		w.t.Fatal(err)
	}
}

// Stats implements fleet.Queue.
func (w *world) Stats(_ context.Context, _ queue.Instant, endpoint string, _ *queue.Rules) (queue.Stats, error) {
	if s := w.stats[endpoint]; s != nil {
		st := *s
		st.Ready, st.ReadyLow = st.Queued, st.QueuedLow
		return st, nil
	}
	return queue.Stats{}, nil
}

// Get implements fleet.Endpoints.
func (w *world) Get(_ context.Context, id string) (*endpoints.Endpoint, error) {
	if e := w.endpoints[id]; e != nil {
		return e.Clone(), nil
	}
	return nil, endpoints.ErrNotFound
}

// List implements fleet.Endpoints.
func (w *world) List(context.Context) iter.Seq2[*endpoints.Endpoint, error] {
	return func(yield func(*endpoints.Endpoint, error) bool) {
		for _, id := range slices.Sorted(maps.Keys(w.endpoints)) {
			if !yield(w.endpoints[id].Clone(), nil) {
				return
			}
		}
	}
}

// waiting sets the number of jobs that have waited since now.
func (w *world) waiting(endpoint string, n int64) {
	s := w.stats[endpoint]
	s.Queued, s.Oldest = n, 0
	if n > 0 {
		s.Oldest = w.now()
	}
	w.scaler.Wake(endpoint)
}

// change changes an endpoint.
func (w *world) change(id string, f func(*endpoints.Endpoint)) {
	f(w.endpoints[id])
	w.scaler.Resync()
}

// states returns the scaler's workers of an endpoint by state.
func (w *world) states(endpoint string) map[string]int {
	n := map[string]int{}
	for _, s := range w.scaler.Workers(endpoint) {
		n[s.State.String()]++
	}
	return n
}

func (w *world) only(endpoint string) fleet.Status {
	w.t.Helper()
	list := w.scaler.Workers(endpoint)
	if len(list) != 1 {
		w.t.Fatalf("%d workers, want one: %+v", len(list), list)
	}
	return list[0]
}

func (w *world) want(endpoint string, want map[string]int) {
	w.t.Helper()
	if got := w.states(endpoint); !maps.Equal(want, got) {
		w.t.Errorf("workers are %v, want %v", got, want)
	}
}

// A memoryFleet is a Fleet whose workers come to the registry when they have booted.
type memoryFleet struct {
	world     *world
	listen    func(func(fleet.Instance))
	heard     func(fleet.Instance)
	instances map[queue.WorkerID]*fleet.Instance
	started   []fleet.WorkerSpec
	stopped   []string // id and grace
	refuse    error    // of Start
	most      int
	silent    bool // workers do not come for jobs
	full      int  // so many are the most it takes; 0: any number
}

func (f *memoryFleet) Start(ctx context.Context, s fleet.WorkerSpec) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f.started = append(f.started, s)
	if f.refuse != nil {
		return f.refuse
	}
	if f.instances[s.ID] != nil {
		return nil
	}
	if f.full > 0 && f.running() >= f.full {
		return fleet.ErrNoCapacity
	}
	f.instances[s.ID] = &fleet.Instance{Endpoint: s.Endpoint, ID: s.ID, Release: s.Release, Image: s.Container.Image, VCPUs: 2}
	f.most = max(f.most, f.running())
	f.world.clock.AfterFunc(f.world.clock.Now().Add(bootTime), func() { f.boot(s.ID) })
	return nil
}

// boot ends the start of a worker.
func (f *memoryFleet) boot(id queue.WorkerID) {
	i := f.instances[id]
	if i == nil || i.State == fleet.InstanceEnded {
		return
	}
	i.State, i.Started = fleet.InstanceRunning, f.world.clock.Now()
	if !f.silent {
		f.world.registry.join(workers.Key{Endpoint: i.Endpoint, ID: id})
	}
	f.tell(i)
}

// exit ends a process.
func (f *memoryFleet) exit(id queue.WorkerID, exit string, stopped bool) {
	i := f.instances[id]
	i.State, i.Exit, i.Stopped = fleet.InstanceEnded, exit, stopped
	f.tell(i)
}

func (f *memoryFleet) tell(i *fleet.Instance) {
	if f.heard != nil {
		f.heard(*i)
	}
}

func (f *memoryFleet) running() (n int) {
	for _, i := range f.instances {
		if i.State != fleet.InstanceEnded {
			n++
		}
	}
	return n
}

func (f *memoryFleet) Stop(_ context.Context, _ string, id queue.WorkerID, grace time.Duration) error {
	f.stopped = append(f.stopped, fmt.Sprint(id, " ", grace))
	delete(f.instances, id)
	return nil
}

func (f *memoryFleet) Workers(context.Context) (list []fleet.Instance, err error) {
	for _, id := range slices.Sorted(maps.Keys(f.instances)) {
		list = append(list, *f.instances[id])
	}
	return list, nil
}

func (f *memoryFleet) Watch(ctx context.Context, heard func(fleet.Instance)) error {
	f.listen(heard)
	return ctx.Err()
}

// A memoryRegistry is a Registry whose workers the test sets.
type memoryRegistry struct {
	world        *world
	views        map[workers.Key]*workers.View
	unresponsive []workers.Key
	released     []string // id, kind, how many jobs and why
	refuse       error    // of Release
}

// join adds a worker, as when it asks for jobs.
func (r *memoryRegistry) join(k workers.Key) {
	r.views[k] = &workers.View{ID: k.ID, IdleSince: r.world.now(), Polling: true}
	r.world.scaler.Wake(k.Endpoint)
}

// set changes the view of a worker of e.
func (r *memoryRegistry) set(id queue.WorkerID, f func(*workers.View)) {
	f(r.views[workers.Key{Endpoint: "e", ID: id}])
	r.world.scaler.Wake("e")
}

// busy gives a worker jobs.
func (r *memoryRegistry) busy(id queue.WorkerID, jobs ...queue.JobID) {
	r.set(id, func(v *workers.View) {
		if v.Jobs = jobs; len(jobs) == 0 {
			v.IdleSince = r.world.now()
		}
	})
}

func (r *memoryRegistry) List(endpoint string) (list []workers.View) {
	for k, v := range r.views {
		if k.Endpoint == endpoint {
			list = append(list, *v)
		}
	}
	slices.SortFunc(list, func(a, b workers.View) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

func (r *memoryRegistry) View(k workers.Key) (workers.View, bool) {
	v := r.views[k]
	if v == nil {
		return workers.View{}, false
	}
	return *v, true
}

func (r *memoryRegistry) Drain(k workers.Key) bool {
	v := r.views[k]
	if v != nil {
		v.Draining = true
	}
	return v != nil
}

func (r *memoryRegistry) Release(_ context.Context, k workers.Key, kind queue.OpKind, why string) error {
	if r.refuse != nil {
		return r.refuse
	}
	if v := r.views[k]; v != nil {
		name := map[queue.OpKind]string{queue.OpWorkerLost: "lost", queue.OpRelease: "released"}[kind]
		r.released = append(r.released, fmt.Sprint(k.ID, " ", name, " ", len(v.Jobs), " ", why))
		v.Jobs = nil
	}
	return nil
}

func (r *memoryRegistry) Remove(k workers.Key) { delete(r.views, k) }

func (r *memoryRegistry) Unresponsive(queue.Instant) []workers.Key { return r.unresponsive }

// uses is a Meter that keeps the last use of each worker.
type uses struct {
	last  map[queue.WorkerID]fleet.WorkerUse
	ended map[queue.WorkerID]int // how often the end of a worker was reported
}

func (m *uses) Observe(_ context.Context, _ time.Time, list []fleet.WorkerUse) error {
	if m.last == nil {
		m.last, m.ended = map[queue.WorkerID]fleet.WorkerUse{}, map[queue.WorkerID]int{}
	}
	for _, u := range list {
		m.last[u.Worker] = u
		if !u.To.IsZero() {
			m.ended[u.Worker]++
		}
	}
	return nil
}
