package disk

import (
	"context"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/accounts/accountstest"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/pods/billing/billingtest"
	"github.com/podyard/podyard/pods/secrets"
	"github.com/podyard/podyard/pods/secrets/secretstest"
	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/pods/sshkeys/sshkeystest"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/templates/templatestest"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/pods/volumes/volumestest"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/batches"
	"github.com/podyard/podyard/serverless/batches/batchestest"
	"github.com/podyard/podyard/serverless/joblog"
	"github.com/podyard/podyard/serverless/joblog/joblogtest"
	"github.com/podyard/podyard/serverless/schedules"
	"github.com/podyard/podyard/serverless/schedules/schedulestest"
)

func TestVolumes(t *testing.T) {
	volumestest.TestStore(t, func(t *testing.T) volumes.Store { return memStore(t).Volumes() })
}

func TestTemplates(t *testing.T) {
	templatestest.TestStore(t, func(t *testing.T) templates.Store { return memStore(t).Templates() })
}

func TestAccounts(t *testing.T) {
	accountstest.TestStore(t, func(t *testing.T) accounts.Store { return memStore(t).Accounts() })
}

func TestSchedules(t *testing.T) {
	schedulestest.TestStore(t, func(t *testing.T) schedules.Store { return memStore(t).Schedules() })
	t.Run("Reopened", func(t *testing.T) {
		schedulestest.TestStore(t, func(t *testing.T) schedules.Store {
			return reopenedRecords[schedules.Schedule]{newReread(t), (*Store).Schedules}
		})
	})
}

func TestSecrets(t *testing.T) {
	secretstest.TestStore(t, func(t *testing.T) secrets.Store { return memStore(t).Secrets() })
	t.Run("Reopened", func(t *testing.T) {
		secretstest.TestStore(t, func(t *testing.T) secrets.Store {
			return reopenedRecords[secrets.Secret]{newReread(t), (*Store).Secrets}
		})
	})
}

func TestBatches(t *testing.T) {
	suite.SkipUnlessLong(t)
	batchestest.TestStore(t, func(t *testing.T) batches.Store { return memStore(t).Batches() })
	t.Run("Reopened", func(t *testing.T) {
		batchestest.TestStore(t, func(t *testing.T) batches.Store {
			return reopenedRecords[batches.Batch]{newReread(t), (*Store).Batches}
		})
	})
}

func TestJobLogs(t *testing.T) {
	joblogtest.TestStore(t, func(t *testing.T) joblog.Store { return memStore(t).JobLogs() })
	t.Run("Reopened", func(t *testing.T) {
		joblogtest.TestStore(t, func(t *testing.T) joblog.Store {
			return reopenedRecords[joblog.Log]{newReread(t), (*Store).JobLogs}
		})
	})
}

func TestBilling(t *testing.T) {
	billingtest.TestStore(t, func(t *testing.T) billing.Store { return memStore(t).Billing() })
	t.Run("Reopened", func(t *testing.T) {
		billingtest.TestStore(t, func(t *testing.T) billing.Store { return reopenedBilling{newReread(t)} })
	})
}

func TestSSHKeys(t *testing.T) {
	sshkeystest.TestStore(t, func(t *testing.T) sshkeys.Store { return memStore(t).SSHKeys() })
	t.Run("Reopened", func(t *testing.T) {
		sshkeystest.TestStore(t, func(t *testing.T) sshkeys.Store { return reopenedKeys{newReread(t)} })
	})
}

// A reopeningStore closes and opens its store before each read.
type reopeningStore struct {
	t  *testing.T
	fs *vfs.MemFS
	s  *Store
}

func newReread(t *testing.T) *reopeningStore {
	fs := vfs.NewMem()
	return &reopeningStore{t, fs, openForTest(t, "store", inMemory(fs))}
}

func (r *reopeningStore) reopen() *Store {
	r.t.Helper()
	if err := r.s.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.s = openForTest(r.t, "store", inMemory(r.fs))
	return r.s
}

// reopenedRecords reads what an earlier opening has stored.
type reopenedRecords[T any] struct {
	r  *reopeningStore
	of func(*Store) *Records[T]
}

func (s reopenedRecords[T]) Create(ctx context.Context, v T) error { return s.of(s.r.s).Create(ctx, v) }

func (s reopenedRecords[T]) CreateKeyed(ctx context.Context, v T, r idempotency.Record) error {
	return s.of(s.r.s).CreateKeyed(ctx, v, r)
}

func (s reopenedRecords[T]) FindKey(ctx context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return s.of(s.r.reopen()).FindKey(ctx, key)
}

func (s reopenedRecords[T]) Get(ctx context.Context, id string) (T, error) {
	return s.of(s.r.reopen()).Get(ctx, id)
}

func (s reopenedRecords[T]) List(ctx context.Context, owner string) ([]T, error) {
	return s.of(s.r.reopen()).List(ctx, owner)
}

