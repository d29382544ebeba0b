package serverless

import (
	"testing"
	"time"
)

// A lockedClock is one that holds a lock while it calls functions, as a manual clock may: it must
// not be called by who holds a lock that those functions take.
type lockedClock struct {
	t *testing.T
	l *loop
}

func (c *lockedClock) Now() time.Time { return time.Unix(0, 0) }

func (c *lockedClock) AfterFunc(time.Time, func()) func() bool {
	c.free("AfterFunc")
	return func() bool { c.free("stop"); return true }
}

func (c *lockedClock) free(what string) {
	c.t.Helper()
	if !c.l.mu.TryLock() {
		c.t.Errorf("%s of the clock is called by who holds the lock that release takes", what)
		return
	}
	c.l.mu.Unlock()
}

func TestTheClockIsCalledWithoutTheLockOfRuns(t *testing.T) {
	l := &loop{freed: make(chan struct{}, 1)}
	l.s = &Service{clock: &lockedClock{t, l}}
	r := &run{cancel: func(error) {}}
	l.running = map[*run]bool{r: true}
	l.stop(r, nil)
	l.stop(r, nil)
	l.release(r, false)
	if len(l.running) > 0 {
		t.Error("a run that was released still has a slot")
	}
}
