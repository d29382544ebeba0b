package double

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/backend/webhook"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless"
)

// A world is the product on memory from one reset to the next.
type world struct {
	chance   *chance
	clock    *clock.Manual
	services httpapi.Services
	api      http.Handler
	queue    *queue
	pods     *podStore
	act      *activity
	faults   *faults
	journal  *journal
	inbox    *inbox
	jobs     *jobLog
	secret   string // of webhooks
	settle   time.Duration
	catalog  catalog.Catalog

	containers *memory.Runtime // of pods and of workers
	crews      *crews

	steps  int           // made; guarded by step
	step   turn          // for one caller of Step at a time
	next   time.Time     // what the last Step said; guarded by step
	pinged time.Time     // when keep last did something; guarded by step
	kicked chan struct{} // there may be something to do now

	ready   chan struct{} // closed when events reach who waits
	retired chan struct{} // closed when the world is to end

	mu     sync.Mutex
	images []*image                    // that workers are made of, the last one first
	starts []func(ctx context.Context) // goroutines to be started
	queued []func(ctx context.Context) // to happen at this instant, one after another
	news   chan struct{}
	heard  int // sources of events that are listened to
}

// A turn is a mutex that is waited for as a channel is: one that is held while the clock
// moves would keep the time of a testing/synctest bubble from moving.
type turn chan struct{}

// Lock waits for the turn.
func (t turn) Lock() { t <- struct{}{} }

// Unlock ends it.
func (t turn) Unlock() { <-t }

// lease is how long a remote worker has a job without renewing: the product's default. One
// of this process has it for good: the store ends with the process, too.
const (
	lease      = 30 * time.Second
	localLease = 100 * 365 * 24 * time.Hour
)

// newWorld wires the product.
func newWorld(o *Options, f *faults, seed uint64) (*world, error) {
	w := &world{
		chance: newChance(seed), clock: clock.NewManual(o.Start), faults: f, journal: &journal{}, settle: o.Settle,
		step: make(turn, 1), kicked: make(chan struct{}, 1), ready: make(chan struct{}), retired: make(chan struct{}), news: make(chan struct{}, 1),
	}
	stock := memory.NewJobs()
	w.act = newActivity(stock)
	w.act.takes = w.takes
	now := func() serverless.Instant { return serverless.At(w.clock.Now()) }
	w.jobs = newJobLog(stock, now)
	w.queue = &queue{JobQueue: stock, act: w.act, faults: f, jobs: w.jobs, now: now, kick: w.kick, listens: w.listens}
	w.pods = &podStore{Store: memory.NewPods(), act: w.act, faults: f, kick: w.kick}
	endpoints := memory.NewEndpoints()
	refs := pods.References{Pods: w.pods}
	used := podfleet.References{Pods: refs, Endpoints: serverless.References{Endpoints: endpoints}}
	regs := registries.New(memory.NewRegistries(), &registries.Options{
		Clock: w.clock, Rand: w.chance.source("registries"), InUse: used,
	})
	sender, err := w.postman(o, seed)
	if err != nil {
		return nil, err
	}
	cat := *o.Catalog
	w.catalog = cat
	bills := billing.New(memory.NewBilling(), w.clock)
	vols := volumes.New(memory.NewVolumes(), cat, &volumes.Options{
		Clock: w.clock, Rand: w.chance.source("volumes"), InUse: used, Meter: bills,
	})
	tmpl := templates.New(memory.NewTemplates(), &templates.Options{
		Clock: w.clock, Rand: w.chance.source("templates"), InUse: refs, Secrets: regs,
	})
	keyring := sshkeys.New(memory.NewSSHKeys())
	w.containers = memory.NewRuntime(&memory.RuntimeOptions{Clock: w.clock, Seed: seed, Scripts: append(faultScripts(), o.Images...)})
	rt := &podRuntime{Runtime: w.containers, faults: f, found: map[string]taken{}, watched: w.listens}
	w.crews = &crews{world: w, list: map[string]*hired{}}
	w.containers.Notify(func(st pods.State) { w.crews.heard(st, rt.faulty(st.PodID)) })
	workers, err := podfleet.New(w.pods, cat, pods.Hosts(cat, rt), &podfleet.Options{Secrets: regs, Volumes: vols})
	if err != nil {
		return nil, fmt.Errorf("double: %w", err)
	}
	jobs := serverless.New(w.queue, endpoints, &serverless.Options{
		Clock: w.clock, Rand: w.chance.source("jobs"), Sender: sender, Lease: lease, Registries: regs, Volumes: vols,
		WorkerSecret: bytesOf(seed, "workers"), Logger: o.Logger, Catalog: podfleet.Catalog(cat), Templates: podfleet.Templates(tmpl),
		LocalLease: localLease, Fleet: &fleet{workers, w}, Meter: podfleet.Meter(cat, bills), Lockstep: true, WorkerURL: func() string { return BaseURL + "/v2" },
	})
	p, err := pods.New(w.pods, cat, pods.Hosts(cat, rt), &pods.Options{
		Clock: w.clock, Rand: w.chance.source("pods"), Secrets: regs, Volumes: vols, Templates: tmpl, Keys: keyring,
		Meter: bills, Log: o.Logger, Foreign: podfleet.IsWorker,
	})
	if err != nil {
		return nil, fmt.Errorf("double: %w", err)
	}
	keys, err := httpapi.NewKeys(append([]httpapi.Key{{Secret: o.Key, User: User, Scopes: []string{"*"}}}, o.Keys...), w.clock.Now)
	if err != nil {
		return nil, fmt.Errorf("double: %w", err)
	}
	w.services = httpapi.Services{
		Pods: p, Registries: regs, Jobs: jobs, Volumes: vols, Templates: tmpl, SSHKeys: keyring, Billing: bills,
	}
	w.api = httpapi.New(w.services, &httpapi.Options{
		Auth: keys, Quotas: ratelimit.NewWindows(o.Quotas), Rates: ratelimit.NewRates(o.PerWorkerRate), Clock: w.clock, Logger: o.Logger,
	})
	return w, nil
}

