package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/podyard/podyard/problem"
)

// errStalled: the database answers, but changes do not end: for example its synchronous standby is away.
var errStalled = problem.New(problem.Unavailable, "changes of the database do not end")

// Err returns nil if the database takes changes, and otherwise an error that a call has returned lately,
// or would return. It is for the readiness of a server.
func (s *Store) Err(ctx context.Context) error {
	if s.closed() {
		return ErrClosed
	}
	if d := s.jobs.stalled(); d >= s.times.stalled {
		return &fault{errStalled, fmt.Errorf("one has not ended for %v", d.Round(time.Second))}
	}
	if err := s.troubles.recent(s.opts.Clock.Now().Add(-s.times.reported)); err != nil {
		return err
	}
	err := s.look(ctx)
	if err != nil && problem.KindOf(err) != problem.Unavailable { // ctx has ended
		err = &fault{ErrUnreachable, err}
	}
	return err
}

// troubles are what Err reports although the database answers, and the log gets: callers see a sentence only.
type troubles struct {
	s *Store

	mu     sync.Mutex
	at     time.Time
	err    error
	logged time.Time
}

// note is called with what calls return when the database fails them.
func (t *troubles) note(err error) {
	silent := errors.As(err, new(*silent))
	if !silent && !errors.Is(err, ErrNotNow) {
		return
	}
	now := t.s.opts.Clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if silent || class(err) == classResources || code(err) == codeReadOnly {
		t.at, t.err = now, err
	}
	if now.Sub(t.logged) >= t.s.times.reported {
		t.logged = now
		t.s.opts.Logger.Warn("the database does not do what it is asked for", "err", err)
	}
}

// works is called after changes.
func (t *troubles) works() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil && class(t.err) != classResources { // small changes fit on a disk that is nearly full
		t.err = nil
	}
}

// recent returns what was noted since an instant.
func (t *troubles) recent(since time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.at.Before(since) {
		return nil
	}
	return t.err
}
