package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/podyard/podyard/internal/clock"
)

// The files of migrations are named by their version: 0001_name.sql, 0002_name.sql. A
// migration that was released is never changed, and only adds to the schema: an older server
// continues while newer ones start.
//
//go:embed migrations/*.sql
var migrationFiles embed.FS

// A migration is one step of the schema.
type migration struct {
	version int // from 1, without gaps
	name    string
	sql     string
}

// migrationLock is the key of the advisory lock under which the schema changes.
const migrationLock = 0x706f647961726401

func migrations() ([]migration, error) {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql") // sorted
	if err != nil {
		return nil, err
	}
	list := make([]migration, 0, len(names))
	for i, name := range names {
		base := strings.TrimPrefix(name, "migrations/")
		number, _, _ := strings.Cut(base, "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			return nil, fmt.Errorf("postgres: migration %s is not number %d", base, i+1)
		}
		sql, err := migrationFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		list = append(list, migration{version, base, string(sql)})
	}
	return list, nil
}

// lockWait is how long a migration waits for a table that somebody uses. Whoever wants the table after the
// migration waits behind it, so it gives up, lets the others go on, and tries again.
const (
	lockWait  = "500"
	lockPause = time.Second
)

// migrate brings the schema up to date, one migration in each transaction.
func (s *Store) migrate(ctx context.Context) error {
	list, err := migrations()
	if err != nil {
		return err
	}
	version, err := schemaVersion(ctx, s.pool)
	for err == nil && version < len(list) {
		version, err = migrateOne(ctx, s.pool, list)
		if code(err) == codeLock {
			s.opts.Logger.Warn("a change of the schema waits for transactions of others", "err", err)
			clock.Sleep(ctx, s.opts.Clock, s.opts.Clock.Now().Add(lockPause), s.closing)
		}
		if code(err) == codeIdle || code(err) == codeLock && ctx.Err() == nil {
			version, err = schemaVersion(ctx, s.pool)
		}
	}
	if err == nil && version > len(list) {
		err = fmt.Errorf("%w: it has version %d, and the program knows versions up to %d; start the newer program", ErrNewer, version, len(list))
	}
	return err
}

// migrateOne makes the next migration, unless another server has made it, and returns the
// version that the schema then has.
func migrateOne(ctx context.Context, pool *pgxpool.Pool, list []migration) (version int, err error) {
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{BeginQuery: begin}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = `+lockWait); err != nil { // a large table takes its time, and others wait for it
			return err
		}
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(migrationLock)); err != nil {
			return err
		}
		if version, err = schemaVersion(ctx, tx); err != nil || version >= len(list) {
			return err
		}
		m := list[version]
		if m.version == 1 {
			if err := createSchema(ctx, tx); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, m.sql); err != nil {
			return fmt.Errorf("migration %s: %w", m.name, err)
		}
		if _, err := tx.Exec(ctx, `INSERT INTO podyard.migrations (version, name) VALUES ($1, $2)`, m.version, m.name); err != nil {
			return err
		}
		version = m.version
		return nil
	})
	return version, err
}

// A querier is a transaction or a connection.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// schemaVersion returns the number of the last migration that was made; 0 for a new database.
func schemaVersion(ctx context.Context, q querier) (version int, err error) {
	// The tables of the catalog are read, because to_regclass may answer from a cache that is
	// older than the lock.
	var exists bool
	if err := q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'podyard' AND c.relname = 'migrations')`).Scan(&exists); err != nil || !exists {
		return 0, err
	}
	err = q.QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM podyard.migrations`).Scan(&version)
	return version, err
}

// createSchema makes the schema, which takes a right on the database, unless an administrator
// has made it for the user.
func createSchema(ctx context.Context, tx pgx.Tx) error {
	var exists bool
	if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'podyard')`).Scan(&exists); err != nil {
		return err
	}
	sql := `CREATE TABLE podyard.migrations (version int PRIMARY KEY, name text NOT NULL, made timestamptz NOT NULL DEFAULT now())`
	if !exists {
		sql = `CREATE SCHEMA podyard; ` + sql
	}
	_, err := tx.Exec(ctx, sql)
	return err
}
