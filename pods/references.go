package pods

import (
	"context"
	"fmt"
	"slices"
)

// References says what the pods in a store name, now or with their next container. It
// needs no Service, so that the services that ask can be made first: they are what a
// Service needs of its neighbours.
type References struct{ Pods PodStore }

// RegistryInUse reports whether a pod of owner pulls with a registry credential.
func (r References) RegistryInUse(ctx context.Context, owner, id string) (bool, error) {
	return r.anyConfig(ctx, owner, func(c *Config) bool { return c.Registry == id })
}

// VolumeInUse reports whether a pod of owner mounts a network volume, or whoever holds
// something on a host.
func (r References) VolumeInUse(ctx context.Context, owner, id string) (bool, error) {
	for h, err := range r.Pods.Reservations(ctx) {
		if err != nil {
			return false, fmt.Errorf("pods: find what is mounted: %w", err)
		}
		if slices.Contains(h.Volumes, id) {
			return true, nil
		}
	}
	return r.anyConfig(ctx, owner, func(c *Config) bool {
		for _, m := range c.Mounts.Network {
			if m.VolumeID == id {
				return true
			}
		}
		return false
	})
}

// TemplateInUse reports whether a pod of owner was made from a template.
func (r References) TemplateInUse(ctx context.Context, owner, id string) (bool, error) {
	for p, err := range r.Pods.List(ctx, Filter{Owner: owner}) {
		if err != nil {
			return false, fmt.Errorf("pods: find what pods name: %w", err)
		}
		if p.checkVisible(owner) == nil && p.Template == id {
			return true, nil
		}
	}
	return false, nil
}

// anyConfig reports whether is is true of a container that a pod of owner has or will have.
func (r References) anyConfig(ctx context.Context, owner string, is func(*Config) bool) (bool, error) {
	for p, err := range r.Pods.List(ctx, Filter{Owner: owner}) {
		if err != nil {
			return false, fmt.Errorf("pods: find what pods name: %w", err)
		}
		if p.checkVisible(owner) == nil && (is(&p.Config) || is(&p.Want.Applied)) {
			return true, nil
		}
	}
	return false, nil
}

// RegistryInUse is that of [References].
func (s *Service) RegistryInUse(ctx context.Context, owner, id string) (bool, error) {
	return References{s.store}.RegistryInUse(ctx, owner, id)
}
