package idempotency

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/podyard/podyard/problem"
)

// A Guard has the keys of the requests that are under way in this process. The zero value is
// ready. It is safe for concurrent use.
type Guard struct {
	mu   sync.Mutex
	busy map[Digest]bool
}

func (g *Guard) enter(key Digest) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy[key] {
		return false
	}
	if g.busy == nil {
		g.busy = map[Digest]bool{}
	}
	g.busy[key] = true
	return true
}

func (g *Guard) leave(key Digest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.busy, key)
}

// A Creation is a creation that Do makes at most once per key.
type Creation[T any] struct {
	Guard *Guard
	Store Finder
	Now   time.Time
	// Check returns the faults of the request as a problem.Invalid. Do calls it only to
	// report these faults before those of the key (docs/decisions.md 38). It changes
	// nothing.
	Check func() error
	// Create makes the creation. It passes r to Add, or with the job to the queue.
	Create func(r *Record) (T, error)
}

// Do makes a creation. r may be nil: the request has no key, and Do only calls Create.
// Otherwise the errors are those of Create and of r.Room,
// ErrBusy, ErrReused and *Repeated.
//
// Two servers may make the same request at once. The store accepts one of them, and the
// other one gets *Repeated.
func Do[T any](ctx context.Context, r *Request, c Creation[T]) (v T, err error) {
	if r == nil {
		return c.Create(nil)
	}
	if !c.Guard.enter(r.Key) {
		return v, c.refuse(ErrBusy)
	}
	defer c.Guard.leave(r.Key)
	if err := c.before(ctx, r); err != nil {
		return v, err
	}
	if r.Room != nil {
		if err := r.Room.Take(); err != nil {
			return v, c.refuse(err)
		}
	}
	v, err = c.Create(&Record{Request: Request{Key: r.Key, Content: r.Content}, At: c.Now.UTC().Truncate(time.Millisecond)})
	if err != nil {
		if r.Room != nil {
			r.Room.Give()
		}
		return *new(T), c.after(ctx, r, err)
	}
	return v, nil
}

// before returns the error of a request with a key that was used, and nil for a new key.
func (c *Creation[T]) before(ctx context.Context, r *Request) error {
	old, err := c.Store.FindKey(ctx, r.Key)
	switch {
	case errors.Is(err, ErrNotFound) || err == nil && old.Over(c.Now):
		return nil
	case err != nil:
		return err
	case old.Content != r.Content:
		return c.refuse(ErrReused)
	}
	return &Repeated{old.ID}
}

// after returns the error of a request whose creation failed with err. Another server may have
// made the request meanwhile. This one was then refused because the key is taken, or because
// the other one took the last capacity.
func (c *Creation[T]) after(ctx context.Context, r *Request, err error) error {
	now := c.before(ctx, r)
	if other := (*Repeated)(nil); errors.As(now, &other) || now != nil && errors.Is(err, ErrTaken) {
		return now
	}
	return err
}

// refuse returns err, unless the request has faults of its own.
func (c *Creation[T]) refuse(err error) error {
	if faults := c.Check(); problem.KindOf(faults) == problem.Invalid && faults != nil {
		return faults
	}
	return err
}
