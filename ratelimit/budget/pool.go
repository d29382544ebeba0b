package budget

import (
	"context"
	"math"
	"slices"
	"sync"
)

// A Pool is a quantity of which users hold parts: bytes, requests, streams. It has a limit in
// all and one for each user, and knows who waits for room. A nil Pool has no limits. It is
// safe for concurrent use, and has no clock and no goroutines.
type Pool struct {
	mu    sync.Mutex
	most  int64              // in all; 0: no limit
	each  func(string) int64 // of a user; 0: no limit
	used  int64
	over  bool // somebody has gone on beyond most
	users map[string]*account
	line  []*account // of the users that wait, in the order in which they began to
}

// An account is what one user holds.
type account struct {
	used    int64
	holds   int  // that know this account
	over    bool // one of them has gone on beyond the limit of the user
	waiting []*waiter
}

type waiter struct {
	hold  *Hold
	n     int64
	ready chan struct{} // closed when the hold has got n
}

// NewPool returns a pool with a limit in all and one for each user, which may differ and
// change. 0 is no limit.
func NewPool(most int64, each func(user string) int64) *Pool {
	return &Pool{most: most, each: each, users: map[string]*account{}}
}

// A Hold is what one request holds of a pool. It is for one goroutine, and must be released.
// The zero Hold is of no pool: it gets whatever it asks for.
type Hold struct {
	pool    *Pool
	account *account
	user    string
	n       int64
	over    bool // beyond the limit of its user
	overAll bool // beyond the limit of all
}

// Hold returns a Hold of nothing for a user.
func (p *Pool) Hold(user string) Hold { return Hold{pool: p, user: user} }

// Size returns how much h holds.
func (h *Hold) Size() int64 { return h.n }

// Most returns n, or what h could have at most if n is more than that. Who asks for more than there
// could ever be waits in vain.
func (h *Hold) Most(n int64) int64 {
	p := h.pool
	if p == nil {
		return n
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if each := p.limit(h.user); each != 0 {
		n = min(n, each)
	}
	if p.most != 0 {
		n = min(n, p.most)
	}
	return n
}

// Left returns how much h may still take. It is at least 0.
func (h *Hold) Left() int64 {
	p, left := h.pool, int64(math.MaxInt64)
	if p == nil {
		return left
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if each := p.limit(h.user); each != 0 {
		left = each
		if a := p.users[h.user]; a != nil {
			left -= a.used
		}
	}
	if p.most != 0 {
		left = min(left, p.most-p.used)
	}
	return max(left, 0)
}

// Try adds n to h if there is room and nobody of the same user waits. Otherwise h is unchanged.
func (h *Hold) Try(n int64) bool {
	p := h.pool
	if p == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.account(h)
	if len(a.waiting) > 0 || !p.fits(h, n) {
		return false
	}
	p.take(h, n)
	return true
}

// Force adds n to h, whether there is room or not.
func (h *Hold) Force(n int64) {
	if p := h.pool; p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.account(h)
		p.take(h, n)
	}
}

// Grow adds n to h, and waits for room until ctx ends. Users wait for their own room in the
// order of their calls. A hold that has something already, and is the only one of its user to
// do so, may go on beyond a limit: otherwise holds that wait for one another would all wait in
// vain. So a user exceeds the limit by one hold at most, and so do all users together.
func (h *Hold) Grow(ctx context.Context, n int64) error {
	p := h.pool
	if p == nil {
		return nil
	}
	p.mu.Lock()
	a := p.account(h)
	if (len(a.waiting) == 0 || h.n > 0) && p.mayTake(h, n) {
		p.take(h, n)
		p.mu.Unlock()
		return nil
	}
	w := &waiter{h, n, make(chan struct{})}
	p.queue(a, w)
	p.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		return p.giveUp(a, w, ctx.Err())
	}
}

