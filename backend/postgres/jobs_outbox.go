package postgres

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/podyard/podyard/serverless/queue"
)

// attemptsKept is the number of attempts that the log of a job keeps.
const attemptsKept = 100

const (
	copyColumns = `c.ep, c.id, c.owner, c.key, c.seq, c.state`

	copyPayloads = `c.input, c.webhook, c.extra, c.trace_parent, c.trace_state, c.output, c.error`

	// MATERIALIZED: a plan may scan a subquery once for each row, and each scan locks other entries.
	sqlDeliver = `WITH x AS MATERIALIZED (
		SELECT x.ctid AS at, x.due FROM podyard.job_outbox x WHERE x.due <= $1 ORDER BY x.due, x.n LIMIT $3 FOR UPDATE SKIP LOCKED
	) UPDATE podyard.job_outbox c SET token = $4, due = $2 FROM x
	WHERE c.ctid = x.at RETURNING ` + copyColumns + `, c.webhook, c.did, c.tries, x.due, c.n`

	sqlLoadDelivery = `SELECT ` + copyColumns + `, ` + copyPayloads + ` FROM podyard.job_outbox c WHERE c.ep = $1 AND c.did = $2 AND c.token = $3`

	sqlNextDelivery = `SELECT min(due) FROM podyard.job_outbox`

	sqlSettle = `WITH x AS (DELETE FROM podyard.job_outbox WHERE ep = $1 AND did = $2 AND token = $3 RETURNING owner, bytes)` +
		intoHoldings + `$4` + takeDeliveries

	sqlAgain = `UPDATE podyard.job_outbox SET token = 0, due = $4, tries = tries + $5 WHERE ep = $1 AND did = $2 AND token = $3`

	sqlLogSent = `INSERT INTO podyard.job_sent (num, did, token, at, next, status, err)
	SELECT j.num, $3, $4, $5, $6, $7, $8 FROM podyard.jobs j WHERE j.ep = $1 AND j.id = $2`

	sqlTrimSent = `DELETE FROM podyard.job_sent s USING podyard.jobs j, LATERAL (
		SELECT x.n FROM podyard.job_sent x WHERE x.num = j.num ORDER BY x.n DESC OFFSET $3 LIMIT 1) x
	WHERE j.ep = $1 AND j.id = $2 AND s.num = j.num AND s.n <= x.n`

	sqlSent = `SELECT s.did, s.token, s.at, s.next, s.status, s.err FROM podyard.jobs j JOIN podyard.job_sent s ON s.num = j.num
	WHERE j.ep = $1 AND j.id = $2 ORDER BY s.n`

	sqlDead = `SELECT ` + copyColumns + `, ` + copyPayloads + `, c.until FROM podyard.job_dead c WHERE c.ep = $1 AND c.id = $2`

	sqlListDead = `SELECT ` + copyColumns + `, c.until, c.n FROM podyard.job_dead c
	WHERE c.ep = $1 AND ($2::bytea IS NULL OR c.owner = $2) AND c.until > $3`
)

// A copyScan has the columns of a copy of a job while they are read.
type copyScan struct {
	ep, id, owner, key, state []byte
	seq                       int64
	payloads
}

func (c *copyScan) targets(withPayloads bool, more ...any) []any {
	list := []any{&c.ep, &c.id, &c.owner, &c.key, &c.seq, &c.state}
	if withPayloads {
		list = append(list, c.payloads.targets()...)
	}
	return append(list, more...)
}

func (c *copyScan) job() (j queue.Job, err error) {
	j.Ref = queue.Ref{Endpoint: string(c.ep), ID: queue.JobID(c.id)}
	j.Owner, j.Key = string(c.owner), string(c.key)
	j.State, err = decodeState(c.state, c.seq)
	return j, err
}

// copied returns the copy of a job with its payloads.
func (q *Jobs) copied(c *copyScan) (queue.Job, error) {
	j, err := c.job()
	if err != nil {
		return j, err
	}
	return j, q.fill(&c.payloads, &j)
}

// Deliveries implements queue.Outbox.
func (q *Jobs) Deliveries(ctx context.Context, now, until queue.Instant, limit int) ([]queue.Delivery, error) {
	epoch, err := q.node(ctx)
	if err != nil {
		return nil, err
	}
	type due struct {
		queue.Delivery
		due, n int64
	}
	var list []due
	token := q.token(epoch)
	err = q.repeat(ctx, func(conn *pgxpool.Conn) error {
		list = nil
		rows, err := conn.Query(ctx, sqlDeliver, int64(now), int64(until), limit, int64(token))
		if err != nil {
			return err
		}
		var c copyScan
		var did, webhook []byte
		var d due
		_, err = pgx.ForEachRow(rows, c.targets(false, &webhook, &did, &d.Tries, &d.due, &d.n), func() (err error) {
			d.Job, err = c.job()
			d.ID, d.Token, d.Job.Webhook = string(did), token, string(webhook)
			list = append(list, d)
			return err
		})
		return err
	})
	slices.SortFunc(list, func(a, b due) int {
		if a.due < b.due || a.due == b.due && a.n < b.n {
			return -1
		}
		return 1
	})
	var ds []queue.Delivery
	for i := range list {
		ds = append(ds, list[i].Delivery)
	}
	return ds, err
}

