package postgres

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/internal/clock"
)

// Notifications are hints: some are lost when a connection breaks. They are sent after the
// commit, several in one statement, because PostgreSQL commits transactions that notify one
// after the other. Those commits do not wait for the disk.
const sqlNotify = `SELECT set_config('synchronous_commit', 'off', true), pg_notify(c, p) FROM unnest($1::text[], $2::text[]) u(c, p)`

// notifyPause is how long notifications are collected after some were sent. The first one after a
// pause is sent at once.
const notifyPause = 5 * time.Millisecond

// maxPayload is how many bytes the text of a notification has at most.
const maxPayload = 7 << 10

// A notifier sends notifications. Its goroutine runs only while there are some.
type notifier struct {
	s      *Store
	mu     sync.Mutex
	queued map[notification]bool // each is sent once
	busy   bool
	ended  bool
}

type notification struct{ channel, payload string }

// notify sends a payload to the other servers that listen to a channel. It does not block, and
// does not end with ctx. A payload is valid UTF-8 without NUL and has at most maxPayload bytes.
func (s *Store) notify(ctx context.Context, channel, payload string) {
	n := &s.notifier
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended {
		return
	}
	if n.queued == nil {
		n.queued = map[notification]bool{}
	}
	n.queued[notification{channel, payload}] = true
	if !n.busy {
		n.busy = true
		s.running.Go(func() { n.run(context.WithoutCancel(ctx)) })
	}
}

// end lets the goroutine send what is queued, and accepts no more.
func (n *notifier) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = true
}

func (n *notifier) run(ctx context.Context) {
	for {
		n.mu.Lock()
		channels, payloads := n.take()
		n.busy = len(channels) > 0
		n.mu.Unlock()
		if len(channels) == 0 {
			return
		}
		if _, err := n.s.exec(ctx, sqlNotify, channels, payloads); err != nil {
			n.s.opts.Logger.Warn("notifications were not sent", "count", len(channels), "err", err)
		}
		clock.Sleep(ctx, n.s.opts.Clock, n.s.opts.Clock.Now().Add(notifyPause), n.s.closing)
	}
}

func (n *notifier) take() (channels, payloads []string) {
	for q := range n.queued {
		channels, payloads = append(channels, q.channel), append(payloads, n.s.node+" "+q.payload)
	}
	clear(n.queued)
	return channels, payloads
}

// listen calls f with each payload that another Store sends to a channel, until ctx or the
// store ends. It calls ready when it begins to listen, and again after each interruption: what
// was sent before is lost. Neither may block. Through a pooler of transactions it hears nothing.
func (s *Store) listen(ctx context.Context, channel string, ready func(), f func(payload string)) error {
	ctx, cancel := s.untilClosed(ctx)
	defer cancel()
	if s.pooled {
		ready()
		<-ctx.Done()
		if s.closed() {
			return ErrClosed
		}
		return ctx.Err()
	}
	pauses := backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
	for {
		err := s.listenOnce(ctx, channel, func() { pauses.Reset(); ready() }, f)
		if s.closed() {
			return ErrClosed
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.opts.Logger.Warn("notifications of the database are interrupted", "err", s.failure(ctx, err))
		clock.Sleep(ctx, s.opts.Clock, s.opts.Clock.Now().Add(pauses.NextBackOff()), nil)
	}
}

func (s *Store) listenOnce(ctx context.Context, channel string, ready func(), f func(payload string)) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // the database notices the end in any case
	if err := s.ask(ctx, conn, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	ready()
	for {
		payload, err := s.next(ctx, conn)
		if err != nil {
			return err
		}
		if from, text, ok := strings.Cut(payload, " "); ok && from != s.node {
			f(text)
		}
	}
}

// next waits for a notification. From time to time it checks the connection.
func (s *Store) next(ctx context.Context, conn *pgx.Conn) (payload string, err error) {
	for {
		wait, cancel := clock.WithDeadline(ctx, s.opts.Clock, s.opts.Clock.Now().Add(s.times.listen))
		n, err := conn.WaitForNotification(wait)
		cancel()
		switch {
		case err == nil:
			return n.Payload, nil
		case ctx.Err() != nil || wait.Err() == nil:
			return "", err
		}
		if err := s.ask(ctx, conn, sqlChanges); err != nil {
			return "", err
		}
	}
}

// sqlChanges fails on a server that only reads: nobody notifies there.
const sqlChanges = `DO $$ BEGIN IF current_setting('transaction_read_only')::bool THEN RAISE SQLSTATE '` + codeReadOnly + `'; END IF; END $$`

// ask makes a statement on a connection that must answer at once.
func (s *Store) ask(ctx context.Context, conn *pgx.Conn, sql string) error {
	ctx, cancel := clock.WithDeadline(ctx, s.opts.Clock, s.opts.Clock.Now().Add(s.times.check))
	defer cancel()
	_, err := conn.Exec(ctx, sql)
	return err
}
