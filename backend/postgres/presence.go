package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/workers"
)

// Presence is a workers.Presence. A crash of the database loses its rows.
type Presence struct{ s *Store }

var _ workers.Presence = (*Presence)(nil)

// Presence returns the store of the workers of all servers.
func (s *Store) Presence() *Presence { return &Presence{s} }

// Put implements workers.Presence.
func (p *Presence) Put(ctx context.Context, now queue.Instant, rows []workers.Row) error {
	rows = slices.SortedFunc(slices.Values(rows), compareWorkers) // in one order, so that two callers do not wait for each other
	batch := &pgx.Batch{}
	for _, r := range rows {
		data, err := json.Marshal(r)
		if err != nil {
			return err
		}
		batch.Queue(`INSERT INTO podyard.worker_rows (ep, id, server, until_ms, data) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (ep, id, server) DO UPDATE SET until_ms = excluded.until_ms, data = excluded.data`,
			[]byte(r.Endpoint), []byte(r.ID), []byte(r.Server), int64(r.AliveUntil), data)
	}
	batch.Queue(`DELETE FROM podyard.worker_rows WHERE (ep, id, server) IN
		(SELECT ep, id, server FROM podyard.worker_rows WHERE until_ms <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED)`, int64(now), keyStep)
	p.s.lookNow(ctx)
	return p.s.tx(ctx, func(tx pgx.Tx) error { return tx.SendBatch(ctx, batch).Close() })
}

func compareWorkers(a, b workers.Row) int {
	return cmp.Or(cmp.Compare(a.Endpoint, b.Endpoint), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Server, b.Server))
}

// Remove implements workers.Presence.
func (p *Presence) Remove(ctx context.Context, keys []workers.Key) error {
	var endpoints, ids [][]byte
	for _, k := range keys {
		endpoints, ids = append(endpoints, []byte(k.Endpoint)), append(ids, []byte(k.ID))
	}
	_, err := p.s.exec(ctx, `DELETE FROM podyard.worker_rows WHERE (ep, id) IN (SELECT e, i FROM unnest($1::bytea[], $2::bytea[]) u(e, i))`, endpoints, ids)
	return err
}

// List implements workers.Presence.
func (p *Presence) List(ctx context.Context, now queue.Instant) (list []workers.Row, err error) {
	err = p.s.read(ctx, func(c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, `SELECT data FROM podyard.worker_rows WHERE until_ms > $1`, int64(now))
		if err != nil {
			return err
		}
		list, err = decodeRows[workers.Row](rows)
		return err
	})
	slices.SortFunc(list, compareWorkers)
	return list, err
}
