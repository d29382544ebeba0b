package suite

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// A Rule is one requirement of a store of type S.
type Rule[S any] struct {
	Name string
	Why  string // printed if the rule is broken
	Run  func(t testing.TB, s S)
}

// Test runs each rule on a new, empty store from open. If the store must be closed, open
// registers a cleanup of t.
func Test[S any](t *testing.T, rules []Rule[S], open func(t *testing.T) S) {
	t.Helper()
	for _, r := range rules {
		Run(t, r.Name, r.Why, func(t *testing.T) { r.Run(t, open(t)) })
	}
}

// Breaks reports whether s breaks r. It is for tests of rules: a rule that no store can
// break proves nothing.
func Breaks[S any](t *testing.T, r Rule[S], s S) bool {
	t.Helper()
	v := &verdict{TB: t}
	var running sync.WaitGroup
	running.Go(func() { r.Run(v, s) }) // FailNow ends it with Goexit
	running.Wait()
	return v.failed.Load()
}

// A verdict records a failure and does not fail the real test.
type verdict struct {
	testing.TB
	failed atomic.Bool
}

func (v *verdict) Fail()                 { v.failed.Store(true) }
func (v *verdict) FailNow()              { v.Fail(); runtime.Goexit() }
func (v *verdict) Failed() bool          { return v.failed.Load() }
func (v *verdict) Error(...any)          { v.Fail() }
func (v *verdict) Errorf(string, ...any) { v.Fail() }
func (v *verdict) Fatal(...any)          { v.FailNow() }
func (v *verdict) Fatalf(string, ...any) { v.FailNow() }

// Together calls f in n goroutines at the same time, with 0 to n-1, and waits for all.
func Together(n int, f func(i int)) {
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { f(i) })
	}
	calls.Wait()
}

// Winners calls f in 16 goroutines at the same time and returns the number of successes.
// The other calls must return lost.
func Winners(t testing.TB, lost error, f func(context.Context) error) int {
	t.Helper()
	var won atomic.Int32
	Together(16, func(int) {
		switch err := f(t.Context()); {
		case err == nil:
			won.Add(1)
		case !errors.Is(err, lost):
			t.Errorf("a call that lost = %v, want %v", err, lost)
		}
	})
	return int(won.Load())
}
