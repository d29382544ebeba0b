package serverless

import (
	"context"
	"fmt"
	"slices"
)

// References says what the endpoints in a store name. It needs no Service, so that the
// services that ask can be made first: they are what a Service needs of its neighbours.
type References struct{ Endpoints EndpointStore }

// RegistryInUse reports whether workers of an endpoint of owner pull with a registry
// credential.
func (r References) RegistryInUse(ctx context.Context, owner, id string) (bool, error) {
	return r.some(ctx, owner, func(e *Endpoint) bool { return e.Container.Registry == id })
}

// VolumeInUse reports whether workers of an endpoint of owner mount a network volume.
func (r References) VolumeInUse(ctx context.Context, owner, id string) (bool, error) {
	return r.some(ctx, owner, func(e *Endpoint) bool { return slices.Contains(e.NetworkVolumes, id) })
}

func (r References) some(ctx context.Context, owner string, is func(*Endpoint) bool) (bool, error) {
	for e, err := range r.Endpoints.List(ctx) {
		if err != nil {
			return false, fmt.Errorf("serverless: find what endpoints name: %w", err)
		}
		if e.Owner == owner && is(e) {
			return true, nil
		}
	}
	return false, nil
}
