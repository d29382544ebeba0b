package postgres_test

import (
	"bytes"
	"context"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/accounts/accountstest"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/pods/billing/billingtest"
	"github.com/podyard/podyard/pods/podstest"
	"github.com/podyard/podyard/pods/secrets"
	"github.com/podyard/podyard/pods/secrets/secretstest"
	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/pods/sshkeys/sshkeystest"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/templates/templatestest"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/pods/volumes/volumestest"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/registries/registriestest"
	"github.com/podyard/podyard/serverless/batches"
	"github.com/podyard/podyard/serverless/batches/batchestest"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/joblog"
	"github.com/podyard/podyard/serverless/joblog/joblogtest"
	"github.com/podyard/podyard/serverless/schedules"
	"github.com/podyard/podyard/serverless/schedules/schedulestest"
	"github.com/podyard/podyard/serverless/serverlesstest"
)

var testKey = bytes.Repeat([]byte("k"), postgres.KeySize)

// eachCount runs a test with one Store, and with two over one database that are called in
// turn. fresh empties the database and returns the Stores.
func eachCount(t *testing.T, test func(t *testing.T, fresh func(t *testing.T) turns)) {
	t.Helper()
	for _, c := range []struct {
		name  string
		count int
	}{{"OneStore", 1}, {"TwoStoresInTurn", 2}} {
		t.Run(c.name, func(t *testing.T) {
			if c.count == 1 {
				suite.SkipUnlessLong(t)
			}
			url := postgresql.Database(t)
			var list []*postgres.Store
			for range c.count {
				list = append(list, openURL(t, url))
			}
			test(t, func(t *testing.T) turns {
				empty(t, url)
				return turns{list, new(atomic.Int64)}
			})
		})
	}
}

// turns are Stores over one database that are called in turn.
type turns struct {
	list  []*postgres.Store
	calls *atomic.Int64
}

func (s turns) next() *postgres.Store { return s.list[int(s.calls.Add(1))%len(s.list)] }

// records calls the next store for each call.
type records[S idempotency.Records[R], R any] func() S

func (n records[S, R]) Create(ctx context.Context, v R) error { return n().Create(ctx, v) }
func (n records[S, R]) CreateKeyed(ctx context.Context, v R, r idempotency.Record) error {
	return n().CreateKeyed(ctx, v, r)
}
func (n records[S, R]) FindKey(ctx context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return n().FindKey(ctx, key)
}
func (n records[S, R]) Get(ctx context.Context, id string) (R, error) { return n().Get(ctx, id) }
func (n records[S, R]) List(ctx context.Context, owner string) ([]R, error) {
	return n().List(ctx, owner)
}
func (n records[S, R]) All(ctx context.Context) ([]R, error)        { return n().All(ctx) }
func (n records[S, R]) Delete(ctx context.Context, id string) error { return n().Delete(ctx, id) }
func (n records[S, R]) Update(ctx context.Context, id string, fn func(*R) error) (R, error) {
	return n().Update(ctx, id, fn)
}

func TestVolumes(t *testing.T) {
	suite.SkipUnlessLong(t)
	eachCount(t, func(t *testing.T, fresh func(t *testing.T) turns) {
		volumestest.TestStore(t, func(t *testing.T) volumes.Store {
			s := fresh(t)
			return records[*postgres.Records[volumes.Volume], volumes.Volume](func() *postgres.Records[volumes.Volume] { return s.next().Volumes() })
		})
	})
}

type accountTurns struct {
	records[*postgres.Accounts, accounts.Key]
}

func (a accountTurns) Version(ctx context.Context) (int64, error) {
	return a.records().Version(ctx)
}

func TestAccounts(t *testing.T) {
	eachCount(t, func(t *testing.T, fresh func(t *testing.T) turns) {
		accountstest.TestStore(t, func(t *testing.T) accounts.Store {
			s := fresh(t)
			return accountTurns{func() *postgres.Accounts { return s.next().Accounts() }}
		})
	})
}

func TestSecrets(t *testing.T) {
	eachCount(t, func(t *testing.T, fresh func(t *testing.T) turns) {
		secretstest.TestStore(t, func(t *testing.T) secrets.Store {
			s := fresh(t)
			return records[*postgres.Records[secrets.Secret], secrets.Secret](func() *postgres.Records[secrets.Secret] { return s.next().Secrets() })
		})
	})
}