// postman has the product's sender post to the inbox.
func (w *world) postman(o *Options, seed uint64) (*webhook.Sender, error) {
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

// listens notes that one of the two sources of events is listened to: queue and fleet.
func (w *world) listens() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.heard++; w.heard == 2 {
		close(w.ready)
	}
}

// kick has the services look at what is due now.
func (w *world) kick() {
	w.act.kick()
	select {
	case w.kicked <- struct{}{}:
	default:
	}
}

// run lets the world live until ctx ends or it is retired. It returns when everything it
// started has.
func (w *world) run(ctx context.Context) error {
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
		case <-w.news:
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
	if err := <-errs; err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("double: %w", err)
	}
	return nil
}

// retire ends the world, once.
func (w *world) retire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.retired:
	default:
		close(w.retired)
	}
}

// await gives a worker that does not care for its context what it has in the product: so
// much of the clock, and then nobody waits for it.
func (w *world) await(ctx context.Context, ended <-chan struct{}) error {
	patience := time.NewTimer(w.settle)
	defer patience.Stop()
	select {
	case <-ended:
		return nil
	case <-patience.C:
	}
	patience.Reset(10 * w.settle)
	for {
		// Timers only: nothing is to happen any more but the end.
		w.step.Lock()
		err := w.clock.Advance(ctx, time.Minute)
		w.releaseAll(ctx)
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

// cancelAll ends the requests under way.
func (a *activity) cancelAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for x := range a.requests {
		x.cancel()
	}
}

// pump has the services do at once what has become due at the present instant.
func (w *world) pump(ctx context.Context) {
	for {
		select {
		case <-w.kicked:
		case <-ctx.Done():
			return
		}
		w.step.Lock()
		now := w.clock.Now()
		kicks := w.act.kicks()
		for {
			v := w.act.at()
			_, more, err := w.once(ctx, now)
			w.releaseAll(ctx)
			if err != nil || !more && w.act.at() == v {
				break
			}
			kicks = w.act.kicks()
		}
		w.step.Unlock()
		w.act.pump(kicks)
	}
}
