package podfleet_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/serverless/fleet"
	"github.com/podyard/podyard/serverless/queue"
)

func TestAWorkerAndAPodNeverHaveOneGPU(t *testing.T) {
	store, rt := memory.NewPods(), newRecorder()
	hosts := []pods.Host{gpuHost(rt)}
	f := fleetOn(t, store, hosts, nil)
	s, err := pods.New(store, listing, hosts, &pods.Options{Foreign: podfleet.IsWorker})
	if err != nil {
		t.Fatal(err)
	}
	pod := pods.CreateRequest{Name: "p", Image: "img", GPU: &pods.GPURequest{ID: "Small"}}
	if err := f.Start(t.Context(), gpuWorker("a", 1)); err != nil {
		t.Fatal(err)
	}
	p, err := s.Create(t.Context(), "alice", pod)
	if err != nil || !slices.Equal(p.Placement.Devices, []string{"g1"}) {
		t.Fatalf("Create = %+v, %v, want the GPU that the worker has not", p, err)
	}
	if _, err := s.Create(t.Context(), "alice", pod); !errors.Is(err, pods.ErrNoCapacity) {
		t.Errorf("Create without a free GPU = %v, want ErrNoRoom", err)
	}
	if err := f.Start(t.Context(), gpuWorker("b", 1)); !errors.Is(err, fleet.ErrNoCapacity) {
		t.Errorf("Start without a free GPU = %v, want ErrNoRoom", err)
	}
	if err := f.Stop(t.Context(), "ep", "a", 0); err != nil {
		t.Fatal(err)
	}
	if p, err := s.Create(t.Context(), "alice", pod); err != nil || !slices.Equal(p.Placement.Devices, []string{"g0"}) {
		t.Errorf("Create = %+v, %v, want the GPU that the worker had", p, err)
	}
}

func TestAWorkerAndAPodShareTheMemoryOfTheirHost(t *testing.T) {
	store, rt := memory.NewPods(), newRecorder()
	host := cpuHost(rt)
	host.Memory = 8
	f := fleetOn(t, store, []pods.Host{host}, nil)
	s, err := pods.New(store, listing, []pods.Host{host}, &pods.Options{Foreign: podfleet.IsWorker})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start(t.Context(), worker("a")); err != nil { // 4 GB
		t.Fatal(err)
	}
	pod := pods.CreateRequest{Name: "p", Image: "img", CPU: &pods.CPURequest{ID: "cpu", VCPU: 4}} // 8 GB
	if _, err := s.Create(t.Context(), "alice", pod); !errors.Is(err, pods.ErrNoCapacity) {
		t.Errorf("Create of a pod for which memory is missing = %v, want ErrNoRoom", err)
	}
	pod.CPU.VCPU = 2
	if _, err := s.Create(t.Context(), "alice", pod); err != nil {
		t.Errorf("Create of one that fits = %v, want nil", err)
	}
	if err := f.Start(t.Context(), worker("b")); !errors.Is(err, fleet.ErrNoCapacity) {
		t.Errorf("Start without free memory = %v, want ErrNoRoom", err)
	}
}

// TestWhateverHappensPodsAndWorkersShareTheirHost runs random operations in an order that a
// seed chooses. Pods and workers start, stop and exit. The host refuses calls or loses all
// containers. The server crashes. A GPU must never be in two containers, and at the end no
// reservation may be left without a holder.
func TestWhateverHappensPodsAndWorkersShareTheirHost(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newRandomTest(t, seed)
				for range 120 {
					y.step()
					y.check()
				}
				y.end()
			})
		})
	}
}

// randomTest is one host with two GPUs, and a server that may crash.
type randomTest struct {
	t     *testing.T
	rand  *rand.Rand
	rt    *recorder
	store *memory.Pods
	queue bool

	pods  *pods.Service
	fleet *podfleet.Fleet
	kill  func()

	mu      sync.Mutex
	pod     []string
	workers map[queue.WorkerID]bool // workers that must be stopped
	made    int
}

