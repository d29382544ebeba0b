package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/backend/stores"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/conns"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/pods/secrets"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless"
)

// Stores are the storage of the services, each in a field of its own.
type Stores = stores.Set

// A Closer is a runtime that must be closed, such as process.Runtime and docker.Runtime.
type Closer interface {
	// Close stops what must not outlive the program. It returns soon after ctx ends.
	Close(ctx context.Context) error
}

// A Worker serves an endpoint in this process: with a Go function or any other
// serverless.Worker, or with an http.Handler (docs/decisions.md 44).
type Worker struct {
	// Endpoint is served from the start of Run to its end. New creates it if it does not
	// exist, shared by all users. It must not belong to a user.
	Endpoint string
	Worker   serverless.Worker
	// Handler is set instead of Worker for a load-balancing endpoint: see httpapi.ServeHTTP.
	Handler http.Handler
	// Options are optional. Default of Options.Drain: the Drain of the server.
	Options serverless.ServeOptions
}

// Options configures a Server. A zero field has its default. Without Keys, API.Auth and
// Accounts of the stores every request is refused.
type Options struct {
	// Store has all stores: a memory.Store, disk.Store or postgres.Store, or what backend.Open
	// returns. Fields of Stores that are set take the place of its own. Default: Stores alone.
	Store stores.Store
	// Stores are single stores, where a program has not all of them in one Store, or wraps one.
	Stores Stores

	// Keys are the API keys if API.Auth is not set.
	Keys []httpapi.Key
	// Workers run in this process.
	Workers []Worker

	// Catalog is what users can rent. Hosts are the machines for it.
	Catalog catalog.Catalog
	Hosts   []pods.Host
	// Runtimes are the runtimes of Hosts that must be closed. Run closes them in this order,
	// after jobs have ended and before the services stop. If a router makes one host of two
	// runtimes, put the one whose containers end at Close first: services see these ends
	// until the other one is closed.
	Runtimes []Closer
	// Fleet gets the fleet that starts workers on Hosts, and returns the fleet to use
	// instead. It may be nil. Without Stores.Pods and Hosts there is no such fleet; then
	// set Jobs.Fleet to have one.
	Fleet func(*podfleet.Fleet) serverless.Fleet

	// Options of the handlers and of each service. New connects the services with each
	// other, and sets Clock and Logger, where these options do not.
	API        httpapi.Options
	Pods       pods.Options
	Jobs       serverless.Options
	Registries registries.Options
	Volumes    volumes.Options
	Templates  templates.Options
	Accounts   accounts.Options
	Secrets    secrets.Options

	// Budgets are what each user may hold at once, for all services and handlers
	// (docs/decisions.md 37). Default: no limits.
	Budgets *budget.Set

	// KeepBilling is how long usages are kept for reports after their end; negative: for ever.
	// Default billing.Retention.
	KeepBilling time.Duration

	// Connections limits the connections of the listeners of Run, which must be its own: see
	// conns.Limiter.Listener. Default: no limits.
	Connections *conns.Limiter

	// Metrics serves GET /metrics of Server.Handler, for keys of operators. Default: none.
	Metrics http.Handler
	// Name is the name of this server for operators. Default DefaultName.
	Name string
	// Instance is this server's where others use the same stores: see
	// pods.Options.ServerInstance. Default: none.
	Instance string
	// PeerURL is where other servers that use the same stores reach Server.Handler, for logs and
	// loads of the pods here: "http://10.0.0.5:8080". Use https where others can listen: see
	// docs/servers.md. Default: they are not read elsewhere.
	PeerURL string
	// Version is the version of the program, for operators. Default: that of its module.
	Version string
	// CertificateEnds returns until when the certificate of the listeners is valid; zero: there is
	// none. Operators are told two weeks before. It must not block. It may be nil.
	CertificateEnds func() time.Time
	// Reload reads the program's configuration again, for POST /v2/admin/reload: see
	// httpapi.Program. Default: that operation is refused.
	Reload func(context.Context) (*httpapi.ReloadReport, error)

	// DrainWait is how long GET /readyz answers 503 before the shutdown begins, so that a
	// load balancer stops sending work. Everything else continues. Default 0.
	DrainWait time.Duration
	// Drain is how long jobs in progress may run during shutdown. Default 6.5 s.
	Drain time.Duration
	// Clock is the clock of all services. Default: the system's. The shutdown always uses
	// the system's.
	Clock pods.Clock
	// Logger gets messages about problems that no answer shows. Default: nothing is logged.
	Logger *slog.Logger
}

