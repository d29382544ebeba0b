package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/podyard/podyard/serverless/servers"
)

// Servers is a servers.Store. Secrets are encrypted.
type Servers struct{ s *Store }

var _ servers.Store = (*Servers)(nil)

// Servers returns the store of what servers share.
func (s *Store) Servers() *Servers { return &Servers{s} }

// errRaced: another server has made the lease since it was looked for.
var errRaced = errors.New("postgres: another server was faster")

// Take implements servers.Leases.
func (s *Servers) Take(ctx context.Context, now time.Time, l servers.Lease) (servers.Lease, error) {
	if err := l.Check(); err != nil {
		return servers.Lease{}, err
	}
	for {
		got, err := s.take(ctx, now, l)
		if !errors.Is(err, errRaced) {
			return got, err
		}
	}
}

func (s *Servers) take(ctx context.Context, now time.Time, l servers.Lease) (got servers.Lease, err error) {
	fresh := false
	err = s.s.tx(ctx, func(tx pgx.Tx) error {
		old, err := scanLease(tx.QueryRow(ctx, `SELECT `+leaseColumns+` FROM podyard.server_leases WHERE name = $1 FOR UPDATE`, []byte(l.Name)))
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		live := err == nil && now.UnixMilli() < old.Until.UnixMilli()
		if got = old; live && old.Holder != l.Holder {
			return nil
		}
		if l.Epoch, fresh = old.Epoch, !live; fresh {
			// The row is locked until the commit, so epochs grow in the order of commits.
			if err := tx.QueryRow(ctx, `UPDATE podyard.server_epoch SET n = n + 1 RETURNING n`).Scan(&l.Epoch); err != nil {
				return err
			}
		}
		got, err = scanLease(tx.QueryRow(ctx, `
			INSERT INTO podyard.server_leases AS l (name, holder, epoch, until_ms, data) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, epoch = excluded.epoch, until_ms = excluded.until_ms, data = excluded.data
			WHERE l.until_ms <= $6 OR l.holder = excluded.holder AND l.epoch = excluded.epoch
			RETURNING `+leaseColumns, []byte(l.Name), []byte(l.Holder), int64(l.Epoch), l.Until.UnixMilli(), l.Data, now.UnixMilli()))
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = errRaced
	}
	if err == nil && fresh {
		s.sweep(ctx, now)
	}
	s.s.lookNow(ctx)
	return got, err
}

const leaseColumns = `name, holder, epoch, until_ms, data`

func scanLease(r pgx.Row) (l servers.Lease, err error) {
	var name, holder []byte
	var epoch, until int64
	err = r.Scan(&name, &holder, &epoch, &until, &l.Data)
	l.Name, l.Holder, l.Epoch, l.Until = string(name), string(holder), uint64(epoch), time.UnixMilli(until).UTC()
	return l, err
}

// sweep removes some leases and counts that are over, after some of the calls.
func (s *Servers) sweep(ctx context.Context, now time.Time) {
	if s.s.swept.Add(1)%keySweep != 0 {
		return
	}
	for _, sql := range []string{
		`DELETE FROM podyard.server_leases WHERE name IN (SELECT name FROM podyard.server_leases WHERE until_ms <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED)`,
		`DELETE FROM podyard.server_counts WHERE key IN (SELECT key FROM podyard.server_counts WHERE until_ms <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED)`,
	} {
		if _, err := s.s.exec(ctx, sql, now.UnixMilli(), keyStep); err != nil && ctx.Err() == nil {
			s.s.opts.Logger.Warn("leases that are over were not removed", "err", err)
		}
	}
}

// Release implements servers.Leases.
func (s *Servers) Release(ctx context.Context, l servers.Lease) error {
	_, err := s.s.exec(ctx, `DELETE FROM podyard.server_leases WHERE name = $1 AND holder = $2 AND epoch = $3`, []byte(l.Name), []byte(l.Holder), int64(l.Epoch))
	return err
}

// Leases implements servers.Leases.
func (s *Servers) Leases(ctx context.Context, now time.Time, prefix string) (list []servers.Lease, err error) {
	err = s.s.read(ctx, func(c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, `SELECT `+leaseColumns+` FROM podyard.server_leases WHERE until_ms > $1 AND substr(name, 1, length($2::bytea)) = $2::bytea ORDER BY name`, now.UnixMilli(), []byte(prefix))
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (servers.Lease, error) { return scanLease(r) })
		return err
	})
	return list, err
}

// Reserve implements servers.Store, in one statement.
func (s *Servers) Reserve(ctx context.Context, now, until time.Time, key string, n, limit int64) (added int64, err error) {
	first := max(min(n, limit), min(0, max(n, 0)))
	err = s.s.repeat(ctx, func(c *pgxpool.Conn) error {
		return c.QueryRow(ctx, `
			INSERT INTO podyard.server_counts AS c (key, n, added, until_ms) VALUES ($1, $2, $2, $3)
			ON CONFLICT (key) DO UPDATE SET (n, added, until_ms) = (
				SELECT base.n + change.n, change.n, base.until_ms
				FROM (SELECT CASE WHEN c.until_ms <= $4 THEN 0 ELSE c.n END AS n, CASE WHEN c.until_ms <= $4 THEN excluded.until_ms ELSE c.until_ms END AS until_ms) base,
				LATERAL (SELECT greatest(least($5::bigint, $6::bigint - base.n), least(0, greatest($5::bigint, -base.n))) AS n) change)
			RETURNING added`, []byte(key), first, until.UnixMilli(), now.UnixMilli(), n, limit).Scan(&added)
	})
	if err == nil {
		s.sweep(ctx, now)
	}
	return added, err
}

// Secret implements servers.Store.
func (s *Servers) Secret(ctx context.Context, name string, fresh []byte) ([]byte, error) {
	bound := sealName("server_secrets", []byte(name))
	sealed, err := s.s.seals.seal(bound, fresh)
	if err != nil {
		return nil, err
	}
	_, err = s.s.exec(ctx, `INSERT INTO podyard.server_secrets (name, secret) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING`, []byte(name), sealed)
	if err != nil {
		return nil, err
	}
	err = s.s.read(ctx, func(c *pgxpool.Conn) error {
		return c.QueryRow(ctx, `SELECT secret FROM podyard.server_secrets WHERE name = $1`, []byte(name)).Scan(&sealed)
	})
	if err != nil {
		return nil, err
	}
	return s.s.seals.open(bound, sealed)
}
