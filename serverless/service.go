package serverless

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/internal/id"
	"github.com/podyard/podyard/internal/unwrap"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/balance"
	"github.com/podyard/podyard/serverless/batches"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/events"
	"github.com/podyard/podyard/serverless/fleet"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/schedules"
	"github.com/podyard/podyard/serverless/servers"
	"github.com/podyard/podyard/serverless/telemetry"
	"github.com/podyard/podyard/serverless/workers"
)

// A Clock has the time and sets timers. It is safe for concurrent use.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f once when Now has reached t. f must not block. stop reports whether
	// it prevented the call.
	AfterFunc(t time.Time, f func()) (stop func() bool)
}

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
	// Meter gets the use of the workers of Fleet, for billing. Default: none.
	Meter fleet.Meter
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
	// Observer gets what happens to jobs, workers and webhooks, for metrics and traces. Default:
	// none.
	Observer telemetry.Observer
	// Logger gets what no caller sees, such as panics of workers and failures of stores.
	// Default: nothing is logged.
	Logger *slog.Logger
}

// A Service runs jobs. It has the rules of docs/interface.md 2.8, 3.2, 4.2 and 8 of
// docs/interface.md, over a queue and a store of endpoints that a backend implements. It is
// safe for concurrent use.
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
	eps          *endpoints.Service
	log          *slog.Logger

	hub           hub
	intake        *intake
	keys          idempotency.Guard
	rules         ruleCache
	registry      workers.Registry
	crowd         *crowd          // may be nil
	server        *servers.Server // may be nil
	balancer      *balance.Balancer
	scaler        *fleet.Scaler
	schedules     *schedules.Service // may be nil
	events        *events.Log
	batches       *batches.Service // may be nil
	deliveryLimit deliveryLimiter
	readers       readerLocks
	shared        bool // other servers use the queue
	deterministic bool
	looked        Instant // when Step looked by itself last; lookAt is when it does again
	lookAt        Instant
	reads, writes *budget.Pool // may be nil
	armed         atomic.Int64 // Instant at which Run calls Step again
	asked         Instant      // the instant that step was armed for; 0: none
	renewed       Instant      // last renewal of the leases of in-process workers; used by Step only
	wake          chan struct{}
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
		queue: observe(q, o.Observer), endpoints: store, observer: o.Observer,
		clock: o.Clock, rand: o.Rand, sender: o.Sender, lease: o.Lease, localLease: o.LocalLease, log: o.Logger,
		workerSecret: workerSecret(o.WorkerSecret),
		wake:         make(chan struct{}, 1),
		intake:       newIntake(),
		shared:       queue.IsShared(q), deterministic: o.Deterministic,
		reads: o.Reads, writes: o.Writes,
	}
	if s.clock == nil {
		s.clock = clock.System{}
	}
	if s.rand == nil {
		s.rand = rand.Reader
	}
	s.rand = id.LockedReader(s.rand)
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

// Submit queues a job and returns it. It reports all faults of the request together (422),
// and returns ErrNoEndpoint for an unknown endpoint and for another user's. When Submit
// returns nil, the job is stored as durably as the queue can. A request that was made before
// with its key gets *idempotency.Repeated, which has the id of its job.
func (s *Service) Submit(ctx context.Context, owner, endpoint string, r Request) (Job, error) {
	if r.Idempotency != nil {
		return s.submitOnce(ctx, owner, endpoint, &r)
	}
	j, err := s.newJob(ctx, owner, endpoint, &r)
	if err != nil {
		return Job{}, err
	}
	return s.enqueue(ctx, j)
}

// submitOnce is Submit for a request with a key.
func (s *Service) submitOnce(ctx context.Context, owner, endpoint string, r *Request) (Job, error) {
	return idempotency.Do(ctx, r.Idempotency, idempotency.Creation[Job]{
		Guard: &s.keys, Store: s.queue, Now: s.clock.Now(),
		Check: func() error { return r.check(s.now()) },
		Create: func(k *idempotency.Record) (Job, error) {
			j, err := s.newJob(ctx, owner, endpoint, r)
			if err != nil {
				return Job{}, err
			}
			k.ID, j.Creation = string(j.ID), k
			return s.enqueue(ctx, j)
		},
	})
}

