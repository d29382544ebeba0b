// Package stores has the shape that every backend with stores gives them: one value that is run,
// asked whether it takes work, and closed, with each store in a field of its own. The value of a
// backend is a Store; server.Options take either, or a Set that a program puts together itself.
package stores

import (
	"context"
	"reflect"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/pods/secrets"
	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless/batches"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/joblog"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/schedules"
	"github.com/podyard/podyard/serverless/servers"
	"github.com/podyard/podyard/serverless/workers"
)

// A Store is every store of one backend: a memory.Store, a disk.Store, a postgres.Store, or one of
// your own. It is safe for concurrent use.
type Store interface {
	// Stores returns the stores, with Run, Ready and Close of the Store in their fields.
	Stores() Set
	// Run keeps the stores working until ctx ends, and returns nil. It is called once.
	Run(ctx context.Context) error
	// Ready returns nil while the stores accept new work. Its error should have the kind
	// problem.Unavailable.
	Ready() error
	// Close is called last, when nothing uses the stores.
	Close() error
}

// A Set is the storage of the services. If a store is nil, its service is missing, and
// its paths answer 404. Jobs and Endpoints need each other.
type Set struct {
	Pods       pods.PodStore
	Registries registries.Store
	Volumes    volumes.Store
	Templates  templates.Store
	SSHKeys    sshkeys.Store
	Secrets    secrets.Store  // values of variables of Pods and of workers
	Accounts   accounts.Store // keys, in addition to Keys or API.Auth of server.Options
	Billing    billing.Store
	Endpoints  endpoints.Store
	Jobs       queue.JobQueue
	Schedules  schedules.Store // of Jobs
	Batches    batches.Store   // of Jobs
	JobLogs    joblog.Store    // what Jobs print
	// Servers and Presence are set where other servers use the same stores (docs/servers.md).
	// server.New joins them, and Run leaves them. Default for Jobs over a database (queue.Shared): those
	// of this database; New returns an error if Jobs does not know them.
	Servers  servers.Store
	Presence workers.Presence // the workers of Jobs

	// Counters count what users have in the stores, and refuse what is over Options.Budgets: a
	// disk.Store, or each store of package memory. Without them nothing is refused.
	Counters []budget.Counter

	// Run keeps the stores working until its context ends, for example disk.Store.Run. It
	// may be nil.
	Run func(context.Context) error
	// Ready returns nil while the stores accept new work, for example disk.Store.Ready. It
	// may be nil. GET /readyz answers with its error, which should have the kind
	// problem.Unavailable.
	Ready func() error
	// Short reports whether the error of Ready is a lack of disk space. It may be nil.
	Short func() bool
	// Warning says what operators should mend before Ready returns an error, for example
	// disk.Store.Warning; empty: nothing. It may be nil.
	Warning func() string
	// Close is called last, when nothing uses the stores. It may be nil.
	Close func() error
}

// Or returns s with the fields of other where those of s are nil.
func (s Set) Or(other Set) Set {
	mine, theirs := reflect.ValueOf(&s).Elem(), reflect.ValueOf(other)
	for i := range mine.NumField() {
		if mine.Field(i).IsZero() {
			mine.Field(i).Set(theirs.Field(i))
		}
	}
	return s
}
