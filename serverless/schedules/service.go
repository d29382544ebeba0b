package schedules

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/internal/id"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
)

// Jobs is what a Service needs of the service of jobs. It is safe for concurrent use.
type Jobs interface {
	// CheckRun adds the faults of the body of a run request to v, below path. Any other error
	// is the result.
	CheckRun(body []byte, v *problem.Violations, path string) error
	// Submit queues a job. It returns queue.ErrExists if f.ID is taken, and
	// endpoints.ErrNotFound if the endpoint is gone.
	Submit(ctx context.Context, f Firing) (queue.Job, error)
	// Ended reports whether a job has ended or is gone.
	Ended(ctx context.Context, ref queue.Ref) (bool, error)
	// MayRun reports whether a user may run jobs on an endpoint.
	MayRun(ctx context.Context, owner, endpoint string) (bool, error)
}

// A Firing is a job that a schedule submits.
type Firing struct {
	Schedule string
	At       time.Time
	Owner    string
	Endpoint string
	ID       queue.JobID // empty: a new one
	Run      []byte      // the body of a run request
}

// A Clock has the time: Now, and AfterFunc(t, f), which calls f once Now has reached t and returns a
// stop that reports whether it prevented the call. f must not block. It is one type in all packages.
type Clock = clock.Clock

// Options configures a Service. Nil means all defaults.
type Options struct {
	Clock Clock     // default the system's
	Rand  io.Reader // source of ids, read by one caller at a time. Default crypto/rand
	// Parallel is how many schedules fire at once. Default 16. With 1 they fire in the order of
	// their instants.
	Parallel int
	// Refresh is how often the store is read again, for the schedules that other servers have made
	// or changed. Default: never, for a store of one server.
	Refresh time.Duration
	// Budgets limits how many schedules a user has, where the Store does not count them itself.
	// Default: no limit.
	Budgets *budget.Set
	// Logger gets failures that no caller sees. Default: nothing is logged.
	Logger *slog.Logger
}

// A Service checks schedules, keeps them in a Store and submits their jobs. It is safe for
// concurrent use. Run must run until the program ends; a program that moves time itself calls
// Step instead.
type Service struct {
	store Store
	jobs  Jobs
	o     Options

	keys     idempotency.Guard
	declared sync.Map   // by id, of those that this process has declared
	creating sync.Mutex // so that a limit is checked by one create at a time
	plan     plan
	wake     chan struct{}
}

// New returns a service over store. It starts nothing.
func New(store Store, jobs Jobs, o *Options) *Service {
	s := &Service{store: store, jobs: jobs, wake: make(chan struct{}, 1)}
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
	if s.o.Parallel == 0 {
		s.o.Parallel = 16
	}
	if s.o.Logger == nil {
		s.o.Logger = slog.New(slog.DiscardHandler)
	}
	s.plan.init()
	return s
}

func (s *Service) now() time.Time { return s.o.Clock.Now().UTC().Truncate(time.Millisecond) }

// Create makes a schedule of owner on an endpoint. Absent settings get their defaults: UTC,
// OverlapSkip, CatchUpNone, enabled. The caller has checked that owner may use the endpoint.
// Invalid settings get one error with all faults, and change nothing. A user whose
// budget is full gets a *budget.Error. A request that was made before with its key gets
// *idempotency.Repeated.
func (s *Service) Create(ctx context.Context, owner, endpoint string, r Settings) (Schedule, error) {
	now := s.now()
	v := Schedule{
		Owner: owner, Endpoint: endpoint, Created: now, After: now,
		TimeZone: "UTC", Overlap: OverlapSkip, CatchUp: CatchUpNone, Enabled: true,
	}
	return idempotency.Do(ctx, r.Idempotency, idempotency.Creation[Schedule]{
		Guard: &s.keys, Store: s.store, Now: now,
		Check:  func() error { return r.check(s.jobs, &v, true) },
		Create: func(k *idempotency.Record) (Schedule, error) { return s.create(ctx, v, r, k) },
	})
}

// create adds a schedule that has everything but an id and its settings.
func (s *Service) create(ctx context.Context, v Schedule, r Settings, k *idempotency.Record) (Schedule, error) {
	if err := r.check(s.jobs, &v, true); err != nil {
		return Schedule{}, err
	}
	r.apply(&v)
	s.creating.Lock()
	defer s.creating.Unlock()
	if err := s.hasRoom(ctx, v.Owner); err != nil {
		return Schedule{}, err
	}
	err := id.NewUnique(s.o.Rand, ErrExists, func(made string) error {
		v.ID = made
		return idempotency.Add(ctx, s.store, v, made, k)
	})
	if err != nil {
		return Schedule{}, fmt.Errorf("schedules: create: %w", err)
	}
	s.replan(v.ID, v.Next())
	return v, nil
}

func (s *Service) hasRoom(ctx context.Context, owner string) error {
	limits := s.o.Budgets.Of(owner)
	if limits == nil {
		return nil
	}
	list, err := s.store.List(ctx, owner)
	if err != nil {
		return fmt.Errorf("schedules: list: %w", err)
	}
	return limits.Check(budget.Schedules, int64(len(list)), 1)
}

