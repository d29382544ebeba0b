package serverless

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/internal/id"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/balance"
	"github.com/podyard/podyard/serverless/batches"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/events"
	"github.com/podyard/podyard/serverless/fleet"
	"github.com/podyard/podyard/serverless/joblog"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/schedules"
	"github.com/podyard/podyard/serverless/servers"
	"github.com/podyard/podyard/serverless/telemetry"
	"github.com/podyard/podyard/serverless/workers"
)

// A Clock has the time: Now, and AfterFunc(t, f), which calls f once Now has reached t and returns a
// stop that reports whether it prevented the call. f must not block. It is one type in all packages.
type Clock = clock.Clock

// Options configures a Service. The zero value and nil work.
type Options struct {
	// Clock is the only source of time. Default: the system clock.
	Clock Clock
	// Rand is the source of job ids and worker ids. Default: crypto/rand.
	Rand io.Reader
	// Sender sends webhooks. Default: none; deliveries then stay in the outbox.
	Sender Sender
	// Lease is how long a worker keeps a job without a renewal. A worker pings three times in
	// this time. Default 30 s.
	Lease time.Duration
	// LocalLease is Lease for the workers of Serve, whose leases Step renews. If the queue
	// lives in this process only, LocalLease may exceed MaxTTL, so that no lease needs a
	// renewal. Default: Lease.
	LocalLease time.Duration
	// Catalog has the ids of machines and data centers that endpoints may use. Default: none;
	// ids are then not checked.
	Catalog endpoints.Catalog
	// Registries finds the registry credentials that endpoints use. Default: none; no
	// credential exists then.
	Registries endpoints.Registries
	// Volumes finds the network volumes that endpoints use. Default: none; no volume exists
	// then.
	Volumes endpoints.Volumes
	// Templates finds the templates that requests for endpoints name. Default: none; no
	// template exists then.
	Templates endpoints.Templates
	// Deliveries is the most webhooks that are sent at once. One host gets at most a sixteenth
	// of it for one user, and a quarter in all, so that a slow receiver does not delay the
	// others. Default 256.
	Deliveries int
	// Budgets limits how many webhooks of one user are sent at once, of those of Deliveries, and
	// how many schedules a user has. Default: no limit.
	Budgets *budget.Set
	// Fleet starts and stops the workers of endpoints with an image. Default: none; endpoints
	// then need workers of Serve or workers that were started by somebody else. A fleet that
	// implements endpoints.Admission judges what endpoints ask for.
	Fleet Fleet
	// WorkerURL returns the base URL of the jobs API for the workers of Fleet, without the
	// endpoint id (http://127.0.0.1:8080/v2). It is called for each worker. While it returns
	// "", no worker is started. Default: always "".
	WorkerURL func() string
	// Deterministic makes the scaler depend only on the order of calls and on the clock: Step
	// calls the fleet itself, one call after another, and there are no periodic checks. It is
	// for a program that moves the clock itself. Queue, endpoints and Fleet must be in this
	// process, lose no event and not block.
	Deterministic bool
	// WorkerSecret is the secret from which the keys of workers are derived. Servers that share
	// workers need the same secret. Default: random; the workers of an earlier process are
	// then replaced, because their keys are not valid.
	WorkerSecret []byte
	// ReplaceWorkers says that workers of an earlier process are replaced although there is a
	// WorkerSecret: they do not find this process, or had another secret.
	ReplaceWorkers bool
	// Prober checks the health of the workers of load-balancing endpoints: httpapi.NewProber
	// returns one. Default: none; users then cannot create such endpoints.
	Prober balance.Prober
	// RunCheck runs a check of a worker, at once in another goroutine or later, and RequestsChanged
	// is called when the requests of a load-balancing endpoint or the health of its workers have
	// changed: for a program that calls Step itself. They must not block. Default: a check has a
	// goroutine of its own, and nobody is told.
	RunCheck        func(check func())
	RequestsChanged func(endpoint string)
	// Meter gets the use of the workers of Fleet, for billing. Default: none.
	Meter fleet.Meter
	// Spent returns why the endpoints of an owner may have no workers, in words for users, and until
	// when unless Resync is called before (docs/decisions.md 56); empty: they may. Jobs stay in the
	// queue meanwhile. Default: all may.
	Spent func(ctx context.Context, owner string) (why string, until time.Time, err error)
	// Schedules keeps schedules of jobs (Service.Schedules). They need DecodeRun. Default: none;
	// there are no schedules then.
	Schedules schedules.Store
	// DecodeRun reads the body of a run request, in which schedules keep their jobs. It reports
	// faults of members in Request.Violations. httpapi.DecodeRun is one.
	DecodeRun func(body []byte) (Request, error)
	// MayRun reports whether a user may still run jobs on an endpoint. Schedules ask it at each
	// instant, and are disabled without this permission. Default: everybody may.
	MayRun func(ctx context.Context, user, endpoint string) (bool, error)
	// Batches keeps batches of jobs (Service.Batches). Default: none; there are no batches then.
	Batches batches.Store
	// JobLogs keeps the lines that jobs print (Service.JobLog). Default: none; they are not kept.
	JobLogs joblog.Store
	// Server is this process among those that share the queue and the stores. Run it beside the
	// Service. Default: this process is the only one. docs/servers.md says what servers share.
	Server *servers.Server
	// Presence keeps the workers of all servers, so that each knows those of the others. It needs
	// Server. Default: each server counts its own.
	Presence workers.Presence
	// Reads limits how many jobs are read at once for a user, because it is not known before
	// how large their payloads are. More reads wait. Default: no limit.
	Reads *budget.Pool
	// Writes limits how many large payloads of an endpoint are stored at once, because others
	// may wait for the same commit. More wait. Its users are the ids of endpoints. Default: no
	// limit.
	Writes *budget.Pool
	// Inputs returns a hold for the input of a job of a user, while a worker of Serve runs the job. A job
	// for which there is no room waits until others have ended; each worker runs one in any case.
	// Default: no limit.
	Inputs func(owner string) budget.Hold
	// Outputs returns a hold for the outputs and chunks that a worker of Serve has made, until they are
	// stored. A job of a user whose outputs have no room waits before it runs; each worker runs one in
	// any case. Default: no limit.
	Outputs func(owner string) budget.Hold
	// Observer gets what happens to jobs, workers and webhooks, for metrics and traces. Default:
	// none.
	Observer telemetry.Observer
	// Outcomes are told how attempts and jobs end. Default: the Logger has those that fail.
	Outcomes Outcomes
	// Logger gets what no caller sees, such as panics of workers and failures of stores, and what
	// Outcomes says.
	// Default: nothing is logged.
	Logger *slog.Logger
}

