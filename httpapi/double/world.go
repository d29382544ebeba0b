package double

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/podyard/podyard/backend/fault"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/backend/webhook"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/audit"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless"
)

// An instance is the product on memory stores, from one reset to the next.
type instance struct {
	random   *randomSource
	clock    *clock.Manual
	services httpapi.Services
	api      http.Handler
	auth     httpapi.Authenticator
	counters []budget.Counter // of pods and jobs
	table    httpapi.OperationTable
	queue    *jobQueue
	pods     *podStore
	act      *activity
	faults   *faults
	journal  *journal
	inbox    *inbox
	jobs     *jobLog
	secret   string // of webhooks
	settle   time.Duration
	quotas   ratelimit.Quotas
	catalog  catalog.Catalog

	outages    outages
	containers *memory.Runtime // of pods and of workers
	workers    *containerWorkers

	steps  int           // number of steps; guarded by step
	step   chanMutex     // for one caller of Step at a time
	next   time.Time     // result of the last Step; guarded by step
	pinged time.Time     // when pingRemote last pinged; guarded by step
	woken  chan struct{} // there may be work now

	ready   chan struct{} // closed when all sources of events are watched
	retired chan struct{} // closed when the instance must end

	mu           sync.Mutex
	images       []*image                    // images of workers, the last one first
	starts       []func(ctx context.Context) // goroutines to be started
	scheduled    []func(ctx context.Context) // functions to run at this instant, one after another
	changes      chan struct{}
	sourcesReady int // number of sources of events that are watched
}

// A chanMutex is a mutex on a channel. A sync.Mutex that is held while the clock moves would
// stop the time of a testing/synctest bubble.
type chanMutex chan struct{}

// Lock locks it.
func (t chanMutex) Lock() { t <- struct{}{} }

// Unlock unlocks it.
func (t chanMutex) Unlock() { <-t }

// lease is the product's default for remote workers. localLease never ends, because the store
// ends with the process.
const (
	lease      = 30 * time.Second
	localLease = 100 * 365 * 24 * time.Hour
)

// auditRecords is how many records of a kind the audit log has.
const auditRecords = 1000

// newInstance makes the product on memory stores, with faults.
func newInstance(o *Options, f *faults, seed uint64) (*instance, error) {
	w := &instance{
		random: newRandomSource(seed), clock: clock.NewManual(o.Start), faults: f, journal: &journal{}, settle: o.Settle, quotas: o.Quotas,
		step: make(chanMutex, 1), woken: make(chan struct{}, 1), ready: make(chan struct{}), retired: make(chan struct{}), changes: make(chan struct{}, 1),
	}
	stock, podStock, failing := memory.NewJobs(), memory.NewPods(), storeFaults(seed)
	w.counters = []budget.Counter{stock, podStock}
	w.act = newActivity(stock)
	w.act.takes = w.takes
	w.act.waiting = func(endpoint string) int { return w.services.Jobs.RequestDemand(endpoint).Waiting }
	now := func() serverless.Instant { return serverless.At(w.clock.Now()) }
	w.jobs = newJobLog(stock, now)
	w.queue = &jobQueue{JobQueue: fault.Jobs(stock, failing), act: w.act, faults: f, jobs: w.jobs, now: now, wake: w.wake, onWatch: w.sourceReady}
	w.pods = &podStore{PodStore: fault.Pods(podStock, failing), act: w.act, wake: w.wake}
	sender, err := w.newSender(o, seed)
	if err != nil {
		return nil, err
	}
	w.catalog = *o.Catalog
	w.containers = memory.NewRuntime(&memory.RuntimeOptions{Clock: w.clock, Seed: seed, Scripts: append(faultScripts(), o.Images...)})
	rt := &podRuntime{Runtime: w.containers, faults: f, decided: map[string]faultDecision{}, onWatch: w.sourceReady}
	w.workers = &containerWorkers{instance: w, list: map[string]*containerWorker{}}
	w.containers.Notify(func(st pods.ContainerState) { w.workers.onState(st, rt.faulty(st.PodID)) })
	srv, err := w.newServer(o, seed, sender, rt, failing)
	if err != nil {
		return nil, fmt.Errorf("double: %w", err)
	}
	keys, err := httpapi.NewKeys(append([]httpapi.Key{{Secret: o.Key, User: User, Scopes: []string{"*", "operator"}}}, o.Keys...), w.clock.Now)
	if err != nil {
		return nil, fmt.Errorf("double: %w", err)
	}
	w.services = srv.Services()
	w.table = httpapi.Operations()
	w.auth = httpapi.AnyOf(keys, httpapi.StoredKeys(w.services.Accounts))
	w.api = httpapi.New(w.services, &httpapi.Options{
		Auth: w.auth, Quotas: ratelimit.NewWindows(o.Quotas), Rates: ratelimit.NewRates(o.PerWorkerRate), Clock: w.clock, Logger: o.Logger,
		Audit:   audit.NewMemory(auditRecords),
		Program: srv.Program(), DialWorker: w.dialWorker,
	})
	return w, nil
}

