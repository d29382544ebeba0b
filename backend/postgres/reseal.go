package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// knownText is sealed in the database, so that a wrong key is noticed at opening.
const knownText = "podyard"

// A sealed column has secrets, each bound to the name of its row.
type sealedColumn struct {
	table string
	id    string // the column with the id
}

// sealedColumns are all of them; each is called secret.
var sealedColumns = []sealedColumn{{"pods", "id"}, {"registries", "id"}, {"secrets", "id"}, {"schedules", "id"}, {"server_secrets", "name"}}

// sealName is the name that the secret of a row is bound to.
func sealName(table string, id []byte) []byte { return append([]byte(table+"/"), id...) }

// checkKey compares the key with that of the database, which the first server with a key
// decides. With old keys it seals again what is not sealed with the key.
func (s *Store) checkKey(ctx context.Context) error {
	if s.seals.key == nil {
		return nil
	}
	known, err := s.seals.seal([]byte("settings/key"), []byte(knownText))
	if err != nil {
		return err
	}
	stored, err := s.Agree(ctx, "key", known)
	if err != nil {
		return err
	}
	if _, err := s.seals.open([]byte("settings/key"), stored); err != nil || s.seals.old == nil {
		return err
	}
	for _, c := range sealedColumns {
		if err := s.reseal(ctx, c); err != nil {
			return fmt.Errorf("postgres: seal the secrets of %s again: %w", c.table, err)
		}
	}
	if err := s.resealJobs(ctx); err != nil {
		return fmt.Errorf("postgres: seal the data of jobs again: %w", err)
	}
	_, err = s.exec(ctx, `UPDATE podyard.settings SET value = $1 WHERE name = 'key'`, known)
	return err
}

// resealStep is how many rows are sealed again in one transaction.
const resealStep = 256

// reseal seals the secrets of a column with the key, unless they are.
func (s *Store) reseal(ctx context.Context, c sealedColumn) error {
	after, more := []byte(nil), true
	for more {
		err := s.tx(ctx, func(tx pgx.Tx) (err error) {
			after, more, err = s.resealSome(ctx, tx, c, after)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) resealSome(ctx context.Context, tx pgx.Tx, c sealedColumn, after []byte) (last []byte, more bool, err error) {
	type row struct{ id, secret []byte }
	rows, err := tx.Query(ctx, fmt.Sprintf(`SELECT %[2]s, secret FROM podyard.%[1]s WHERE secret IS NOT NULL AND ($1::bytea IS NULL OR %[2]s > $1) ORDER BY %[2]s LIMIT $2 FOR UPDATE`, c.table, c.id), after, resealStep)
	if err != nil {
		return after, false, err
	}
	list, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (v row, err error) { err = r.Scan(&v.id, &v.secret); return v, err })
	if err != nil {
		return after, false, err
	}
	for _, r := range list {
		after = r.id
		sealed, err := s.seals.again(sealName(c.table, r.id), r.secret)
		if err != nil {
			return after, false, err
		}
		if sealed == nil {
			continue
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf(`UPDATE podyard.%s SET secret = $2 WHERE %s = $1`, c.table, c.id), r.id, sealed); err != nil {
			return after, false, err
		}
	}
	return after, len(list) == resealStep, nil
}
