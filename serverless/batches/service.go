package batches

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/internal/id"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/queue"
)

// A Clock has the time: Now, and AfterFunc(t, f), which calls f once Now has reached t and returns a
// stop that reports whether it prevented the call. f must not block. It is one type in all packages.
type Clock = clock.Clock

// Options configures a Service. Nil means all defaults.
type Options struct {
	Clock Clock     // default the system's
	Rand  io.Reader // source of ids, read by one caller at a time. Default crypto/rand
	// Send makes one attempt to deliver the webhook of a batch. id is the same for all attempts.
	// Default: webhooks are not sent.
	Send func(ctx context.Context, id, url string, s Summary) error
	// Wake is called when something is due that was not when Step returned. It must not block.
	// Default: nothing, for a program that calls Run.
	Wake func()
	// Refresh is how often the store is read again, for the batches that other servers have made
	// or changed. Default: never, for a store of one server.
	Refresh time.Duration
	// Place takes a place for an attempt, and returns what gives it back with the outcome. Without a
	// place it returns for how long the attempt is postponed, or the error of one that is not made.
	// Default: there is always a place.
	Place func(b *Batch) (done func(ctx context.Context, err error), postpone time.Duration, err error)
	// Lead reports whether this server does what is due for batches. The others only do what
	// their callers ask for. Default: it does.
	Lead func(ctx context.Context) (bool, error)
	// Logger gets failures that no caller sees. Default: nothing is logged.
	Logger *slog.Logger
}

// A Service checks batches, keeps them in a Store and moves their jobs. It is safe for
// concurrent use. Run must run until the program ends; a program that moves time itself calls
// Step instead.
type Service struct {
	store Store
	queue Queue
	o     Options

	keys     idempotency.Guard
	creating sync.Mutex // so that limits are checked by one create at a time
	locks    [64]sync.Mutex
	plan     plan
	wake     chan struct{}
	sending  sync.WaitGroup
}

// New returns a service over a store and a queue. It starts nothing.
func New(store Store, q Queue, o *Options) *Service {
	s := &Service{store: store, queue: q, wake: make(chan struct{}, 1)}
	if o != nil {
		s.o = *o
	}
	if s.o.Clock == nil {
		s.o.Clock = clock.System{}
	}
	if s.o.Rand == nil {
		s.o.Rand = rand.Reader
	}
	s.o.Rand = id.LockedReader(s.o.Rand)
	if s.o.Place == nil {
		s.o.Place = func(*Batch) (func(context.Context, error), time.Duration, error) {
			return func(context.Context, error) {}, 0, nil
		}
	}
	if s.o.Wake == nil {
		s.o.Wake = func() {}
	}
	if s.o.Logger == nil {
		s.o.Logger = slog.New(slog.DiscardHandler)
	}
	s.plan.items = map[string]*item{}
	return s
}

func (s *Service) now() time.Time { return s.o.Clock.Now().UTC().Truncate(time.Millisecond) }

// lock locks a batch in this process. Other servers are kept out by Store.Update.
func (s *Service) lock(id string) (unlock func()) {
	n := 0
	for _, c := range []byte(id) {
		n += int(c)
	}
	m := &s.locks[n%len(s.locks)]
	m.Lock()
	return m.Unlock
}

// A Creation asks for a batch. The caller has checked that Owner may use the endpoint.
type Creation struct {
	Owner, Endpoint string
	Name, Webhook   string
	// Jobs are the requests, at most MaxRequests. Each has everything but an id, and the ttl as
	// the time from Submitted to Expires.
	Jobs     []queue.Job
	Finalize bool
	// Idempotency is the key of the request (docs/decisions.md 38). Nil: it has none.
	Idempotency *idempotency.Request
	// Check returns the faults of the request.
	Check func() error
}

// Create makes a batch with all of its requests, or nothing. A user with MaxActive batches on
// the endpoint gets a problem of kind TooManyRequests. A request that was made before with its
// key gets *idempotency.Repeated.
func (s *Service) Create(ctx context.Context, r Creation) (Summary, error) {
	b, err := idempotency.Do(ctx, r.Idempotency, idempotency.Creation[Batch]{
		Guard: &s.keys, Store: s.store, Now: s.now(), Check: r.Check,
		Create: func(k *idempotency.Record) (Batch, error) { return s.create(ctx, &r, k) },
	})
	if err != nil {
		return Summary{}, err
	}
	defer s.lock(b.ID)()
	return s.follow(ctx, b)
}

