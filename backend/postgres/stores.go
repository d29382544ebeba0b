package postgres

import (
	"context"
	"time"

	"github.com/podyard/podyard/backend/stores"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/ratelimit/budget"
)

var _ stores.Store = (*Store)(nil)

// Stores implements stores.Store. Servers and Presence are those of all servers that use the
// database, so that a server.Server over them is one of these.
func (s *Store) Stores() stores.Set {
	return stores.Set{
		Pods: s.Pods(), Registries: s.Registries(), Volumes: s.Volumes(), Templates: s.Templates(),
		SSHKeys: s.SSHKeys(), Secrets: s.Secrets(), Accounts: s.Accounts(), Billing: s.Billing(),
		Endpoints: s.Endpoints(), Jobs: s.Jobs(), Schedules: s.Schedules(), Batches: s.Batches(), JobLogs: s.JobLogs(),
		Servers: s.Servers(), Presence: s.Presence(),
		Counters: []budget.Counter{s},
		Run:      s.Run, Ready: s.Ready, Close: s.Close,
	}
}

// Run returns nil when ctx ends or the store is closed. The store does its background work from
// Open to Close, whether Run is called or not.
func (s *Store) Run(ctx context.Context) error {
	select {
	case <-s.closing:
	case <-ctx.Done():
	}
	return nil
}

// readyTimeout is how long a database may take to answer Ready.
const readyTimeout = 2 * time.Second

// Ready is Err for a caller that waits for two seconds at most.
func (s *Store) Ready() error {
	ctx := context.Background() //nolint:forbidigo // a probe belongs to no request
	ctx, cancel := clock.WithDeadline(ctx, clock.System{}, clock.System{}.Now().Add(readyTimeout))
	defer cancel()
	return s.Err(ctx)
}
