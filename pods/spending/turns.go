package spending

import (
	"context"
	"sync"
)

// turns lets one call for a user go on at a time.
type turns struct {
	mu    sync.Mutex
	users map[string]*turn
}

type turn struct {
	taken chan struct{} // full while a call goes on
	calls int           // that go on or wait
}

// enter waits for the turn of a call, which ends with leave.
func (t *turns) enter(ctx context.Context, user string) (leave func(), err error) {
	x := t.join(user)
	select {
	case x.taken <- struct{}{}:
		return func() { <-x.taken; t.part(user, x) }, nil
	case <-ctx.Done():
		t.part(user, x)
		return nil, ctx.Err()
	}
}

func (t *turns) join(user string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.users[user]
	if x == nil {
		x = &turn{taken: make(chan struct{}, 1)}
		if t.users == nil {
			t.users = map[string]*turn{}
		}
		t.users[user] = x
	}
	x.calls++
	return x
}

func (t *turns) part(user string, x *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if x.calls--; x.calls == 0 {
		delete(t.users, user)
	}
}
