package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/podyard/podyard/serverless/servers"
)

var _ servers.Records = (*Servers)(nil)

// Put implements servers.Records.
func (s *Servers) Put(ctx context.Context, r servers.Record) (version int64, err error) {
	if err := r.Check(); err != nil {
		return 0, err
	}
	err = s.s.tx(ctx, func(tx pgx.Tx) error {
		// The row is locked until the commit, so versions grow in the order of commits.
		if err := tx.QueryRow(ctx, `UPDATE podyard.server_epoch SET n = n + 1 RETURNING n`).Scan(&version); err != nil {
			return err
		}
		data := append([]byte{}, r.Data...)
		sql, args := `UPDATE podyard.server_records SET version = $2, data = $3 WHERE key = $1 AND version = $4`, []any{[]byte(r.Key), version, data, r.Version}
		if r.Version == 0 {
			sql, args = `INSERT INTO podyard.server_records (key, version, data) VALUES ($1, $2, $3) ON CONFLICT (key) DO NOTHING`, args[:3]
		}
		tag, err := tx.Exec(ctx, sql, args...)
		if err == nil && tag.RowsAffected() == 0 {
			err = servers.ErrChanged
		}
		return err
	})
	if errors.Is(err, servers.ErrChanged) {
		return 0, servers.ErrChanged
	}
	return version, err
}

// Changes implements servers.Records.
func (s *Servers) Changes(ctx context.Context, after int64, limit int) (list []servers.Record, err error) {
	err = s.s.read(ctx, func(c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, `SELECT key, version, data FROM podyard.server_records WHERE version > $1 ORDER BY version LIMIT $2`, after, limit)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r servers.Record, err error) {
			var key []byte
			err = row.Scan(&key, &r.Version, &r.Data)
			r.Key = string(key)
			return r, err
		})
		return err
	})
	return list, err
}
