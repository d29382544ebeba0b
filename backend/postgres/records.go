package postgres

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5/pgxpool"

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

// Records is a volumes.Store, secrets.Store, schedules.Store, batches.Store or joblog.Store, after its T.
// It is safe for concurrent use.
type Records[T any] struct {
	keyFinder
	r recordTable[T]
}

var (
	_ volumes.Store   = (*Records[volumes.Volume])(nil)
	_ secrets.Store   = (*Records[secrets.Secret])(nil)
	_ schedules.Store = (*Records[schedules.Schedule])(nil)
	_ batches.Store   = (*Records[batches.Batch])(nil)
	_ joblog.Store    = (*Records[joblog.Log])(nil)
	_ accounts.Shared = (*Accounts)(nil)
	_ templates.Store = (*Templates)(nil)
)

func newRecords[T any](s *Store, table string, k records.Kind[T]) *Records[T] {
	return &Records[T]{keyFinder{s}, recordTable[T]{Kind: k, s: s, table: table}}
}

// Volumes returns the store of network volumes.
func (s *Store) Volumes() *Records[volumes.Volume] {
	all := newRecords(s, "volumes", records.Volumes())
	all.r.sized = true // a deleted one takes nothing
	return all
}

// Secrets returns the store of secrets. Their values are encrypted, and no list reads them.
func (s *Store) Secrets() *Records[secrets.Secret] {
	all := newRecords(s, "secrets", records.Secrets())
	all.r.sized = true
	all.r.hide = func(v secrets.Secret) (secrets.Secret, []byte, error) { return v, []byte(v.Value), nil }
	all.r.show = func(v *secrets.Secret, secret []byte) error { v.Value = secrets.Value(secret); return nil }
	return all
}

// Schedules returns the store of schedules. What only workers see is encrypted.
func (s *Store) Schedules() *Records[schedules.Schedule] {
	all := newRecords(s, "schedules", records.Schedules())
	all.r.hide = func(v schedules.Schedule) (schedules.Schedule, []byte, error) {
		secret := v.Secret
		v.Secret = nil
		return v, secret, nil
	}
	all.r.show = func(v *schedules.Schedule, secret []byte) error { v.Secret = secret; return nil }
	return all
}

// Batches returns the store of batches. The requests of a batch are jobs of the queue.
func (s *Store) Batches() *Records[batches.Batch] { return newRecords(s, "batches", records.Batches()) }

// JobLogs returns the store of what jobs print. No list reads the lines.
func (s *Store) JobLogs() *Records[joblog.Log] {
	all := newRecords(s, "job_logs", records.JobLogs())
	all.r.sized, all.r.plain = true, true
	all.r.hide = func(v joblog.Log) (joblog.Log, []byte, error) {
		lines, err := json.Marshal(v.Lines)
		return v.Listed(), lines, err
	}
	all.r.show = func(v *joblog.Log, lines []byte) error { return json.Unmarshal(lines, &v.Lines) }
	return all
}

// Create adds v, or returns the ErrExists of its package.
func (s *Records[T]) Create(ctx context.Context, v T) error { return s.r.create(ctx, v) }

// CreateKeyed implements idempotency.Store.
func (s *Records[T]) CreateKeyed(ctx context.Context, v T, r idempotency.Record) error {
	return s.r.create(ctx, v, r)
}

// Get returns the record of id, or the ErrNotFound of its package.
func (s *Records[T]) Get(ctx context.Context, id string) (T, error) { return s.r.get(ctx, id) }

// List returns the records of owner, by Created and then ID.
func (s *Records[T]) List(ctx context.Context, owner string) ([]T, error) { return s.r.of(ctx, owner) }

// All returns the records of all users in the same order.
func (s *Records[T]) All(ctx context.Context) ([]T, error) { return s.r.all(ctx) }

// Update stores what fn leaves and returns it, or returns the ErrNotFound of its package or the
// error of fn, and then nothing was changed. fn may run more than once.
func (s *Records[T]) Update(ctx context.Context, id string, fn func(*T) error) (T, error) {
	return s.r.update(ctx, id, fn)
}

// Delete removes the record, or returns the ErrNotFound of its package.
func (s *Records[T]) Delete(ctx context.Context, id string) error { return s.r.delete(ctx, id) }

// Accounts is an accounts.Store that several servers share. It stores digests of keys and never a
// secret.
type Accounts struct{ *Records[accounts.Key] }

// Accounts returns the store of API keys.
func (s *Store) Accounts() *Accounts {
	return &Accounts{newRecords(s, "accounts", records.Accounts())}
}

// Version implements accounts.Shared.
func (s *Accounts) Version(ctx context.Context) (version int64, err error) {
	err = s.r.s.read(ctx, func(c *pgxpool.Conn) error {
		return c.QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM podyard.versions WHERE name = 'accounts'`).Scan(&version)
	})
	return version, err
}

// Templates is a templates.Store.
type Templates struct{ *Records[templates.Template] }

// Templates returns the store of templates.
func (s *Store) Templates() *Templates {
	all := newRecords(s, "templates", records.Templates())
	all.r.column, all.r.value = "public", func(v *templates.Template) any { return v.Public }
	all.r.sized = true
	return &Templates{all}
}

// Public returns the public templates of all owners, by Created and then ID.
func (s *Templates) Public(ctx context.Context) ([]templates.Template, error) {
	return s.r.list(ctx, `WHERE public`)
}
