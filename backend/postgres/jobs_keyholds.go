package postgres

import (
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/serverless/queue"
)

// Who ends a job writes the hold of its key, and tells of the key as if a job of it had ended. A claim that reads
// a line of the key writes to job_rates until when it is held, as for a rate.

var sqlHoldKeys = `WITH u AS (SELECT DISTINCT ON (ep, owner, key) ep, owner, key, made, until, n
		FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::int8[], $5::int8[]) WITH ORDINALITY u(ep, owner, key, made, until, n) ORDER BY ep, owner, key, n DESC),
	v AS (SELECT u.*, h.ep IS NOT NULL AS known, row_number() OVER (PARTITION BY u.ep, u.owner, h.ep IS NOT NULL ORDER BY u.n) AS nth
		FROM u LEFT JOIN podyard.job_key_holds h ON h.ep = u.ep AND h.owner = u.owner AND h.key = u.key AND h.until > u.made),
	w AS (INSERT INTO podyard.job_key_holds (ep, owner, key, made, until) SELECT ep, owner, key, made, until FROM v
		WHERE known OR nth + (SELECT count(*) FROM podyard.job_key_holds x WHERE x.ep = v.ep AND x.owner = v.owner AND x.until > v.made) <= ` + strconv.Itoa(queue.MaxHolds) + `
		ORDER BY ep, owner, key
		ON CONFLICT (ep, owner, key) DO UPDATE SET made = excluded.made, until = excluded.until)
	INSERT INTO podyard.job_news (ep, owner, prio, key, seq) SELECT ep, owner, -1, key, 0 FROM u`

const (
	sqlKeyHolds = `SELECT h.owner, h.key, h.made, h.until FROM unnest($2::bytea[], $3::bytea[]) u(owner, key)
	JOIN podyard.job_key_holds h ON h.ep = $1 AND h.owner = u.owner AND h.key = u.key`

	sqlAllKeyHolds = `SELECT owner, key, made, until, ` + rateNow + ` FROM podyard.job_key_holds WHERE ep = $1`

	sqlKeyHold = `SELECT owner, key, made, until, ` + rateNow + ` FROM podyard.job_key_holds WHERE ep = $1 AND owner = $3 AND key = $4`

	// As long as job_rates has a row of the key, claims look there.
	sqlDropKeyHolds = `DELETE FROM podyard.job_key_holds WHERE ctid = ANY(ARRAY(SELECT h.ctid FROM podyard.job_key_holds h WHERE h.ep = $1 AND h.until <= $2
		AND NOT EXISTS (SELECT FROM podyard.job_rates r WHERE r.ep = h.ep AND r.what = 2 AND r.owner = h.owner AND r.key = h.key) LIMIT 512 FOR UPDATE SKIP LOCKED))`
)

// keyHolds are holds of keys that a transaction makes, as columns.
type keyHolds struct {
	ep, owner, key [][]byte
	made, until    []int64
}

func (c *keyHolds) add(m *move) {
	j, h := &m.row.job, m.op.HoldUntil(m.now)
	if j.Key == "" {
		return
	}
	c.ep, c.owner, c.key = append(c.ep, []byte(j.Endpoint)), append(c.owner, []byte(j.Owner)), append(c.key, []byte(j.Key))
	c.made, c.until = append(c.made, int64(h.Made)), append(c.until, int64(h.Until))
}

func (c *keyHolds) queue(b *pgx.Batch) {
	queueIf(b, c.ep, sqlHoldKeys, c.ep, c.owner, c.key, c.made, c.until)
}

// rated reports whether an endpoint has buckets that matter: it has rates, or keys that are held.
func (o *order) rated() bool { return o.holding || o.rules.Rated() }

// readHolds adds the query for the holds of keys whose buckets are read.
func (o *order) readHolds(b *pgx.Batch, names []rateName) {
	var owner, key [][]byte
	for _, n := range names {
		if n.what == rateOfKey {
			owner, key = append(owner, []byte(n.owner)), append(key, []byte(n.key))
		}
	}
	if !o.holding || len(key) == 0 {
		return
	}
	b.Queue(sqlKeyHolds, []byte(o.endpoint), owner, key).Query(func(rows pgx.Rows) error {
		var owner, key []byte
		var h queue.Hold
		_, err := pgx.ForEachRow(rows, []any{&owner, &key, &h.Made, &h.Until}, func() error {
			o.bucket(rateName{rateOfKey, string(owner), string(key)}).hold = h
			return nil
		})
		return err
	})
}

// scanHolds reads holds, and the instant at which they were read.
func (u *usedRates) scanHolds(rows pgx.Rows) error {
	var owner, key []byte
	var h queue.Hold
	_, err := pgx.ForEachRow(rows, []any{&owner, &key, &h.Made, &h.Until, &u.now}, func() error {
		u.holds[rateName{rateOfKey, string(owner), string(key)}] = h
		return nil
	})
	return err
}
