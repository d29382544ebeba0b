package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Agree returns what all servers of the database have under name: value, if no server has
// come before with another one. It is durable and never changes. value must be no secret: it
// is not encrypted.
func (s *Store) Agree(ctx context.Context, name string, value []byte) (agreed []byte, err error) {
	if _, err := s.exec(ctx, `INSERT INTO podyard.settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING`, name, value); err != nil {
		return nil, err
	}
	err = s.read(ctx, func(c *pgxpool.Conn) error {
		return c.QueryRow(ctx, `SELECT value FROM podyard.settings WHERE name = $1`, name).Scan(&agreed)
	})
	return agreed, err
}
