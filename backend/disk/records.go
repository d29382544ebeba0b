package disk

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/podyard/podyard/internal/records"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/secrets"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/batches"
	"github.com/podyard/podyard/serverless/joblog"
	"github.com/podyard/podyard/serverless/schedules"
)

// Records is an accounts.Store, volumes.Store, secrets.Store, schedules.Store, batches.Store or joblog.Store, after
// its T.
// It is safe for concurrent use.
type Records[T any] struct {
	o owned[T]
	k records.Kind[T]
}

var (
	_ accounts.Store  = (*Records[accounts.Key])(nil)
	_ volumes.Store   = (*Records[volumes.Volume])(nil)
	_ secrets.Store   = (*Records[secrets.Secret])(nil)
	_ schedules.Store = (*Records[schedules.Schedule])(nil)
	_ batches.Store   = (*Records[batches.Batch])(nil)
	_ joblog.Store    = (*Records[joblog.Log])(nil)
	_ templates.Store = (*Templates)(nil)
)

func newRecords[T any](s *Store, kind byte, of func(*engine) *table[T], k records.Kind[T]) *Records[T] {
	return &Records[T]{k: k, o: owned[T]{
		s: s, kind: kind, of: of, clone: func(v T) T { return *k.Clone(&v) }, order: k.Order, notFound: k.NotFound, exists: k.Exists,
	}}
}

// Accounts returns the store of API keys. It stores digests of keys and never a secret.
func (s *Store) Accounts() *Records[accounts.Key] {
	return newRecords(s, keyAccount, func(e *engine) *table[accounts.Key] { return &e.accounts }, records.Accounts())
}

// Volumes returns the store of network volumes.
func (s *Store) Volumes() *Records[volumes.Volume] {
	all := newRecords(s, keyVolume, func(e *engine) *table[volumes.Volume] { return &e.volumes }, records.Volumes())
	all.o.frees = func(_, now *volumes.Volume) bool { return now.Deleted } // then its files are removed
	return all
}

// Secrets returns the store of secrets. Their values are only on disk, and encrypted.
func (s *Store) Secrets() *Records[secrets.Secret] {
	all := newRecords(s, keySecret, func(e *engine) *table[secrets.Secret] { return &e.secrets }, records.Secrets())
	all.o.encode, all.o.kept, all.o.whole = encodeSecret, secrets.Secret.Listed, wholeSecret
	return all
}

// Schedules returns the store of schedules. What only workers see is encrypted on disk.
func (s *Store) Schedules() *Records[schedules.Schedule] {
	all := newRecords(s, keySchedule, func(e *engine) *table[schedules.Schedule] { return &e.schedules }, records.Schedules())
	all.o.encode = encodeSchedule
	return all
}

// Batches returns the store of batches. The requests of a batch are jobs of the queue.
func (s *Store) Batches() *Records[batches.Batch] {
	return newRecords(s, keyBatch, func(e *engine) *table[batches.Batch] { return &e.batches }, records.Batches())
}

// JobLogs returns the store of what jobs print. The lines are only on disk.
func (s *Store) JobLogs() *Records[joblog.Log] {
	all := newRecords(s, keyJobLog, func(e *engine) *table[joblog.Log] { return &e.jobLogs }, records.JobLogs())
	all.o.encode, all.o.kept, all.o.whole = encodeJobLog, joblog.Log.Listed, decodeJSON[joblog.Log]
	return all
}

func encodeJobLog(_ sealer, _ []byte, v *joblog.Log) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("disk: encode the log of %q: %w", v.ID, err)
	}
	return b, nil
}

// listedJobLog returns what of a log stays in memory.
func listedJobLog(e *engine, key, value []byte) (*joblog.Log, error) {
	l, err := decodeJSON[joblog.Log](e, key, value)
	if err != nil {
		return nil, err
	}
	l.Lines = nil
	return l, nil
}

// Create adds v, or returns the ErrExists of its package.
func (s *Records[T]) Create(ctx context.Context, v T) error { return s.o.create(ctx, s.k.ID(&v), v) }

// CreateKeyed implements idempotency.Store.
func (s *Records[T]) CreateKeyed(ctx context.Context, v T, r idempotency.Record) error {
	return s.o.create(ctx, s.k.ID(&v), v, r)
}

// FindKey implements idempotency.Store.
func (s *Records[T]) FindKey(_ context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return s.o.s.findKey(key)
}

// Get returns the record of id, or the ErrNotFound of its package.
func (s *Records[T]) Get(_ context.Context, id string) (T, error) { return s.o.get(id) }

// List returns the records of owner, by Created and then ID.
func (s *Records[T]) List(_ context.Context, owner string) ([]T, error) {
	return s.o.list(func(v *T) bool { return s.k.Owner(v) == owner })
}

// All returns the records of all users in the same order.
func (s *Records[T]) All(context.Context) ([]T, error) {
	return s.o.list(func(*T) bool { return true })
}

// Update stores what fn leaves and returns it, or returns the ErrNotFound of its package or the
// error of fn, and then nothing was changed. fn may run more than once.
func (s *Records[T]) Update(ctx context.Context, id string, fn func(*T) error) (T, error) {
	return s.o.update(ctx, id, fn)
}

// Delete removes the record, or returns the ErrNotFound of its package.
func (s *Records[T]) Delete(ctx context.Context, id string) error { return s.o.delete(ctx, id) }

// Templates is a templates.Store. It is safe for concurrent use.
type Templates struct{ *Records[templates.Template] }

// Templates returns the store of templates.
func (s *Store) Templates() *Templates {
	return &Templates{newRecords(s, keyTemplate, func(e *engine) *table[templates.Template] { return &e.templates }, records.Templates())}
}

// Public returns the public templates of all owners, by Created and then ID.
func (s *Templates) Public(context.Context) ([]templates.Template, error) {
	return s.o.list(func(t *templates.Template) bool { return t.Public })
}