// newJob checks a request and returns its job.
func (s *Service) newJob(ctx context.Context, owner, endpoint string, r *Request) (Job, error) {
	ep := r.Endpoint
	if ep == nil {
		var err error
		if ep, err = s.eps.Visible(ctx, owner, endpoint); err != nil {
			return Job{}, err
		}
	}
	if err := r.check(s.now()); err != nil {
		return Job{}, err
	}
	id, err := s.newID(r.Sync)
	if err != nil {
		return Job{}, fmt.Errorf("serverless: make a job id: %w", err)
	}
	return r.job(ep, owner, id, s.now()), nil
}

func (s *Service) enqueue(ctx context.Context, j Job) (Job, error) {
	done, err := s.startWrite(ctx, j.Endpoint, len(j.Input))
	if err != nil {
		return Job{}, err
	}
	defer done()
	jobs := [1]Job{j}
	if err := s.queue.Enqueue(ctx, jobs[:]); err != nil {
		return Job{}, fmt.Errorf("serverless: submit to %q: %w", j.Endpoint, err)
	}
	s.arm(jobs[0].Due())
	jobs[0].Creation = nil
	return jobs[0], nil
}

// SubmitAndWait submits a job with Sync set, and then does what Wait does for r.Wait (default
// DefaultWait). The submit becomes durable with the end of the job, or before anybody sees the
// job: its caller, if r.Wait passes first, or a reader. If the queue loses the job before that,
// SubmitAndWait returns ErrForgotten. The job may have run.
func (s *Service) SubmitAndWait(ctx context.Context, owner, endpoint string, r Request) (Job, error) {
	r.Sync = true
	if r.Wait == 0 {
		r.Wait = DefaultWait
	}
	if r.Idempotency != nil { // durable at once: a crash must not make the request twice
		j, err := s.submitOnce(ctx, owner, endpoint, &r)
		if err != nil {
			return Job{}, err
		}
		if r.Queued != nil {
			r.Queued()
		}
		return s.Wait(ctx, owner, j.Ref, r.Wait)
	}
	j, err := s.newJob(ctx, owner, endpoint, &r)
	if err != nil {
		return Job{}, err
	}
	j.Flags |= queue.DurableAtEnd
	w := s.startWait(j.Ref, r.Wait)
	defer w.end()
	w.keep(j)
	expires := j.Expires
	if _, err = s.enqueue(ctx, j); err != nil {
		return Job{}, err
	}
	if r.Queued != nil {
		r.Queued()
	}
	ended, err := w.wait(ctx, owner, false)
	if errors.Is(err, ErrNotFound) && s.now() < expires {
		err = ErrForgotten
	}
	return ended, err
}

// newID returns a UUID version 4 with the suffix of the region, and with the prefix "sync-"
// for runsync.
func (s *Service) newID(sync bool) (JobID, error) {
	var u [16]byte
	if _, err := io.ReadFull(s.rand, u[:]); err != nil {
		return "", err
	}
	return formatID(u, sync), nil
}

// formatID returns the id with these random bits.
func formatID(u [16]byte, sync bool) JobID {
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	b := make([]byte, 0, 44)
	if sync {
		b = append(b, "sync-"...)
	}
	for i, part := range [...][]byte{u[:4], u[4:6], u[6:8], u[8:10], u[10:]} {
		if i > 0 {
			b = append(b, '-')
		}
		b = hex.AppendEncode(b, part)
	}
	return JobID(append(b, "-u1"...))
}

// Get returns the job with its payloads. It returns ErrNotFound for an unknown job, for a job
// past its ttl or retention and for another user's job, ErrNoEndpoint for an unknown
// endpoint, and ErrDamaged if the output can no longer be read.
func (s *Service) Get(ctx context.Context, owner string, ref Ref) (Job, error) {
	j, err := s.find(ctx, owner, ref)
	if err != nil {
		return Job{}, err
	}
	return j, nil
}