var endings = []memory.Script{
	{Image: "ends", Stages: []memory.Stage{
		{Phase: pods.PhasePulling}, {Phase: pods.PhaseStarting, After: time.Second}, {Phase: pods.PhaseExited, After: time.Second, ExitCode: 3},
	}},
	{Image: "slow", StopAfter: time.Second, Stages: []memory.Stage{
		{Phase: pods.PhasePulling}, {Phase: pods.PhaseStarting, After: 3 * time.Second}, {Phase: pods.PhaseHealthy, After: time.Second},
	}},
}

func newRandomTest(t *testing.T, seed uint64) *randomTest {
	y := &randomTest{
		t: t, rand: rand.New(rand.NewPCG(seed, 5)), rt: newRecorder(endings...), store: memory.NewPods(),
		queue: seed%2 == 0, workers: map[queue.WorkerID]bool{},
	}
	y.boot()
	return y
}

// boot starts a server on what the last one has left.
func (y *randomTest) boot() {
	y.t.Helper()
	hosts := []pods.Host{gpuHost(y.rt)}
	s, err := pods.New(y.store, listing, hosts, &pods.Options{Foreign: podfleet.IsWorker, WaitForCapacity: y.queue})
	if err != nil {
		y.t.Fatal(err)
	}
	y.pods, y.fleet = s, fleetOn(y.t, y.store, hosts, nil)
	ctx, cancel := context.WithCancel(y.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	y.kill = func() {
		cancel()
		<-ended
	}
	y.adopt()
}

// adopt lists the workers, as a scaler does.
func (y *randomTest) adopt() bool {
	list, err := y.fleet.Workers(y.t.Context())
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, w := range list {
		y.workers[w.ID] = true
	}
	return err == nil
}

func (y *randomTest) step() {
	switch n := y.rand.IntN(24); {
	case n < 16:
		var wg sync.WaitGroup
		for range 1 + y.rand.IntN(4) {
			wg.Go(y.act())
		}
		wg.Wait()
	case n < 18:
		y.rt.away(y.rand.IntN(2) == 0)
	case n < 20:
		y.kill()
		if y.rand.IntN(4) == 0 {
			y.rt.mu.Lock()
			y.rt.Runtime = memory.NewRuntime(&memory.RuntimeOptions{Scripts: endings})
			y.rt.mu.Unlock()
		}
		// The scaler's memory is lost in the crash.
		clear(y.workers)
		y.boot()
	default:
		time.Sleep(time.Duration(y.rand.IntN(4000)) * time.Millisecond)
	}
	synctest.Wait()
}

// act returns one random operation, chosen now.
func (y *randomTest) act() func() {
	ctx, image := y.t.Context(), []string{"img", "img", "ends", "slow"}[y.rand.IntN(4)]
	count, gpu := 1+y.rand.IntN(2), y.rand.IntN(4) > 0
	y.mu.Lock()
	defer y.mu.Unlock()
	switch n := y.rand.IntN(8); {
	case n < 2:
		r := pods.CreateRequest{Name: "p", Image: image}
		if gpu {
			r.GPU = &pods.GPURequest{ID: "Small", Count: &count}
		} else {
			r.CPU = &pods.CPURequest{ID: "cpu", VCPU: 2 * count}
		}
		return func() {
			p, err := y.pods.Create(ctx, "alice", r)
			y.ok("create", err)
			if err == nil {
				y.mu.Lock()
				defer y.mu.Unlock()
				y.pod = append(y.pod, p.ID)
			}
		}
	case n < 4 && len(y.pod) > 0:
		id := y.pod[y.rand.IntN(len(y.pod))]
		a := []pods.Action{pods.Start, pods.Stop, pods.Restart, pods.Terminate}[y.rand.IntN(4)]
		return func() {
			_, err := y.pods.Act(ctx, "alice", id, a)
			y.ok(string(a), err)
		}
	case n < 6:
		y.made++
		w := worker(fmt.Sprint("w", y.made))
		if gpu {
			w = gpuWorker(string(w.ID), count)
		}
		w.Container.Image = image
		return func() {
			err := y.fleet.Start(ctx, w)
			y.ok("start a worker", err)
			if !errors.Is(err, fleet.ErrNoCapacity) {
				y.mu.Lock()
				defer y.mu.Unlock()
				y.workers[w.ID] = true
			}
		}
	case n < 7 && len(y.workers) > 0:
		ids := slices.Sorted(maps.Keys(y.workers))
		id := ids[y.rand.IntN(len(ids))]
		delete(y.workers, id) // no other operation stops it meanwhile
		return func() { y.stop(id) }
	default:
		return func() { y.adopt() }
	}
}

func (y *randomTest) stop(id queue.WorkerID) {
	err := y.fleet.Stop(y.t.Context(), "ep", id, time.Second)
	y.ok("stop a worker", err)
	if err != nil {
		y.mu.Lock()
		defer y.mu.Unlock()
		y.workers[id] = true
	}
}

// ok accepts the errors that a call may return at any time.
func (y *randomTest) ok(what string, err error) {
	for _, allowed := range []error{nil, pods.ErrNoCapacity, pods.ErrInvalidStatus, pods.ErrNotFound, fleet.ErrNoCapacity, errRefused} {
		if errors.Is(err, allowed) {
			return
		}
	}
	y.t.Errorf("%s = %v", what, err)
}

// check checks what must be true at every instant.
func (y *randomTest) check() {
	y.t.Helper()
	ctx := y.t.Context()
	sums, limits, devices := map[string]int64{}, map[string]int64{}, map[string][]string{}
	add := func(who string, pl pods.Placement) {
		devices[who] = pl.Devices
		for _, c := range pl.Claims {
			sums[c.Resource] += c.Units
			limits[c.Resource] = c.Limit
		}
	}
	for p, err := range y.store.List(ctx, pods.Filter{}) {
		if err != nil {
			y.t.Fatal(err)
		}
		add(p.ID, p.Placement)
	}
	for h, err := range y.store.Reservations(ctx) {
		if err != nil {
			y.t.Fatal(err)
		}
		add(h.Holder, h.Placement)
	}
	for resource, n := range sums {
		if used, err := y.store.Claimed(ctx, resource); err != nil || used != n || n > limits[resource] {
			y.t.Errorf("%s: %d are used of %d, %v, and %d are claimed", resource, used, limits[resource], err, n)
		}
	}
	states, err := y.rt.Runtime.List(ctx)
	if err != nil {
		y.t.Fatal(err)
	}
	in := map[string]string{}
	y.rt.mu.Lock()
	defer y.rt.mu.Unlock()
	for _, st := range states {
		if st.Phase >= pods.PhaseExited {
			continue
		}
		for _, d := range y.rt.specs[st.PodID].Devices {
			if in[d] != "" {
				y.t.Errorf("GPU %s is in %s and in %s", d, in[d], st.PodID)
			}
			in[d] = st.PodID
			if !slices.Contains(devices[st.PodID], d) {
				y.t.Errorf("GPU %s is in %s, which holds %q", d, st.PodID, devices[st.PodID])
			}
		}
	}
}

// end stops everything, and checks that nothing is left.
func (y *randomTest) end() {
	y.t.Helper()
	y.rt.away(false)
	time.Sleep(time.Minute)
	if !y.adopt() {
		y.t.Error("the host does not list its workers")
	}
	for _, id := range slices.Sorted(maps.Keys(y.workers)) {
		y.stop(id)
	}
	for _, id := range y.pod {
		y.ok("terminate", y.pods.Terminate(y.t.Context(), "alice", id))
	}
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	y.check()
	wantHolders(y.t, "in the end", y.store)
	for _, resource := range []string{"gpu/h/g0", "gpu/h/g1", "vcpu/h/cpu", "memory/h"} {
		if n, err := y.store.Claimed(y.t.Context(), resource); err != nil || n != 0 {
			y.t.Errorf("%s: %d are used, %v, want none", resource, n, err)
		}
	}
	if states, _ := y.rt.Runtime.List(y.t.Context()); len(states) != 0 {
		y.t.Errorf("containers are left: %+v", states)
	}
	y.kill()
}
