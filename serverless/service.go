package serverless

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/internal/id"
	"github.com/podyard/podyard/problem"
)

// A Clock tells the time.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f, which must not block, once Now has reached t. stop reports
	// whether it prevented the call.
	AfterFunc(t time.Time, f func()) (stop func() bool)
}

// Options are what a Service can be told. The zero value, and nil, work.
type Options struct {
	// Clock is the time that every rule follows. Default: the system's.
	Clock Clock
	// Rand makes job ids. Default: crypto/rand.
	Rand io.Reader
	// Sender posts webhooks. Default: none, and deliveries stay in the outbox.
	Sender Sender
	// Lease is how long a worker has a job without renewing. Default 30 s, three pings of
	// the worker protocol.
	Lease time.Duration
	// LocalLease is Lease for the workers of Serve, whose leases Step renews. Default: Lease.
	// Where the queue ends with the process it may be longer than any job lives, and
	// nothing has to be renewed.
	LocalLease time.Duration
	// Catalog knows the ids that endpoints name. Default: none, and ids are not checked.
	Catalog Catalog
	// Registries finds the credentials that endpoints name. Default: none, and no credential
	// exists.
	Registries Registries
	// Volumes finds the network volumes that endpoints name. Default: none, and no volume
	// exists.
	Volumes Volumes
	// Templates finds what requests for endpoints start from. Default: none, and no
	// template exists.
	Templates Templates
	// Deliveries is how many webhooks are posted at once. Default 256, with a sixteenth of
	// it for each receiver: a slow one does not hold up the others.
	Deliveries int
	// Fleet starts and stops the workers of endpoints with an image. Default: none, and
	// such endpoints are served by whoever comes for their jobs.
	Fleet Fleet
	// WorkerURL is the base of the jobs API as the workers of Fleet reach it, with the
	// path that endpoint ids follow (http://127.0.0.1:8080/v2). It is called for each
	// worker; as long as it answers "", none is started. Default: always "".
	WorkerURL func() string
	// Lockstep is for a program that moves time itself, with a queue, endpoints and a Fleet
	// in this process, which lose no event and whose calls do not wait: the fleet is called
	// within Step, one call after another, and nothing is looked at only because time has
	// passed. What the scaler does then follows from the calls and the clock alone.
	Lockstep bool
	// WorkerSecret is what the workers' keys are derived from. Default: random, and the
	// workers of an earlier process are replaced because their keys are not known.
	WorkerSecret []byte
	// Meter is told which workers of Fleet there are. Default: nobody is.
	Meter Meter
	// Logger gets what nobody asked about: panics of workers, stores that fail. Default:
	// none.
	Logger *slog.Logger
}

// A Service runs jobs: it holds the rules of sections 2.8, 3.2, 4.2 and 8, on a queue and
// endpoints that a backend keeps. It is safe for concurrent use.
//
// Somebody must let it work: Run does, until its context ends; or Listen beside calls of
// Step, for a program that moves time itself.
//
// An owner is the user of the key that asks. Another user's job is not found.
type Service struct {
	queue     JobQueue
	endpoints EndpointStore
	clock     Clock
	rand      io.Reader
	sender    Sender
	lease     time.Duration
	local     time.Duration // the lease of a worker of Serve
	secret    []byte
	catalog   Catalog    // may be nil
	secrets   Registries // may be nil
	volumes   Volumes    // may be nil
	templates Templates  // may be nil
	log       *slog.Logger

	hub     hub
	crew    crew
	force   workforce
	post    postman
	turns   turns
	armed   atomic.Int64 // when Run will look again
	renewed Instant      // of the jobs of in-process workers; Step's
	kick    chan struct{}
	runs    sync.WaitGroup // what Run waits for: Listen and the deliveries
}

// Everyone is the owner that, in a purge or a listing, selects the jobs of all users.
const Everyone = "*"

