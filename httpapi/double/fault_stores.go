package double

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/podyard/podyard/backend/fault"
	"github.com/podyard/podyard/problem"
)

// errStore is the error of a failing store, of the same kind as a real one.
var errStore = problem.New(problem.Unavailable, "the store is not available: a fault of the test double")

// storeFaults is the plan for backend/fault. The target of a call decides whether it fails.
func storeFaults(seed uint64) *fault.Plan {
	return fault.NewPlan(seed,
		fault.Rule{Name: FaultStore, Call: "*", Err: errStore, When: func(ctx context.Context, _ string) bool {
			return targetOf(ctx).has(FaultStore, func(*Fault) bool { return true })
		}},
		fault.Rule{Name: FaultNoCapacity, Call: "pods.Claimed", Kind: fault.Full, When: func(ctx context.Context, resource string) bool {
			return targetOf(ctx).has(FaultNoCapacity, func(f *Fault) bool { return f.covers(resource) })
		}})
}

// covers reports whether a resource belongs to a host without capacity. The name of a host
// begins with its data center.
func (f *Fault) covers(resource string) bool {
	_, host, _ := strings.Cut(resource, "/")
	return f.DataCenter == "" || strings.HasPrefix(host, strings.ToLower(f.DataCenter)+"-")
}

// A target is a request, or the start of a worker, to which faults of stores and hosts apply.
// Each fault is decided once for it, when it would first have an effect.
type target struct {
	faults *faults
	could  func(*Fault) bool // which faults match it
	struck func(*Fault)      // called with a fault that happens

	mu    sync.Mutex
	asked map[int]bool // decisions by id
	hits  []*Fault
}

type targetKey struct{}

// targetOf returns the target of a call; nil: none, and no faults.
func targetOf(ctx context.Context) *target {
	if x := exchangeOf(ctx); x != nil {
		return &x.target
	}
	t, _ := ctx.Value(targetKey{}).(*target)
	return t
}

// has reports whether a fault with this name, for which covers holds, happens to t.
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

// could reports whether a fault of stores or hosts matches a request. Requests that only read
// capacity do not use up faults with a count.
func (x *exchange) could(f *Fault) bool {
	reads := x.r.Method == http.MethodGet || x.r.Method == http.MethodHead
	if f.Name == FaultNoCapacity && reads && (f.Count > 0 || f.Probability > 0) {
		return false
	}
	return f.matches(x)
}
