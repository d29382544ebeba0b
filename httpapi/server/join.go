package server

import (
	"cmp"
	"context"
	"fmt"

	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/servers"
)

// join makes this server one of those that use Stores.Servers: jobs, pods, quotas and rates share
// with them from then on. Without others it returns nil.
func join(ctx context.Context, o *Options) (*servers.Server, *peers, error) {
	if o.Stores.Servers == nil {
		return nil, nil, nil
	}
	s, err := servers.Join(ctx, o.Stores.Servers, &servers.Options{Clock: o.Clock, Data: []byte(o.Name), Logger: o.Logger})
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
