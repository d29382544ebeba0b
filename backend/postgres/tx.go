package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// begin is the isolation of every transaction, whatever the default of the database.
const begin = "BEGIN ISOLATION LEVEL READ COMMITTED"

// How long the database waits for the next statement of a transaction, in milliseconds, before it
// ends the connection. A server may stand still in the middle of one, and has locked rows that the
// others wait for: they could not give the jobs of a worker that is lost to another one.
const (
	idleName    = "idle_in_transaction_session_timeout"
	idleLimit   = "500"
	idleSetting = "SET " + idleName + " = " + idleLimit
)

// transaction are the options of a transaction. Through a pooler it has the limit itself.
func (s *Store) transaction() pgx.TxOptions {
	if s.pooled {
		return pgx.TxOptions{BeginQuery: begin + "; SET LOCAL " + idleName + " = " + idleLimit}
	}
	return pgx.TxOptions{BeginQuery: begin}
}

// attempts is how often a call is made that certainly changed nothing: after a restart of the
// database each connection of the pool fails once, and the database ends one of two
// transactions that wait for each other.
const attempts = 64

// tx runs fn in a transaction and commits it if fn returns nil. fn may run more than once. An
// error of fn that is not of the database is returned as it is.
func (s *Store) tx(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return s.txIn(ctx, s.pool, fn)
}

// txIn is tx with a connection of a pool.
func (s *Store) txIn(ctx context.Context, pool *pgxpool.Pool, fn func(tx pgx.Tx) error) error {
	return s.repeatIn(ctx, pool, func(c *pgxpool.Conn) error {
		tx, err := c.BeginTx(ctx, s.transaction())
		if err != nil {
			return &unchanged{err}
		}
		if err := fn(tx); err != nil {
			_ = tx.Rollback(context.WithoutCancel(ctx)) // a connection that cannot roll back is closed
			return &unchanged{err}
		}
		return tx.Commit(ctx)
	})
}

// exec runs one statement, which is its own transaction, and returns the number of its rows.
func (s *Store) exec(ctx context.Context, sql string, args ...any) (rows int64, err error) {
	err = s.repeat(ctx, func(c *pgxpool.Conn) error {
		tag, err := c.Exec(ctx, sql, args...)
		rows = tag.RowsAffected()
		return err
	})
	return rows, err
}

// read calls fn, which only reads and may run more than once.
func (s *Store) read(ctx context.Context, fn func(c *pgxpool.Conn) error) error {
	return s.repeat(ctx, func(c *pgxpool.Conn) error {
		if err := fn(c); err != nil {
			return &unchanged{err}
		}
		return nil
	})
}

// unchanged is an error before the commit.
type unchanged struct{ error }

func (u *unchanged) Unwrap() error { return u.error }

// cut is an error that ended the connection.
type cut struct{ error }

func (c *cut) Unwrap() error { return c.error }

// repeat calls fn with a connection, and again when it certainly has changed nothing and
// another attempt may succeed.
func (s *Store) repeat(ctx context.Context, fn func(c *pgxpool.Conn) error) error {
	return s.repeatIn(ctx, s.pool, fn)
}

// repeatIn is repeat with a connection of a pool.
func (s *Store) repeatIn(ctx context.Context, pool *pgxpool.Pool, fn func(c *pgxpool.Conn) error) error {
	last := s.opts.Clock.Now().Add(s.times.again)
	for n := 1; ; n++ {
		err := s.once(ctx, pool, fn)
		if err == nil || n == attempts || ctx.Err() != nil || s.closed() || !again(err, n) || !s.opts.Clock.Now().Before(last) {
			return s.failure(ctx, err)
		}
	}
}

// unconnected is an error of a call that got no connection.
type unconnected struct{ error }

func (u *unconnected) Unwrap() error { return u.error }

func again(err error, n int) bool {
	switch code(err) {
	case codeSerialization, codeDeadlock, codeIdle:
		return true
	case codeReadOnly:
		return n < readOnlyAttempts
	}
	return cutBeforeCommit(err)
}

// readOnlyAttempts is how often a call is made that a server refuses because it only reads. A new
// connection finds the primary, but through a pooler it may lead to the same server again.
const readOnlyAttempts = 3

// cutBeforeCommit does not ask pgconn.SafeToRetry, which also reports true after a commit was
// sent whose answer did not come: pgx then returns the error of a connection that was closed
// before.
func cutBeforeCommit(err error) bool {
	return errors.As(err, new(*cut)) && errors.As(err, new(*unchanged))
}
