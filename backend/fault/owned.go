package fault

import (
	"context"
	"time"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/pods/secrets"
	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/batches"
	"github.com/podyard/podyard/serverless/joblog"
	"github.com/podyard/podyard/serverless/schedules"
)

// A TemplateStore is a templates.Store whose calls fail by a plan.
type TemplateStore struct {
	records[templates.Template, templates.Store]
}

// A VolumeStore is a volumes.Store whose calls fail by a plan.
type VolumeStore struct {
	records[volumes.Volume, volumes.Store]
}

// An AccountStore is an accounts.Store whose calls fail by a plan.
type AccountStore struct {
	records[accounts.Key, accounts.Store]
}

// A SecretStore is a secrets.Store whose calls fail by a plan.
type SecretStore struct {
	records[secrets.Secret, secrets.Store]
}

// A ScheduleStore is a schedules.Store whose calls fail by a plan.
type ScheduleStore struct {
	records[schedules.Schedule, schedules.Store]
}

// A BatchStore is a batches.Store whose calls fail by a plan.
type BatchStore struct {
	records[batches.Batch, batches.Store]
}

// A JobLogStore is a joblog.Store whose calls fail by a plan.
type JobLogStore struct {
	records[joblog.Log, joblog.Store]
}

// An SSHKeyStore is an sshkeys.Store whose calls fail by a plan.
type SSHKeyStore struct {
	s sshkeys.Store
	p *Plan
}

// A BillingStore is a billing.Store whose calls fail by a plan.
type BillingStore struct {
	s billing.Store
	p *Plan
}

var (
	_ templates.Store = (*TemplateStore)(nil)
	_ volumes.Store   = (*VolumeStore)(nil)
	_ accounts.Store  = (*AccountStore)(nil)
	_ secrets.Store   = (*SecretStore)(nil)
	_ schedules.Store = (*ScheduleStore)(nil)
	_ batches.Store   = (*BatchStore)(nil)
	_ joblog.Store    = (*JobLogStore)(nil)
	_ sshkeys.Store   = (*SSHKeyStore)(nil)
	_ billing.Store   = (*BillingStore)(nil)
)

// Templates wraps a store of templates.
func Templates(s templates.Store, p *Plan) *TemplateStore {
	return &TemplateStore{records[templates.Template, templates.Store]{s, p, "templates."}}
}

// Volumes wraps a store of network volumes.
func Volumes(s volumes.Store, p *Plan) *VolumeStore {
	return &VolumeStore{records[volumes.Volume, volumes.Store]{s, p, "volumes."}}
}

// Accounts wraps a store of API keys.
func Accounts(s accounts.Store, p *Plan) *AccountStore {
	return &AccountStore{records[accounts.Key, accounts.Store]{s, p, "accounts."}}
}

// Secrets wraps a store of secrets.
func Secrets(s secrets.Store, p *Plan) *SecretStore {
	return &SecretStore{records[secrets.Secret, secrets.Store]{s, p, "secrets."}}
}

// Schedules wraps a store of schedules.
func Schedules(s schedules.Store, p *Plan) *ScheduleStore {
	return &ScheduleStore{records[schedules.Schedule, schedules.Store]{s, p, "schedules."}}
}

// Batches wraps a store of batches.
func Batches(s batches.Store, p *Plan) *BatchStore {
	return &BatchStore{records[batches.Batch, batches.Store]{s, p, "batches."}}
}

// JobLogs wraps a store of what jobs print.
func JobLogs(s joblog.Store, p *Plan) *JobLogStore {
	return &JobLogStore{records[joblog.Log, joblog.Store]{s, p, "jobLogs."}}
}

// SSHKeys wraps a store of SSH keys.
func SSHKeys(s sshkeys.Store, p *Plan) *SSHKeyStore { return &SSHKeyStore{s, p} }

// Billing wraps a store of usage.
func Billing(s billing.Store, p *Plan) *BillingStore { return &BillingStore{s, p} }

// records has the calls that all stores of records share.
type records[R any, S idempotency.Records[R]] struct {
	s    S
	p    *Plan
	kind string // prefix of the names of calls
}