// New returns a service over q and endpoints. opts may be nil.
func New(q JobQueue, endpoints EndpointStore, opts *Options) *Service {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	s := &Service{
		queue: q, endpoints: endpoints,
		clock: o.Clock, rand: o.Rand, sender: o.Sender, lease: o.Lease, local: o.LocalLease, log: o.Logger,
		secret: workerSecret(o.WorkerSecret), catalog: o.Catalog, secrets: o.Registries, volumes: o.Volumes, templates: o.Templates,
		kick: make(chan struct{}, 1),
	}
	if s.clock == nil {
		s.clock = clock.System{}
	}
	if s.rand == nil {
		s.rand = rand.Reader
	}
	s.rand = id.Shared(s.rand)
	if s.lease == 0 {
		s.lease = 30 * time.Second
	}
	if s.local == 0 {
		s.local = s.lease
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.post.init(o.Deliveries)
	s.hub.init(s.stop)
	s.force.init(&o)
	s.armed.Store(math.MaxInt64)
	return s
}

// Endpoints is the store that the service was given.
func (s *Service) Endpoints() EndpointStore { return s.endpoints }

// Endpoint returns the endpoint, or ErrNoEndpoint.
func (s *Service) Endpoint(ctx context.Context, id string) (*Endpoint, error) {
	return s.endpoints.Get(ctx, id)
}

func (s *Service) now() Instant { return At(s.clock.Now()) }

// Submit queues a job and returns it. All faults of the request are reported together
// (422); an unknown endpoint, and another user's, is ErrNoEndpoint. When Submit returns
// nil the job is as durable as the queue makes it.
func (s *Service) Submit(ctx context.Context, owner, endpoint string, r Request) (Job, error) {
	ep, err := s.seen(ctx, owner, endpoint)
	if err != nil {
		return Job{}, err
	}
	if err := r.check(); err != nil {
		return Job{}, err
	}
	id, err := s.newID(r.Sync)
	if err != nil {
		return Job{}, fmt.Errorf("serverless: make a job id: %w", err)
	}
	jobs := [1]Job{r.job(ep, owner, id, s.now())}
	if err := s.queue.Enqueue(ctx, jobs[:]); err != nil {
		return Job{}, fmt.Errorf("serverless: submit to %q: %w", endpoint, err)
	}
	s.arm(jobs[0].Due())
	return jobs[0], nil
}

// SubmitAndWait is Submit with Sync set, and then Wait for r.Wait.
func (s *Service) SubmitAndWait(ctx context.Context, owner, endpoint string, r Request) (Job, error) {
	r.Sync = true
	if r.Wait == 0 {
		r.Wait = DefaultWait
	}
	j, err := s.Submit(ctx, owner, endpoint, r)
	if err != nil {
		return Job{}, err
	}
	return s.Wait(ctx, owner, j.Ref, r.Wait)
}

// newID is a UUID version 4 with the suffix of the region, and the prefix of runsync.
func (s *Service) newID(sync bool) (JobID, error) {
	var u [16]byte
	if _, err := io.ReadFull(s.rand, u[:]); err != nil {
		return "", err
	}
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
	return JobID(append(b, "-u1"...)), nil
}

// Get returns the job with its payloads. ErrNotFound past its ttl or retention, for an
// unknown id, and for another user's job; ErrNoEndpoint for an unknown endpoint; ErrDamaged
// when its output can no longer be read.
func (s *Service) Get(ctx context.Context, owner string, ref Ref) (Job, error) {
	j, err := s.find(ctx, owner, ref)
	if err != nil {
		return Job{}, err
	}
	return j, nil
}

// find is Get that has the job, without its output, with ErrDamaged, too.
func (s *Service) find(ctx context.Context, owner string, ref Ref) (Job, error) {
	j, err := s.queue.Get(ctx, s.now(), ref)
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

// Wait returns the job when it has ended, or as it is when d has passed by the service's
// clock or ctx ends. Errors are those of Get, also when the job goes meanwhile.
func (s *Service) Wait(ctx context.Context, owner string, ref Ref, d time.Duration) (Job, error) {
	w := s.hub.watch(ref, EventDone)
	defer s.hub.unwatch(w)
	over := make(chan struct{})
	defer s.clock.AfterFunc(s.clock.Now().Add(d), func() { close(over) })()
	for last := false; ; {
		j, err := s.Get(context.WithoutCancel(ctx), owner, ref)
		if err != nil || last || j.Status.Terminal() {
			return j, err
		}
		select {
		case <-w.ch:
		case <-over:
			last = true
		case <-ctx.Done():
			last = true // j may have changed since it was read
		}
	}
}

// SetTTL moves the job's expiry to d from now, and at most MaxTTL after its submission
// (decisions: `?ttl=` of status). d is within the bounds of CheckTTL.
func (s *Service) SetTTL(ctx context.Context, owner string, ref Ref, d time.Duration) (Job, error) {
	if err := CheckTTL(d); err != nil {
		return Job{}, err
	}
	j, err := s.Get(ctx, owner, ref)
	if err != nil {
		return Job{}, err
	}
	until := min(s.now().Add(d), j.Submitted.Add(MaxTTL))
	return s.change(ctx, owner, Op{Ref: ref, Kind: OpSetTTL, Until: until})
}

// Cancel ends the job, queued or running, and returns it: CANCELLED, or with the status
// it had when it had ended before. A worker that runs it is told to stop.
func (s *Service) Cancel(ctx context.Context, owner string, ref Ref) (Job, error) {
	return s.change(ctx, owner, Op{Ref: ref, Kind: OpCancel})
}

// Retry queues a FAILED or TIMED_OUT job again, with the same id and input: output,
// error, chunks, timings and deliveries start anew and the ttl does not. ErrStatus for a
// job in any other status, ErrInputLost for one whose input was damaged.
func (s *Service) Retry(ctx context.Context, owner string, ref Ref) (Job, error) {
	j, err := s.change(ctx, owner, Op{Ref: ref, Kind: OpRetry})
	if errors.Is(err, ErrStatus) {
		err = refused("only a FAILED or TIMED_OUT job can be retried")
	}
	return j, err
}

// refused is ErrStatus with what its user should know instead of its text.
func refused(why string) error {
	return &problem.Error{Kind: ErrStatus.Kind, Detail: why, Err: ErrStatus}
}

// change applies a user's op to a job of theirs.
func (s *Service) change(ctx context.Context, owner string, op Op) (Job, error) {
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
	case r.Effect&DropOutput != 0:
		j.Output, j.Error = nil, ""
	case read.Status != r.State.Status || read.Run != r.State.Run || read.Token != r.State.Token:
		// It moved after it was read, and has other payloads now.
		if j, err = s.payloads(ctx, owner, op.Ref, &r.State); err != nil {
			return Job{}, err
		}
	}
	if j.State = r.State; damaged != nil && j.showsOutput() {
		return Job{}, damaged // the move was made all the same
	}
	return j, nil
}

// payloads is the job in a state that it has just had, without output if it has moved on.
func (s *Service) payloads(ctx context.Context, owner string, ref Ref, st *State) (Job, error) {
	j, err := s.Get(ctx, owner, ref)
	if j.Status != st.Status || j.Run != st.Run || j.Token != st.Token {
		j.Output, j.Error = nil, ""
	}
	return j, err
}

// apply makes one move.
func (s *Service) apply(ctx context.Context, op Op) (Result, error) {
	ops, res := [1]Op{op}, [1]Result{}
	if err := s.queue.Apply(ctx, s.now(), ops[:], res[:]); err != nil {
		return Result{}, fmt.Errorf("serverless: job %q: %w", op.ID, err)
	}
	s.armFor(&res[0])
	return res[0], res[0].Err
}

// addChunk is apply for an OpChunk, whose payload is an item: one that is too long goes
// in several pieces. When the stream has no room for all of them, it has the first ones.
func (s *Service) addChunk(ctx context.Context, op Op) error {
	items := splitItem(op.Payload, maxItem)
	ops, res := make([]Op, len(items)), make([]Result, len(items))
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

// armFor has Run see to what a move has made due.
func (s *Service) armFor(r *Result) {
	switch {
	case r.Effect&PutOutbox != 0:
		s.arm(s.now())
	case r.Err == nil && r.Effect&Delete == 0:
		s.arm(r.State.Due())
	}
}

// purgeStep is how many queued jobs one call of the queue looks at.
const purgeStep = 1000

// Purge cancels the queued jobs of owner, or of Everyone, and says how many there were.
// Running jobs go on, and jobs submitted meanwhile stay.
func (s *Service) Purge(ctx context.Context, owner, endpoint string) (removed int, err error) {
	if _, err := s.endpoints.Get(ctx, endpoint); err != nil {
		return 0, err
	}
	return s.purge(ctx, owner, endpoint)
}

// purge is Purge of an endpoint that may be gone.
func (s *Service) purge(ctx context.Context, owner, endpoint string) (removed int, err error) {
	st, err := s.queue.Stats(ctx, s.now(), endpoint)
	if err != nil {
		return 0, fmt.Errorf("serverless: purge %q: %w", endpoint, err)
	}
	p := PurgeQuery{Endpoint: endpoint, Owner: everyone(owner), UpTo: st.LastSeq, Limit: purgeStep}
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

// everyone turns an owner into the form of a query.
func everyone(owner string) string {
	if owner == Everyone {
		return ""
	}
	return owner
}

// A Health is what the endpoint has had to do (section 2.8).
type Health struct {
	Jobs    Stats
	Workers WorkerCounts
}

// WorkerCounts counts an endpoint's workers.
type WorkerCounts struct {
	Idle         int // alive, without a job
	Initializing int
	Ready        int // could take a job now
	Running      int // with a job
	Throttled    int
	Unhealthy    int
}

// Health counts jobs and workers of an endpoint.
func (s *Service) Health(ctx context.Context, endpoint string) (Health, error) {
	if _, err := s.endpoints.Get(ctx, endpoint); err != nil {
		return Health{}, err
	}
	st, err := s.queue.Stats(ctx, s.now(), endpoint)
	if err != nil {
		return Health{}, fmt.Errorf("serverless: health of %q: %w", endpoint, err)
	}
	return Health{Jobs: st, Workers: countWorkers(s.workerList(endpoint))}, nil
}

// RunningWorkers is how many workers of the endpoint have a job.
func (s *Service) RunningWorkers(endpoint string) int { return s.crew.running(endpoint) }

// A Page is a piece of a listing.
type Page struct {
	Jobs  []Job
	Total int // of all that were selected
}

// A RequestsQuery selects jobs of an endpoint, newest first.
type RequestsQuery struct {
	Status        []Status // none: all
	Offset, Limit int
	Full          bool // with input and output
}

// Requests lists the jobs of owner, or of Everyone.
func (s *Service) Requests(ctx context.Context, owner, endpoint string, q RequestsQuery) (Page, error) {
	if _, err := s.endpoints.Get(ctx, endpoint); err != nil {
		return Page{}, err
	}
	now := s.now()
	var p Page
	for j, err := range s.queue.List(ctx, now, ListQuery{Endpoint: endpoint, Owner: everyone(owner), Status: q.Status}) {
		if err != nil {
			return Page{}, fmt.Errorf("serverless: list %q: %w", endpoint, err)
		}
		if p.Total >= q.Offset && len(p.Jobs) < q.Limit {
			p.Jobs = append(p.Jobs, j)
		}
		p.Total++
	}
	full := p.Jobs[:0]
	for _, j := range p.Jobs {
		if !q.Full && j.Status != Failed { // the others' states say all that is shown of them
			full = append(full, j)
			continue
		}
		whole, err := s.queue.Get(ctx, now, j.Ref)
		if errors.Is(err, ErrNotFound) {
			continue // it went while we listed
		}
		if errors.Is(err, ErrDamaged) {
			whole, err = j, nil // as it was listed
		}
		if err != nil {
			return Page{}, fmt.Errorf("serverless: list %q: %w", endpoint, err)
		}
		if !q.Full {
			whole = Job{Ref: whole.Ref, Owner: whole.Owner, State: whole.State, Error: whole.Error}
		}
		full = append(full, whole)
	}
	p.Jobs = full
	return p, nil
}
