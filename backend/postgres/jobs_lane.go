package postgres

import (
	"context"
	"sync"
	"time"
)

// Bounds of what calls at the same time put into one transaction.
const (
	maxItems = 512
	maxBytes = 8 << 20
)

// fewItems is up to how many items calls do not wait for each other. Each transaction costs the
// database more than many items in one do, but few callers who share one wait for two: the one
// under way, and their own.
const fewItems = 4

// someItems is from how many items on a transaction begins while one other is under way, if it has half
// of what is there: the one waits for the disk while the other works. Smaller ones cost more than that saves.
const someItems = 16

// A lane makes calls in transactions. Calls of few callers have one each at the same time. While
// there are more, the lane collects calls while one transaction is under way, or two, and makes them in
// the next one. Its goroutines run only while there are calls.
type lane[C any] struct {
	s    *Store
	run  func(ctx context.Context, calls []C, rows *counterRows)
	size func(C) (items, bytes int)

	mu           sync.Mutex
	pending      []C
	idle         []*counterRows // one for each transaction at the same time; the last one is used first
	under        int            // transactions under way
	begun        map[*counterRows]time.Time
	items, bytes int // of these
	crowd        int // how many items were under way and calls waiting at the same time, lately
	ended        bool
}

// A flight is calls that share a transaction.
type flight[C any] struct {
	calls        []C
	rows         *counterRows
	items, bytes int
}

// end lets the calls that were pushed be made, and accepts no more.
func (l *lane[C]) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

// push adds a call, which is made also when its ctx ends.
func (l *lane[C]) push(ctx context.Context, c C) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return ErrClosed
	}
	l.pending = append(l.pending, c)
	l.crowd = max(l.crowd, l.items+len(l.pending))
	if f, ok := l.begin(); ok {
		ctx = context.WithoutCancel(ctx)
		l.s.running.Go(func() { l.loop(ctx, f) })
	}
	return nil
}

func (l *lane[C]) loop(ctx context.Context, f flight[C]) {
	for ok := true; ok; {
		l.run(ctx, f.calls, f.rows)
		f, ok = l.next(f)
	}
}

// next ends a flight, and begins another one if there are calls for it.
func (l *lane[C]) next(f flight[C]) (flight[C], bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.under--
	l.crowd -= (l.crowd + 7) / 8
	l.items, l.bytes = l.items-f.items, l.bytes-f.bytes
	l.idle = append(l.idle, f.rows)
	delete(l.begun, f.rows)
	return l.begin()
}

// begin takes the next calls, unless they wait for those under way. The caller holds mu.
func (l *lane[C]) begin() (f flight[C], ok bool) {
	n := 0
	for n < len(l.pending) {
		i, b := l.size(l.pending[n])
		if n > 0 && (f.items+i > l.s.opts.sizes.items || f.bytes+b > l.s.opts.sizes.bytes) {
			break
		}
		n, f.items, f.bytes = n+1, f.items+i, f.bytes+b
	}
	if n == 0 || len(l.idle) == 0 || l.under > 0 && !l.besides(&f) {
		return f, false
	}
	f.calls, l.pending = l.pending[:n:n], l.pending[n:]
	last := len(l.idle) - 1
	f.rows, l.idle = l.idle[last], l.idle[:last]
	l.under++
	if l.begun == nil {
		l.begun = map[*counterRows]time.Time{}
	}
	l.begun[f.rows] = l.s.opts.Clock.Now()
	l.items, l.bytes = l.items+f.items, l.bytes+f.bytes
	return f, true
}

// stalled returns for how long the oldest transaction has been under way.
func (l *lane[C]) stalled() (d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.begun {
		d = max(d, l.s.opts.Clock.Now().Sub(at))
	}
	return d
}

// besides reports whether a flight does not wait for those under way. The caller holds mu.
func (l *lane[C]) besides(f *flight[C]) bool {
	items := l.items + f.items
	if items > l.s.opts.sizes.items || l.bytes+f.bytes > l.s.opts.sizes.bytes {
		return false
	}
	few := max(l.crowd, items) <= fewItems
	half := l.under == 1 && f.items >= max(someItems, l.crowd/2)
	return few || half
}

// An answer is the end of a call in a lane.
type answer chan error

func newAnswer() answer { return make(answer, 1) }

// await waits for the answer. A call that is given up may be made nevertheless.
func (a answer) await(ctx context.Context) error {
	select {
	case err := <-a:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