// queue adds w to the waiters of its user. Holds that have something come first: those that
// have nothing can only wait for what they give back.
func (p *Pool) queue(a *account, w *waiter) {
	if len(a.waiting) == 0 {
		p.line = append(p.line, a)
	}
	at := len(a.waiting)
	if w.hold.n > 0 {
		if i := slices.IndexFunc(a.waiting, func(v *waiter) bool { return v.hold.n == 0 }); i >= 0 {
			at = i
		}
	}
	a.waiting = slices.Insert(a.waiting, at, w)
}

// giveUp ends a wait, unless it was successful just now.
func (p *Pool) giveUp(a *account, w *waiter, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(a.waiting, w)
	if i < 0 {
		return nil
	}
	a.waiting = slices.Delete(a.waiting, i, i+1)
	p.serve() // others may have waited behind it
	return err
}

// Release gives back all that h holds. It may be called more than once.
func (h *Hold) Release() {
	if h.pool == nil || h.account == nil {
		return
	}
	p := h.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	h.account.used -= h.n
	p.used -= h.n
	h.n = 0
	if h.over {
		h.over, h.account.over = false, false
	}
	if h.overAll {
		h.overAll, p.over = false, false
	}
	h.account.holds--
	h.account = nil
	p.serve()
}

// InUse returns how much the user holds, how much all hold, and how many holds wait.
func (p *Pool) InUse(user string) (of, all int64, waiting int) {
	if p == nil {
		return 0, 0, 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.users[user]; a != nil {
		of = a.used
	}
	for _, a := range p.line {
		waiting += len(a.waiting)
	}
	return of, p.used, waiting
}

// maxAccounts is the number of users from which those that hold nothing are forgotten.
const maxAccounts = 1024

// account returns the account of h's user, which h keeps until its release.
func (p *Pool) account(h *Hold) *account {
	if h.account != nil {
		return h.account
	}
	a := p.users[h.user]
	if a == nil {
		if len(p.users) >= maxAccounts {
			p.forget()
		}
		a = &account{}
		p.users[h.user] = a
	}
	a.holds++
	h.account = a
	return a
}

func (p *Pool) forget() {
	for user, a := range p.users {
		if a.holds == 0 {
			delete(p.users, user)
		}
	}
}

func (p *Pool) limit(user string) int64 {
	if p.each == nil {
		return 0
	}
	return p.each(user)
}

// fits reports whether there is room for n.
func (p *Pool) fits(h *Hold, n int64) bool {
	each := p.limit(h.user)
	return (each == 0 || h.over || h.account.used+n <= each) && (p.most == 0 || h.overAll || p.used+n <= p.most)
}

// mayTake is fits for a hold that may go on beyond a limit, and makes it do so.
func (p *Pool) mayTake(h *Hold, n int64) bool {
	each := p.limit(h.user)
	full := each != 0 && !h.over && h.account.used+n > each
	allFull := p.most != 0 && !h.overAll && p.used+n > p.most
	if full && (h.n == 0 || h.account.over) || allFull && (h.n == 0 || p.over) {
		return false
	}
	if full {
		h.over, h.account.over = true, true
	}
	if allFull {
		h.overAll, p.over = true, true
	}
	return true
}

func (p *Pool) take(h *Hold, n int64) {
	h.n += n
	h.account.used += n
	p.used += n
}

// serve gives room to those who wait, as far as there is any.
func (p *Pool) serve() {
	if len(p.line) == 0 {
		return
	}
	line := p.line[:0]
	for _, a := range p.line {
		for len(a.waiting) > 0 && p.mayTake(a.waiting[0].hold, a.waiting[0].n) {
			w := a.waiting[0]
			p.take(w.hold, w.n)
			close(w.ready)
			a.waiting[0] = nil // or the array would keep what the hold is part of, for example a job
			a.waiting = a.waiting[1:]
		}
		if len(a.waiting) > 0 {
			line = append(line, a)
		}
	}
	clear(p.line[len(line):])
	p.line = line
}