// find is Get, but with ErrDamaged it also returns the job, without its output.
func (s *Service) find(ctx context.Context, owner string, ref Ref) (Job, error) {
	j, err := s.read(ctx, owner, ref)
	return s.owned(ctx, owner, ref, j, err)
}

// findState is find without the payloads, which need not be read for it.
func (s *Service) findState(ctx context.Context, owner string, ref Ref) (Job, error) {
	j, err := s.state(ctx, ref)
	return s.owned(ctx, owner, ref, j, err)
}

// state returns a job without its payloads.
func (s *Service) state(ctx context.Context, ref Ref) (Job, error) {
	for j, err := range s.queue.List(ctx, s.now(), queue.ListQuery{Endpoint: ref.Endpoint, IDs: []JobID{ref.ID}}) {
		return j, err
	}
	return Job{}, ErrNotFound
}

// owned is what a read of a job returns to a user.
func (s *Service) owned(ctx context.Context, owner string, ref Ref, j Job, err error) (Job, error) {
	if (err == nil || errors.Is(err, ErrDamaged)) && j.Owner != owner {
		err = ErrNotFound
	}
	if errors.Is(err, ErrNotFound) {
		if _, e := s.endpoints.Get(ctx, ref.Endpoint); e != nil {
			err = e
		}
	}
	return j, err
}

// largePayload is the size in bytes from which payloads take turns.
const largePayload = 256 << 10

// startWrite waits until a payload of n bytes may be stored. The caller calls done afterwards.
func (s *Service) startWrite(ctx context.Context, endpoint string, n int) (done func(), err error) {
	if s.writes == nil || n < largePayload {
		return func() {}, nil
	}
	turn := s.writes.Hold(endpoint)
	if err := turn.Grow(ctx, 1); err != nil {
		return nil, err
	}
	return turn.Release, nil
}

// read reads a job when it is the turn of its reader.
func (s *Service) read(ctx context.Context, reader string, ref Ref) (Job, error) {
	release, err := s.mayRead(ctx, reader)
	if err != nil {
		return Job{}, err
	}
	defer release()
	return s.queue.Get(ctx, s.now(), ref)
}

// mayRead waits until reader may read another job with its payloads.
func (s *Service) mayRead(ctx context.Context, reader string) (release func(), err error) {
	if s.reads == nil {
		return func() {}, nil
	}
	turn := s.reads.Hold(reader)
	if err := turn.Grow(ctx, 1); err != nil {
		turn.Release()
		return nil, err
	}
	return turn.Release, nil
}

// JobOwner returns whose a job is. Errors are those of Get, without ErrDamaged.
func (s *Service) JobOwner(ctx context.Context, ref Ref) (string, error) {
	j, err := s.state(ctx, ref)
	return j.Owner, err
}

// Wait returns the job when it has ended. It returns the job as it is when d has passed by
// the service's clock, or when ctx ends. Errors are those of Get, also if the job is deleted
// meanwhile.
func (s *Service) Wait(ctx context.Context, owner string, ref Ref, d time.Duration) (Job, error) {
	w := s.startWait(ref, d)
	defer w.end()
	return w.wait(ctx, owner, true)
}

// A jobWait waits for the end of a job. Its time has begun. The caller must call end.
type jobWait struct {
	s    *Service
	ref  Ref
	done *watcher
	job  *Job        // nil: it is read when it has ended
	over atomic.Bool // the time is over; done is signalled after that
	stop func() bool // stops the timer
}

func (s *Service) startWait(ref Ref, d time.Duration) *jobWait {
	w := &jobWait{s: s, ref: ref, done: s.hub.watch(ref, queue.EventDone)}
	w.stop = s.clock.AfterFunc(s.clock.Now().Add(d), func() { w.over.Store(true); signal(w.done.ch) })
	return w
}

func (w *jobWait) end() {
	w.stop()
	w.s.hub.unwatch(w.done)
}