// LoadDelivery implements queue.Outbox.
func (q *Jobs) LoadDelivery(ctx context.Context, d *queue.Delivery) error {
	var c copyScan
	err := q.read(ctx, func(conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, sqlLoadDelivery, []byte(d.Job.Endpoint), []byte(d.ID), int64(d.Token)).Scan(c.targets(true)...)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return queue.ErrLeaseLost
	}
	if err != nil {
		return err
	}
	j, err := q.copied(&c)
	if err == nil {
		d.Job = j
	}
	return err
}

// NextDelivery implements queue.Outbox.
func (q *Jobs) NextDelivery(ctx context.Context) (queue.Instant, error) {
	return q.least(ctx, sqlNextDelivery)
}

// least returns the result of a query for the first instant of a table; 0: none.
func (q *Jobs) least(ctx context.Context, sql string) (queue.Instant, error) {
	var at *int64
	err := q.read(ctx, func(conn *pgxpool.Conn) error { return conn.QueryRow(ctx, sql).Scan(&at) })
	if err != nil || at == nil {
		return 0, err
	}
	return queue.Instant(*at), nil
}

// Record implements queue.Outbox.
func (q *Jobs) Record(ctx context.Context, as []queue.Attempt) error {
	for i := range as {
		if err := q.record(ctx, &as[i]); err != nil {
			return err
		}
	}
	return nil
}

func (q *Jobs) record(ctx context.Context, a *queue.Attempt) error {
	ep, id, did := []byte(a.Endpoint), []byte(a.ID), []byte(a.DeliveryID)
	return q.transact(ctx, func(t *jobTx) error {
		var held int64
		b := &pgx.Batch{}
		if a.Next == 0 {
			b.Queue(sqlSettle, ep, did, int64(a.Token), looseSlot())
		} else {
			b.Queue(sqlAgain, ep, did, int64(a.Token), int64(a.Next), 1-bit(a.Postponed))
		}
		b.QueuedQueries[len(b.QueuedQueries)-1].Exec(func(tag pgconn.CommandTag) error {
			held = tag.RowsAffected()
			return nil
		})
		if err := t.send(ctx, b); err != nil {
			return err
		}
		b = &pgx.Batch{}
		if held > 0 && !a.Postponed {
			b.Queue(sqlLogSent, ep, id, did, int64(a.Token), int64(a.At), int64(a.Next), a.Status, []byte(a.Err))
			b.Queue(sqlTrimSent, ep, id, attemptsKept)
		}
		return t.commit(ctx, b, true)
	})
}

// Attempts implements queue.Outbox. It keeps the log of a job as long as the job.
func (q *Jobs) Attempts(ctx context.Context, ref queue.Ref) (list []queue.Attempt, err error) {
	err = q.read(ctx, func(conn *pgxpool.Conn) error {
		list = nil
		rows, err := conn.Query(ctx, sqlSent, []byte(ref.Endpoint), []byte(ref.ID))
		if err != nil {
			return err
		}
		var did, text []byte
		var token, at, next int64
		a := queue.Attempt{Ref: ref}
		_, err = pgx.ForEachRow(rows, []any{&did, &token, &at, &next, &a.Status, &text}, func() error {
			a.DeliveryID, a.Token, a.Err = string(did), queue.Token(token), string(text)
			a.At, a.Next = queue.Instant(at), queue.Instant(next)
			list = append(list, a)
			return nil
		})
		return err
	})
	return list, err
}

// DeadLetters implements queue.DeadLetters.
func (q *Jobs) DeadLetters(ctx context.Context, now queue.Instant, endpoint, owner string) iter.Seq2[queue.DeadLetter, error] {
	var of []byte
	if owner != "" {
		of = []byte(owner)
	}
	type letter struct {
		queue.DeadLetter
		n int64
	}
	return func(yield func(queue.DeadLetter, error) bool) {
		var list []letter
		err := q.read(ctx, func(conn *pgxpool.Conn) error {
			list = nil
			rows, err := conn.Query(ctx, sqlListDead, []byte(endpoint), of, int64(now))
			if err != nil {
				return err
			}
			var c copyScan
			var until int64
			var d letter
			_, err = pgx.ForEachRow(rows, c.targets(false, &until, &d.n), func() (err error) {
				d.Job, err = c.job()
				d.Until = queue.Instant(until)
				list = append(list, d)
				return err
			})
			return err
		})
		if err != nil {
			yield(queue.DeadLetter{}, err)
			return
		}
		slices.SortFunc(list, func(a, b letter) int { return int(min(max(b.n-a.n, -1), 1)) })
		for i := range list {
			if !yield(list[i].DeadLetter, nil) {
				return
			}
		}
	}
}

// DeadLetter implements queue.DeadLetters.
func (q *Jobs) DeadLetter(ctx context.Context, now queue.Instant, ref queue.Ref) (d queue.DeadLetter, err error) {
	err = q.read(ctx, func(conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, sqlDead, []byte(ref.Endpoint), []byte(ref.ID))
		if err != nil {
			return err
		}
		var c copyScan
		var until int64
		_, err = pgx.ForEachRow(rows, c.targets(true, &until), func() (err error) {
			d.Job, err = q.copied(&c)
			d.Until = queue.Instant(until)
			return err
		})
		return err
	})
	if err == nil && d.Until <= now {
		return queue.DeadLetter{}, queue.ErrNotFound
	}
	return d, err
}

// DropDead implements queue.DeadLetters.
func (q *Jobs) DropDead(ctx context.Context, refs []queue.Ref) error {
	var ep, id [][]byte
	for _, r := range refs {
		ep, id = append(ep, []byte(r.Endpoint)), append(id, []byte(r.ID))
	}
	return q.exec(ctx, sqlDropDead, ep, id, looseSlot())
}
