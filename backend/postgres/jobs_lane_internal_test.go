package postgres

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/podyard/podyard/internal/clock"
)

// A testLane is a lane whose calls are their own numbers of items, and whose transactions end when they
// are told to.
type testLane struct {
	lane[int]
	under chan chan []int // the calls of transactions that began
}

func newTestLane(transactions int) *testLane {
	l := &testLane{under: make(chan chan []int, 100)}
	l.s, l.idle = &Store{opts: Options{Clock: clock.System{}, sizes: sizes{}.settle()}}, (&Jobs{}).rowsOf(transactions)
	l.size = func(n int) (items, bytes int) { return n, n << 10 }
	l.run = func(_ context.Context, calls []int, _ *counterRows) {
		over := make(chan []int)
		l.under <- over
		over <- calls
	}
	return l
}

func (l *testLane) pushAll(t *testing.T, calls ...int) {
	t.Helper()
	for _, c := range calls {
		must(t, l.push(t.Context(), c))
	}
}

// wantUnder waits until nothing happens any more, and checks how many transactions are under way
// that nobody has ended.
func (l *testLane) wantUnder(t *testing.T, n int) {
	t.Helper()
	synctest.Wait()
	if got := len(l.under); got != n {
		t.Fatalf("%d transactions are under way, want %d", got, n)
	}
}

// wantEnd ends a transaction, which must have these calls.
func (l *testLane) wantEnd(t *testing.T, calls ...int) {
	t.Helper()
	if got := <-<-l.under; !slices.Equal(got, calls) {
		t.Fatalf("a transaction has the calls %v, want %v", got, calls)
	}
	synctest.Wait()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFewCallsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(fewItems)
		l.pushAll(t, 1, 1, 1, 1)
		l.wantUnder(t, 4)
		l.pushAll(t, 1, 1)
		l.wantUnder(t, 4)
		l.wantEnd(t, 1)
		l.wantUnder(t, 3) // the two would be too many
		l.wantEnd(t, 1)
		l.wantUnder(t, 3)
		for _, calls := range [][]int{{1}, {1}, {1, 1}} {
			l.wantEnd(t, calls...)
		}
		l.wantUnder(t, 0)
	})
}

func TestManyCallsShareATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(fewItems)
		l.pushAll(t, maxItems)
		l.pushAll(t, slices.Repeat([]int{1}, 20)...)
		l.wantUnder(t, 1)
		l.wantEnd(t, maxItems)
		l.wantUnder(t, 1)
		l.pushAll(t, 1)
		l.wantUnder(t, 1)
		l.wantEnd(t, slices.Repeat([]int{1}, 20)...)
		l.wantEnd(t, 1)
		l.pushAll(t, 1, maxItems, maxItems)
		l.wantUnder(t, 1)
		l.wantEnd(t, 1)
		l.wantUnder(t, 1)
		l.wantEnd(t, maxItems)
		l.wantEnd(t, maxItems)
	})
}

func TestHalfOfManyCallsDoNotWaitForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(fewItems)
		ones := func(n int) []int { return slices.Repeat([]int{1}, n) }
		l.pushAll(t, 32)
		l.pushAll(t, ones(15)...)
		l.wantUnder(t, 1)
		l.pushAll(t, 17)
		l.wantUnder(t, 2)
		l.pushAll(t, ones(64)...)
		l.wantUnder(t, 2) // never three
		l.wantEnd(t, 32)
		l.wantUnder(t, 2)
		l.wantEnd(t, append(ones(15), 17)...)
		l.wantEnd(t, ones(64)...)
		l.pushAll(t, 100, maxItems-99)
		l.wantUnder(t, 1) // both have no more than one may have
		l.wantEnd(t, 100)
		l.wantEnd(t, maxItems-99)
	})
}

func TestALaneOfOneTransactionHasOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(1)
		l.pushAll(t, 1, 1)
		l.wantUnder(t, 1)
		l.wantEnd(t, 1)
		l.wantUnder(t, 1)
		l.wantEnd(t, 1)
	})
}

func TestALaneThatEndedMakesWhatWasPushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(1)
		l.pushAll(t, 1, 2)
		l.end()
		if err := l.push(t.Context(), 3); err == nil {
			t.Error("push = nil, want that the lane has ended")
		}
		l.wantEnd(t, 1)
		l.wantEnd(t, 2)
		l.s.running.Wait()
	})
}
