// Package records says what backends must know of the records that belong to users and that
// all stores keep in one way: API keys, templates, volumes, secrets, schedules, batches and logs of jobs;
// and of endpoints, which memory and Postgres keep so, too.
package records

import (
	"cmp"

	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/secrets"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/batches"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/joblog"
	"github.com/podyard/podyard/serverless/schedules"
)

// A Kind is what a backend must know of records of type T.
type Kind[T any] struct {
	ID, Owner func(*T) string
	Clone     func(*T) *T             // its result shares nothing that can be changed
	Order     func(a, b T) int        // the order of lists
	Listed    func(T) T               // what lists have of a record; nil: all of it
	Holding   func(*T) budget.Holding // what a record takes of the budgets of its owner
	NotFound  error
	Exists    error // the ID of a new record is taken
}

// copied returns clone for records behind pointers.
func copied[T any](clone func(T) T) func(*T) *T {
	return func(v *T) *T {
		c := clone(*v)
		return &c
	}
}

// Accounts is the kind of accounts.Store.
func Accounts() Kind[accounts.Key] {
	return Kind[accounts.Key]{
		ID:       func(v *accounts.Key) string { return v.ID },
		Owner:    func(v *accounts.Key) string { return v.User },
		Clone:    copied(accounts.Key.Clone),
		Order:    accounts.Compare,
		Holding:  (*accounts.Key).Holding,
		NotFound: accounts.ErrNotFound,
		Exists:   accounts.ErrExists,
	}
}

// Templates is the kind of templates.Store.
func Templates() Kind[templates.Template] {
	return Kind[templates.Template]{
		ID:       func(v *templates.Template) string { return v.ID },
		Owner:    func(v *templates.Template) string { return v.Owner },
		Clone:    copied(templates.Template.Clone),
		Order:    templates.Compare,
		Holding:  (*templates.Template).Holding,
		NotFound: templates.ErrNotFound,
		Exists:   templates.ErrExists,
	}
}

// Volumes is the kind of volumes.Store.
func Volumes() Kind[volumes.Volume] {
	return Kind[volumes.Volume]{
		ID:    func(v *volumes.Volume) string { return v.ID },
		Owner: func(v *volumes.Volume) string { return v.Owner },
		Clone: copied(volumes.Volume.Clone),
		Order: func(a, b volumes.Volume) int {
			return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
		},
		Holding:  (*volumes.Volume).Holding,
		NotFound: volumes.ErrNotFound,
		Exists:   volumes.ErrExists,
	}
}

// Secrets is the kind of secrets.Store.
func Secrets() Kind[secrets.Secret] {
	return Kind[secrets.Secret]{
		ID:       func(v *secrets.Secret) string { return v.ID },
		Owner:    func(v *secrets.Secret) string { return v.Owner },
		Clone:    copied(secrets.Secret.Clone),
		Order:    secrets.Compare,
		Listed:   secrets.Secret.Listed,
		Holding:  (*secrets.Secret).Holding,
		NotFound: secrets.ErrNotFound,
		Exists:   secrets.ErrExists,
	}
}

// Schedules is the kind of schedules.Store.
func Schedules() Kind[schedules.Schedule] {
	return Kind[schedules.Schedule]{
		ID:       func(v *schedules.Schedule) string { return v.ID },
		Owner:    func(v *schedules.Schedule) string { return v.Owner },
		Clone:    copied(schedules.Schedule.Clone),
		Order:    schedules.Compare,
		Holding:  (*schedules.Schedule).Holding,
		NotFound: schedules.ErrNotFound,
		Exists:   schedules.ErrExists,
	}
}

// Batches is the kind of batches.Store.
func Batches() Kind[batches.Batch] {
	return Kind[batches.Batch]{
		ID:       func(v *batches.Batch) string { return v.ID },
		Owner:    func(v *batches.Batch) string { return v.Owner },
		Clone:    copied(batches.Batch.Clone),
		Order:    batches.Compare,
		Holding:  (*batches.Batch).Holding,
		NotFound: batches.ErrNotFound,
		Exists:   batches.ErrExists,
	}
}

// JobLogs is the kind of joblog.Store.
func JobLogs() Kind[joblog.Log] {
	return Kind[joblog.Log]{
		ID:       func(v *joblog.Log) string { return v.ID },
		Owner:    func(v *joblog.Log) string { return v.Owner },
		Clone:    copied(joblog.Log.Clone),
		Order:    joblog.Compare,
		Listed:   joblog.Log.Listed,
		Holding:  (*joblog.Log).Holding,
		NotFound: joblog.ErrNotFound,
		Exists:   joblog.ErrExists,
	}
}

// Endpoints is the kind of endpoints.Store.
func Endpoints() Kind[endpoints.Endpoint] {
	return Kind[endpoints.Endpoint]{
		ID:    func(v *endpoints.Endpoint) string { return v.ID },
		Owner: func(v *endpoints.Endpoint) string { return v.Owner },
		Clone: (*endpoints.Endpoint).Clone,
		Order: func(a, b endpoints.Endpoint) int {
			return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
		},
		Holding:  (*endpoints.Endpoint).Holding,
		NotFound: endpoints.ErrNotFound,
		Exists:   endpoints.ErrExists,
	}
}
