package endpoints

import (
	"context"
	"fmt"
	"slices"
)

// References finds the endpoints that use a credential or a volume. It needs only a Store,
// because the services that ask are created before a Service.
type References struct{ Endpoints Store }

// RegistryInUse reports whether an endpoint of owner uses a registry credential.
func (r References) RegistryInUse(ctx context.Context, owner, id string) (bool, error) {
	return r.anyEndpoint(ctx, owner, func(e *Endpoint) bool { return e.Container.Registry == id })
}

// VolumeInUse reports whether an endpoint of owner uses a network volume.
func (r References) VolumeInUse(ctx context.Context, owner, id string) (bool, error) {
	return r.anyEndpoint(ctx, owner, func(e *Endpoint) bool { return slices.Contains(e.NetworkVolumes, id) })
}

func (r References) anyEndpoint(ctx context.Context, owner string, is func(*Endpoint) bool) (bool, error) {
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
