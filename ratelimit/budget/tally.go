package budget

import (
	"context"
	"sync"
)

// A Holding is what one record takes of the budgets of its user. The zero value is nothing.
type Holding struct {
	User string
	Of   [2]Amount
}

// An Amount is a number of one budget.
type Amount struct {
	Budget Budget
	N      int64
}

// Env returns the size of an environment.
func Env(env map[string]string) (n int64) {
	for name, value := range env {
		n += int64(len(name) + len(value))
	}
	return n
}

// Texts returns the size of texts that a user chooses, whose length has no other limit than that
// of a request.
func Texts(texts ...string) (n int64) {
	for _, s := range texts {
		n += int64(len(s))
	}
	return n
}

// A Tally is a Counter for a store of records. The zero value is ready. The store calls Move
// under the lock of its write, so that what is counted is what is stored.
type Tally struct {
	mu     sync.Mutex
	limits *Set
	used   map[string]*Usage
}

var _ Counter = (*Tally)(nil)

// Move counts that a record that took old now takes what now says. old is nothing for a new
// record, and now is for one that goes. It returns an [Error], and changes nothing, if the
// record takes more than before and its user is then over a limit. The user does not change.
func (t *Tally) Move(old, now Holding) error {
	user := now.User
	if user == "" {
		user = old.User
	}
	if old.Of == now.Of || user == "" {
		return nil
	}
	var by Usage
	for i := range old.Of {
		by[old.Of[i].Budget] -= old.Of[i].N
		by[now.Of[i].Budget] += now.Of[i].N
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	u, l := t.used[user], t.limits.Of(user)
	if u == nil {
		u = &Usage{}
	}
	for b, n := range by {
		if err := l.Check(Budget(b), u[b], n); err != nil {
			return err
		}
	}
	u.Add(&by)
	t.keep(user, u)
	return nil
}

// Load counts a record that is there, over the limits too.
func (t *Tally) Load(h Holding) {
	if h.User == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.used[h.User]
	if u == nil {
		u = &Usage{}
	}
	for _, a := range h.Of {
		u[a.Budget] += a.N
	}
	t.keep(h.User, u)
}

func (t *Tally) keep(user string, u *Usage) {
	if t.used == nil {
		t.used = map[string]*Usage{}
	}
	t.used[user] = u
	if u.Empty() {
		delete(t.used, user)
	}
}

// Limit implements Counter.
func (t *Tally) Limit(s *Set) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limits = s
}

// Usage implements Counter.
func (t *Tally) Usage(_ context.Context, user string) (Usage, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if u := t.used[user]; u != nil {
		return *u, nil
	}
	return Usage{}, nil
}

// Users implements Counter.
func (t *Tally) Users(context.Context) ([]string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]string, 0, len(t.used))
	for user := range t.used {
		list = append(list, user)
	}
	return list, nil
}
