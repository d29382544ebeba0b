package podfleet

import (
	"context"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/serverless/endpoints"
)

// References says what pods and endpoints name: what is to be asked before a registry
// credential or a network volume is deleted.
type References struct {
	Pods      pods.References
	Endpoints endpoints.References
}

// RegistryInUse reports whether a pod or an endpoint of owner pulls with a registry
// credential.
func (r References) RegistryInUse(ctx context.Context, owner, id string) (bool, error) {
	if used, err := r.Pods.RegistryInUse(ctx, owner, id); used || err != nil {
		return used, err
	}
	return r.Endpoints.RegistryInUse(ctx, owner, id)
}

// VolumeInUse reports whether a pod or an endpoint of owner mounts a network volume.
func (r References) VolumeInUse(ctx context.Context, owner, id string) (bool, error) {
	if used, err := r.Pods.VolumeInUse(ctx, owner, id); used || err != nil {
		return used, err
	}
	return r.Endpoints.VolumeInUse(ctx, owner, id)
}