func (s *Service) create(ctx context.Context, r *Creation, k *idempotency.Record) (b Batch, err error) {
	if err := r.Check(); err != nil {
		return Batch{}, err
	}
	b = Batch{Owner: r.Owner, Endpoint: r.Endpoint, Created: s.now(), Name: r.Name, Webhook: r.Webhook, Status: Draft}
	for range r.Jobs {
		b.Outcomes = append(b.Outcomes, byte(Pending))
	}
	if r.Finalize {
		b.Status, b.Finalized = Finalized, b.Created
	}
	s.creating.Lock()
	defer s.creating.Unlock()
	if err := s.makeRoom(ctx, r.Owner, r.Endpoint); err != nil {
		return Batch{}, err
	}
	err = id.NewUnique(s.o.Rand, ErrExists, func(made string) error {
		b.ID = prefix + made
		return s.add(ctx, b, r.Jobs, k)
	})
	if err != nil {
		return Batch{}, fmt.Errorf("batches: create: %w", err)
	}
	return b, nil
}

// add queues the jobs and then stores the batch, which is what makes it: jobs without a batch
// are never started, and expire.
func (s *Service) add(ctx context.Context, b Batch, jobs []queue.Job, k *idempotency.Record) error {
	if err := s.enqueue(ctx, &b, 0, jobs); err != nil {
		return err
	}
	err := idempotency.Add(ctx, s.store, b, b.ID, k)
	if err != nil {
		s.discard(context.WithoutCancel(ctx), &b, b.with(Pending))
	}
	return err
}

// makeRoom returns an error when a user has too many batches that have not ended.
func (s *Service) makeRoom(ctx context.Context, owner, endpoint string) error {
	list, err := s.listed(ctx, owner, endpoint)
	if err != nil {
		return err
	}
	active := 0
	var oldest *Batch
	for i := range list {
		switch b := &list[i]; {
		case b.active():
			active++
		case oldest == nil:
			oldest = b
		}
	}
	if active >= MaxActive {
		return problem.Newf(problem.TooManyRequests, "%d of %d batches of the user on this endpoint have not ended: wait for one, or cancel it", active, MaxActive)
	}
	if oldest != nil && len(list) >= MaxKept {
		return ignore(s.remove(ctx, oldest), ErrNotFound)
	}
	return nil
}

// enqueue queues requests of a batch, the first of which has a number. They are not started.
func (s *Service) enqueue(ctx context.Context, b *Batch, first int, jobs []queue.Job) error {
	if len(jobs) == 0 {
		return nil
	}
	jobs = slices.Clone(jobs)
	for i := range jobs {
		b.prepare(&jobs[i], first+i)
	}
	return s.queue.Enqueue(ctx, jobs)
}

// draftSlack is how much longer the jobs of a draft are kept than the draft, so that all of them
// can be started when it is finalized in its last moment.
const draftSlack = 10 * time.Minute

// prepare makes a job that of a request, which is delayed until the batch is finalized. Retain
// is the ttl, so that results are kept until the batch has ended.
func (b *Batch) prepare(j *queue.Job, n int) {
	j.ID = b.JobID(n)
	j.Retain = j.Expires.Sub(j.Submitted)
	j.Flags &^= queue.KeepsResult
	j.Expires = queue.At(b.Created.Add(DraftLife + draftSlack))
	j.Delayed, j.Queued = true, j.Expires.Add(time.Hour)
	j.Extra = withBatch(j.Extra, b.ID)
}

// withBatch adds the member batchId to an object that only the worker sees.
func withBatch(extra []byte, id string) []byte {
	b := []byte(`{"batchId":"` + id + `"}`)
	if len(extra) <= len("{}") {
		return b
	}
	return append(append(b[:len(b)-1], ','), extra[1:]...)
}

// discard deletes jobs that were never started, without their webhooks. What cannot be deleted
// expires with the draft.
func (s *Service) discard(ctx context.Context, b *Batch, numbers []int) {
	now := queue.At(s.now())
	err := s.each(ctx, b, numbers, func(n int) []queue.Op {
		return []queue.Op{{Ref: b.ref(n), Kind: queue.OpSetTTL, Until: now}, {Ref: b.ref(n), Kind: queue.OpTick}}
	}, func(int, *queue.Result) {})
	if err != nil {
		s.o.Logger.WarnContext(ctx, "jobs of a draft stay until they expire", "batch", b.ID, "err", err)
	}
}

// moveStep is how many requests one call of the queue moves.
const moveStep = 500

// each makes moves of the jobs of requests, in bounded steps. of returns as many moves for each
// request; done gets the result of the last one.
func (s *Service) each(ctx context.Context, b *Batch, numbers []int, of func(n int) []queue.Op, done func(n int, r *queue.Result)) error {
	for len(numbers) > 0 {
		part := numbers[:min(moveStep, len(numbers))]
		numbers = numbers[len(part):]
		var ops []queue.Op
		for _, n := range part {
			ops = append(ops, of(n)...)
		}
		res := make([]queue.Result, len(ops))
		if err := s.queue.Apply(ctx, queue.At(s.now()), ops, res); err != nil {
			return fmt.Errorf("batches: move jobs of %q: %w", b.ID, err)
		}
		for i, n := range part {
			done(n, &res[(i+1)*len(res)/len(part)-1])
		}
	}
	return nil
}

