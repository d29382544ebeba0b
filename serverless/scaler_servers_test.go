package serverless_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/fleet"
	"github.com/podyard/podyard/serverless/servers"
)

// A commonFleet is one fleet that all servers use. Its workers poll the service that is set.
type commonFleet struct {
	mu      sync.Mutex
	list    map[serverless.WorkerID]fleet.Instance
	started int
	stopped int
}

func (f *commonFleet) Start(_ context.Context, w fleet.WorkerSpec) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.started++
	f.list[w.ID] = fleet.Instance{Endpoint: w.Endpoint, ID: w.ID, Release: w.Release, Image: w.Container.Image, State: fleet.InstanceRunning, Started: time.Now()}
	return nil
}

func (f *commonFleet) Stop(_ context.Context, _ string, id serverless.WorkerID, _ time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.list[id]; ok {
		f.stopped++
		delete(f.list, id)
	}
	return nil
}

func (f *commonFleet) Workers(context.Context) (list []fleet.Instance, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.list {
		list = append(list, w)
	}
	return list, nil
}

func (f *commonFleet) Watch(ctx context.Context, _ func(fleet.Instance)) error {
	<-ctx.Done()
	return ctx.Err()
}

// any returns the id of a worker.
func (f *commonFleet) any() (id serverless.WorkerID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id = range f.list {
		break
	}
	return id
}

func (f *commonFleet) counts() (there, started, stopped int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.list), f.started, f.stopped
}

// scalingServers starts two servers that scale the same endpoints on one fleet. kill ends the
// server i without giving anything back.
func scalingServers(t *testing.T, workers endpoints.WorkerLimits) (list []server, f *commonFleet, eps serverless.EndpointStore) {
	t.Helper()
	f = &commonFleet{list: map[serverless.WorkerID]fleet.Instance{}}
	store, presence, q := memory.NewServers(), memory.NewPresence(), memory.NewJobs()
	eps = twoEndpoints(t)
	e, err := eps.Get(t.Context(), "echo")
	if err != nil {
		t.Fatal(err)
	}
	e = e.Clone()
	e.Container.Image, e.Workers, e.Type = "org/worker:1", workers, endpoints.QueueType
	e.Scaling = endpoints.Scaling{Type: endpoints.RequestCount, Count: 1}
	scaled := memory.NewEndpoints()
	if err := scaled.Create(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		s, err := servers.Join(t.Context(), leaveless{store}, nil)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		x := startServer(t, serverless.New(merging(q), scaled, &serverless.Options{
			Server: s, Presence: presence, Fleet: f, WorkerURL: func() string { return "http://x/v2" }, WorkerSecret: []byte("same"),
		}))
		end := sync.OnceFunc(func() { cancel(); <-done; x.end() })
		t.Cleanup(end)
		list = append(list, server{x.Service, end})
		time.Sleep(3 * time.Second)
	}
	return list, f, scaled
}

func TestOneServerDecidesForAnEndpointAndAnotherTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list, f, _ := scalingServers(t, endpoints.WorkerLimits{Min: 2, Max: 5, Idle: time.Hour})
		a, b := list[0], list[1].Service
		time.Sleep(30 * time.Second)
		if there, started, stopped := f.counts(); there != 2 || started != 2 || stopped != 0 {
			t.Fatalf("two servers have started %d workers and stopped %d, and %d are there, want 2", started, stopped, there)
		}
		want, err := a.Decisions(t.Context(), "echo")
		if err != nil || len(want) == 0 {
			t.Fatalf("decisions = %v, %v", want, err)
		}
		got, err := b.Decisions(t.Context(), "echo")
		if err != nil || !slices.EqualFunc(got, want, func(x, y fleet.Decision) bool { return x.At == y.At && x.Reason == y.Reason }) {
			t.Errorf("decisions at the other server = %v, %v, want %v", got, err, want)
		}
		a.end()
		for range 3 {
			submitEcho(t, b)
		}
		time.Sleep(5 * time.Second)
		if _, started, _ := f.counts(); started != 2 {
			t.Errorf("%d workers were started before the lease of the dead server was over", started)
		}
		time.Sleep(servers.DefaultLease + 10*time.Second)
		if there, started, stopped := f.counts(); there != 3 || started != 3 || stopped != 0 {
			t.Errorf("%d workers are there, %d were started and %d stopped: want the 2 of the dead server and one more", there, started, stopped)
		}
		if got, err := b.Decisions(t.Context(), "echo"); err != nil || len(got) <= len(want) || got[0].At != want[0].At {
			t.Errorf("decisions after the take-over = %v, %v, want those of the dead server and more", got, err)
		}
	})
}

func TestWorkersOfADeletedEndpointAreStoppedByOneServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, f, eps := scalingServers(t, endpoints.WorkerLimits{Min: 2, Max: 5, Idle: time.Hour})
		time.Sleep(10 * time.Second)
		if err := eps.Delete(t.Context(), "echo"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if there, started, stopped := f.counts(); there != 0 || started != 2 || stopped != 2 {
			t.Errorf("%d workers are there, %d were started and %d stopped", there, started, stopped)
		}
	})
}

func TestIdleWorkerThatTookAJobAtAnotherServerIsNotStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list, f, _ := scalingServers(t, endpoints.WorkerLimits{Min: 0, Max: 1, Idle: 5 * time.Second})
		b := list[1].Service
		ref := submitEcho(t, b)
		time.Sleep(2 * time.Second)
		id := f.any()
		takeOne(t, b, id)
		for range 20 { // longer than it may be idle
			time.Sleep(5 * time.Second)
			ping(t, b, id, ref.ID)
		}
		for i := range list {
			cold, err := list[i].ColdStarts(t.Context(), "echo")
			if err != nil || len(cold) != 1 || cold[0].Took < time.Second || cold[0].Took > 10*time.Second {
				t.Errorf("cold starts at server %d = %v, %v, want that of the worker, which came after 2 s", i, cold, err)
			}
		}
		if there, started, stopped := f.counts(); there != 1 || started != 1 || stopped != 0 {
			t.Errorf("%d workers are there, %d were started and %d stopped, want one that has a job", there, started, stopped)
		}
		if err := finish(t, b, ref, id, `1`); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if there, _, stopped := f.counts(); there != 0 || stopped != 1 {
			t.Errorf("%d workers are there and %d were stopped after the only job has ended", there, stopped)
		}
	})
}
