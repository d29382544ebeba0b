package postgres

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// times are how long the database may take.
type times struct {
	// attempt is for one attempt of a call, with the wait for a connection. The connection is closed
	// then, and the outcome of a commit that was sent is unknown.
	attempt time.Duration
	// statement is for one statement, and shorter than attempt: the database ends it and says so,
	// which is better to know than that nobody answered. A shorter one of the role stays.
	statement time.Duration
	// check is for an answer of a connection that was idle.
	check time.Duration
	// again is from the first attempt of a call to the last one's beginning.
	again time.Duration
	// end is how long Close waits for calls under way.
	end time.Duration
	// stalled is from when on Err reports a change that does not end, and reported for how long it
	// reports one that failed because of the database.
	stalled, reported time.Duration
	// listen is how often a connection that waits for notifications is checked.
	listen time.Duration
}

// settle fills in defaults. An attempt is shorter than the lease of a server (15 s), so that a
// connection that is lost does not cost the lease.
func (l times) settle() times {
	return times{
		attempt:   cmp.Or(l.attempt, 10*time.Second),
		statement: cmp.Or(l.statement, 9*time.Second),
		check:     cmp.Or(l.check, 2*time.Second),
		again:     cmp.Or(l.again, 15*time.Second),
		end:       cmp.Or(l.end, 500*time.Millisecond),
		stalled:   cmp.Or(l.stalled, 5*time.Second),
		reported:  cmp.Or(l.reported, 10*time.Second),
		listen:    cmp.Or(l.listen, 10*time.Second),
	}
}

// statementSetting makes a statement end before its attempt does.
func (l times) statementSetting() string {
	return fmt.Sprintf(`SELECT set_config('statement_timeout', CASE WHEN current_setting('statement_timeout')::interval BETWEEN '1 ms' AND '%[1]d ms' `+
		`THEN current_setting('statement_timeout') ELSE '%[1]d' END, false)`, l.statement.Milliseconds())
}

// idleTime is from when on a connection that was idle is checked: the database may have closed it, or be
// gone. A change that is sent into such a connection has an unknown outcome.
const idleTime = time.Second

// An attempt is one attempt of a call. When its time is over, its connection is closed below pgx, which
// ends whatever waits for it.
type attempt struct {
	cancel context.CancelFunc // of the wait for a connection

	mu   sync.Mutex
	over bool
	link *link
}

func (a *attempt) expire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	a.cancel()
	if a.link != nil {
		a.link.abandon()
	}
}

// uses says which connection to close, from now on.
func (a *attempt) uses(l *link) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.link = l
	if a.over && l != nil {
		l.abandon()
	}
}

// end reports whether the time was enough.
func (a *attempt) end() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.link = nil
	return !a.over
}

func (s *Store) after(d time.Duration, f func()) (stop func() bool) {
	return s.opts.Clock.AfterFunc(s.opts.Clock.Now().Add(d), f)
}

// once makes one attempt of a call. Every call of a Store goes through it.
func (s *Store) once(ctx context.Context, pool *pgxpool.Pool, fn func(c *pgxpool.Conn) error) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	a := &attempt{cancel: cancel}
	defer s.after(s.times.attempt, a.expire)()
	c, err := s.acquire(waiting, pool, a)
	if err != nil {
		return &unconnected{err}
	}
	defer c.Release()
	l := linkOf(c)
	err = fn(c)
	l.used.Store(s.opts.Clock.Now().UnixNano())
	inTime := a.end()
	switch {
	case !inTime:
		_ = c.Conn().Close(waiting) // pgx may not have noticed
		s.lost(l)
		if err != nil {
			err = &cut{&silent{s.times.attempt, err}}
		}
	case err == nil:
	case c.Conn().IsClosed():
		if ctx.Err() == nil && code(err) != codeIdle {
			s.lost(l)
		}
		err = &cut{err}
	case code(err) == codeReadOnly:
		// The connection leads to a server that was the primary until now, or is not any more.
		_ = c.Conn().Close(waiting)
		s.lost(l)
		err = &unchanged{err}
	}
	return err
}

// acquire returns a connection that answers, if it was not in use just now.
func (s *Store) acquire(ctx context.Context, pool *pgxpool.Pool, a *attempt) (*pgxpool.Conn, error) {
	for {
		c, err := pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		l := linkOf(c)
		a.uses(l)
		if s.opts.Clock.Now().UnixNano()-l.used.Load() < int64(idleTime) || s.answers(ctx, c, l) {
			return c, nil
		}
		a.uses(nil)
		c.Release()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		s.lost(l)
	}
}

// answers reports whether a connection answers. If not, it is closed.
func (s *Store) answers(ctx context.Context, c *pgxpool.Conn, l *link) bool {
	stop := s.after(s.times.check, l.abandon)
	err := c.Ping(ctx)
	if in := stop(); err != nil || !in {
		l.abandon()
		_ = c.Conn().Close(ctx)
		return false
	}
	return true
}

// lost closes the idle connections that are as old as one that is lost, and those in use after their calls.
func (s *Store) lost(l *link) {
	if s.links.lost(l) {
		s.pool.Reset()
		s.jobs.pool.Reset()
	}
}

// silent is the error of an attempt whose time was over.
type silent struct {
	after time.Duration
	err   error
}

func (e *silent) Error() string { return fmt.Sprintf("no answer within %v: %v", e.after, e.err) }
func (e *silent) Unwrap() error { return e.err }