// DefaultDrain is the default of Options.Drain.
const DefaultDrain = 6500 * time.Millisecond

// withDefaults returns a copy of o with defaults.
func (o *Options) withDefaults() *Options {
	d := Options{}
	if o != nil {
		d = *o
	}
	if d.Store != nil {
		d.Stores = d.Stores.Or(d.Store.Stores())
	}
	d.Name = first(d.Name, DefaultName)
	if d.KeepBilling == 0 {
		d.KeepBilling = billing.Retention
	}
	if d.Drain <= 0 {
		d.Drain = DefaultDrain
	}
	if d.Clock == nil {
		d.Clock = clock.System{}
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	d.API.Clock = first(d.API.Clock, d.Clock)
	d.Pods.Clock = first(d.Pods.Clock, d.Clock)
	d.API.Logger = first(d.API.Logger, d.Logger)
	d.Pods.Logger = first(d.Pods.Logger, d.Logger)
	d.Jobs.Logger = first(d.Jobs.Logger, d.Logger)
	if d.Jobs.Clock == nil {
		d.Jobs.Clock = d.Clock
	}
	if d.Registries.Clock == nil {
		d.Registries.Clock = d.Clock
	}
	if d.Volumes.Clock == nil {
		d.Volumes.Clock = d.Clock
	}
	if d.Secrets.Clock == nil {
		d.Secrets.Clock = d.Clock
	}
	if d.Templates.Clock == nil {
		d.Templates.Clock = d.Clock
	}
	if d.Accounts.Clock == nil {
		d.Accounts.Clock = d.Clock
	}
	// The handlers of all areas share the quotas and rates.
	if d.API.Quotas == nil {
		d.API.Quotas = ratelimit.NewWindows(ratelimit.Quotas{})
	}
	if d.API.Rates == nil {
		d.API.Rates = ratelimit.NewRates(0)
	}
	if d.API.InFlight == nil && d.Budgets != nil {
		d.API.InFlight = budget.NewInFlight(d.Budgets, budget.DefaultTotals(), d.Clock.Now)
	}
	if d.Jobs.Reads == nil && d.API.InFlight != nil {
		d.Jobs.Reads = d.API.InFlight.Reads
	}
	if d.Jobs.Writes == nil && d.API.InFlight != nil {
		d.Jobs.Writes = d.API.InFlight.Writes
	}
	if d.Jobs.Inputs == nil && d.API.InFlight != nil {
		d.Jobs.Inputs = d.API.InFlight.Input
	}
	if d.Jobs.Outputs == nil && d.API.InFlight != nil {
		d.Jobs.Outputs = d.API.InFlight.Output
	}
	return &d
}

// checkWorkers returns an error for a worker that cannot run.
func (o *Options) checkWorkers() error {
	for _, w := range o.Workers {
		switch {
		case o.Stores.Jobs == nil || o.Stores.Endpoints == nil:
			return fmt.Errorf("server: a worker of endpoint %q: there are no stores for jobs", w.Endpoint)
		case w.Worker == nil && w.Handler == nil:
			return fmt.Errorf("server: a worker of endpoint %q is nil", w.Endpoint)
		case w.Worker != nil && w.Handler != nil:
			return fmt.Errorf("server: a worker of endpoint %q has a Worker and a Handler", w.Endpoint)
		}
	}
	return nil
}

// first returns set, or def if set is zero.
func first[T comparable](set, def T) T {
	var unset T
	if set == unset {
		return def
	}
	return set
}

// A Listener is a listener for Run with its handler.
type Listener struct {
	net.Listener

	// Handler serves the listener's requests.
	Handler http.Handler
}

// On returns a Listener for Run that serves l with h. Run closes l.
func On(l net.Listener, h http.Handler) Listener { return Listener{l, h} }
