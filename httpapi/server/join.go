package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/podyard/podyard/internal/unwrap"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/servers"
	"github.com/podyard/podyard/serverless/workers"
)

// A shareable queue knows the stores that servers over it need.
type shareable interface {
	Servers() servers.Store
	Presence() workers.Presence
}

// shareStores has servers over one database join by themselves. Without joining they would take the
// workers of each other for their own, and their limits would hold for each alone.
func shareStores(o *Options) error {
	if o.Stores.Servers != nil || o.Stores.Jobs == nil || !queue.IsShared(o.Stores.Jobs) {
		return nil
	}
	s, ok := unwrap.As[shareable](o.Stores.Jobs)
	if !ok {
		return errors.New("server: other servers may use the queue Stores.Jobs: set Stores.Servers and Stores.Presence (docs/servers.md)")
	}
	o.Stores.Servers, o.Stores.Presence = s.Servers(), s.Presence()
	return nil
}

// join makes this server one of those that use Stores.Servers: jobs, pods, quotas and rates share
// with them from then on. Without others it returns nil.
func join(ctx context.Context, o *Options) (*servers.Server, *peers, error) {
	if err := shareStores(o); err != nil {
		return nil, nil, err
	}
	if o.Stores.Servers == nil {
		return nil, nil, nil
	}
	s, err := servers.Join(ctx, o.Stores.Servers, &servers.Options{Clock: o.Clock, Data: showing(o.Name, cmp.Or(o.Version, moduleVersion()), endpoints.NotCordoned), Logger: o.Logger})
	if err != nil {
		return nil, nil, fmt.Errorf("server: %w", err)
	}
	if len(o.Jobs.WorkerSecret) == 0 {
		if o.Jobs.WorkerSecret, err = s.Secret(ctx, serverless.WorkerSecretName); err != nil {
			return nil, nil, fmt.Errorf("server: %w", err)
		}
	}
	secret, err := s.Secret(ctx, peerSecretName)
	if err != nil {
		return nil, nil, fmt.Errorf("server: %w", err)
	}
	with := newPeers(o.Name, secret, o.Clock, o.Logger)
	o.Pods.Address, o.Pods.Reach = o.PeerURL, with.reach
	o.Jobs.Server, o.Jobs.Presence = s, o.Stores.Presence
	o.Pods.Server, o.Pods.ServerName = s, o.Name
	o.Pods.ServerInstance = o.Instance
	o.Volumes.Server = cmp.Or(o.Volumes.Server, o.Instance, o.Name)
	o.API.Quotas.Shared(o.Stores.Servers)
	o.API.Rates.Shared(s.Live)
	return s, with, nil
}
