package fault

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/problem"
)

// A Kind says how a call fails.
type Kind uint8

// The kinds of faults.
const (
	// Before answers an error, and nothing has happened.
	Before Kind = iota
	// After answers an error when the effect has taken place: to the caller the outcome
	// is unknown.
	After
	// Delay lets the call happen later.
	Delay
	// CrashBefore ends what is behind the plan before the effect: this call and every
	// later one answer ErrCrashed, until Restart.
	CrashBefore
	// CrashAfter is the same when the effect has taken place.
	CrashAfter
)

// What calls that fail answer, unless their rule says otherwise.
var (
	ErrInjected = problem.New(problem.Unavailable, "injected fault")
	ErrCrashed  = problem.New(problem.Unavailable, "injected crash")
)

// A Rule is one fault.
type Rule struct {
	Name  string        // for Enable and Count; default: Call
	Call  string        // the calls that it is for: jobs.Enqueue, jobs.* or *
	Kind  Kind          //
	Err   error         // what Before and After answer; default ErrInjected
	Delay time.Duration // of Delay
	Odds  float64       // that a call has it; default 1, every call
	Skip  int           // as many calls go well first
	Times int           // and as many fail at most; default: no limit
	Off   bool          // not before Enable
}

// A Clock tells the time.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f, which must not block, once Now has reached t. stop reports
	// whether it prevented the call.
	AfterFunc(t time.Time, f func()) (stop func() bool)
}

// A Plan decides which calls fail. It is safe for concurrent use; with one caller at a time
// the seed replays it.
type Plan struct {
	// Clock is what delays go by. Default: the system's. It is not to be changed once a
	// call was made.
	Clock Clock

	mu      sync.Mutex
	rng     *rand.Rand
	rules   []*rule
	crashed bool
	calls   map[string]int
}

type rule struct {
	Rule
	seen, hit int
}

// NewPlan returns a plan with these rules. Of the rules that are for a call the first that
// strikes does.
func NewPlan(seed uint64, rules ...Rule) *Plan {
	p := &Plan{Clock: clock.System{}, rng: rand.New(rand.NewPCG(seed, 0)), calls: map[string]int{}}
	for _, r := range rules {
		p.Add(r)
	}
	return p
}

// Add appends a rule.
func (p *Plan) Add(r Rule) {
	if r.Name == "" {
		r.Name = r.Call
	}
	if r.Err == nil {
		r.Err = ErrInjected
	}
	if r.Odds == 0 {
		r.Odds = 1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, &rule{Rule: r})
}

// Enable turns the rules of a name on or off.
func (p *Plan) Enable(name string, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		if r.Name == name {
			r.Off = !on
		}
	}
}

// Count is how often the rules of a name have struck.
func (p *Plan) Count(name string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		if r.Name == name {
			n += r.hit
		}
	}
	return n
}

// Calls is how often a call was made, whatever became of it.
func (p *Plan) Calls(call string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[call]
}

// Crashed reports whether a crash has struck and nobody has restarted.
func (p *Plan) Crashed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.crashed
}

// Restart ends a crash.
func (p *Plan) Restart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crashed = false
}

func (r *Rule) matches(call string) bool {
	prefix, all := strings.CutSuffix(r.Call, "*")
	return call == r.Call || all && strings.HasPrefix(call, prefix)
}

// draw is the fault of a call; ok is false when it has none.
func (p *Plan) draw(call string) (f Rule, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[call]++
	if p.crashed {
		return Rule{Kind: Before, Err: ErrCrashed}, true
	}
	for _, r := range p.rules {
		if r.Off || !r.matches(call) {
			continue
		}
		if r.seen++; r.seen <= r.Skip || r.Times > 0 && r.hit >= r.Times {
			continue
		}
		if r.Odds < 1 && p.rng.Float64() >= r.Odds {
			continue
		}
		r.hit++
		if r.Kind >= CrashBefore {
			p.crashed = true
		}
		return r.Rule, true
	}
	return Rule{}, false
}

// do makes a call that may fail.
func do[T any](ctx context.Context, p *Plan, call string, fn func() (T, error)) (T, error) {
	var zero T
	f, ok := p.draw(call)
	if !ok {
		return fn()
	}
	switch f.Kind {
	case After:
		if _, err := fn(); err != nil {
			return zero, err
		}
		return zero, f.Err
	case Delay:
		if err := p.pause(ctx, f.Delay); err != nil {
			return zero, err
		}
		return fn()
	case CrashBefore:
		return zero, ErrCrashed
	case CrashAfter:
		_, _ = fn() // whatever it says, nobody hears it
		return zero, ErrCrashed
	default:
		return zero, f.Err
	}
}

// run is do for a call that returns nothing else.
func run(ctx context.Context, p *Plan, call string, fn func() error) error {
	_, err := do(ctx, p, call, func() (struct{}, error) { return struct{}{}, fn() })
	return err
}

func (p *Plan) pause(ctx context.Context, d time.Duration) error {
	over := make(chan struct{})
	stop := p.Clock.AfterFunc(p.Clock.Now().Add(d), func() { close(over) })
	defer stop()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