func TestBatches(t *testing.T) {
	suite.SkipUnlessLong(t)
	eachCount(t, func(t *testing.T, fresh func(t *testing.T) turns) {
		batchestest.TestStore(t, func(t *testing.T) batches.Store {
			s := fresh(t)
			return records[*postgres.Records[batches.Batch], batches.Batch](func() *postgres.Records[batches.Batch] { return s.next().Batches() })
		})
	})
}

func TestJobLogs(t *testing.T) {
	eachCount(t, func(t *testing.T, fresh func(t *testing.T) turns) {
		joblogtest.TestStore(t, func(t *testing.T) joblog.Store {
			s := fresh(t)
			return records[*postgres.Records[joblog.Log], joblog.Log](func() *postgres.Records[joblog.Log] { return s.next().JobLogs() })
		})
	})
}

func TestSchedules(t *testing.T) {
	suite.SkipUnlessLong(t)
	eachCount(t, func(t *testing.T, fresh func(t *testing.T) turns) {
		schedulestest.TestStore(t, func(t *testing.T) schedules.Store {
			s := fresh(t)
			return records[*postgres.Records[schedules.Schedule], schedules.Schedule](func() *postgres.Records[schedules.Schedule] { return s.next().Schedules() })
		})
	})
}

type templateTurns struct {
	records[*postgres.Templates, templates.Template]
}

func (t templateTurns) Public(ctx context.Context) ([]templates.Template, error) {
	return t.records().Public(ctx)
}

func TestTemplates(t *testing.T) {
	suite.SkipUnlessLong(t)
	eachCount(t, func(t *testing.T, fresh func(t *testing.T) turns) {
		templatestest.TestStore(t, func(t *testing.T) templates.Store {
			s := fresh(t)
			return templateTurns{func() *postgres.Templates { return s.next().Templates() }}
		})
	})
}

type registryTurns struct{ s turns }

func (r registryTurns) Create(ctx context.Context, v registries.Registry, c registries.Credential) error {
	return r.s.next().Registries().Create(ctx, v, c)
}
func (r registryTurns) CreateKeyed(ctx context.Context, v registries.Registry, c registries.Credential, k idempotency.Record) error {
	return r.s.next().Registries().CreateKeyed(ctx, v, c, k)
}
func (r registryTurns) FindKey(ctx context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return r.s.next().Registries().FindKey(ctx, key)
}
func (r registryTurns) Get(ctx context.Context, id string) (registries.Registry, registries.Credential, error) {
	return r.s.next().Registries().Get(ctx, id)
}
func (r registryTurns) List(ctx context.Context, owner string) ([]registries.Registry, error) {
	return r.s.next().Registries().List(ctx, owner)
}
func (r registryTurns) All(ctx context.Context) ([]registries.Registry, error) {
	return r.s.next().Registries().All(ctx)
}
func (r registryTurns) Delete(ctx context.Context, id string) error {
	return r.s.next().Registries().Delete(ctx, id)
}

func TestRegistries(t *testing.T) {
	suite.SkipUnlessLong(t)
	eachCount(t, func(t *testing.T, fresh func(t *testing.T) turns) {
		registriestest.TestStore(t, func(t *testing.T) registries.Store { return registryTurns{fresh(t)} })
	})
}

type endpointTurns struct{ s turns }

func (e endpointTurns) Create(ctx context.Context, v *endpoints.Endpoint) error {
	return e.s.next().Endpoints().Create(ctx, v)
}
func (e endpointTurns) CreateKeyed(ctx context.Context, v *endpoints.Endpoint, r idempotency.Record) error {
	return e.s.next().Endpoints().CreateKeyed(ctx, v, r)
}
func (e endpointTurns) FindKey(ctx context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return e.s.next().Endpoints().FindKey(ctx, key)
}
func (e endpointTurns) Get(ctx context.Context, id string) (*endpoints.Endpoint, error) {
	return e.s.next().Endpoints().Get(ctx, id)
}
func (e endpointTurns) List(ctx context.Context) iter.Seq2[*endpoints.Endpoint, error] {
	return e.s.next().Endpoints().List(ctx)
}
func (e endpointTurns) Update(ctx context.Context, id string, fn func(*endpoints.Endpoint) error) (*endpoints.Endpoint, error) {
	return e.s.next().Endpoints().Update(ctx, id, fn)
}
func (e endpointTurns) Delete(ctx context.Context, id string) error {
	return e.s.next().Endpoints().Delete(ctx, id)
}