// get returns a batch of owner on an endpoint.
func (s *Service) get(ctx context.Context, owner, endpoint, id string) (Batch, error) {
	b, err := s.store.Get(ctx, id)
	if err == nil && (b.Owner != owner || b.Endpoint != endpoint || b.gone(s.now())) {
		err = ErrNotFound
	}
	if err != nil {
		return Batch{}, fmt.Errorf("batches: get %q: %w", id, err)
	}
	return b, nil
}

// Owner returns who owns a batch on an endpoint, for operators.
func (s *Service) Owner(ctx context.Context, endpoint, id string) (string, error) {
	b, err := s.store.Get(ctx, id)
	if err == nil && b.Endpoint != endpoint {
		err = ErrNotFound
	}
	return b.Owner, err
}

// change changes a batch of owner, as fn says, and then does what is due for it.
func (s *Service) change(ctx context.Context, owner, endpoint, id string, fn func(b *Batch, now time.Time) error) (Summary, error) {
	defer s.lock(id)()
	if _, err := s.get(ctx, owner, endpoint, id); err != nil {
		return Summary{}, err
	}
	b, err := s.update(ctx, id, fn)
	if err != nil {
		return Summary{}, err
	}
	return s.follow(ctx, b)
}

// update is Store.Update with the present.
func (s *Service) update(ctx context.Context, id string, fn func(b *Batch, now time.Time) error) (Batch, error) {
	now := s.now()
	b, err := s.store.Update(ctx, id, func(b *Batch) error {
		if b.gone(now) {
			return ErrNotFound
		}
		return fn(b, now)
	})
	if err != nil {
		return Batch{}, fmt.Errorf("batches: update %q: %w", id, err)
	}
	return b, nil
}

// follow starts or cancels the requests of a batch that was changed, plans it, and returns its
// summary. What fails is done by Step. The caller has locked the batch.
func (s *Service) follow(ctx context.Context, b Batch) (Summary, error) {
	moved, err := s.move(context.WithoutCancel(ctx), b)
	if err != nil {
		s.o.Logger.WarnContext(ctx, "requests of a batch have to wait", "batch", b.ID, "err", err)
		s.replan(&b, s.now().Add(retryDelay))
		return s.summary(ctx, &b)
	}
	s.replan(&moved, moved.due())
	return s.summary(ctx, &moved)
}

// Settings are what users change of a batch. A nil field is absent.
type Settings struct {
	Name, Webhook *string
}

// Update changes a batch. Errors are ErrNotFound, and a problem of kind Conflict for the webhook
// of a batch that has ended.
func (s *Service) Update(ctx context.Context, owner, endpoint, id string, r Settings) (Summary, error) {
	return s.change(ctx, owner, endpoint, id, func(b *Batch, _ time.Time) error {
		if r.Webhook != nil && !b.active() {
			return problem.New(problem.Conflict, "the batch has ended: its webhook cannot be changed")
		}
		if r.Name != nil {
			b.Name = *r.Name
		}
		if r.Webhook != nil {
			b.Webhook = *r.Webhook
		}
		return nil
	})
}

// Add adds requests to a draft, all of them or none. Errors are ErrNotFound, ErrNotDraft, and a
// problem of kind TooManyRequests when the batch would have more than MaxRequests.
func (s *Service) Add(ctx context.Context, owner, endpoint, id string, jobs []queue.Job) (Summary, error) {
	defer s.lock(id)()
	b, err := s.get(ctx, owner, endpoint, id)
	if err != nil {
		return Summary{}, err
	}
	first := 0
	b, err = s.update(ctx, id, func(b *Batch, _ time.Time) (err error) {
		first, err = b.reserve(len(jobs))
		return err
	})
	if err != nil {
		return Summary{}, err
	}
	err = s.enqueue(ctx, &b, first, jobs)
	ctx = context.WithoutCancel(ctx)
	b, confirmed := s.update(ctx, id, func(b *Batch, _ time.Time) error { return b.confirm(first, len(jobs), err == nil) })
	if err = errors.Join(err, confirmed); err != nil {
		s.discard(ctx, &Batch{ID: id, Endpoint: endpoint}, numbers(first, len(jobs)))
		return Summary{}, err
	}
	return s.summary(ctx, &b)
}

func numbers(first, n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = first + i
	}
	return list
}