// wait returns the job when it has ended, or when the time or ctx is over. look: it looks first
// whether the job has ended.
func (w *jobWait) wait(ctx context.Context, owner string, look bool) (Job, error) {
	for last := false; ; look = true {
		if j, ok := w.result(); ok {
			return j, nil
		}
		if look {
			j, err := w.s.Get(context.WithoutCancel(ctx), owner, w.ref)
			if err != nil || last || j.Status.Terminal() {
				return j, err
			}
		}
		select {
		case <-w.done.ch:
			last = w.over.Load()
		case <-ctx.Done():
			last = true // the job may have changed since it was read
		}
	}
}

// SetTTL sets the expiry of the job to d from now, but at most to MaxTTL after its
// submission. d must satisfy CheckTTL. Errors are those of CheckTTL and Get.
func (s *Service) SetTTL(ctx context.Context, owner string, ref Ref, d time.Duration) (Job, error) {
	if err := CheckTTL(d); err != nil {
		return Job{}, err
	}
	j, err := s.Get(ctx, owner, ref)
	if err != nil {
		return Job{}, err
	}
	until := min(s.now().Add(d), j.Submitted.Add(MaxTTL))
	return s.change(ctx, owner, queue.Op{Ref: ref, Kind: queue.OpSetTTL, Until: until})
}

// Cancel ends a queued or running job and returns it. A job that had ended before keeps its
// status. A worker that runs the job is notified. Errors are those of Get.
func (s *Service) Cancel(ctx context.Context, owner string, ref Ref) (Job, error) {
	return s.change(ctx, owner, queue.Op{Ref: ref, Kind: queue.OpCancel})
}

// Retry queues a FAILED or TIMED_OUT job again, with the same id and input. Output, error,
// chunks, timings and delivery count start again; the ttl does not. It returns ErrStatus for
// a job in another status and ErrInputLost for a job whose input was damaged; other errors
// are those of Get.
func (s *Service) Retry(ctx context.Context, owner string, ref Ref) (Job, error) {
	j, err := s.change(ctx, owner, queue.Op{Ref: ref, Kind: queue.OpRetry})
	if errors.Is(err, ErrStatus) {
		err = refused("only a FAILED or TIMED_OUT job can be retried")
	}
	return j, err
}

// refused returns ErrStatus with another text for the user.
func refused(why string) error {
	return &problem.Error{Kind: ErrStatus.Kind, Detail: why, Err: ErrStatus}
}

// change applies an op of a user to a job of that user.
func (s *Service) change(ctx context.Context, owner string, op queue.Op) (Job, error) {
	j, damaged := s.find(ctx, owner, op.Ref)
	if damaged != nil && !errors.Is(damaged, ErrDamaged) {
		return Job{}, damaged
	}
	r, err := s.apply(ctx, op)
	if err != nil {
		return Job{}, err
	}
	read := j.State
	_, _ = read.Apply(s.now(), &op)
	switch {
	case r.Effect&queue.DropOutput != 0:
		j.Output, j.Error = nil, ""
	case read.Status != r.State.Status || read.Run != r.State.Run || read.Token != r.State.Token:
		// The job has moved since it was read, and has other payloads now.
		if j, err = s.payloads(ctx, owner, op.Ref, &r.State); err != nil {
			return Job{}, err
		}
	}
	if j.State = r.State; damaged != nil && j.ShowsOutput() {
		return Job{}, damaged // although the move was made
	}
	return j, nil
}

// payloads returns the job with the payloads of state st. If the job has moved on since, the
// result has no output.
func (s *Service) payloads(ctx context.Context, owner string, ref Ref, st *queue.State) (Job, error) {
	j, err := s.Get(ctx, owner, ref)
	if j.Status != st.Status || j.Run != st.Run || j.Token != st.Token {
		j.Output, j.Error = nil, ""
	}
	return j, err
}

