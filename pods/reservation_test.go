package pods_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/pods"
)

// reserveOne reserves a GPU of the host for a worker, placed as a fleet places it.
func reserveOne(t *testing.T, w *testEnv, holder string) pods.Reservation {
	t.Helper()
	r, err := pods.NewPlacer(w.store, w.Catalog(), []pods.Host{{
		ID: "local", DataCenter: "LOCAL-1", Runtime: w.runtime,
		GPUs: []pods.HostGPUs{{Type: rtx4090, Devices: []string{"GPU-a", "GPU-b"}}},
	}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var h pods.Reservation
	err = r.Place(t.Context(), pods.PlacementRequest{Alternatives: []pods.Requirements{{GPU: rtx4090, Count: 1}}}, func(d pods.Requirements, pl pods.Placement) error {
		h = pods.Reservation{Holder: holder, GPU: &pods.GPU{ID: d.GPU, Count: d.Count}, Placement: pl}
		return w.store.Reserve(t.Context(), h)
	})
	if err != nil {
		t.Fatalf("Place = %v, want nil", err)
	}
	return h
}

func TestAPodDoesNotGetWhatAnotherHolds(t *testing.T) {
	w := newTestEnv(t, twoGPUs)
	h := reserveOne(t, w, "worker")
	p := w.create(gpuPod())
	if got := append(h.Placement.Devices, p.Placement.Devices...); !cmp.Equal(got, []string{"GPU-a", "GPU-b"}) {
		t.Errorf("devices of worker and pod = %q, want each once", got)
	}
	_, err := w.Create(t.Context(), alice, gpuPod())
	wantNoCapacity(t, "Create", err, "1 x "+rtx4090)
	list, err := w.Capacity(t.Context(), pods.Requirements{GPU: rtx4090, Count: 1})
	if want := []pods.HostCapacity{{DataCenter: "LOCAL-1", Free: 0, Total: 2}}; err != nil || !cmp.Equal(want, list) {
		t.Errorf("Supply = %+v, %v, want %+v", list, err, want)
	}
}

func TestAPodThatWaitsGetsWhatAnotherReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestEnv(t, func(s *envConfig) {
			withQueue(s)
			s.options.Clock, s.runtime.Clock = nil, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		reserveOne(t, w, "one")
		reserveOne(t, w, "two")
		p := w.create(gpuPod())
		time.Sleep(time.Minute)
		w.want(p.ID, pods.Provisioning)
		if err := w.store.Release(t.Context(), "two"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if p := w.want(p.ID, pods.Running); !cmp.Equal(p.Placement.Devices, []string{"GPU-b"}) {
			t.Errorf("devices = %q, want the one that was released", p.Placement.Devices)
		}
		cancel()
		<-ended
	})
}
