package podfleet_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/fleet"
)

func gpuHost(rt pods.Runtime) pods.Host {
	return pods.Host{
		ID: "h", DataCenter: "EU", Runtime: rt,
		GPUs: []pods.HostGPUs{{Type: "Small", Devices: []string{"g0", "g1"}}},
		VCPU: map[string]int{"cpu": 4}, Memory: 16,
	}
}

// gpuWorker returns a worker with count GPUs.
func gpuWorker(id string, count int) fleet.WorkerSpec {
	w := worker(id)
	w.CPU, w.GPU = nil, &endpoints.GPU{Pools: []string{"POOL"}, Count: count}
	return w
}

// holders returns the holders of reservations, in order.
func holders(t *testing.T, s pods.PodStore) []string {
	t.Helper()
	list := []string{}
	for h, err := range s.Reservations(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, h.Holder)
	}
	return list
}

func wantHolders(t *testing.T, when string, s pods.PodStore, want ...string) {
	t.Helper()
	if got := holders(t, s); !slices.Equal(got, want) {
		t.Errorf("%s: holders are %q, want %q", when, got, want)
	}
}

func TestAWorkersPlaceIsThereAfterARestart(t *testing.T) {
	store, rt := memory.NewPods(), newRecorder()
	hosts := []pods.Host{gpuHost(rt)}
	if err := fleetOn(t, store, hosts, nil).Start(t.Context(), gpuWorker("a", 1)); err != nil {
		t.Fatal(err)
	}
	f := fleetOn(t, store, hosts, nil)
	list, err := f.Workers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		list[i].Started, list[i].State = time.Time{}, fleet.InstanceStarting
	}
	want := []fleet.Instance{{Endpoint: "ep", ID: "a", Release: 3, Image: "img", DataCenter: "EU", GPUType: "Small", GPUs: 1}}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("Workers after a restart (-want +got):\n%s", diff)
	}
	if err := f.Start(t.Context(), gpuWorker("b", 1)); err != nil {
		t.Fatal(err)
	}
	if got := rt.specs["worker.ep.b"].Devices; !slices.Equal(got, []string{"g1"}) {
		t.Errorf("devices of the next worker = %q, want the other one", got)
	}
	if err := f.Start(t.Context(), gpuWorker("c", 1)); !errors.Is(err, fleet.ErrNoCapacity) {
		t.Errorf("Start without a free GPU = %v, want ErrNoRoom", err)
	}
	if err := errors.Join(f.Stop(t.Context(), "ep", "a", 0), f.Start(t.Context(), gpuWorker("c", 1))); err != nil {
		t.Fatal(err)
	}
	wantHolders(t, "in the end", store, "worker.ep.b", "worker.ep.c")
}

func TestAPlaceIsReleasedWhenNothingIsLeftOfItsWorker(t *testing.T) {
	store, rt := memory.NewPods(), newRecorder()
	f := fleetOn(t, store, []pods.Host{gpuHost(rt)}, nil)
	rt.away(true)
	if err := f.Start(t.Context(), gpuWorker("a", 2)); !errors.Is(err, errRefused) {
		t.Errorf("Start = %v, want the host's refusal", err)
	}
	wantHolders(t, "after a start whose outcome is unknown", store, "worker.ep.a")
	if err := f.Stop(t.Context(), "ep", "a", 0); !errors.Is(err, errRefused) {
		t.Errorf("Stop = %v, want the host's refusal", err)
	}
	wantHolders(t, "while the host does not say that it is gone", store, "worker.ep.a")
	rt.away(false)
	if err := f.Stop(t.Context(), "ep", "a", 0); err != nil {
		t.Fatal(err)
	}
	wantHolders(t, "after the stop", store)
}

func TestWhatAWorkerHeldThatDidNotSurviveIsReleasedOnceItsHostSaysSo(t *testing.T) {
	store, rt := memory.NewPods(), newRecorder()
	hosts := []pods.Host{gpuHost(rt)}
	first := fleetOn(t, store, hosts, nil)
	if err := first.Start(t.Context(), gpuWorker("here", 1)); err != nil {
		t.Fatal(err)
	}
	rt.away(true)
	if err := first.Start(t.Context(), gpuWorker("gone", 1)); !errors.Is(err, errRefused) {
		t.Fatalf("Start = %v, want the host's refusal", err)
	}
	for _, h := range []pods.Reservation{
		{Holder: "somebody else", Placement: pods.Placement{Host: "h"}},
		{Holder: "worker.ep.far", Placement: pods.Placement{Host: "a host of another server"}},
	} {
		if err := store.Reserve(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	f := fleetOn(t, store, hosts, nil)
	if _, err := f.Workers(t.Context()); !errors.Is(err, errRefused) {
		t.Errorf("Workers = %v, want the host's refusal", err)
	}
	wantHolders(t, "while the host says nothing", store, "somebody else", "worker.ep.far", "worker.ep.gone", "worker.ep.here")
	rt.away(false)
	for range 2 {
		list, err := f.Workers(t.Context())
		if err != nil || len(list) != 1 || list[0].ID != "here" {
			t.Fatalf("Workers = %+v, %v, want the one that is there", list, err)
		}
		wantHolders(t, "after its list", store, "somebody else", "worker.ep.far", "worker.ep.here")
	}
	// A verified reservation stays when its container is gone: the scaler stops the worker.
	if err := rt.Remove(t.Context(), "worker.ep.here", 0); err != nil {
		t.Fatal(err)
	}
	if list, err := f.Workers(t.Context()); err != nil || len(list) != 0 {
		t.Fatalf("Workers = %+v, %v, want none", list, err)
	}
	wantHolders(t, "of a worker that has vanished", store, "somebody else", "worker.ep.far", "worker.ep.here")
}

func TestAWorkerThatHoldsNothingIsListedAsEnded(t *testing.T) {
	rt := newRecorder()
	if err := rt.Ensure(t.Context(), pods.Spec{PodID: podfleet.PodID("ep", "late"), Gen: 3, Run: 1, Image: "img"}); err != nil {
		t.Fatal(err)
	}
	list, err := newFleet(t, []pods.Host{gpuHost(rt)}, nil).Workers(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("Workers = %+v, %v, want one", list, err)
	}
	if w := list[0]; w.State != fleet.InstanceEnded || !w.Stopped || w.DataCenter != "EU" {
		t.Errorf("%+v, want one that has ended, and nobody is to blame", w)
	}
}
