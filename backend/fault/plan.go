package fault

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/internal/faultplan"
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
	// Full has pods.Used answer that everything is taken, so that nothing more is placed
	// there: a pod that is made is refused as on hosts that are full. Other calls fail as
	// with Before.
	Full
	// CrashBefore ends what is behind the plan before the effect: this call and every
	// later one answer ErrCrashed, until Restart.
	CrashBefore
	// CrashAfter is the same when the effect has taken place.
	CrashAfter
)

// What calls that fail answer, unless their rule says otherwise. Both are of the kind
// problem.Unavailable, as the error of a store that really fails: over HTTP, 503.
var (
	ErrInjected = problem.New(problem.Unavailable, "injected fault")
	ErrCrashed  = problem.New(problem.Unavailable, "injected crash")
)

// A Rule is one fault.
type Rule struct {
	Name        string        // for Enable and Count; default: Call
	Call        string        // the calls that it is for: jobs.Enqueue, jobs.* or *
	Kind        Kind          //
	Err         error         // what Before and After answer; default ErrInjected
	Delay       time.Duration // of Delay
	Probability float64       // that a call has it; default 1, every call
	Skip        int           // as many calls go well first
	Times       int           // and as many fail at most; default: no limit
	Disabled    bool          // not before Enable

	// When says which of these calls the rule is for, by their context and, of pods.Used,
	// the resource asked for, which is empty otherwise. Others do not count. It must not
	// call the plan. Default: all.
	When func(ctx context.Context, resource string) bool
}

// A Clock tells the time.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f, which must not block, once Now has reached t. stop reports
	// whether it prevented the call.
	AfterFunc(t time.Time, f func()) (stop func() bool)
}

// A Plan decides which calls fail. It is safe for concurrent use; with one caller at a time
// the seed replays it. Printed, it tells its seed and what has happened: for the log of a
// test that failed.
type Plan struct {
	// Clock is what delays go by. Default: the system's. It is not to be changed once a
	// call was made.
	Clock Clock

	rules *faultplan.Plan[Rule]

	mu      sync.Mutex
	crashed bool
	calls   map[string]int
}

// NewPlan returns a plan with these rules. Of the rules that are for a call the first that
// strikes does.
func NewPlan(seed uint64, rules ...Rule) *Plan {
	p := &Plan{Clock: clock.System{}, rules: faultplan.New[Rule](seed), calls: map[string]int{}}
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
	p.rules.Add(faultplan.Rule[Rule]{Fault: r, Odds: r.Probability, Skip: r.Skip, Times: r.Times, Off: r.Disabled})
}

// Enable turns the rules of a name on or off.
func (p *Plan) Enable(name string, on bool) {
	p.rules.Turn(on, func(r *Rule) bool { return r.Name == name })
}

// Count is how often the rules of a name have struck.
func (p *Plan) Count(name string) (n int) {
	for _, e := range p.rules.Entries() {
		if e.Rule.Fault.Name == name {
			n += e.Hits
		}
	}
	return n
}

// String tells the seed, and of each rule how often it has struck.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "faults of seed %d:", p.rules.Seed())
	for _, e := range p.rules.Entries() {
		fmt.Fprintf(&b, " %s %d times,", e.Rule.Fault.Name, e.Hits)
	}
	return strings.TrimRight(b.String(), ":,")
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

// draw is the fault of a call; ok is false when it has none.
func (p *Plan) draw(ctx context.Context, call, resource string) (f Rule, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[call]++
	if p.crashed {
		return Rule{Kind: Before, Err: ErrCrashed}, true
	}
	f, ok = p.rules.Draw(func(_ int, r *Rule) bool {
		return faultplan.Like(r.Call, call) && (r.When == nil || r.When(ctx, resource))
	})
	p.crashed = ok && f.Kind >= CrashBefore
	return f, ok
}

// do makes a call that may fail.
func do[T any](ctx context.Context, p *Plan, call string, fn func() (T, error)) (T, error) {
	f, ok := p.draw(ctx, call, "")
	if !ok {
		return fn()
	}
	return suffer(ctx, p, &f, fn)
}

// suffer makes a call that has a fault.
func suffer[T any](ctx context.Context, p *Plan, f *Rule, fn func() (T, error)) (T, error) {
	var zero T
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
