package budget

import (
	"context"
	"sync"
	"time"
)

// recentHours is how many hours a Recent looks back, besides the one that is not over.
const recentHours = 24

// A Recent counts what users did in the last day, each thing for 24 to 25 hours. It is a Counter
// of one process. It is safe for concurrent use. A nil Recent counts nothing.
type Recent struct {
	budget Budget
	set    *Set
	now    func() time.Time

	mu    sync.Mutex
	users map[string]*hours
}

// hours are the counts of one user, each in the place of its hour.
type hours struct {
	last int64 // the hour of the newest count, since 1970
	n    [recentHours + 1]int64
}

// NewRecent returns a Recent for a budget, with the limits of s. now is the clock.
func NewRecent(b Budget, s *Set, now func() time.Time) *Recent {
	return &Recent{budget: b, set: s, now: now, users: map[string]*hours{}}
}

// Take counts one thing more of a user, or returns an [Error].
func (r *Recent) Take(user string) error {
	if r == nil || r.set.Of(user).Of(r.budget) == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.users[user]
	if h == nil {
		h = &hours{}
	}
	used := h.sum(r.hour())
	if err := r.set.Of(user).Check(r.budget, used, 1); err != nil {
		return err
	}
	r.users[user] = h
	h.n[h.last%int64(len(h.n))]++
	return nil
}

// Give takes back what the last Take of a user counted, because nothing was done.
func (r *Recent) Give(user string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.users[user]
	if h == nil {
		return
	}
	if n := &h.n[h.last%int64(len(h.n))]; *n > 0 {
		*n--
	}
}

func (r *Recent) hour() int64 { return r.now().Unix() / 3600 }

// sum returns the counts that are not over at an hour. It forgets the others.
func (h *hours) sum(now int64) (all int64) {
	if now > h.last+recentHours {
		*h = hours{last: now}
	}
	for ; h.last < now; h.last++ {
		h.n[(h.last+1)%int64(len(h.n))] = 0
	}
	for _, n := range h.n {
		all += n
	}
	return all
}

var _ Counter = (*Recent)(nil)

// Limit implements Counter. A Recent has the limits that it was made with.
func (r *Recent) Limit(*Set) {}

// Usage implements Counter.
func (r *Recent) Usage(_ context.Context, user string) (u Usage, _ error) {
	if r == nil {
		return u, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.users[user]; h != nil {
		u[r.budget] = h.sum(r.hour())
	}
	return u, nil
}

// Users implements Counter.
func (r *Recent) Users(context.Context) (list []string, _ error) {
	if r == nil {
		return nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for user, h := range r.users {
		if h.sum(r.hour()) == 0 {
			delete(r.users, user)
			continue
		}
		list = append(list, user)
	}
	return list, nil
}
