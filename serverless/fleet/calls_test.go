package fleet_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/fleet"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/workers"
)

// A slowFleet takes its time: a start lasts as long as the test says, a list a second.
type slowFleet struct {
	mu        sync.Mutex
	starts    time.Duration
	instances map[queue.WorkerID]fleet.Instance
	calls     map[queue.WorkerID]int // under way
	started   int
	lists     int
	doubled   bool // two calls at once were about one worker
	lost      chan struct{}
}

func (f *slowFleet) begin(id queue.WorkerID) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[id]++
	f.doubled = f.doubled || f.calls[id] > 1
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.calls[id]--
	}
}

func (f *slowFleet) Start(_ context.Context, s fleet.WorkerSpec) error {
	defer f.begin(s.ID)()
	time.Sleep(f.starts)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.started++
	f.instances[s.ID] = fleet.Instance{Endpoint: s.Endpoint, ID: s.ID, Release: s.Release}
	return nil
}

func (f *slowFleet) Stop(_ context.Context, _ string, id queue.WorkerID, _ time.Duration) error {
	defer f.begin(id)()
	time.Sleep(time.Second)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.instances, id)
	return nil
}

func (f *slowFleet) Workers(context.Context) ([]fleet.Instance, error) {
	f.mu.Lock()
	f.lists++
	list := slices.Collect(maps.Values(f.instances))
	f.mu.Unlock()
	time.Sleep(time.Second)
	return list, nil
}

func (f *slowFleet) Watch(ctx context.Context, _ func(fleet.Instance)) error {
	select {
	case <-f.lost:
		return errors.New("the connection is gone")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// start runs a scaler on f and one endpoint of a world as a service does, until the test ends.
func (f *slowFleet) start(t *testing.T, w *world, early bool) *fleet.Scaler {
	t.Helper()
	wake := make(chan struct{}, 1)
	s := fleet.New(fleet.Options{
		Fleet: f, Queue: w, Endpoints: w, Registry: &slowRegistry{f, early}, Clock: clock.System{},
		Wake: func(at queue.Instant) {
			time.AfterFunc(time.Until(at.Time()), func() {
				select {
				case wake <- struct{}{}:
				default:
				}
			})
		},
		NewID: w.newID, URL: func() string { return "http://jobs" },
		Env:    func(*endpoints.Endpoint, queue.WorkerID, string) map[string]string { return nil },
		Logger: w.logger(),
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var runs sync.WaitGroup
	runs.Go(func() { s.Watch(ctx) })
	runs.Go(func() {
		for ctx.Err() == nil {
			next := s.Step(ctx, queue.At(time.Now()))
			timer := time.NewTimer(time.Until(next.Time()))
			select {
			case <-wake:
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
		}
		s.Close(context.WithoutCancel(ctx))
	})
	t.Cleanup(func() {
		cancel()
		runs.Wait()
	})
	return s
}

// A slowRegistry knows the workers of a slowFleet while they are started, if they come so early.
type slowRegistry struct {
	fleet *slowFleet
	early bool
}

func (r *slowRegistry) List(string) (list []workers.View) {
	r.fleet.mu.Lock()
	defer r.fleet.mu.Unlock()
	for id, n := range r.fleet.calls {
		if r.early && (n > 0 || r.fleet.instances[id].ID == id) {
			list = append(list, workers.View{ID: id})
		}
	}
	return list
}

func (r *slowRegistry) View(k workers.Key) (workers.View, bool) {
	i := slices.IndexFunc(r.List(k.Endpoint), func(v workers.View) bool { return v.ID == k.ID })
	return workers.View{ID: k.ID}, i >= 0
}

func (r *slowRegistry) Drain(k workers.Key) bool {
	_, ok := r.View(k)
	return ok
}

func (*slowRegistry) Release(context.Context, workers.Key, queue.OpKind, string) error { return nil }
func (*slowRegistry) Remove(workers.Key)                                               {}
func (*slowRegistry) Unresponsive(queue.Instant) []workers.Key                         { return nil }

func newSlowFleet(starts time.Duration) *slowFleet {
	return &slowFleet{starts: starts, instances: map[queue.WorkerID]fleet.Instance{}, calls: map[queue.WorkerID]int{}, lost: make(chan struct{})}
}

func TestCallsAboutOneWorkerComeOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, managed("e", 2, 2))
		f := newSlowFleet(25 * time.Second)
		s := f.start(t, w, false)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		w.endpoints["e"].Workers = endpoints.WorkerLimits{}
		s.Resync()
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if f.started != 0 || len(s.Workers("e")) != 2 {
			t.Errorf("%d starts have ended, %d workers, want two that are to be stopped when they have", f.started, len(s.Workers("e")))
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if f.doubled || len(f.instances) != 0 || len(s.Workers("e")) != 0 {
			t.Errorf("two calls at once: %v; %d processes, %d workers, want none", f.doubled, len(f.instances), len(s.Workers("e")))
		}
	})
}

// A list that was made before a start has ended does not know of the worker.
func TestWorkerIsNotMissedByAListThatIsOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i, starts := range []time.Duration{9500 * time.Millisecond, 10500 * time.Millisecond, 25 * time.Second, 25 * time.Second} {
			w := newWorld(t, managed("e", 1, 1))
			f := newSlowFleet(starts)
			early := i == 3 // the worker comes for jobs while the fleet still starts it
			s := f.start(t, w, early)
			time.Sleep(50 * time.Second)
			synctest.Wait()
			if f.started != 1 || w.ids != 2 { // the world's own scaler has made one
				t.Errorf("a start takes %v: %d starts of %d workers, want one", starts, f.started, w.ids-1)
			}
			want := fleet.Starting
			if early {
				want = fleet.Idle
			}
			if list := s.Workers("e"); len(list) != 1 || list[0].State != want {
				t.Errorf("a start takes %v: workers are %+v, want one that is %v", starts, list, want)
			}
		}
	})
}

func TestFleetThatWasLostIsListedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, managed("e", 1, 1))
		f := newSlowFleet(0)
		f.start(t, w, false)
		time.Sleep(11500 * time.Millisecond) // the list of every ten seconds has just been made
		f.mu.Lock()
		clear(f.instances)
		f.mu.Unlock()
		close(f.lost)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if f.started != 2 {
			t.Errorf("%d starts, want another one: the worker went while nobody listened", f.started)
		}
	})
}
