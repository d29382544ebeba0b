package postgres

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/podyard/podyard/problem"
)

// oldestVersion is that of the oldest server that works, as server_version_num has it.
const oldestVersion = 15_00_00

// A wrongServer is a server of PostgreSQL that cannot be used.
type wrongServer struct{ code, what string }

func (e *wrongServer) Error() string { return e.what }

// SQLState is the code that a change would fail with; "": another one.
func (e *wrongServer) SQLState() string { return e.code }

const (
	whatReadOnly = "it only reads: default_transaction_read_only is on"
	whatStandby  = "it only reads, because it is a standby. Use the address of the primary, or name all servers: postgres://USER@HOST1,HOST2/DB"
)

const sqlServer = `SELECT current_setting('server_version_num'), current_setting('server_version'), pg_is_in_recovery(), current_setting('transaction_read_only')`

// prepared returns what each connection begins with: settings, which may be empty, and a look at the server.
// Where a URL names several servers, the first one that takes changes is used. It is a part of connecting, so
// it has the same time.
func prepared(settings string) pgconn.ValidateConnectFunc {
	return func(ctx context.Context, c *pgconn.PgConn) error {
		results, err := c.Exec(ctx, settings+sqlServer).ReadAll()
		if err != nil {
			return err
		}
		row := results[len(results)-1].Rows[0]
		return checkServer(string(row[0]), string(row[1]), string(row[2]) == "t", string(row[3]) == "on")
	}
}

// checkServer says why a server with these answers to sqlServer cannot be used.
func checkServer(number, version string, standby, readOnly bool) error {
	n, err := strconv.Atoi(number)
	switch {
	case err != nil || n < oldestVersion:
		return &wrongServer{what: fmt.Sprintf("it is PostgreSQL %s, and version %d or newer is needed", version, oldestVersion/10_000)}
	case standby:
		return &wrongServer{code: codeReadOnly, what: whatStandby}
	case readOnly:
		return &wrongServer{code: codeReadOnly, what: whatReadOnly}
	}
	return nil
}

// clockLimit is how much the clock of a server may differ from that of the database. Servers compare leases
// with their own clocks: one that is ahead takes the jobs of all others as lost.
const clockLimit = 5 * time.Second

// look returns what is wrong with the database although it answers: it only reads, or the clocks differ by
// more than clockLimit for certain.
func (s *Store) look(ctx context.Context) error {
	return s.read(ctx, func(c *pgxpool.Conn) error {
		var readOnly bool
		var there time.Time
		before := s.opts.Clock.Now()
		err := c.QueryRow(ctx, `SELECT current_setting('transaction_read_only')::bool, clock_timestamp()`).Scan(&readOnly, &there)
		if err != nil {
			return err
		}
		if readOnly {
			return &wrongServer{code: codeReadOnly, what: whatReadOnly}
		}
		if ahead := before.Sub(there); ahead > clockLimit {
			return clockError(ahead, "ahead of")
		}
		if behind := there.Sub(s.opts.Clock.Now()); behind > clockLimit {
			return clockError(behind, "behind")
		}
		return nil
	})
}

func clockError(by time.Duration, how string) error {
	return problem.New(problem.Unavailable, fmt.Sprintf("the clock of this server is %v %s that of the database, and the limit is %v: both must follow NTP",
		by.Round(time.Second), how, clockLimit))
}

// lookNow looks and then at most once in a while, and the log gets what is wrong.
func (s *Store) lookNow(ctx context.Context) {
	now := s.opts.Clock.Now()
	last := s.looked.Load()
	if now.UnixNano()-last < int64(lookPause) || !s.looked.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	if err := s.look(ctx); err != nil && ctx.Err() == nil {
		s.opts.Logger.Error("this server cannot work with the database as it should", "err", err)
	}
}

const lookPause = 30 * time.Second