// A Service runs jobs. It has the rules of docs/interface.md 2.8, 3.2, 4.2 and 8, over a queue
// and a store of endpoints that a backend implements. It is safe for concurrent use.
//
// A Service does its background work in Run, which must run until the program ends. A program
// that moves time itself calls Step instead, with Listen in a goroutine beside it.
//
// The owner in the methods is the user who asks. The jobs and endpoints of another user are
// not found.
type Service struct {
	queue        JobQueue
	endpoints    EndpointStore
	clock        Clock
	rand         io.Reader
	sender       Sender
	lease        time.Duration
	localLease   time.Duration
	workerSecret []byte
	macs         sync.Pool          // of hash.Hash with workerSecret: a new one costs more than the MAC
	observer     telemetry.Observer // may be nil
	outcomes     *outcomes          // may be nil
	eps          *endpoints.Service
	declared     sync.Map // by id, of the shared endpoints that this process has declared
	log          *slog.Logger

	hub           hub
	intake        *intake
	keys          idempotency.Guard
	rules         ruleCache
	frees         frees
	registry      workers.Registry
	crowd         *crowd          // may be nil
	server        *servers.Server // may be nil
	balancer      *balance.Balancer
	scaler        *fleet.Scaler
	schedules     *schedules.Service // may be nil
	events        *events.Log
	batches       *batches.Service // may be nil
	logs          *joblog.Service  // may be nil
	tails         *tails           // may be nil
	deliveryLimit deliveryLimiter
	readers       readerLocks
	shared        bool     // other servers use the queue
	copy          WorkerID // ends the ids of the workers of Serve of one that has not joined them
	deterministic bool
	looked        Instant // when Step looked by itself last; lookAt is when it does again
	lookAt        Instant
	reads, writes *budget.Pool                   // may be nil
	inputs        func(owner string) budget.Hold // may be nil
	outputs       func(owner string) budget.Hold // may be nil
	armed         atomic.Int64                   // Instant at which Run calls Step again
	asked         Instant                        // the instant that step was armed for; 0: none
	renewed       Instant                        // last renewal of the leases of in-process workers; used by Step only
	wake          chan struct{}
	handlers      handlers
	goroutines    sync.WaitGroup // Listen and the deliveries; Run waits for them
}

