package memory

import (
	"context"

	"github.com/podyard/podyard/backend/stores"
	"github.com/podyard/podyard/ratelimit/budget"
)

// A Store is all stores of this package as one value. Create one with New.
type Store struct {
	set stores.Set
}

var _ stores.Store = (*Store)(nil)

// New returns empty stores.
func New() *Store {
	p, r, v, t, k, a := NewPods(), NewRegistries(), NewVolumes(), NewTemplates(), NewSSHKeys(), NewAccounts()
	e, j, s, b, w, l := NewEndpoints(), NewJobs(), NewSchedules(), NewBatches(), NewSecrets(), NewJobLogs()
	store := &Store{set: stores.Set{
		Pods: p, Registries: r, Volumes: v, Templates: t, SSHKeys: k, Secrets: w, Accounts: a, Billing: NewBilling(),
		Endpoints: e, Jobs: j, Schedules: s, Batches: b, JobLogs: l,
		Counters: []budget.Counter{p, r, v, t, k, a, e, j, s, b, w, l},
	}}
	store.set.Run, store.set.Ready, store.set.Close = store.Run, store.Ready, store.Close
	return store
}

// Stores implements stores.Store. Servers and Presence are nil: nobody else can use this memory.
func (s *Store) Stores() stores.Set { return s.set }

// Run returns nil when ctx ends. There is nothing to do meanwhile.
func (s *Store) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Ready returns nil: memory always takes work.
func (s *Store) Ready() error { return nil }

// Close returns nil. What was stored is lost when nobody refers to the Store any more.
func (s *Store) Close() error { return nil }