// reserve takes the numbers of n requests before their jobs are queued, so that nobody else
// takes them. It returns the first one.
func (b *Batch) reserve(n int) (first int, err error) {
	first = len(b.Outcomes)
	switch have := first - len(b.with(Deleted)); {
	case b.Status != Draft:
		return 0, ErrNotDraft
	case have+n > MaxRequests:
		return 0, problem.Newf(problem.TooManyRequests, "the batch has %d of %d requests: %d more do not fit, make another batch", have, MaxRequests, n)
	case first+n > maxNumbers:
		return 0, problem.New(problem.TooManyRequests, "too many requests of the batch were deleted: make another batch")
	}
	for range n {
		b.Outcomes = append(b.Outcomes, byte(Reserved))
	}
	return first, nil
}

// confirm says whether the jobs of reserved numbers are queued. A batch that was finalized
// meanwhile has dropped them.
func (b *Batch) confirm(first, n int, queued bool) error {
	for i := first; i < first+n; i++ {
		switch {
		case !queued:
			b.Outcomes[i] = byte(Deleted)
		case b.outcome(i) != Reserved:
			return ErrNotDraft
		default:
			b.Outcomes[i] = byte(Pending)
		}
	}
	return nil
}

// drop takes out the numbers whose jobs are not known to be queued.
func (b *Batch) drop() {
	for _, n := range b.with(Reserved) {
		b.Outcomes[n] = byte(Deleted)
	}
}

// DeleteRequest removes a request from a draft. Errors are ErrNotFound, ErrNoRequest and
// ErrNotDraft.
func (s *Service) DeleteRequest(ctx context.Context, owner, endpoint, id, request string) error {
	defer s.lock(id)()
	if _, err := s.get(ctx, owner, endpoint, id); err != nil {
		return err
	}
	b, err := s.update(ctx, id, func(b *Batch, _ time.Time) error {
		n, ok := b.number(request)
		switch {
		case !ok:
			return ErrNoRequest
		case b.Status != Draft:
			return ErrNotDraft
		}
		b.Outcomes[n] = byte(Deleted)
		return nil
	})
	if err != nil {
		return err
	}
	_, n, _ := parseJobID(queue.JobID(request))
	s.discard(context.WithoutCancel(ctx), &b, []int{n})
	return nil
}

// Finalize starts the requests of a draft. It changes nothing for a batch that was finalized
// before. Errors are ErrNotFound, ErrEmpty and ErrEnded.
func (s *Service) Finalize(ctx context.Context, owner, endpoint, id string) (Summary, error) {
	return s.change(ctx, owner, endpoint, id, func(b *Batch, now time.Time) error {
		switch b.Status {
		case Cancelled:
			return ErrEnded
		case Draft:
			b.drop()
			if len(b.Outcomes) == len(b.with(Deleted)) {
				return ErrEmpty
			}
			b.Status, b.Finalized = Finalized, now
		}
		return nil
	})
}

// Cancel ends the requests that no worker has. Those that run end as they do. It changes nothing
// for a batch that has ended.
func (s *Service) Cancel(ctx context.Context, owner, endpoint, id string) (Summary, error) {
	return s.change(ctx, owner, endpoint, id, func(b *Batch, now time.Time) error {
		if b.active() && b.Status != Cancelled {
			b.drop()
			b.Status, b.Moved = Cancelled, 0
			b.end(now)
		}
		return nil
	})
}

// Erase removes all batches of owner, and returns how many there were. Their jobs stay. It is
// safe to repeat.
func (s *Service) Erase(ctx context.Context, owner string) (n int, err error) {
	return s.removeAll(ctx, func(b *Batch) bool { return b.Owner == owner })
}

// EndpointGone removes the batches of all users on an endpoint that was deleted.
func (s *Service) EndpointGone(ctx context.Context, endpoint string) error {
	_, err := s.removeAll(ctx, func(b *Batch) bool { return b.Endpoint == endpoint })
	return err
}

func (s *Service) removeAll(ctx context.Context, which func(*Batch) bool) (n int, err error) {
	list, err := s.store.All(ctx)
	if err != nil {
		return 0, fmt.Errorf("batches: list: %w", err)
	}
	for i := range list {
		if !which(&list[i]) {
			continue
		}
		switch err := s.forget(ctx, list[i].ID); {
		case err == nil:
			n++
		case !errors.Is(err, ErrNotFound):
			return n, err
		}
	}
	return n, nil
}

// forget removes a batch from the store.
func (s *Service) forget(ctx context.Context, id string) error {
	defer s.lock(id)()
	if err := s.store.Delete(ctx, id); err != nil {
		return fmt.Errorf("batches: delete %q: %w", id, err)
	}
	s.plan.remove(id)
	return nil
}

func ignore(err, known error) error {
	if errors.Is(err, known) {
		return nil
	}
	return err
}