// AllOwners is the owner that selects the jobs of all users in Purge and Requests.
const AllOwners = "*"

// New returns a Service over a queue and a store of endpoints. opts may be nil. New starts no
// goroutine: see Run.
func New(q JobQueue, store EndpointStore, opts *Options) *Service {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	s := &Service{
		endpoints: store, observer: o.Observer,
		clock: o.Clock, rand: o.Rand, sender: o.Sender, lease: o.Lease, localLease: o.LocalLease, log: o.Logger,
		workerSecret: workerSecret(o.WorkerSecret),
		wake:         make(chan struct{}, 1),
		intake:       newIntake(),
		shared:       queue.IsShared(q),
		reads:        o.Reads, writes: o.Writes, inputs: o.Inputs, outputs: o.Outputs,
	}
	if s.clock == nil {
		s.clock = clock.System{}
	}
	if s.rand == nil {
		s.rand = rand.Reader
	}
	s.rand = id.LockedReader(s.rand)
	if s.shared && o.Server == nil {
		n, _ := id.New(s.rand) // where there is no chance, the ids are those of the only server
		s.copy = WorkerID("-" + n)
	}
	s.outcomes = newOutcomes(&o, q, s.now)
	s.logs, s.deterministic = s.newLogs(&o), o.Deterministic
	s.queue = observe(q, o.Observer, s.outcomes, s.jobMoved())
	admission, _ := fleet.As[endpoints.Admission](o.Fleet)
	s.eps = endpoints.New(store, &endpoints.Options{
		Clock: s.clock, Rand: s.rand, Catalog: o.Catalog, Registries: o.Registries, Volumes: o.Volumes, Templates: o.Templates,
		Admission: admission, Balances: balances(&o),
	})
	if s.lease == 0 {
		s.lease = 30 * time.Second
	}
	if s.localLease == 0 {
		s.localLease = s.lease
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.server, s.crowd = o.Server, s.newCrowd(&o)
	s.deliveryLimit.init(o.Deliveries, o.Budgets)
	s.hub.init(s.stop, s.rules.limits)
	s.events = events.New(s.queue, s.clock)
	s.watchWorkers()
	s.balancer = s.newBalancer(&o)
	s.scaler = s.newScaler(&o)
	s.schedules = s.newSchedules(&o)
	s.batches = s.newBatches(&o)
	s.tails = s.newTails(&o)
	s.armed.Store(math.MaxInt64)
	return s
}

// Endpoints returns the store that New got.
func (s *Service) Endpoints() EndpointStore { return s.endpoints }

// Events returns what has happened to jobs and workers, whoever owns them. It is added to while Run or
// Listen runs.
func (s *Service) Events() *events.Log { return s.events }

// Endpoint returns the endpoint whoever owns it, or ErrNoEndpoint.
func (s *Service) Endpoint(ctx context.Context, id string) (*Endpoint, error) {
	return s.endpoints.Get(ctx, id)
}

func (s *Service) now() Instant { return At(s.clock.Now()) }
