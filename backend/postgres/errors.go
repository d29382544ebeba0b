package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
)

// Errors of Open and of calls.
var (
	// ErrURL: Open cannot use the URL.
	ErrURL = errors.New("postgres: the URL of the database is not valid")
	// ErrNewer: the schema was made by a newer version of the program.
	ErrNewer = errors.New("postgres: the schema of the database is newer than this program")
	// ErrClosed: the Store is closed.
	ErrClosed = problem.New(problem.Unavailable, "the store is closed")
	// ErrUnreachable: the database cannot be reached, or refuses the connection. Nothing was
	// changed.
	ErrUnreachable = problem.New(problem.Unavailable, "the database cannot be reached")
	// ErrUnknown: the connection broke while a change was under way. Whether it was made is
	// unknown.
	ErrUnknown = problem.New(problem.Unavailable, "the connection to the database broke: whether the change was made is unknown")
)

// Codes of errors of PostgreSQL.
const (
	codeWrongPassword = "28P01"
	codeNotAllowed    = "28000"
	codeNoDatabase    = "3D000"
	codeNoPrivilege   = "42501"
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeIdle          = "25P03" // the transaction stood still, and is undone
	codeUnique        = "23505"
)

// code is that of an error of PostgreSQL, whatever the driver; "": it is none.
func code(err error) string {
	if e := (interface{ SQLState() string })(nil); errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// mayBeOfOne reports whether an error of a transaction may be the fault of one of its calls, so that
// each can have a transaction of its own: the database has refused it, and has changed nothing.
func mayBeOfOne(err error) bool { return code(err) != "" && !errors.Is(err, ErrUnknown) }

// openError says what Open could not do, and where. It has no password: the errors of pgx
// have only the user, the host and the database.
func openError(c *pgx.ConnConfig, err error) error {
	at := net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
	switch code(err) {
	case codeWrongPassword, codeNotAllowed:
		return fmt.Errorf("postgres: %s refuses the user %q or its password: %w", at, c.User, err)
	case codeNoDatabase:
		return fmt.Errorf("postgres: %s has no database %q: %w", at, c.Database, err)
	case codeNoPrivilege:
		return fmt.Errorf("postgres: the user %q may not change the schema of the database %q (see docs/postgres.md): %w", c.User, c.Database, err)
	}
	if e := (*pgconn.ConnectError)(nil); errors.As(err, &e) {
		return fmt.Errorf("postgres: cannot connect to %s: %w", at, err)
	}
	return fmt.Errorf("postgres: open %s, database %q: %w", at, c.Database, err)
}

// A fault is an error of the database with what a caller sees of it.
type fault struct {
	seen  *problem.Error
	cause error
}

func (f *fault) Error() string   { return f.seen.Detail + ": " + f.cause.Error() }
func (f *fault) Unwrap() []error { return []error{f.seen, f.cause} }

// failure turns an error of the database into the error of a call: ErrClosed, ErrUnreachable or
// ErrUnknown for connections, and other errors as they are.
func (s *Store) failure(err error) error {
	var known *problem.Error
	var full *budget.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &full):
		return full
	case errors.As(err, &known):
		return known
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case s.closed():
		return ErrClosed
	case errors.As(err, new(*unconnected)), cutBeforeCommit(err):
		return &fault{ErrUnreachable, err}
	case errors.As(err, new(*cut)):
		return &fault{ErrUnknown, err}
	}
	return fmt.Errorf("postgres: %w", err)
}
