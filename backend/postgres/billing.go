package postgres

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/billing"
)

// Billing is a billing.Store.
type Billing struct{ s *Store }

var _ billing.Store = (*Billing)(nil)

// Billing returns the store of usage records.
func (s *Store) Billing() *Billing { return &Billing{s} }

// A useName identifies a use.
type useName struct {
	kind, id, part string
	from           int64
}

// Record implements billing.Store. All uses are one commit.
func (b *Billing) Record(ctx context.Context, uses []pods.Usage) error {
	var last []pods.Usage // one statement cannot write a row twice
	seen := map[useName]bool{}
	for _, u := range slices.Backward(uses) {
		name := useName{string(u.Kind), u.ID, u.Part, nanoseconds(u.From)}
		if !seen[name] {
			seen[name], last = true, append(last, u)
		}
	}
	return b.s.tx(ctx, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		slices.SortFunc(last, compareUses) // in one order, so that two callers do not wait for each other
		for _, u := range last {
			data, err := json.Marshal(&u)
			if err != nil {
				return err
			}
			batch.Queue(`INSERT INTO podyard.uses (kind, id, part, from_time, to_time, owner, is_open, data) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
				ON CONFLICT (kind, id, part, from_time) DO UPDATE SET to_time = excluded.to_time, owner = excluded.owner, is_open = excluded.is_open, data = excluded.data`,
				[]byte(u.Kind), []byte(u.ID), []byte(u.Part), nanoseconds(u.From), nanoseconds(u.To), []byte(u.Owner), u.Open, data)
		}
		return tx.SendBatch(ctx, batch).Close()
	})
}

func compareUses(a, b pods.Usage) int {
	if c := strings.Compare(a.ID, b.ID); c != 0 {
		return c
	}
	if c := strings.Compare(a.Part, b.Part); c != 0 {
		return c
	}
	return a.From.Compare(b.From)
}

// nanoseconds are those since 1970. Instants that are too far away become the first or the
// last.
func nanoseconds(t time.Time) int64 {
	switch {
	case t.Before(time.Unix(0, math.MinInt64)):
		return math.MinInt64
	case t.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	}
	return t.UnixNano()
}

// Usage implements billing.Store.
func (b *Billing) Usage(ctx context.Context, owner string, from, to time.Time) ([]pods.Usage, error) {
	return b.list(ctx, `owner = $1 AND from_time < $2 AND to_time > $3`, []byte(owner), nanoseconds(to), nanoseconds(from))
}

// sqlExpireUses reads only what it deletes, earliest first, so that two callers lock rows in one
// order. A row that Record writes anew meanwhile stays for the next call.
const sqlExpireUses = `DELETE FROM podyard.uses WHERE ctid = ANY(ARRAY(
	SELECT x.ctid FROM podyard.uses x WHERE NOT x.is_open AND x.to_time < $1 ORDER BY x.to_time LIMIT $2 FOR UPDATE))`

// Expire implements billing.Store.
func (b *Billing) Expire(ctx context.Context, before time.Time, limit int) (n int, err error) {
	err = b.s.tx(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, localPlanSettings); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, sqlExpireUses, nanoseconds(before), limit)
		n = int(tag.RowsAffected())
		return err
	})
	return n, err
}

// Open implements billing.Store.
func (b *Billing) Open(ctx context.Context, kind pods.UsageKind) ([]pods.Usage, error) {
	return b.list(ctx, `is_open AND kind = $1`, []byte(kind))
}

func (b *Billing) list(ctx context.Context, where string, args ...any) (list []pods.Usage, err error) {
	err = b.s.read(ctx, func(c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, `SELECT data FROM podyard.uses WHERE `+where, args...)
		if err != nil {
			return err
		}
		list, err = decodeRows[pods.Usage](rows)
		return err
	})
	return list, err
}

// decodeRows decodes rows of one column with JSON.
func decodeRows[T any](rows pgx.Rows) (list []T, err error) {
	var data []byte
	_, err = pgx.ForEachRow(rows, []any{&data}, func() error {
		var v T
		err := json.Unmarshal(data, &v)
		list = append(list, v)
		return err
	})
	return list, err
}
