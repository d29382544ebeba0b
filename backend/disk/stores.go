package disk

import (
	"github.com/podyard/podyard/backend/stores"
	"github.com/podyard/podyard/ratelimit/budget"
)

var _ stores.Store = (*Store)(nil)

// Stores implements stores.Store. Servers and Presence are nil: one process has the directory.
func (s *Store) Stores() stores.Set {
	return stores.Set{
		Pods: s.Pods(), Registries: s.Registries(), Volumes: s.Volumes(), Templates: s.Templates(),
		SSHKeys: s.SSHKeys(), Secrets: s.Secrets(), Accounts: s.Accounts(), Billing: s.Billing(),
		Endpoints: s.Endpoints(), Jobs: s.Jobs(), Schedules: s.Schedules(), Batches: s.Batches(), JobLogs: s.JobLogs(),
		Counters: []budget.Counter{s},
		Run:      s.Run, Ready: s.Ready, Warning: s.Warning, Short: s.Short, Close: s.Close,
	}
}
