// Package clock has the clocks of services: the system's, and a manual clock that moves
// only when a caller moves it. Services declare an interface with the two methods that they
// need; both clocks implement it.
package clock

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// A Clock has the time and wakes callers. Packages below httpapi do not use time.Now,
// time.After, context.WithTimeout and the like (the linter forbids it), because those
// ignore a manual clock.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f once Now has reached t, at once if it already has. f must not
	// block. stop reports whether it prevented the call.
	AfterFunc(t time.Time, f func()) (stop func() bool)
}

// Sleep waits until an instant of c, a wake, or the end of ctx. The zero time never comes.
func Sleep(ctx context.Context, c Clock, until time.Time, wake <-chan struct{}) {
	due := make(chan struct{})
	if !until.IsZero() {
		defer c.AfterFunc(until, func() { close(due) })()
	}
	select {
	case <-due:
	case <-wake:
	case <-ctx.Done():
	}
}

// Longest is the longest that a loop waits for an instant. It is on the clock of the wall, and a
// machine that was suspended, or whose clock is set, reaches it earlier or later than it seemed when
// the wait began: timers count by a clock that does not know of either.
const Longest = 30 * time.Second

// Nap is Sleep for a loop that finds out itself what is due. It ends after Longest at the latest,
// unless until is zero.
func Nap(ctx context.Context, c Clock, until time.Time, wake <-chan struct{}) {
	Sleep(ctx, c, Within(c, until), wake)
}

// Within returns t, or the instant that is Longest from now if that is earlier. Zero stays zero.
func Within(c Clock, t time.Time) time.Time {
	if at := c.Now().Add(Longest); at.Before(t) {
		return at
	}
	return t
}

// minJump is the least difference that Jumps tells. What NTP corrects by and by is far below.
const minJump = 5 * time.Second

// Jumps calls f until ctx ends when c has moved by 5 s more or less than time has passed: forward
// when it was set or this machine was suspended, back when it was set. It notices that within Longest.
// A Manual clock does not jump.
func Jumps(ctx context.Context, c Clock, f func(by time.Duration)) {
	if _, manual := c.(*Manual); manual {
		return
	}
	wall, steady := c.Now().Round(0), time.Now()
	for {
		Sleep(ctx, c, c.Now().Add(Longest), nil)
		if ctx.Err() != nil {
			return
		}
		w, s := c.Now().Round(0), time.Now()
		if by := w.Sub(wall) - s.Sub(steady); by.Abs() >= minJump {
			f(by.Round(time.Millisecond))
		}
		wall, steady = w, s
	}
}

// System is the time package. Inside a testing/synctest bubble it is the bubble's time.
type System struct{}

// Now is time.Now.
func (System) Now() time.Time { return time.Now() }

// AfterFunc is time.AfterFunc with an instant.
func (System) AfterFunc(t time.Time, f func()) func() bool {
	return time.AfterFunc(time.Until(t), f).Stop
}

// WithDeadline is context.WithDeadline with the clock c. The cause is
// context.DeadlineExceeded.
func WithDeadline(ctx context.Context, c Clock, t time.Time) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := c.AfterFunc(t, func() { cancel(context.DeadlineExceeded) })
	return ctx, func() { stop(); cancel(context.Canceled) }
}

// A Stepper is background work without its own goroutines. Services are Steppers.
type Stepper interface {
	// Step does everything that is due at now and returns the next instant at which
	// something will be due; zero when nothing is scheduled. Calling it too early or too
	// often is harmless.
	Step(ctx context.Context, now time.Time) (next time.Time, err error)
}

// Manual is a clock that moves only by Advance and Set. It is safe for concurrent use, but
// Advance and Set must not be called concurrently.
type Manual struct {
	mu     sync.Mutex
	now    time.Time
	timers timers
	seq    uint64
}

// NewManual returns a clock at t.
func NewManual(t time.Time) *Manual { return &Manual{now: t} }

// Now returns the clock's time.
func (m *Manual) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// AfterFunc calls f during the Advance that reaches t, or at once if t has passed.
func (m *Manual) AfterFunc(t time.Time, f func()) func() bool {
	m.mu.Lock()
	if !t.After(m.now) {
		m.mu.Unlock()
		f()
		return func() bool { return false }
	}
	defer m.mu.Unlock()
	m.seq++
	tm := &timer{at: t, seq: m.seq, f: f}
	heap.Push(&m.timers, tm)
	return func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		if tm.pos < 0 {
			return false
		}
		heap.Remove(&m.timers, tm.pos)
		return true
	}
}

// Advance moves the clock forward by d. It stops at every instant at which a timer or a
// stepper has something due, so its cost depends on the number of events, not on d. At one
// instant it runs timers first, then the steppers in the given order.
func (m *Manual) Advance(ctx context.Context, d time.Duration, steppers ...Stepper) error {
	target := m.Now().Add(d)
	at := m.Now()
	for {
		next, err := m.settle(ctx, at, steppers)
		if err != nil {
			return err
		}
		if next.IsZero() || next.After(target) {
			if at.Equal(target) {
				return nil
			}
			next = target
		}
		at = next
	}
}

// Next returns when the first timer is due, or zero if there is none.
func (m *Manual) Next() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.timers) == 0 {
		return time.Time{}
	}
	return m.timers[0].at
}

// settle moves to at, runs what is due there and returns the next instant.
func (m *Manual) settle(ctx context.Context, at time.Time, steppers []Stepper) (next time.Time, err error) {
	for _, f := range m.due(at) {
		f()
	}
	for _, s := range steppers {
		n, err := s.Step(ctx, at)
		if err != nil {
			return time.Time{}, err
		}
		if n.After(at) && (next.IsZero() || n.Before(next)) {
			next = n
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.timers) > 0 && (next.IsZero() || m.timers[0].at.Before(next)) {
		next = m.timers[0].at
	}
	return next, nil
}

func (m *Manual) due(at time.Time) (fs []func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = at
	for len(m.timers) > 0 && !m.timers[0].at.After(at) {
		fs = append(fs, heap.Pop(&m.timers).(*timer).f)
	}
	return fs
}

type timer struct {
	at  time.Time
	seq uint64
	f   func()
	pos int // position in the heap; -1 if not in it
}

// timers is a heap, ordered by instant and then by registration.
type timers []*timer

func (h timers) Len() int { return len(h) }

func (h timers) Less(i, j int) bool {
	if c := h[i].at.Compare(h[j].at); c != 0 {
		return c < 0
	}
	return h[i].seq < h[j].seq
}

func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}

func (h *timers) Push(x any) {
	t := x.(*timer)
	t.pos = len(*h)
	*h = append(*h, t)
}

func (h *timers) Pop() any {
	old := *h
	n := len(old) - 1
	t := old[n]
	old[n] = nil
	*h = old[:n]
	t.pos = -1
	return t
}