func TestEndpoints(t *testing.T) {
	suite.SkipUnlessLong(t)
	eachCount(t, func(t *testing.T, fresh func(t *testing.T) turns) {
		serverlesstest.TestEndpointStore(t, func(t *testing.T) endpoints.Store { return endpointTurns{fresh(t)} })
	})
}

type billingTurns struct{ s turns }

func (b billingTurns) Record(ctx context.Context, uses []pods.Usage) error {
	return b.s.next().Billing().Record(ctx, uses)
}
func (b billingTurns) Usage(ctx context.Context, owner string, from, to time.Time) ([]pods.Usage, error) {
	return b.s.next().Billing().Usage(ctx, owner, from, to)
}
func (b billingTurns) Expire(ctx context.Context, before time.Time, limit int) (int, error) {
	return b.s.next().Billing().Expire(ctx, before, limit)
}
func (b billingTurns) Open(ctx context.Context, kind pods.UsageKind) ([]pods.Usage, error) {
	return b.s.next().Billing().Open(ctx, kind)
}

func TestBilling(t *testing.T) {
	eachCount(t, func(t *testing.T, fresh func(t *testing.T) turns) {
		billingtest.TestStore(t, func(t *testing.T) billing.Store { return billingTurns{fresh(t)} })
	})
}

type keyTurns struct{ s turns }

func (k keyTurns) SSHKeys(ctx context.Context, owner string) ([]string, error) {
	return k.s.next().SSHKeys().SSHKeys(ctx, owner)
}
func (k keyTurns) SetSSHKeys(ctx context.Context, owner string, keys []string) error {
	return k.s.next().SSHKeys().SetSSHKeys(ctx, owner, keys)
}

func TestSSHKeys(t *testing.T) {
	eachCount(t, func(t *testing.T, fresh func(t *testing.T) turns) {
		sshkeystest.TestStore(t, func(t *testing.T) sshkeys.Store { return keyTurns{fresh(t)} })
	})
}

type podTurns struct{ s turns }

func (p podTurns) Create(ctx context.Context, v *pods.Pod) error {
	return p.s.next().Pods().Create(ctx, v)
}
func (p podTurns) CreateKeyed(ctx context.Context, v *pods.Pod, r idempotency.Record) error {
	return p.s.next().Pods().CreateKeyed(ctx, v, r)
}
func (p podTurns) CreateAll(ctx context.Context, list []*pods.Pod, r *idempotency.Record) error {
	return p.s.next().Pods().CreateAll(ctx, list, r)
}
func (p podTurns) FindKey(ctx context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return p.s.next().Pods().FindKey(ctx, key)
}
func (p podTurns) Get(ctx context.Context, id string) (*pods.Pod, error) {
	return p.s.next().Pods().Get(ctx, id)
}
func (p podTurns) List(ctx context.Context, f pods.Filter) iter.Seq2[*pods.Pod, error] {
	return p.s.next().Pods().List(ctx, f)
}
func (p podTurns) Update(ctx context.Context, id string, fn func(*pods.Pod) error) (*pods.Pod, error) {
	return p.s.next().Pods().Update(ctx, id, fn)
}
func (p podTurns) Delete(ctx context.Context, id string, fn func(*pods.Pod) error) error {
	return p.s.next().Pods().Delete(ctx, id, fn)
}
func (p podTurns) Reserve(ctx context.Context, h pods.Reservation) error {
	return p.s.next().Pods().Reserve(ctx, h)
}
func (p podTurns) Release(ctx context.Context, holder string) error {
	return p.s.next().Pods().Release(ctx, holder)
}
func (p podTurns) Reservations(ctx context.Context) iter.Seq2[pods.Reservation, error] {
	return p.s.next().Pods().Reservations(ctx)
}
func (p podTurns) Claimed(ctx context.Context, resource string) (int64, error) {
	return p.s.next().Pods().Claimed(ctx, resource)
}
func (p podTurns) Watch(ctx context.Context, f func(ids []string)) error {
	return p.s.next().Pods().Watch(ctx, f)
}

func TestPods(t *testing.T) {
	eachCount(t, func(t *testing.T, fresh func(t *testing.T) turns) {
		podstest.TestStore(t, func(t *testing.T) pods.PodStore { return podTurns{fresh(t)} })
	})
}
