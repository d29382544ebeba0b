package podfleet

import (
	"context"
	"fmt"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/fleet"
)

// errElsewhere is why a worker cannot be started here.
var errElsewhere = problem.New(problem.Unavailable, "what is in the network volume is at another server")

// volumeServers is what a pods.Volumes for several servers has too. A volumes.Service is one.
type volumeServers interface {
	VolumeServer(ctx context.Context, id string) (server string, err error)
	SettleVolume(ctx context.Context, id, server string) (at string, err error)
}

// volumesOf returns the network volumes of an endpoint by data center, or nil if it has
// none. If a data center has several, the first is used. Those at another server are left out.
func (f *Fleet) volumesOf(ctx context.Context, w *fleet.WorkerSpec) (map[string]string, error) {
	if len(w.NetworkVolumes) == 0 {
		return nil, nil
	}
	if f.volumes == nil {
		return nil, fmt.Errorf("podfleet: no network volumes here, and endpoint %q names one", w.Endpoint)
	}
	at := map[string]string{}
	for _, id := range w.NetworkVolumes {
		dc, err := f.volumes.Volume(ctx, w.Owner, id)
		if err != nil {
			return nil, fmt.Errorf("podfleet: network volume %q: %w", id, err)
		}
		server, err := f.serverOf(ctx, id)
		if err != nil {
			return nil, err
		}
		if at[dc] == "" && (server == "" || server == f.server) {
			at[dc] = id
		}
	}
	if len(at) == 0 {
		return nil, fmt.Errorf("podfleet: endpoint %q: %w", w.Endpoint, errElsewhere)
	}
	return at, nil
}

// Elsewhere implements fleet.Bound.
func (f *Fleet) Elsewhere(ctx context.Context, volumes []string) (bool, error) {
	for _, id := range volumes {
		if server, err := f.serverOf(ctx, id); err != nil || server == "" || server == f.server {
			return false, err
		}
	}
	return f.server != "" && len(volumes) > 0, nil
}

// serverOf returns which of several servers has what is in a volume; empty: none, or there is one
// server only.
func (f *Fleet) serverOf(ctx context.Context, id string) (string, error) {
	servers, ok := f.volumes.(volumeServers)
	if !ok || f.server == "" {
		return "", nil
	}
	server, err := servers.VolumeServer(ctx, id)
	if err != nil {
		return "", fmt.Errorf("podfleet: network volume %q: %w", id, err)
	}
	return server, nil
}

// settle makes this server the one that has what is in a volume.
func (f *Fleet) settle(ctx context.Context, id string) error {
	servers, ok := f.volumes.(volumeServers)
	if !ok || f.server == "" {
		return nil
	}
	server, err := servers.SettleVolume(ctx, id, f.server)
	if err != nil {
		return fmt.Errorf("podfleet: network volume %q: %w", id, err)
	}
	if server != f.server {
		return fmt.Errorf("podfleet: network volume %q: %w", id, errElsewhere)
	}
	return nil
}
