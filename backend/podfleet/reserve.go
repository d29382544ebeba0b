package podfleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/fleet"
)

// A workerReservation is the reservation of a worker.
type workerReservation struct {
	reservation pods.Reservation
	// unverified marks a reservation of an earlier process whose worker was not seen yet.
	unverified bool
	// returned says that the store no longer has it, because the worker's container has ended.
	// The entry stays until Stop: it says where the log of the worker is.
	returned bool
}

// reserve places w and stores the reservation, which lasts until release. A worker that has
// a reservation keeps it.
func (f *Fleet) reserve(ctx context.Context, podID string, w *fleet.WorkerSpec, volumes map[string]string) (*pods.Reservation, error) {
	if h, ok := f.reuseReservation(podID); ok {
		return h, nil
	}
	hold := pods.Reservation{Holder: podID, Image: w.Container.Image, Endpoint: w.Endpoint, Owner: w.Owner}
	err := f.placer.Place(ctx, f.placementRequest(w, volumes), func(d pods.Requirements, pl pods.Placement) error {
		hold.Placement = pl
		hold.GPU, hold.CPU, hold.Volumes = nil, nil, nil
		if v := volumes[pl.DataCenter]; v != "" {
			if err := f.settle(ctx, v); err != nil {
				return err
			}
			hold.Volumes = []string{v}
		}
		if d.GPU != "" {
			hold.GPU = &pods.GPU{ID: d.GPU, Count: d.Count}
		} else {
			hold.CPU = &pods.CPU{ID: d.CPU, VCPU: d.VCPU, Memory: d.Memory}
		}
		return f.store.Reserve(ctx, hold)
	})
	if errors.Is(err, pods.ErrNoCapacity) {
		return nil, fleet.ErrNoCapacity
	}
	if err != nil {
		// The store may have the reservation: it stays until Stop releases it.
		return nil, fmt.Errorf("podfleet: place worker %q of %q: %w", w.ID, w.Endpoint, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reservations[podID] = &workerReservation{reservation: hold}
	return &hold, nil
}

// reuseReservation returns the reservation that a worker has. The caller starts the worker,
// so the reservation counts as verified.
func (f *Fleet) reuseReservation(podID string) (*pods.Reservation, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.reservations[podID]
	if p == nil || p.returned {
		return nil, false
	}
	p.unverified = false
	return &p.reservation, true
}

// reservationOf returns the reservation of a worker. It must not be changed.
func (f *Fleet) reservationOf(podID string) (*pods.Reservation, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.reservations[podID]; p != nil {
		return &p.reservation, true
	}
	return nil, false
}

// release releases the reservation of a worker of which nothing is left.
func (f *Fleet) release(ctx context.Context, podID string) error {
	if err := f.store.Release(ctx, podID); err != nil {
		return fmt.Errorf("podfleet: release what %q holds: %w", podID, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.reservations, podID)
	return nil
}

// giveBack releases what a worker held whose container has ended. A container that has ended uses
// nothing of its host, for pods as for workers, while its log may be kept for minutes: four crashed
// workers must not fill a host for as long as somebody may read why they crashed.
func (f *Fleet) giveBack(ctx context.Context, podID string) error {
	f.mu.Lock()
	p := f.reservations[podID]
	holds := p != nil && !p.returned
	f.mu.Unlock()
	if !holds {
		return nil
	}
	if err := f.store.Release(ctx, podID); err != nil {
		return fmt.Errorf("podfleet: release what %q held: %w", podID, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p.returned = true
	return nil
}

// adoptReservations adopts the reservations of an earlier process's workers on these hosts,
// once. It returns the holders that have not been seen since.
func (f *Fleet) adoptReservations(ctx context.Context) (left map[string]bool, err error) {
	f.mu.Lock()
	heir := f.adopted
	f.mu.Unlock()
	var found []pods.Reservation
	if !heir {
		for h, err := range f.store.Reservations(ctx) {
			if err != nil {
				return nil, fmt.Errorf("podfleet: find what workers hold: %w", err)
			}
			if _, ours := f.placer.Host(h.Placement.Host); ours && IsWorker(h.Holder) {
				found = append(found, h)
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.adopted {
		for _, h := range found {
			if f.reservations[h.Holder] == nil {
				f.reservations[h.Holder] = &workerReservation{reservation: h, unverified: true}
			}
		}
		f.adopted = true
	}
	left = map[string]bool{}
	for podID, p := range f.reservations {
		if p.unverified {
			left[podID] = true
		}
	}
	return left, nil
}

// releaseOrphans releases the adopted reservations in gone, whose workers are on no host.
// The other adopted workers exist, and are stopped like any worker.
func (f *Fleet) releaseOrphans(ctx context.Context, gone map[string]bool) error {
	f.mu.Lock()
	for podID, p := range f.reservations {
		if !p.unverified {
			delete(gone, podID)
		} else if !gone[podID] {
			p.unverified = false
		}
	}
	f.mu.Unlock()
	for podID := range gone {
		if err := f.release(ctx, podID); err != nil {
			return err
		}
	}
	return nil
}

// placementRequest returns what w needs, and where. With network volumes, only their data
// centers are allowed.
func (f *Fleet) placementRequest(w *fleet.WorkerSpec, volumes map[string]string) pods.PlacementRequest {
	wish := pods.PlacementRequest{DataCenters: w.DataCenterIDs, PreferDataCenters: true}
	if len(volumes) > 0 {
		wish.PreferDataCenters = false
		wish.DataCenters = slices.SortedFunc(maps.Keys(volumes), func(a, b string) int {
			return cmp.Or(rank(w.DataCenterIDs, a)-rank(w.DataCenterIDs, b), cmp.Compare(a, b))
		})
	}
	if w.GPU == nil {
		for _, c := range w.CPU {
			wish.Alternatives = append(wish.Alternatives, pods.Requirements{CPU: c.ID, VCPU: c.VCPU, Memory: c.Memory})
		}
		return wish
	}
	cuda := pods.CUDAVersions{Allowed: w.GPU.AllowedCUDAVersions, Min: w.GPU.MinCUDAVersion}
	for _, typ := range selectedGPUTypes(f.placer.Catalog(), w.GPU) {
		wish.Alternatives = append(wish.Alternatives, pods.Requirements{GPU: typ, Count: max(w.GPU.Count, 1), CUDA: cuda})
	}
	return wish
}

// selectedGPUTypes returns the GPU types of the pools in order, each once, without the
// excluded types.
func selectedGPUTypes(c catalog.Catalog, g *endpoints.GPU) (types []string) {
	for _, pool := range g.Pools {
		for _, typ := range gpuTypes(c, pool) {
			if !slices.Contains(types, typ) && !slices.Contains(g.ExcludedTypes, typ) {
				types = append(types, typ)
			}
		}
	}
	return types
}

// rank returns the position of a data center in a list, or the length of the list.
func rank(list []string, dataCenter string) int {
	if i := slices.Index(list, dataCenter); i >= 0 {
		return i
	}
	return len(list)
}

// RoomHolders implements fleet.RoomHolders.
func (f *Fleet) RoomHolders(ctx context.Context) (workers map[string]int, n int, err error) {
	workers = map[string]int{}
	for r, err := range f.store.Reservations(ctx) {
		if err != nil {
			return nil, 0, fmt.Errorf("podfleet: list reservations: %w", err)
		}
		if endpoint, _, ok := parsePodID(r.Holder); ok {
			workers[endpoint]++
		}
	}
	for p, err := range f.store.List(ctx, pods.Filter{}) {
		if err != nil {
			return nil, 0, fmt.Errorf("podfleet: list pods: %w", err)
		}
		if len(p.Placement.Claims) > 0 {
			n++
		}
	}
	return workers, n, nil
}
