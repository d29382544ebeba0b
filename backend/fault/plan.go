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

// A Kind is how a call fails.
type Kind uint8

// The kinds of faults.
const (
	// Before returns an error without making the call.
	Before Kind = iota
	// After makes the call and then returns an error: the caller does not know the outcome.
	After
	// Delay makes the call later.
	Delay
	// Full makes pods.Claimed report that everything is taken, so that nothing more is
	// placed there. A new pod is refused as on full hosts. The name of that call is
	// pods.Claimed. Other calls fail as with Before.
	Full
	// CrashBefore crashes what is behind the plan before the call takes effect. This call
	// and every later one return ErrCrashed until Restart.
	CrashBefore
	// CrashAfter is CrashBefore, but after the call has taken effect.
	CrashAfter
)

// Errors of calls that fail, unless their rule has another one. Both have the kind
// problem.Unavailable, as the error of a store that really fails: over HTTP, 503.
var (
	ErrInjected = problem.New(problem.Unavailable, "injected fault")
	ErrCrashed  = problem.New(problem.Unavailable, "injected crash")
)

// A Rule is one fault.
type Rule struct {
	Name        string        // for Enable and Count; default: Call
	Call        string        // the calls that it applies to: jobs.Enqueue, jobs.* or *
	Kind        Kind          //
	Err         error         // the error of Before and After; default ErrInjected
	Delay       time.Duration // for Delay
	Probability float64       // that the fault happens; default 1, every call
	Skip        int           // this many calls succeed first
	Times       int           // at most this many calls fail; default: no limit
	Disabled    bool          // off until Enable

	// When selects calls by their context and, for pods.Claimed, the requested resource, which
	// is otherwise empty. Other calls do not count for Skip and Times. When must not call
	// the plan. Default: all calls.
	When func(ctx context.Context, resource string) bool
}

// A Clock has the time: Now, and AfterFunc(t, f), which calls f once Now has reached t and returns a
// stop that reports whether it prevented the call. f must not block. It is one type in all packages.
type Clock = clock.Clock

// A Plan decides which calls fail. It is safe for concurrent use. With one caller at a
// time, the same seed gives the same faults. String returns the seed and the number of
// faults, for the log of a failed test.
type Plan struct {
	// Clock is the clock of delays. Default: the system's. It must not change after the
	// first call.
	Clock Clock

	rules *faultplan.Plan[Rule]

	mu      sync.Mutex
	crashed bool
	calls   map[string]int
}

// NewPlan returns a plan with these rules. If several rules apply to a call, the first one
// whose counts and probability allow it decides.
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

// Enable turns the rules with this name on or off.
func (p *Plan) Enable(name string, on bool) {
	p.rules.Turn(on, func(r *Rule) bool { return r.Name == name })
}

// Count returns how many faults the rules with this name have caused.
func (p *Plan) Count(name string) (n int) {
	for _, e := range p.rules.Entries() {
		if e.Rule.Fault.Name == name {
			n += e.Hits
		}
	}
	return n
}

// String returns the seed and the number of faults of each rule.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "faults of seed %d:", p.rules.Seed())
	for _, e := range p.rules.Entries() {
		fmt.Fprintf(&b, " %s %d times,", e.Rule.Fault.Name, e.Hits)
	}
	return strings.TrimRight(b.String(), ":,")
}

// Calls returns how often a call was made, with or without a fault.
func (p *Plan) Calls(call string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[call]
}

// Crashed reports whether a crash has happened without a Restart since.
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

// draw returns the fault of a call. ok is false if there is none.
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

// do makes a call that may have a fault.
func do[T any](ctx context.Context, p *Plan, call string, fn func() (T, error)) (T, error) {
	f, ok := p.draw(ctx, call, "")
	if !ok {
		return fn()
	}
	return suffer(ctx, p, &f, fn)
}

// suffer makes a call with fault f.
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
		_, _ = fn() // the result is lost in the crash
		return zero, ErrCrashed
	default:
		return zero, f.Err
	}
}

// run is do for a call that returns only an error.
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
