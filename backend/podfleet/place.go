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
	"github.com/podyard/podyard/serverless"
)

// A place is what a worker has of a host, as the store has it.
type place struct {
	hold pods.Hold
	// inherited from an earlier process, and not seen on its host yet.
	inherited bool
}

// take finds a place for w and has the store hold it until release. A worker that has one
// keeps it.
func (f *Fleet) take(ctx context.Context, podID string, w *serverless.WorkerSpec, volumes map[string]string) (*pods.Hold, error) {
	if h, ok := f.keep(podID); ok {
		return h, nil
	}
	hold := pods.Hold{Holder: podID, Image: w.Container.Image}
	err := f.placer.Place(ctx, f.wish(w, volumes), func(d pods.Demand, pl pods.Placement) error {
		hold.Placement = pl
		hold.GPU, hold.CPU, hold.Volumes = nil, nil, nil
		if v := volumes[pl.DataCenter]; v != "" {
			hold.Volumes = []string{v}
		}
		if d.GPU != "" {
			hold.GPU = &pods.GPU{ID: d.GPU, Count: d.Count}
		} else {
			hold.CPU = &pods.CPU{ID: d.CPU, VCPU: d.VCPU, Memory: d.Memory}
		}
		return f.store.Hold(ctx, hold)
	})
	if errors.Is(err, pods.ErrNoRoom) {
		return nil, serverless.ErrNoRoom
	}
	if err != nil {
		// Whether it is held is not known: it is free when Stop has said so.
		return nil, fmt.Errorf("podfleet: place worker %q of %q: %w", w.ID, w.Endpoint, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.places[podID] = &place{hold: hold}
	return &hold, nil
}

// keep is the place that a worker has. Who asks for it is about to start the worker, if
// it is not there: a place is inherited no longer.
func (f *Fleet) keep(podID string) (*pods.Hold, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.places[podID]
	if p == nil {
		return nil, false
	}
	p.inherited = false
	return &p.hold, true
}

// held is what a worker has; it is not changed.
func (f *Fleet) held(podID string) (*pods.Hold, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.places[podID]; p != nil {
		return &p.hold, true
	}
	return nil, false
}

// release is called when nothing is left of a worker.
func (f *Fleet) release(ctx context.Context, podID string) error {
	if err := f.store.Release(ctx, podID); err != nil {
		return fmt.Errorf("podfleet: release what %q holds: %w", podID, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.places, podID)
	return nil
}

// inherit takes over what workers of an earlier process hold on these hosts, once, and
// returns the holders that have not been seen since.
func (f *Fleet) inherit(ctx context.Context) (left map[string]bool, err error) {
	f.mu.Lock()
	heir := f.heir
	f.mu.Unlock()
	var found []pods.Hold
	if !heir {
		for h, err := range f.store.Holds(ctx) {
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
	if !f.heir {
		for _, h := range found {
			if f.places[h.Holder] == nil {
				f.places[h.Holder] = &place{hold: h, inherited: true}
			}
		}
		f.heir = true
	}
	left = map[string]bool{}
	for podID, p := range f.places {
		if p.inherited {
			left[podID] = true
		}
	}
	return left, nil
}

// disinherit releases what was inherited and is held by nobody: all hosts were asked, and
// gone are not there. The others are there, and are stopped like any.
func (f *Fleet) disinherit(ctx context.Context, gone map[string]bool) error {
	f.mu.Lock()
	for podID, p := range f.places {
		if !p.inherited {
			delete(gone, podID)
		} else if !gone[podID] {
			p.inherited = false
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

// wish is what w needs, and where: with network volumes only where one of them is.
func (f *Fleet) wish(w *serverless.WorkerSpec, volumes map[string]string) pods.Wish {
	wish := pods.Wish{DataCenters: w.DataCenterIDs, Elsewhere: true}
	if len(volumes) > 0 {
		wish.Elsewhere = false
		wish.DataCenters = slices.SortedFunc(maps.Keys(volumes), func(a, b string) int {
			return cmp.Or(rank(w.DataCenterIDs, a)-rank(w.DataCenterIDs, b), cmp.Compare(a, b))
		})
	}
	if w.GPU == nil {
		for _, c := range w.CPU {
			wish.Any = append(wish.Any, pods.Demand{CPU: c.ID, VCPU: c.VCPU, Memory: c.Memory})
		}
		return wish
	}
	cuda := pods.CUDAVersions{Allowed: w.GPU.AllowedCUDAVersions, Min: w.GPU.MinCUDAVersion}
	for _, typ := range selected(f.placer.Catalog(), w.GPU) {
		wish.Any = append(wish.Any, pods.Demand{GPU: typ, Count: max(w.GPU.Count, 1), CUDA: cuda})
	}
	return wish
}

// selected is the GPU types of the pools, in their order and each once, without those that
// are excluded.
func selected(c catalog.Catalog, g *serverless.EndpointGPU) (types []string) {
	for _, pool := range g.Pools {
		for _, typ := range gpuTypes(c, pool) {
			if !slices.Contains(types, typ) && !slices.Contains(g.ExcludedTypes, typ) {
				types = append(types, typ)
			}
		}
	}
	return types
}

// rank is where a data center stands in a list; after the last if it does not.
func rank(list []string, dataCenter string) int {
	if i := slices.Index(list, dataCenter); i >= 0 {
		return i
	}
	return len(list)
}