// apply makes one move.
func (s *Service) apply(ctx context.Context, op queue.Op) (queue.Result, error) {
	ops, res := [1]queue.Op{op}, [1]queue.Result{}
	if err := s.queue.Apply(ctx, s.now(), ops[:], res[:]); err != nil {
		return queue.Result{}, fmt.Errorf("serverless: job %q: %w", op.ID, err)
	}
	s.armFor(&res[0])
	return res[0], res[0].Err
}

// addChunk is apply for an OpChunk, whose payload is an item. It splits an item that is too
// long. If the stream has no room for all pieces, it keeps the first ones.
func (s *Service) addChunk(ctx context.Context, op queue.Op) error {
	items := splitItem(op.Payload, maxItem)
	ops, res := make([]queue.Op, len(items)), make([]queue.Result, len(items))
	for i, b := range items {
		ops[i] = op
		ops[i].Payload = b
	}
	if err := s.queue.Apply(ctx, s.now(), ops, res); err != nil {
		return fmt.Errorf("serverless: job %q: %w", op.ID, err)
	}
	for i := range res {
		s.armFor(&res[i])
		if res[i].Err != nil {
			return res[i].Err
		}
	}
	return nil
}

// armFor makes Run call Step when the result of a move is due.
func (s *Service) armFor(r *queue.Result) {
	switch {
	case r.Effect&queue.PutOutbox != 0:
		s.arm(s.now())
	case r.Err == nil && r.Effect&queue.Delete == 0:
		s.arm(r.State.Due())
	}
}

// purgeStep is the most queued jobs that one call of the queue examines.
const purgeStep = 1000

// Purge cancels the queued jobs of owner, or of AllOwners, and returns their number. Running
// jobs and jobs that are submitted meanwhile stay. It returns ErrNoEndpoint for an unknown
// endpoint.
func (s *Service) Purge(ctx context.Context, owner, endpoint string) (removed int, err error) {
	if _, err := s.endpoints.Get(ctx, endpoint); err != nil {
		return 0, err
	}
	return s.purge(ctx, owner, endpoint)
}

// purge is Purge for an endpoint that may be deleted already.
func (s *Service) purge(ctx context.Context, owner, endpoint string) (removed int, err error) {
	st, err := s.stats(ctx, endpoint)
	if err != nil {
		return 0, fmt.Errorf("serverless: purge %q: %w", endpoint, err)
	}
	p := queue.PurgeQuery{Endpoint: endpoint, Owner: ownerFilter(owner), UpTo: st.LastSeq, Limit: purgeStep}
	for {
		n, next, err := s.queue.Purge(ctx, s.now(), p)
		removed += n
		if err != nil {
			return removed, fmt.Errorf("serverless: purge %q: %w", endpoint, err)
		}
		if next == 0 {
			s.arm(s.now()) // their webhooks
			return removed, nil
		}
		p.After = next
	}
}

// ownerFilter returns the owner of a query: empty for AllOwners.
func ownerFilter(owner string) string {
	if owner == AllOwners {
		return ""
	}
	return owner
}

// A Health has the counts of jobs and workers of an endpoint.
type Health struct {
	Jobs    Stats
	Workers WorkerCounts
}

// WorkerCounts are the numbers of an endpoint's workers by status. Ready counts workers of
// any status.
type WorkerCounts struct {
	Idle         int // without a job
	Initializing int // started, but not seen yet
	Ready        int // waiting for a job at this moment
	Running      int // with a job
	Throttled    int // no capacity to start them
	Unhealthy    int
}

// Health returns the counts of jobs and workers of an endpoint, or ErrNoEndpoint. Requests in
// flight of a load-balancing endpoint count as running jobs.
func (s *Service) Health(ctx context.Context, endpoint string) (Health, error) {
	if _, err := s.endpoints.Get(ctx, endpoint); err != nil {
		return Health{}, err
	}
	st, err := s.stats(ctx, endpoint)
	if err != nil {
		return Health{}, fmt.Errorf("serverless: health of %q: %w", endpoint, err)
	}
	st.Running += int64(s.balancer.Demand(endpoint).Running)
	return Health{Jobs: st, Workers: countWorkers(s.workerList(endpoint))}, nil
}

