package budget_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/ratelimit/budget"
)

func each(n int64) func(string) int64 { return func(string) int64 { return n } }

func wantUse(t *testing.T, p *budget.Pool, user string, of, all int64, waiting int) {
	t.Helper()
	if o, a, w := p.InUse(user); o != of || a != all || w != waiting {
		t.Errorf("%s holds %d, all hold %d, %d wait; want %d, %d, %d", user, o, a, w, of, all, waiting)
	}
}

func TestAPoolLimitsEachUserAndAllTogether(t *testing.T) {
	p := budget.NewPool(15, each(10))
	a, b, c := p.Hold("alice"), p.Hold("alice"), p.Hold("bob")
	if !a.Try(8) || b.Try(3) || !b.Try(2) || c.Try(6) || !c.Try(5) {
		t.Error("10 of a user and 15 in all do not hold")
	}
	wantUse(t, p, "alice", 10, 15, 0)
	a.Release()
	a.Release()
	wantUse(t, p, "alice", 2, 7, 0)
	c.Force(20)
	wantUse(t, p, "bob", 25, 27, 0)
	b.Release()
	c.Release()
	wantUse(t, p, "bob", 0, 0, 0)
}

func TestLeftIsTheSmallerRoomOfTheUserAndOfAll(t *testing.T) {
	p := budget.NewPool(15, each(10))
	a, b := p.Hold("alice"), p.Hold("bob")
	if n := a.Left(); n != 10 {
		t.Errorf("of nothing: %d, want 10", n)
	}
	a.Force(7)
	if n, m := a.Left(), b.Left(); n != 3 || m != 8 {
		t.Errorf("alice has %d left and bob %d, want 3 and 8", n, m)
	}
	b.Force(20)
	if n := a.Left(); n != 0 {
		t.Errorf("over the limit: %d, want 0", n)
	}
	if p := budget.NewPool(0, nil).Hold("alice"); p.Left() < 1<<62 {
		t.Errorf("without limits: %d", p.Left())
	}
}

func TestANilPoolAndAZeroHoldHaveNoLimits(t *testing.T) {
	var none *budget.Pool
	for _, h := range []budget.Hold{none.Hold("alice"), {}} {
		if !h.Try(1<<40) || h.Grow(t.Context(), 1<<40) != nil {
			t.Error("refused")
		}
		h.Force(1)
		h.Release()
	}
}

func TestUsersWaitForTheirOwnRoomInOrderAndGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := budget.NewPool(0, each(10))
		first := p.Hold("alice")
		if err := first.Grow(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		order := make(chan int, 3)
		for i, n := range []int64{6, 5, 4} {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), []time.Duration{time.Hour, time.Minute, time.Hour}[i])
				defer cancel()
				h := p.Hold("alice")
				defer h.Release()
				if err := h.Grow(ctx, n); err != nil {
					if i != 1 || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("wait %d: %v", i, err)
					}
					return
				}
				order <- i
				time.Sleep(2 * time.Hour)
			}()
			synctest.Wait()
		}
		wantUse(t, p, "alice", 10, 10, 3)
		other := p.Hold("bob")
		if !other.Try(10) {
			t.Error("bob waits for alice")
		}
		late := p.Hold("alice")
		if late.Try(1) {
			t.Error("a request overtakes those that wait")
		}
		late.Release()
		first.Release()
		synctest.Wait()
		wantUse(t, p, "alice", 6, 16, 2)
		time.Sleep(2 * time.Minute) // the second gives up, and the third has room
		wantUse(t, p, "alice", 10, 20, 0)
		if a, b := <-order, <-order; a != 0 || b != 2 {
			t.Errorf("served %d, then %d", a, b)
		}
		time.Sleep(3 * time.Hour)
		other.Release()
		wantUse(t, p, "alice", 0, 0, 0)
	})
}

// Each of four bodies has a part and needs another one: none of them has room, and they must not
// wait for one another.
func TestHoldsThatGrowDoNotWaitForOneAnotherInVain(t *testing.T) {
	for name, p := range map[string]*budget.Pool{"user": budget.NewPool(0, each(40)), "all": budget.NewPool(40, nil)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// The five wake in the same moment of the virtual time, so
				// each keeps what it saw for itself.
				saw := make(chan int64, 5)
				for range 5 {
					go func() {
						h := p.Hold("alice")
						most := int64(0)
						defer func() { h.Release(); saw <- most }()
						for range 2 {
							if err := h.Grow(t.Context(), 10); err != nil {
								t.Error(err)
							}
							synctestSleep()
							_, all, _ := p.InUse("alice")
							most = max(most, all)
						}
					}()
				}
				most := int64(0)
				for range 5 {
					most = max(most, <-saw)
				}
				if most != 50 {
					t.Errorf("at most %d are held, want the limit and one hold beyond", most)
				}
				wantUse(t, p, "alice", 0, 0, 0)
			})
		})
	}
}

func synctestSleep() { time.Sleep(time.Second) }

func TestUsersWhoHoldNothingAreForgotten(t *testing.T) {
	p := budget.NewPool(0, each(1))
	kept := p.Hold("kept")
	if !kept.Try(1) {
		t.Fatal("no room")
	}
	for i := range 5000 {
		h := p.Hold(string(rune(i + 0x4e00)))
		if !h.Try(1) {
			t.Fatal("no room")
		}
		h.Release()
	}
	wantUse(t, p, "kept", 1, 1, 0)
	if n := testing.AllocsPerRun(100, func() {
		h := p.Hold("alice")
		h.Try(1)
		h.Release()
	}); n > 0 {
		t.Errorf("%v allocations for a request of a user who is known", n)
	}
}