// Get returns a schedule of owner on an endpoint, or ErrNotFound.
func (s *Service) Get(ctx context.Context, owner, endpoint, id string) (Schedule, error) {
	v, err := s.store.Get(ctx, id)
	if err == nil && (v.Owner != owner || v.Endpoint != endpoint) {
		err = ErrNotFound
	}
	if err != nil {
		return Schedule{}, fmt.Errorf("schedules: get %q: %w", id, err)
	}
	return v, nil
}

// Owner returns who owns a schedule on an endpoint, for operators.
func (s *Service) Owner(ctx context.Context, endpoint, id string) (string, error) {
	v, err := s.store.Get(ctx, id)
	if err == nil && v.Endpoint != endpoint {
		err = ErrNotFound
	}
	return v.Owner, err
}

// List returns the schedules of owner on an endpoint, oldest first.
func (s *Service) List(ctx context.Context, owner, endpoint string) ([]Schedule, error) {
	list, err := s.store.List(ctx, owner)
	return onEndpoint(list, endpoint, err)
}

// All returns the schedules of all users on an endpoint, oldest first. Only operators may see
// them.
func (s *Service) All(ctx context.Context, endpoint string) ([]Schedule, error) {
	list, err := s.store.All(ctx)
	return onEndpoint(list, endpoint, err)
}

func onEndpoint(list []Schedule, endpoint string, err error) ([]Schedule, error) {
	if err != nil {
		return nil, fmt.Errorf("schedules: list: %w", err)
	}
	kept := list[:0]
	for _, v := range list {
		if v.Endpoint == endpoint {
			kept = append(kept, v)
		}
	}
	return kept, nil
}

// Update changes a schedule of owner. A new expression or zone counts from now on, and so does
// a schedule that is enabled again. Errors are ErrNotFound and the faults of r as in Create.
func (s *Service) Update(ctx context.Context, owner, endpoint, id string, r Settings) (Schedule, error) {
	old, err := s.Get(ctx, owner, endpoint, id)
	if err != nil {
		return Schedule{}, err
	}
	if err := r.check(s.jobs, &old, false); err != nil {
		return Schedule{}, err
	}
	now := s.now()
	v, err := s.store.Update(ctx, id, func(v *Schedule) error {
		v.Edited = v.Edited || v.Name != "" && r.changesRun(v)
		r.change(v, now)
		return nil
	})
	if err != nil {
		return Schedule{}, fmt.Errorf("schedules: update %q: %w", id, err)
	}
	s.replan(id, v.Next())
	return v, nil
}

// Delete removes a schedule of owner, or returns ErrNotFound. Its jobs stay.
func (s *Service) Delete(ctx context.Context, owner, endpoint, id string) error {
	if _, err := s.Get(ctx, owner, endpoint, id); err != nil {
		return err
	}
	return s.remove(ctx, id)
}

func (s *Service) remove(ctx context.Context, id string) error {
	if err := s.store.Delete(ctx, id); err != nil {
		return fmt.Errorf("schedules: delete %q: %w", id, err)
	}
	s.plan.set(id, time.Time{})
	return nil
}

// Erase removes all schedules of owner, and returns how many there were. It is safe to repeat.
func (s *Service) Erase(ctx context.Context, owner string) (n int, err error) {
	return s.removeAll(ctx, func(v *Schedule) bool { return v.Owner == owner })
}

// EndpointGone removes the schedules of all users on an endpoint that was deleted.
func (s *Service) EndpointGone(ctx context.Context, endpoint string) error {
	_, err := s.removeAll(ctx, func(v *Schedule) bool { return v.Endpoint == endpoint })
	return err
}

func (s *Service) removeAll(ctx context.Context, which func(*Schedule) bool) (n int, err error) {
	list, err := s.store.All(ctx)
	if err != nil {
		return 0, fmt.Errorf("schedules: list: %w", err)
	}
	for i := range list {
		if !which(&list[i]) {
			continue
		}
		switch err := s.remove(ctx, list[i].ID); {
		case err == nil:
			n++
		case !errors.Is(err, ErrNotFound):
			return n, err
		}
	}
	return n, nil
}

// RunNow submits a job of the schedule of owner at once, whether it is enabled or not. Overlap
// does not count for such a job.
func (s *Service) RunNow(ctx context.Context, owner, endpoint, id string) (queue.Job, error) {
	v, err := s.Get(ctx, owner, endpoint, id)
	if err != nil {
		return queue.Job{}, err
	}
	f := v.firing(s.now())
	f.ID = ""
	j, err := s.jobs.Submit(ctx, f)
	if err != nil {
		return queue.Job{}, err
	}
	_, err = s.store.Update(ctx, id, func(v *Schedule) error {
		v.record(Outcome{At: f.At, Decision: Requested, Job: j.ID})
		return nil
	})
	if err != nil { // the job is queued: that is what counts
		s.o.Logger.WarnContext(ctx, "outcome of a schedule was not recorded", "schedule", id, "err", err)
	}
	return j, nil
}

// firing is the job of an instant.
func (s *Schedule) firing(at time.Time) Firing {
	return Firing{Schedule: s.ID, At: at, Owner: s.Owner, Endpoint: s.Endpoint, ID: s.JobID(at), Run: s.body()}
}
