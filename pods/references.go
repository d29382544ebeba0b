package pods

import (
	"context"
	"fmt"
	"slices"
)

// References says what the pods in a store refer to, now or with their next container. It needs
// no Service: the services that ask are made first, because a Service needs them.
type References struct{ Pods PodStore }

// RegistryInUse reports whether a pod of owner pulls with a registry credential.
func (r References) RegistryInUse(ctx context.Context, owner, id string) (bool, error) {
	return r.any(ctx, owner, func(p *Pod) bool {
		return p.checkVisible(owner) == nil && (p.Config.Registry == id || p.Want.Applied.Registry == id)
	})
}

// VolumeInUse reports whether a pod of owner mounts a network volume, or a reservation does.
// A terminated pod counts until its host has confirmed that nothing of it is left: until then
// its processes may write.
func (r References) VolumeInUse(ctx context.Context, owner, id string) (bool, error) {
	for h, err := range r.Pods.Reservations(ctx) {
		if err != nil {
			return false, fmt.Errorf("pods: find what is mounted: %w", err)
		}
		if slices.Contains(h.Volumes, id) {
			return true, nil
		}
	}
	mounts := func(c *Config) bool {
		return slices.ContainsFunc(c.Mounts.Network, func(m NetworkMount) bool { return m.VolumeID == id })
	}
	return r.any(ctx, owner, func(p *Pod) bool {
		there := p.checkVisible(owner) == nil || p.Placement.Host != ""
		return there && (mounts(&p.Config) || mounts(&p.Want.Applied))
	})
}

// TemplateInUse reports whether a pod of owner was made from a template.
func (r References) TemplateInUse(ctx context.Context, owner, id string) (bool, error) {
	return r.any(ctx, owner, func(p *Pod) bool { return p.checkVisible(owner) == nil && p.Template == id })
}

// any reports whether match holds for any pod of owner, terminated ones among them.
func (r References) any(ctx context.Context, owner string, match func(*Pod) bool) (bool, error) {
	for p, err := range r.Pods.List(ctx, Filter{Owner: owner}) {
		if err != nil {
			return false, fmt.Errorf("pods: find what pods name: %w", err)
		}
		if match(p) {
			return true, nil
		}
	}
	return false, nil
}

// RegistryInUse is the method of [References].
func (s *Service) RegistryInUse(ctx context.Context, owner, id string) (bool, error) {
	return References{s.store}.RegistryInUse(ctx, owner, id)
}
