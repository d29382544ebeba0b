package postgres

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/podyard/podyard/problem/idempotency"
)

// Every 16th creation with an Idempotency-Key removes up to 64 records that are over. So there
// are never many more records than keys of a day.
const (
	keySweep = 16
	keyStep  = 64
)

// An execer is a transaction, or a connection with one.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// addKeys adds the records of Idempotency-Keys in the transaction of what they created, in one
// order, so that two callers do not wait for each other.
func addKeys(ctx context.Context, tx execer, keys []idempotency.Record) error {
	keys = slices.SortedFunc(slices.Values(keys), func(a, b idempotency.Record) int { return bytes.Compare(a.Key[:], b.Key[:]) })
	for _, k := range keys {
		tag, err := tx.Exec(ctx, `
			INSERT INTO podyard.idempotency_keys AS k (key, content, id, at) VALUES ($1, $2, $3, $4)
			ON CONFLICT (key) DO UPDATE SET content = excluded.content, id = excluded.id, at = excluded.at
			WHERE k.at <= $5`, k.Key[:], k.Content[:], []byte(k.ID), k.At.UnixMilli(), over(k.At))
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return idempotency.ErrTaken
		}
	}
	return nil
}

// over is the latest instant, in milliseconds, of a record that no longer counts at now.
func over(now time.Time) int64 { return now.UnixMilli() - idempotency.Retention.Milliseconds() }

// sweepKeys removes records that are over, after some of the calls. What it cannot remove, a
// later call removes.
func (s *Store) sweepKeys(ctx context.Context, added []idempotency.Record) {
	if len(added) == 0 || s.keysAdded.Add(1)%keySweep != 0 {
		return
	}
	_, err := s.exec(ctx, `
		DELETE FROM podyard.idempotency_keys WHERE key IN
		(SELECT key FROM podyard.idempotency_keys WHERE at <= $1 ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED)`, over(added[0].At), keyStep)
	if err != nil && ctx.Err() == nil {
		s.opts.Logger.Warn("old Idempotency-Keys were not removed", "err", err)
	}
}

// keyFinder is an idempotency.Finder.
type keyFinder struct{ s *Store }

// FindKey implements idempotency.Finder.
func (f keyFinder) FindKey(ctx context.Context, key idempotency.Digest) (r idempotency.Record, err error) {
	err = f.s.read(ctx, func(c *pgxpool.Conn) error {
		r, err = scanKey(key, pgx.ErrNoRows, c.QueryRow(ctx, sqlFindKey, key[:]).Scan)
		return err
	})
	return r, err
}

// scanKey reads a record of a key. none is the error of scan without one.
func scanKey(key idempotency.Digest, none error, scan func(...any) error) (idempotency.Record, error) {
	r := idempotency.Record{Request: idempotency.Request{Key: key}}
	var content, id []byte
	var at int64
	err := scan(&content, &id, &at)
	if errors.Is(err, none) {
		err = idempotency.ErrNotFound
	}
	copy(r.Content[:], content)
	r.ID, r.At = string(id), time.UnixMilli(at).UTC()
	return r, err
}

// sqlFindKey finds the record of a key.
const sqlFindKey = `SELECT content, id, at FROM podyard.idempotency_keys WHERE key = $1`