// Unwrap returns the wrapped store.
func (f *records[R, S]) Unwrap() S { return f.s }

// Create adds a record.
func (f *records[R, S]) Create(ctx context.Context, r R) error {
	return run(ctx, f.p, f.kind+"Create", func() error { return f.s.Create(ctx, r) })
}

// CreateKeyed adds a record with that of an Idempotency-Key. The name of the call is that of
// Create.
func (f *records[R, S]) CreateKeyed(ctx context.Context, r R, k idempotency.Record) error {
	return run(ctx, f.p, f.kind+"Create", func() error { return f.s.CreateKeyed(ctx, r, k) })
}

// FindKey returns the record of an Idempotency-Key.
func (f *records[R, S]) FindKey(ctx context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return do(ctx, f.p, f.kind+"FindKey", func() (idempotency.Record, error) { return f.s.FindKey(ctx, key) })
}

// Get returns a record.
func (f *records[R, S]) Get(ctx context.Context, id string) (R, error) {
	return do(ctx, f.p, f.kind+"Get", func() (R, error) { return f.s.Get(ctx, id) })
}

// List returns the records of an owner.
func (f *records[R, S]) List(ctx context.Context, owner string) ([]R, error) {
	return do(ctx, f.p, f.kind+"List", func() ([]R, error) { return f.s.List(ctx, owner) })
}

// All returns the records of all owners.
func (f *records[R, S]) All(ctx context.Context) ([]R, error) {
	return do(ctx, f.p, f.kind+"All", func() ([]R, error) { return f.s.All(ctx) })
}

// Update changes a record.
func (f *records[R, S]) Update(ctx context.Context, id string, fn func(*R) error) (R, error) {
	return do(ctx, f.p, f.kind+"Update", func() (R, error) { return f.s.Update(ctx, id, fn) })
}

// Delete removes a record.
func (f *records[R, S]) Delete(ctx context.Context, id string) error {
	return run(ctx, f.p, f.kind+"Delete", func() error { return f.s.Delete(ctx, id) })
}

// Public implements templates.Store.
func (f *TemplateStore) Public(ctx context.Context) ([]templates.Template, error) {
	return do(ctx, f.p, "templates.Public", func() ([]templates.Template, error) { return f.s.Public(ctx) })
}

// Unwrap returns the wrapped store.
func (f *SSHKeyStore) Unwrap() sshkeys.Store { return f.s }

// SSHKeys implements sshkeys.Store.
func (f *SSHKeyStore) SSHKeys(ctx context.Context, owner string) ([]string, error) {
	return do(ctx, f.p, "sshkeys.SSHKeys", func() ([]string, error) { return f.s.SSHKeys(ctx, owner) })
}

// SetSSHKeys implements sshkeys.Store.
func (f *SSHKeyStore) SetSSHKeys(ctx context.Context, owner string, keys []string) error {
	return run(ctx, f.p, "sshkeys.SetSSHKeys", func() error { return f.s.SetSSHKeys(ctx, owner, keys) })
}

// Unwrap returns the wrapped store.
func (f *BillingStore) Unwrap() billing.Store { return f.s }

// Record implements billing.Store.
func (f *BillingStore) Record(ctx context.Context, uses []pods.Usage) error {
	return run(ctx, f.p, "billing.Record", func() error { return f.s.Record(ctx, uses) })
}

// Usage implements billing.Store.
func (f *BillingStore) Usage(ctx context.Context, owner string, from, to time.Time) ([]pods.Usage, error) {
	return do(ctx, f.p, "billing.Usage", func() ([]pods.Usage, error) { return f.s.Usage(ctx, owner, from, to) })
}

// Expire implements billing.Store.
func (f *BillingStore) Expire(ctx context.Context, before time.Time, limit int) (int, error) {
	return do(ctx, f.p, "billing.Expire", func() (int, error) { return f.s.Expire(ctx, before, limit) })
}

// Open implements billing.Store.
func (f *BillingStore) Open(ctx context.Context, kind pods.UsageKind) ([]pods.Usage, error) {
	return do(ctx, f.p, "billing.Open", func() ([]pods.Usage, error) { return f.s.Open(ctx, kind) })
}
