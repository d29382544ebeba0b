package pods

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/podyard/podyard/pods/telemetry"
)

// cordonResource is what the cordon of a host claims. So it is where all placers of a store
// look, and lasts as long as the store.
func (h *Host) cordonResource() string { return cordonPrefix + h.ID }

const cordonPrefix = "cordon/"

// Cordon has no pod and no worker be placed on a host from now on, by any placer of the
// store, until Uncordon. What runs there goes on. It returns ErrNoHost for an unknown host.
func (s *Service) Cordon(ctx context.Context, host string) error {
	h, ok := s.placer.find(host)
	if !ok {
		return ErrNoHost
	}
	if already, err := s.placer.cordoned(ctx, h); already || err != nil {
		return err
	}
	r := Reservation{Holder: h.cordonResource(), CPU: &CPU{}, Placement: Placement{
		Host: h.ID, DataCenter: h.DataCenter, Claims: []Claim{{h.cordonResource(), 1, 1}}, Since: s.clock.Now().UTC(),
	}}
	if err := s.store.Reserve(ctx, r); err != nil {
		return fmt.Errorf("pods: cordon %q: %w", host, err)
	}
	return nil
}

// Uncordon reverts Cordon.
func (s *Service) Uncordon(ctx context.Context, host string) error {
	h, ok := s.placer.find(host)
	if !ok {
		return ErrNoHost
	}
	if err := s.store.Release(ctx, h.cordonResource()); err != nil {
		return fmt.Errorf("pods: uncordon %q: %w", host, err)
	}
	s.loop.noteCapacityFreed()
	return nil
}

// cordoned reports whether nothing may be placed on h.
func (r *Placer) cordoned(ctx context.Context, h *Host) (bool, error) {
	n, err := r.store.Claimed(ctx, h.cordonResource())
	if err != nil {
		return false, fmt.Errorf("pods: look up the cordon of %q: %w", h.ID, err)
	}
	return n > 0, nil
}

// A HostState is what an operator sees of a host.
type HostState struct {
	ID         string
	DataCenter string
	Cordoned   bool
	CordonedAt time.Time     // zero: it is not, or this is not known
	Pods       []*Pod        // that have a place there
	Workers    []Reservation // of workers of endpoints there
	// Resources are what the host has, as Limit, and how much of it is claimed, as Units: vCPUs
	// after overcommitment ("vcpu/" and the flavor), GPUs ("gpu/" and the type) and GB ("memory").
	Resources []Claim
	// Isolation is what the host's runtime says of it, if it has a method Isolation() string.
	Isolation string
	// Calls are those of the host's runtime; nil for the host of another server.
	Calls *telemetry.CallCounts

	names map[string]string // of what is claimed there: see Named
}

// Named returns claims of pods or reservations on the host by the names of Resources, without
// limits. Devices of one type count together.
func (x *HostState) Named(claims []Claim) (list []Claim) {
	for _, c := range claims {
		name := x.names[c.Resource]
		i := slices.IndexFunc(list, func(has Claim) bool { return has.Resource == name })
		switch {
		case name == "": // the host had it before a restart
		case i < 0:
			list = append(list, Claim{Resource: name, Units: c.Units})
		default:
			list[i].Units += c.Units
		}
	}
	return list
}

// HostStates are the hosts of the service in their order, and then those of the other servers
// that live.
func (s *Service) HostStates(ctx context.Context) ([]HostState, error) {
	at := map[string]int{}
	var list []HostState
	for _, h := range s.placer.all() {
		x, err := s.hostState(ctx, h)
		if err != nil {
			return nil, err
		}
		at[h.ID] = len(list)
		list = append(list, x)
	}
	for p, err := range s.store.List(ctx, Filter{}) {
		if err != nil {
			return nil, fmt.Errorf("pods: list pods of hosts: %w", err)
		}
		if i, ok := at[p.Placement.Host]; ok && p.Status() != Terminated {
			list[i].Pods = append(list[i].Pods, p)
		}
	}
	for r, err := range s.store.Reservations(ctx) {
		if err != nil {
			return nil, fmt.Errorf("pods: list reservations of hosts: %w", err)
		}
		i, ok := at[r.Placement.Host]
		switch {
		case !ok:
		case r.Holder == (&Host{ID: r.Placement.Host}).cordonResource():
			list[i].CordonedAt = r.Placement.Since
		default:
			list[i].Workers = append(list[i].Workers, r)
		}
	}
	return list, nil
}

// hostState returns what is known of a host without its pods and workers.
func (s *Service) hostState(ctx context.Context, h *Host) (x HostState, err error) {
	x = HostState{ID: h.ID, DataCenter: h.DataCenter, names: h.resourceNames()}
	if x.Cordoned, err = s.placer.cordoned(ctx, h); err != nil {
		return x, err
	}
	if x.Resources, err = s.placer.resources(ctx, h); err != nil {
		return x, fmt.Errorf("pods: look at what is claimed on %q: %w", h.ID, err)
	}
	if h.Runtime != nil {
		n := s.calls.read(h.ID)
		x.Calls = &n
		if i, ok := As[interface{ Isolation() string }](h.Runtime); ok {
			x.Isolation = i.Isolation()
		}
	}
	return x, nil
}

// resourceNames has for each resource that is claimed on h what HostState calls it.
func (h *Host) resourceNames() map[string]string {
	names := map[string]string{h.memoryResource(): "memory"}
	for flavor := range h.VCPU {
		names[h.vcpuResource(flavor)] = "vcpu/" + flavor
	}
	for _, g := range h.GPUs {
		names[h.gpuCountResource(g.Type)] = "gpu/" + g.Type
		for _, device := range g.Devices {
			names[h.gpuDeviceResource(device)] = "gpu/" + g.Type
		}
	}
	return names
}

// resources is what h has and what of it is claimed.
func (r *Placer) resources(ctx context.Context, h *Host) ([]Claim, error) {
	var list []Claim
	add := func(resource string, total int64, claims ...string) error {
		x := Claim{Resource: resource, Limit: total}
		for _, c := range claims {
			used, err := r.store.Claimed(ctx, c)
			if err != nil {
				return err
			}
			x.Units += used
		}
		list = append(list, x)
		return nil
	}
	for _, flavor := range slices.Sorted(maps.Keys(h.VCPU)) {
		if err := add("vcpu/"+flavor, r.vcpuLimit(h, flavor), h.vcpuResource(flavor)); err != nil {
			return nil, err
		}
	}
	if h.Memory > 0 {
		if err := add("memory", int64(h.Memory), h.memoryResource()); err != nil {
			return nil, err
		}
	}
	for _, g := range h.GPUs {
		claims := []string{h.gpuCountResource(g.Type)}
		for _, device := range g.Devices {
			claims = append(claims, h.gpuDeviceResource(device))
		}
		if err := add("gpu/"+g.Type, int64(max(g.Count, len(g.Devices))), claims...); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Owners are the owners of pods, each with how many it has. Pods that are terminated do not
// count.
func (s *Service) Owners(ctx context.Context) (map[string]int, error) {
	owners := map[string]int{}
	for p, err := range s.store.List(ctx, Filter{}) {
		if err != nil {
			return nil, fmt.Errorf("pods: list owners: %w", err)
		}
		if p.Status() != Terminated {
			owners[p.Owner]++
		}
	}
	return owners, nil
}