// RunningWorkers returns the number of workers of the endpoint that have a job or a request. With
// Options.Presence those of all servers count, as they were a second ago.
func (s *Service) RunningWorkers(endpoint string) int {
	if s.crowd != nil {
		return s.crowd.running(endpoint, s.now()) + s.balancer.Busy(endpoint)
	}
	return s.registry.Running(endpoint) + s.balancer.Busy(endpoint)
}

// A Page is a part of a listing.
type Page struct {
	Jobs  []Job
	Total int // number of jobs that match, on all pages
}

// A RequestsQuery selects jobs of an endpoint for Requests.
type RequestsQuery struct {
	Status        []Status // empty: any status
	Prefix        string   // of the id; empty: any
	Offset, Limit int
	Full          bool // with input and output
}

// Requests lists the jobs of owner, or of AllOwners, newest first. Without q.Full, a job has
// no payloads, except the error of a FAILED job. It returns ErrNoEndpoint for an unknown
// endpoint.
func (s *Service) Requests(ctx context.Context, owner, endpoint string, q RequestsQuery) (p Page, err error) {
	total, jobs, err := s.EachRequest(ctx, owner, endpoint, q)
	if err != nil {
		return Page{}, err
	}
	p.Total = total
	for j, err := range jobs {
		if err != nil {
			return Page{}, err
		}
		p.Jobs = append(p.Jobs, j)
	}
	return p, nil
}

// EachRequest is Requests, but reads the payloads of a job only when jobs yields it. An error
// that jobs yields is the last one.
func (s *Service) EachRequest(ctx context.Context, owner, endpoint string, q RequestsQuery) (total int, jobs iter.Seq2[Job, error], err error) {
	if _, err := s.endpoints.Get(ctx, endpoint); err != nil {
		return 0, nil, err
	}
	now := s.now()
	page, err := s.page(ctx, now, queue.ListQuery{Endpoint: endpoint, Owner: ownerFilter(owner), Status: q.Status, Prefix: JobID(q.Prefix)}, &q)
	if err != nil {
		return 0, nil, fmt.Errorf("serverless: list %q: %w", endpoint, err)
	}
	return page.Total, func(yield func(Job, error) bool) {
		for _, j := range page.Jobs {
			j, err := s.request(ctx, now, j, q.Full)
			if errors.Is(err, ErrNotFound) {
				continue // deleted since it was listed
			}
			if !yield(j, err) || err != nil {
				return
			}
		}
	}, nil
}

// request returns a listed job as a list of requests has it.
func (s *Service) request(ctx context.Context, now Instant, listed Job, full bool) (Job, error) {
	if !full && listed.Status != Failed { // the State has all that is shown
		return listed, nil
	}
	j, err := s.queue.Get(ctx, now, listed.Ref)
	switch {
	case errors.Is(err, ErrDamaged):
		j = listed
	case err != nil:
		return Job{}, fmt.Errorf("serverless: list %q: %w", listed.Endpoint, err)
	}
	if !full {
		j = Job{Ref: j.Ref, Owner: j.Owner, State: j.State, Error: j.Error}
	}
	return j, nil
}

// page returns the jobs of a page as they are listed, and the number of all that match. A queue
// that counts is not asked for more jobs than the page needs.
func (s *Service) page(ctx context.Context, now Instant, l queue.ListQuery, q *RequestsQuery) (p Page, err error) {
	counter, counts := unwrap.As[queue.Counter](s.queue)
	if counts {
		if p.Total, err = counter.Count(ctx, now, l); err != nil || q.Limit <= 0 {
			return p, err
		}
		l.Limit = q.Offset + q.Limit
	}
	n := 0
	for j, err := range s.queue.List(ctx, now, l) {
		if err != nil {
			return Page{}, err
		}
		if n >= q.Offset && len(p.Jobs) < q.Limit {
			p.Jobs = append(p.Jobs, j)
		}
		n++
	}
	if !counts {
		p.Total = n
	}
	return p, nil
}
