package server

import (
	"context"
	"fmt"

	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/servers"
)

// join makes this server one of those that use Stores.Servers: jobs, pods, quotas and rates share
// with them from then on. It returns nil where there are no others.
func join(ctx context.Context, o *Options) (*servers.Server, error) {
	if o.Stores.Servers == nil {
		return nil, nil
	}
	s, err := servers.Join(ctx, o.Stores.Servers, &servers.Options{Clock: o.Clock, Data: []byte(o.Name), Logger: o.Logger})
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	if len(o.Jobs.WorkerSecret) == 0 {
		if o.Jobs.WorkerSecret, err = s.Secret(ctx, serverless.WorkerSecretName); err != nil {
			return nil, fmt.Errorf("server: %w", err)
		}
	}
	o.Jobs.Server, o.Jobs.Presence = s, o.Stores.Presence
	o.Pods.Server, o.Pods.ServerName = s, o.Name
	o.Pods.ServerInstance = o.Instance
	o.API.Quotas.Shared(o.Stores.Servers)
	o.API.Rates.Shared(s.Live)
	return s, nil
}
