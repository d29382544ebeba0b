package spending

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/ratelimit/budget"
)

// Options configures a Service.
type Options struct {
	// Budgets has what users may spend, and Billing what they spend. Both are required.
	Budgets *budget.Set
	Billing *billing.Service
	// Pods are those of users. Default: there are none.
	Pods *pods.Service
	// Changed is called after users may have workers again or may have none any more, so that the
	// scaler asks Spent. It must not block. Default: nothing.
	Changed func()
	// Clock is that of Billing and Pods. Default: the system's.
	Clock pods.Clock
	// Logger gets what could not be looked after. Default: nothing is logged.
	Logger *slog.Logger
}

// A Service judges what users spend. It is safe for concurrent use.
type Service struct {
	o     Options
	turns turns

	mu     sync.Mutex
	judged map[string]State // of the users of the last look
}

// A State is what one user spends, of what they may.
type State struct {
	User string
	budget.Cost
	budget.Spending
	budget.CostVerdict
}

// New returns a service.
func New(o Options) *Service {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	return &Service{o: o, judged: map[string]State{}}
}

// State returns what a user spends now, and what follows from it for what costs more USD an hour.
func (s *Service) State(ctx context.Context, user string, more float64) (State, error) {
	var sources []billing.UsageSource
	if s.o.Pods != nil {
		sources = append(sources, s.o.Pods)
	}
	spent, err := s.o.Billing.Spending(ctx, user, sources...)
	if err != nil {
		return State{}, fmt.Errorf("spending: %w", err)
	}
	c := s.o.Budgets.Cost(user)
	return State{user, c, spent, c.Judge(spent, more)}, nil
}

// Afford implements pods.Afford. At several servers calls for one owner may overlap.
func (s *Service) Afford(ctx context.Context, owner string, more float64, start func() error) error {
	if more <= 0 || s.o.Budgets.Cost(owner) == (budget.Cost{}) {
		return start()
	}
	leave, err := s.turns.enter(ctx, owner)
	if err != nil {
		return err
	}
	defer leave()
	x, err := s.State(ctx, owner, more)
	if err != nil {
		return err
	}
	if x.Refused != nil {
		return x.Refused
	}
	return start()
}

// Spent returns why the endpoints of an owner may have no workers, and until when unless something
// changes: the budget of the month is used up. Empty: they may.
func (s *Service) Spent(ctx context.Context, owner string) (why string, until time.Time, err error) {
	if s.o.Budgets.Cost(owner).PerMonth <= 0 {
		return "", time.Time{}, nil
	}
	x, known := s.recent(owner)
	if !known {
		if x, err = s.State(ctx, owner, 0); err != nil {
			return "", time.Time{}, err
		}
		if !s.keep(&x) {
			s.o.Changed()
		}
	}
	if x.Level != budget.CostSpent {
		return "", time.Time{}, nil
	}
	return fmt.Sprintf("the budget %s of the owner is used up: the workers end, and none is started before the next month (UTC)", budget.CostPerMonth), budget.NextMonth(x.At), nil
}

// recent returns what was last judged of a user, unless that is old or of another month or budget.
func (s *Service) recent(user string) (State, bool) {
	now := s.o.Clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	x, known := s.judged[user]
	age := now.Sub(x.At).Abs()
	return x, known && age < 2*pause && budget.Month(now).Equal(budget.Month(x.At)) && x.Cost == s.o.Budgets.Cost(user)
}

// keep notes what was judged of a user, and reports whether the user may have workers as before.
func (s *Service) keep(x *State) (same bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.judged[x.User]
	s.judged[x.User] = *x
	return (was.Level == budget.CostSpent) == (x.Level == budget.CostSpent)
}

// States returns the users who were near the end of a month's budget, or past it, at the last look.
func (s *Service) States() (list []State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, user := range slices.Sorted(maps.Keys(s.judged)) {
		if x := s.judged[user]; x.Level != budget.CostFine {
			list = append(list, x)
		}
	}
	return list
}

// pause is the longest time between two looks of Run.
const pause = clock.Longest

// Run looks after all users until ctx ends, and returns nil then.
func (s *Service) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		next, err := s.Step(ctx, s.o.Clock.Now())
		if err != nil && ctx.Err() == nil {
			s.o.Logger.WarnContext(ctx, "spending: look after what users spend", "err", err)
		}
		soon := s.o.Clock.Now().Add(pause) // limits and rates may change
		if next.IsZero() || next.After(soon) {
			next = soon
		}
		clock.Sleep(ctx, s.o.Clock, next, nil)
	}
	return nil
}

// Step looks once after everybody who has a budget of a month, and returns when to do so again unless
// rates or limits change before; zero while nobody has a budget. What fails for one user does not keep the others.
func (s *Service) Step(ctx context.Context, now time.Time) (next time.Time, err error) {
	if !s.o.Budgets.Spends() && len(s.States()) == 0 {
		return time.Time{}, nil
	}
	users, err := s.users(ctx)
	if err != nil {
		return now.Add(pause), err
	}
	next = budget.NextMonth(now)
	var errs []error
	changed := false
	for _, user := range users {
		x, same, err := s.look(ctx, user)
		if err != nil {
			errs = append(errs, err)
			next = earlier(next, now.Add(pause))
			continue
		}
		changed = changed || !same
		next = earlier(next, x.next(now))
	}
	s.forget(users)
	if changed {
		s.o.Changed()
	}
	return next, errors.Join(errs...)
}

// next returns when something follows from x, at the rate of now. It is at least a
// second later, so that fractions end.
func (x *State) next(now time.Time) time.Time {
	if x.Ends.IsZero() {
		return budget.NextMonth(now)
	}
	left := x.Ends.Sub(x.At)
	for _, before := range []time.Duration{24 * time.Hour, time.Hour} {
		if left > before {
			left -= before
			break
		}
	}
	return now.Add(max(left, time.Second))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// users are those with a budget of a month who have pods or workers, or had none left at the last look.
func (s *Service) users(ctx context.Context) (users []string, err error) {
	if users, err = s.o.Billing.Spenders(ctx); err != nil {
		return nil, err
	}
	if s.o.Pods != nil {
		owners, err := s.o.Pods.Owners(ctx)
		if err != nil {
			return nil, err
		}
		users = slices.AppendSeq(users, maps.Keys(owners))
	}
	for _, x := range s.States() {
		users = append(users, x.User)
	}
	slices.Sort(users)
	return slices.Compact(users), nil
}

// look judges one user and does what follows.
func (s *Service) look(ctx context.Context, user string) (x State, same bool, err error) {
	if c := s.o.Budgets.Cost(user); c.PerMonth <= 0 { // also one whose limit was taken away
		x = State{User: user, Cost: c, Spending: budget.Spending{At: s.o.Clock.Now()}}
		return x, s.keep(&x), nil
	}
	if x, err = s.State(ctx, user, 0); err != nil {
		return x, true, err
	}
	same = s.keep(&x)
	if x.Level == budget.CostFine || s.o.Pods == nil {
		return x, same, nil
	}
	n := pods.CostNotice{Month: budget.Month(x.At), Limit: x.PerMonth, Level: int(x.Level)}
	return x, same, s.o.Pods.NotifyCost(ctx, user, n, x.Notice(x.Spending, x.CostVerdict), x.Level == budget.CostSpent)
}

// forget drops what is known of users who spend nothing any more.
func (s *Service) forget(users []string) {
	now := s.o.Clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.judged, func(user string, x State) bool {
		_, listed := slices.BinarySearch(users, user)
		return !listed && now.Sub(x.At).Abs() >= 2*pause
	})
}
