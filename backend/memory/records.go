package memory

import (
	"context"
	"sync/atomic"

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
	keyed
	counted
	t       *owned[T]
	version atomic.Int64
}

var (
	_ accounts.Shared = (*Records[accounts.Key])(nil)
	_ volumes.Store   = (*Records[volumes.Volume])(nil)
	_ secrets.Store   = (*Records[secrets.Secret])(nil)
	_ schedules.Store = (*Records[schedules.Schedule])(nil)
	_ batches.Store   = (*Records[batches.Batch])(nil)
	_ joblog.Store    = (*Records[joblog.Log])(nil)
	_ templates.Store = (*Templates)(nil)
)

func newRecords[T any](k records.Kind[T]) *Records[T] {
	t := newOwned(k)
	return &Records[T]{counted: counted{&t.Tally}, t: t}
}

// NewAccounts returns an empty accounts.Store.
func NewAccounts() *Records[accounts.Key] { return newRecords(records.Accounts()) }

// NewVolumes returns an empty volumes.Store.
func NewVolumes() *Records[volumes.Volume] { return newRecords(records.Volumes()) }

// NewSecrets returns an empty secrets.Store.
func NewSecrets() *Records[secrets.Secret] { return newRecords(records.Secrets()) }

// NewSchedules returns an empty schedules.Store.
func NewSchedules() *Records[schedules.Schedule] { return newRecords(records.Schedules()) }

// NewBatches returns an empty batches.Store.
func NewBatches() *Records[batches.Batch] { return newRecords(records.Batches()) }

// NewJobLogs returns an empty joblog.Store.
func NewJobLogs() *Records[joblog.Log] { return newRecords(records.JobLogs()) }

// Create adds v, or returns the ErrExists of its package.
func (s *Records[T]) Create(_ context.Context, v T) error { return s.changed(s.t.create(v)) }

// CreateKeyed implements idempotency.Store.
func (s *Records[T]) CreateKeyed(_ context.Context, v T, r idempotency.Record) error {
	return s.changed(s.addKeyed(func() error { return s.t.create(v) }, r))
}

// Get returns the record of id, or the ErrNotFound of its package.
func (s *Records[T]) Get(_ context.Context, id string) (T, error) { return value(s.t.get(id)) }

// List returns the records of owner, by Created and then ID.
func (s *Records[T]) List(_ context.Context, owner string) ([]T, error) { return s.t.list(owner) }

// All returns the records of all users in the same order.
func (s *Records[T]) All(context.Context) ([]T, error) {
	return s.t.all(func(*T) bool { return true })
}

// Update stores what fn leaves and returns it, or returns the ErrNotFound of its package or the
// error of fn, and then nothing was changed. fn runs once, while no other record can be changed.
func (s *Records[T]) Update(_ context.Context, id string, fn func(*T) error) (T, error) {
	v, err := value(s.t.update(id, fn))
	return v, s.changed(err)
}

// Delete removes the record, or returns the ErrNotFound of its package.
func (s *Records[T]) Delete(_ context.Context, id string) error {
	return s.changed(s.t.delete(id))
}

// Version implements accounts.Shared: it counts changes.
func (s *Records[T]) Version(context.Context) (int64, error) { return s.version.Load(), nil }

func (s *Records[T]) changed(err error) error {
	if err == nil {
		s.version.Add(1)
	}
	return err
}

// Templates is a templates.Store. It is safe for concurrent use.
type Templates struct{ *Records[templates.Template] }

// NewTemplates returns an empty store.
func NewTemplates() *Templates { return &Templates{newRecords(records.Templates())} }

// Public returns the public templates of all owners, by Created and then ID.
func (s *Templates) Public(context.Context) ([]templates.Template, error) {
	return s.t.all(func(t *templates.Template) bool { return t.Public })
}