// newServer makes the server on the stores, which fail by the plan.
func (w *instance) newServer(o *Options, seed uint64, sender serverless.Sender, rt pods.Runtime, failing *fault.Plan) (*server.Server, error) {
	e, r, v, t, k := memory.NewEndpoints(), memory.NewRegistries(), memory.NewVolumes(), memory.NewTemplates(), memory.NewSSHKeys()
	a, c, b, x, l := memory.NewAccounts(), memory.NewSchedules(), memory.NewBatches(), memory.NewSecrets(), memory.NewJobLogs()
	return server.New(context.Background(), &server.Options{ //nolint:forbidigo // without workers of its own it asks no store
		Stores: server.Stores{
			Pods: w.pods, Endpoints: fault.Endpoints(e, failing), Jobs: w.queue,
			Registries: fault.Registries(r, failing), Volumes: fault.Volumes(v, failing),
			Templates: fault.Templates(t, failing), SSHKeys: fault.SSHKeys(k, failing), Secrets: fault.Secrets(x, failing),
			Accounts: fault.Accounts(a, failing), Billing: fault.Billing(memory.NewBilling(), failing),
			Schedules: fault.Schedules(c, failing),
			Batches:   fault.Batches(b, failing), JobLogs: fault.JobLogs(l, failing),
			Counters: append(w.counters, e, r, v, t, k, a, c, b, x, l),
		},
		Budgets: budget.NewSet(o.Budgets),
		Catalog: w.catalog, Hosts: pods.SimulatedHosts(w.catalog, rt), Clock: w.clock, Logger: o.Logger,
		Fleet: func(f *podfleet.Fleet) serverless.Fleet { return &workerFleet{f, w} },
		Pods:  pods.Options{Rand: w.random.source("pods")},
		Jobs: serverless.Options{
			Rand: w.random.source("jobs"), Sender: sender, Lease: lease, LocalLease: localLease, Deterministic: true,
			MayRun: w.mayRun, Prober: prober{w}, RunCheck: w.runCheck, RequestsChanged: w.requestsChanged,
			WorkerSecret: bytesOf(seed, "workers"), WorkerURL: func() string { return BaseURL + "/v2" },
		},
		Registries: registries.Options{Rand: w.random.source("registries")},
		Volumes:    volumes.Options{Rand: w.random.source("volumes")},
		Templates:  templates.Options{Rand: w.random.source("templates")},
		Accounts:   accounts.Options{Rand: w.random.source("accounts")},
	})
}

// newSender makes the product's sender post to the inbox.
func (w *instance) newSender(o *Options, seed uint64) (*webhook.Sender, error) {
	w.secret = o.WebhookSecret
	if w.secret == "" {
		w.secret = "whsec_" + base64.StdEncoding.EncodeToString(bytesOf(seed, "webhooks"))
	}
	w.inbox = &inbox{faults: w.faults, jobs: w.jobs, now: w.clock.Now, secret: w.secret, next: o.Receiver, retired: w.retired}
	s, err := webhook.New(&webhook.Options{Secrets: []string{w.secret}, Clock: w.clock, Transport: w.inbox})
	if err != nil {
		return nil, fmt.Errorf("double: %w", err)
	}
	return s, nil
}

// sourceReady notes that one of the two sources of events, queue and fleet, is watched.
func (w *instance) sourceReady() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sourcesReady++; w.sourcesReady == 2 {
		close(w.ready)
	}
}

// wake makes the services do what is due now.
func (w *instance) wake() {
	w.act.wake()
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// run runs the instance until ctx ends or it is retired. It returns when everything that it
// started has ended.
func (w *instance) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	errs := make(chan error, 2)
	all.Go(func() { errs <- w.services.Jobs.Listen(ctx) })
	all.Go(func() { w.pump(ctx) })
	for {
		w.mu.Lock()
		fresh := w.starts
		w.starts = nil
		w.mu.Unlock()
		for _, f := range fresh {
			all.Go(func() { f(ctx) })
		}
		select {
		case <-w.changes:
			continue
		case <-ctx.Done():
			w.retire()
		case <-w.retired:
		}
		break
	}
	cancel()
	w.act.cancelAll()
	ended := make(chan struct{})
	go func() { defer close(ended); all.Wait() }()
	if err := w.await(context.WithoutCancel(ctx), ended); err != nil {
		return err
	}
	if err := <-errs; err != nil {
		return fmt.Errorf("double: %w", err)
	}
	return nil
}

// retire ends the instance, once.
func (w *instance) retire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.retired:
	default:
		close(w.retired)
	}
}

// await waits for ended. A worker that ignores its context gets as much time of the clock as in
// the product; then await returns without it.
func (w *instance) await(ctx context.Context, ended <-chan struct{}) error {
	patience := time.NewTimer(w.settle)
	defer patience.Stop()
	select {
	case <-ended:
		return nil
	case <-patience.C:
	}
	patience.Reset(10 * w.settle)
	for {
		// Timers only: nothing else may happen at the end.
		w.step.Lock()
		err := w.clock.Advance(ctx, time.Minute)
		w.runAllScheduled(ctx)
		w.step.Unlock()
		if err != nil {
			return err
		}
		beat := time.NewTimer(w.settle / 100)
		select {
		case <-ended:
			beat.Stop()
			return nil
		case <-beat.C:
		case <-patience.C:
			beat.Stop()
			return errors.New("double: a worker goes on after its context has ended")
		}
	}
}

// cancelAll ends the requests in progress.
func (a *activity) cancelAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for x := range a.requests {
		x.cancel()
	}
}

// pump makes the services do what is due at the present instant.
func (w *instance) pump(ctx context.Context) {
	for {
		select {
		case <-w.woken:
		case <-ctx.Done():
			return
		}
		w.step.Lock()
		now := w.clock.Now()
		kicks := w.act.kicks()
		for {
			v := w.act.at()
			_, more, err := w.stepServices(ctx, now)
			w.runAllScheduled(ctx)
			if err != nil || !more && w.act.at() == v {
				break
			}
			kicks = w.act.kicks()
		}
		w.step.Unlock()
		w.act.handledUpTo(kicks)
	}
}
