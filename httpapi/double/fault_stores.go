package double

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/podyard/podyard/backend/fault"
	"github.com/podyard/podyard/problem"
)

// errStore is what a store answers that fails: of the kind of a real one that fails.
var errStore = problem.New(problem.Unavailable, "the store is not available: a fault of the test double")

// storeFaults is the plan by which the stores fail: backend/fault does it, and what it is
// asked for decides.
func storeFaults(seed uint64) *fault.Plan {
	return fault.NewPlan(seed,
		fault.Rule{Name: FaultStore, Call: "*", Err: errStore, When: func(ctx context.Context, _ string) bool {
			return targetOf(ctx).has(FaultStore, func(*Fault) bool { return true })
		}},
		fault.Rule{Name: FaultNoCapacity, Call: "pods.Used", Kind: fault.Full, When: func(ctx context.Context, resource string) bool {
			return targetOf(ctx).has(FaultNoCapacity, func(f *Fault) bool { return f.covers(resource) })
		}})
}

// covers reports whether a resource is one of a host where there is no capacity. The name
// of a host begins with its data center.
func (f *Fault) covers(resource string) bool {
	_, host, _ := strings.Cut(resource, "/")
	return f.DataCenter == "" || strings.HasPrefix(host, strings.ToLower(f.DataCenter)+"-")
}

// A target is what the faults below the services happen to: a request, or the start of a
// worker. Each fault is decided once for it, when it would first change something.
type target struct {
	faults *faults
	could  func(*Fault) bool // which are for it
	struck func(*Fault)      // notes one that happens

	mu    sync.Mutex
	asked map[int]bool // by id: those that were decided
	hits  []*Fault
}

type targetKey struct{}

// targetOf is the target of a call; nil: it has none, and no faults.
func targetOf(ctx context.Context) *target {
	if x := exchangeOf(ctx); x != nil {
		return &x.target
	}
	t, _ := ctx.Value(targetKey{}).(*target)
	return t
}

// has reports whether a fault of this name that covers the call happens to t.
func (t *target) has(name string, covers func(*Fault) bool) bool {
	if t == nil || t.faults == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.hits {
		if f.Name == name && covers(f) {
			return true
		}
	}
	f := t.faults.draw(func(id int, f *Fault) bool {
		if f.Name != name || t.asked[id] || !covers(f) || !t.could(f) {
			return false
		}
		if t.asked == nil {
			t.asked = map[int]bool{}
		}
		t.asked[id] = true
		return true
	})
	if f == nil {
		return false
	}
	t.hits = append(t.hits, f)
	t.struck(f)
	return true
}

// aim makes a request a target.
func (w *instance) aim(x *exchange) {
	x.target.faults = w.faults
	x.target.could = x.could
	x.target.struck = func(f *Fault) {
		w.journal.set(func() {
			if x.entry.Fault == "" {
				x.entry.Fault = f.Name
			}
		})
	}
}

// could reports whether a fault below the services is for a request. One that only looks at
// what is free does not use up those that count: they are for the ones that take it.
func (x *exchange) could(f *Fault) bool {
	reads := x.r.Method == http.MethodGet || x.r.Method == http.MethodHead
	if f.Name == FaultNoCapacity && reads && (f.Count > 0 || f.Probability > 0) {
		return false
	}
	return f.matches(x)
}