func (s reopenedRecords[T]) All(ctx context.Context) ([]T, error) {
	return s.of(s.r.reopen()).All(ctx)
}

func (s reopenedRecords[T]) Update(ctx context.Context, id string, fn func(*T) error) (T, error) {
	return s.of(s.r.s).Update(ctx, id, fn)
}

func (s reopenedRecords[T]) Delete(ctx context.Context, id string) error {
	return s.of(s.r.s).Delete(ctx, id)
}

type reopenedBilling struct{ r *reopeningStore }

func (b reopenedBilling) Record(ctx context.Context, uses []pods.Usage) error {
	return b.r.s.Billing().Record(ctx, uses)
}

func (b reopenedBilling) Usage(ctx context.Context, owner string, from, to time.Time) ([]pods.Usage, error) {
	return b.r.reopen().Billing().Usage(ctx, owner, from, to)
}

func (b reopenedBilling) Expire(ctx context.Context, before time.Time, limit int) (int, error) {
	return b.r.s.Billing().Expire(ctx, before, limit)
}

func (b reopenedBilling) Open(ctx context.Context, kind pods.UsageKind) ([]pods.Usage, error) {
	return b.r.reopen().Billing().Open(ctx, kind)
}

type reopenedKeys struct{ r *reopeningStore }

func (k reopenedKeys) SSHKeys(ctx context.Context, owner string) ([]string, error) {
	return k.r.reopen().SSHKeys().SSHKeys(ctx, owner)
}

func (k reopenedKeys) SetSSHKeys(ctx context.Context, owner string, keys []string) error {
	return k.r.s.SSHKeys().SetSSHKeys(ctx, owner, keys)
}

func TestRecordsOfUsersAreThereAfterAReopeningAndPassTheCheck(t *testing.T) {
	fs := vfs.NewMem()
	s := openForTest(t, "store", inMemory(fs))
	v := volumes.Volume{ID: "v", Owner: "alice", Name: "n", Size: 10, DataCenter: "d", Type: "STANDARD", Created: time.Unix(1, 0).UTC()}
	if err := s.Volumes().Create(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	p := templates.Template{ID: "t", Owner: "alice", Name: "n", Created: v.Created, Template: pods.Template{Image: "i", Env: map[string]string{"A": "1"}}}
	if err := s.Templates().Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	u := pods.Usage{Owner: "alice", Kind: pods.PodUsage, ID: "p", From: v.Created, To: v.Created.Add(time.Hour), GPU: 1}
	for range 2 {
		if err := s.Billing().Record(t.Context(), []pods.Usage{u}); err != nil {
			t.Fatal(err)
		}
	}
	for _, keys := range [][]string{{"ssh-rsa AAA"}, {"ssh-rsa BBB", "ssh-rsa CCC"}} {
		if err := s.SSHKeys().SetSSHKeys(t.Context(), "alice", keys); err != nil {
			t.Fatal(err)
		}
	}
	k := accounts.Key{ID: "k", User: "alice", Scopes: []string{"*"}, Created: v.Created, Digest: accounts.DigestOf("s")}
	if err := s.Accounts().Create(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openForTest(t, "store", inMemory(fs))
	if got, err := s.Accounts().All(t.Context()); err != nil || !cmp.Equal([]accounts.Key{k}, got) {
		t.Errorf("keys after a reopening: %+v, %v; want %+v", got, err, k)
	}
	if got, err := s.Volumes().Get(t.Context(), "v"); err != nil || !cmp.Equal(v, got) {
		t.Errorf("after a reopening: %+v, %v; want %+v", got, err, v)
	}
	got, err := s.Templates().Get(t.Context(), "t")
	if diff := cmp.Diff(p, got); diff != "" || err != nil {
		t.Errorf("after a reopening: %v (-want +got):\n%s", err, diff)
	}
	uses, err := s.Billing().Usage(t.Context(), "alice", v.Created, v.Created.Add(time.Second))
	if diff := cmp.Diff([]pods.Usage{u}, uses); diff != "" || err != nil {
		t.Errorf("what was used after a reopening: %v (-want +got):\n%s", err, diff)
	}
	keys, err := s.SSHKeys().SSHKeys(t.Context(), "alice")
	if diff := cmp.Diff([]string{"ssh-rsa BBB", "ssh-rsa CCC"}, keys); diff != "" || err != nil {
		t.Errorf("keys after a reopening: %v (-want +got):\n%s", err, diff)
	}
	if keys, err := s.SSHKeys().SSHKeys(t.Context(), "bob"); err != nil || len(keys) != 0 {
		t.Errorf("keys of a user who set none: %q, %v", keys, err)
	}
	if r, err := s.Check(t.Context()); err != nil || r.Err() != nil {
		t.Errorf("Check = %v, %v", err, r.Err())
	}
}
