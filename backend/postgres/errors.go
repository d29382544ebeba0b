package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
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
	// ErrNotNow: the database refuses what it can do at another time, because its disk is full, a lock
	// or a statement took too long, or it only reads. Nothing was changed.
	ErrNotNow = problem.New(problem.Unavailable, "the database cannot do that now")
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
	codeReadOnly      = "25006" // a standby, or default_transaction_read_only is on
	codeLock          = "55P03" // lock_timeout
)

// Classes of such codes, which are the first two characters.
const (
	classConnection   = "08" // also of a pooler that has no connection
	classResources    = "53" // a disk that is full, too little memory, too many connections
	classIntervention = "57" // a timeout of statements, an administrator, a restart
	classSystem       = "58" // an error of input or output
)

func class(err error) string { return code(err)[:min(2, len(code(err)))] }

// isNotNow reports whether the database may accept later what it has refused.
func isNotNow(err error) bool {
	switch class(err) {
	case classConnection, classResources, classIntervention, classSystem:
		return true
	}
	return code(err) == codeLock || code(err) == codeReadOnly
}

// code is that of an error of PostgreSQL, whatever the driver; "": it is none.
func code(err error) string {
	if e := (interface{ SQLState() string })(nil); errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// mayBeOfOne reports whether an error of a transaction may be the fault of one of its calls, so that
// each can have a transaction of its own: the database has refused it, and has changed nothing. What the
// database cannot do now it cannot do for each of them either, and each would wait as long.
func mayBeOfOne(err error) bool {
	return code(err) != "" && !errors.Is(err, ErrUnknown) && !isNotNow(err)
}

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
		return fmt.Errorf("postgres: %s: the user %q may not make or change the schema podyard of the database %q; a superuser can give it the schema: "+
			"CREATE SCHEMA podyard AUTHORIZATION %s: %w", at, c.User, c.Database, pgx.Identifier{c.User}.Sanitize(), err)
	}
	if e := (*wrongServer)(nil); errors.As(err, &e) && !severalHosts(c) {
		return fmt.Errorf("postgres: %s cannot be used: %w", at, e)
	}
	if e := (*pgconn.ConnectError)(nil); errors.As(err, &e) {
		return fmt.Errorf("postgres: cannot connect to %s: %w", at, err)
	}
	return fmt.Errorf("postgres: open %s, database %q: %w", at, c.Database, err)
}

// severalHosts reports whether the URL names several servers, of which an error of connecting says what is
// wrong with each.
func severalHosts(c *pgx.ConnConfig) bool {
	return slices.ContainsFunc(c.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.Host != c.Host || f.Port != c.Port })
}

// A fault is an error of the database with what a caller sees of it.
type fault struct {
	seen  *problem.Error
	cause error
}

func (f *fault) Error() string   { return f.seen.Detail + ": " + f.cause.Error() }
func (f *fault) Unwrap() []error { return []error{f.seen, f.cause} }

// failure turns an error of the database into the error of a call with ctx: ErrClosed, ErrUnreachable or
// ErrUnknown for connections, ErrNotNow, and other errors as they are.
func (s *Store) failure(ctx context.Context, err error) error {
	var known *problem.Error
	var full *budget.Error
	var taken *queue.TakenError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &taken):
		return taken
	case errors.As(err, &full):
		return full
	case errors.As(err, &known):
		return known
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		return err
	case s.closed():
		return ErrClosed
	}
	seen := ErrUnreachable
	switch {
	case errors.As(err, new(*unconnected)), cutBeforeCommit(err):
	case errors.As(err, new(*cut)):
		seen = ErrUnknown
	case isNotNow(err):
		seen = ErrNotNow
	default:
		return fmt.Errorf("postgres: %w", err)
	}
	err = &fault{seen, err}
	s.troubles.note(err)
	return err
}
