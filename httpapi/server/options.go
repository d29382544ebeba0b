package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless"
)

// Stores are what the services keep things in. A store that is nil leaves its service out:
// the paths of that service are not found. Jobs and Endpoints go together.
type Stores struct {
	Pods       pods.PodStore
	Registries registries.Store
	Volumes    volumes.Store
	Templates  templates.Store
	SSHKeys    sshkeys.Store
	Accounts   accounts.Store // of keys, beside Keys or API.Auth
	Billing    billing.Store
	Endpoints  serverless.EndpointStore
	Jobs       serverless.JobQueue

	// Run, if it is set, keeps the stores working until its context ends: disk.Store.Run.
	Run func(context.Context) error
	// Ready, if it is set, is nil while the stores take new work: disk.Store.Ready. An error
	// of kind problem.Unavailable is what GET /readyz answers.
	Ready func() error
	// Close, if it is set, is called last, when nothing uses the stores any more.
	Close func() error
}

// A Closer is a runtime that has to be closed: process.Runtime and docker.Runtime are.
type Closer interface {
	// Close ends what must not outlive the program. It returns soon after ctx has ended.
	Close(ctx context.Context) error
}

// A Worker is a Go function, or whatever else runs in this process, that serves an endpoint.
type Worker struct {
	// Endpoint is served from the beginning of Run to the end. New makes it if it is not
	// there, for every user. It must not be a user's own.
	Endpoint string
	Worker   serverless.Worker
	// Options may be left out. Its Drain is that of the server if it has none.
	Options serverless.ServeOptions
}

// Options configures a Server. What is not set has its default. Without Keys and API.Auth
// every request is refused.
type Options struct {
	Stores Stores

	// Keys are who may come, where API.Auth is not set.
	Keys []httpapi.Key
	// Workers are those in this process.
	Workers []Worker

	// Catalog is what can be rented, and Hosts are the machines it is on.
	Catalog catalog.Catalog
	Hosts   []pods.Host
	// Runtimes are those of Hosts that have to be closed. Run closes them in this order, when
	// jobs have ended and before the services do. Where two are one host, by a router, the
	// one whose containers end with it comes first: services hear of these ends until another
	// one is closed.
	Runtimes []Closer
	// Fleet, if it is set, gets the fleet that starts workers on Hosts and returns the one
	// to be used in its place. Without Stores.Pods and Hosts there is no fleet, unless
	// Jobs.Fleet is one.
	Fleet func(*podfleet.Fleet) serverless.Fleet

	// The options of the handlers and of each service. What they need of each other, and
	// Clock and Logger, are set by New where they are not set here.
	API        httpapi.Options
	Pods       pods.Options
	Jobs       serverless.Options
	Registries registries.Options
	Volumes    volumes.Options
	Templates  templates.Options
	Accounts   accounts.Options

	// Name is what operators call this server. Default DefaultName.
	Name string
	// Reload reads the program's configuration anew, for POST /v2/admin/reload: see
	// httpapi.Program. Default: that operation is refused.
	Reload func(context.Context) (*httpapi.ReloadReport, error)

	// DrainWait is how long GET /readyz answers 503 before the end of Run begins, so that a
	// balancer stops sending work. All else goes on meanwhile. Default 0.
	DrainWait time.Duration
	// Drain is how long jobs in progress may go on when the server ends. Default 6.5 s.
	Drain time.Duration
	// Clock is the time of all services. Default: the system's. The end of Run follows the
	// system's in any case.
	Clock pods.Clock
	// Logger gets what nobody asked about. Default: nothing is logged.
	Logger *slog.Logger
}

// DefaultDrain is Options.Drain of a server that sets none.
const DefaultDrain = 6500 * time.Millisecond

// withDefaults is a copy of o without gaps.
func (o *Options) withDefaults() *Options {
	d := Options{}
	if o != nil {
		d = *o
	}
	d.Name = first(d.Name, DefaultName)
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
	if d.Templates.Clock == nil {
		d.Templates.Clock = d.Clock
	}
	if d.Accounts.Clock == nil {
		d.Accounts.Clock = d.Clock
	}
	// The handlers of all areas share them.
	if d.API.Quotas == nil {
		d.API.Quotas = ratelimit.NewWindows(ratelimit.Quotas{})
	}
	if d.API.Rates == nil {
		d.API.Rates = ratelimit.NewRates(0)
	}
	return &d
}

// checkWorkers says which worker cannot work.
func (o *Options) checkWorkers() error {
	for _, w := range o.Workers {
		switch {
		case o.Stores.Jobs == nil || o.Stores.Endpoints == nil:
			return fmt.Errorf("server: a worker of endpoint %q: there are no stores for jobs", w.Endpoint)
		case w.Worker == nil:
			return fmt.Errorf("server: a worker of endpoint %q is nil", w.Endpoint)
		}
	}
	return nil
}

// first is set, or def where it is not.
func first[T comparable](set, def T) T {
	var unset T
	if set == unset {
		return def
	}
	return set
}

// A Listener is an address that Run serves.
type Listener struct {
	net.Listener

	// Handler is what is served there.
	Handler http.Handler
}

// On is for Run: h is served on l. Run closes l.
func On(l net.Listener, h http.Handler) Listener { return Listener{l, h} }
