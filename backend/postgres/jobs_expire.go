package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/podyard/podyard/serverless/queue"
)

const (
	// The rows with the first jobs. A row counts for the jobs that are armed at its instant; others
	// moved since.
	sqlDue = `SELECT d.n, d.at, ` + jobColumns + ` FROM (
		SELECT f.at, f.n, f.ep, f.seqs, sum(cardinality(f.seqs)) OVER (ORDER BY f.at, f.n) - cardinality(f.seqs) AS before
		FROM (SELECT at, n, ep, seqs FROM podyard.job_due WHERE at >= $3 AND at <= $1 ORDER BY at, n LIMIT $2) f) d
	CROSS JOIN LATERAL unnest(d.seqs) u(seq)
	LEFT JOIN LATERAL (SELECT ` + jobColumns + ` FROM podyard.jobs j WHERE (j.ep || ''::bytea) = d.ep AND j.seq = u.seq AND j.armed = d.at OFFSET 0) j ON true
	WHERE d.before < $2`

	sqlDropDue = `DELETE FROM podyard.job_due WHERE ctid = ANY(ARRAY(SELECT x.place FROM unnest($1::int8[], $2::int8[]) u(at, n),
	LATERAL (SELECT x.ctid AS place FROM podyard.job_due x WHERE x.at = u.at AND x.n = u.n OFFSET 0) x))`

	sqlNextDue = `SELECT d.at, d.n, EXISTS (SELECT 1 FROM unnest(d.seqs) u(seq),
		LATERAL (SELECT 1 FROM podyard.jobs j WHERE (j.ep || ''::bytea) = d.ep AND j.seq = u.seq AND j.armed = d.at OFFSET 0) j)
	FROM (SELECT at, n, ep, seqs FROM podyard.job_due WHERE at >= $2 ORDER BY at, n LIMIT $1) d`

	sqlExpireDead = `WITH x AS (DELETE FROM podyard.job_dead WHERE ctid = ANY(ARRAY(
		SELECT x.ctid FROM podyard.job_dead x WHERE x.until <= $1 ORDER BY x.until LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING owner, bytes)` +
		intoHoldings + `$3` + takeDead

	sqlNextDead = `SELECT min(until) FROM podyard.job_dead`

	sqlPurge = `SELECT j.seq, j.id, j.status, j.owner FROM podyard.jobs j WHERE (j.ep || ''::bytea) = $1 AND j.seq > $2 AND j.seq <= $3 ORDER BY j.seq LIMIT $4`
)

// Expire implements queue.JobQueue. A sweep that another one overtakes finds that the jobs moved.
func (q *Jobs) Expire(ctx context.Context, now queue.Instant, limit int) (next queue.Instant, err error) {
	if next, err = q.tick(ctx, now, limit); err != nil {
		return 0, err
	}
	if err := q.exec(ctx, sqlExpireDead, int64(now), limit, looseSlot()); err != nil {
		return 0, err
	}
	if err := q.fold(ctx); err != nil {
		return 0, err
	}
	dead, err := q.least(ctx, sqlNextDead)
	return queue.Sooner(next, dead), err
}

// tick makes what is due of jobs, and returns when a job is due next.
func (q *Jobs) tick(ctx context.Context, now queue.Instant, limit int) (next queue.Instant, err error) {
	from, done := q.dues.begin(now)
	defer func() { done(next, err) }()
	due, err := q.due(ctx, from, now, limit)
	if err != nil {
		return 0, err
	}
	if len(due.ops) > 0 {
		if _, err := q.applyOwn(ctx, now, due.ops); err != nil {
			return 0, err
		}
	}
	if err := q.dropDue(ctx, due.at, due.n); err != nil {
		return 0, err
	}
	return q.nextDue(ctx, from)
}

// dueJobs are the ops of jobs that are due, and the rows that are dropped when they are made.
type dueJobs struct {
	ops   []queue.Op
	at, n []int64
}

// due reads at most limit jobs that are due, the earliest first. A row with other jobs stays.
func (q *Jobs) due(ctx context.Context, from, now queue.Instant, limit int) (d dueJobs, err error) {
	var jobs []*jobRow
	var rows map[int64]queue.Instant // by n; 0: it has no job
	rowOf := map[*jobRow]int64{}
	err = q.read(ctx, func(conn *pgxpool.Conn) error {
		jobs, rows = nil, map[int64]queue.Instant{}
		clear(rowOf)
		return readDue(ctx, conn, []any{int64(now), limit, int64(from)}, rows, func(n int64, r *jobRow) {
			jobs = append(jobs, r)
			rowOf[r] = n
		})
	})
	slices.SortFunc(jobs, func(a, b *jobRow) int {
		return cmp.Or(cmp.Compare(a.job.Due(), b.job.Due()), cmp.Compare(a.job.Seq, b.job.Seq))
	})
	for i, r := range jobs {
		if i < limit {
			d.ops = append(d.ops, queue.Op{Ref: r.job.Ref, Kind: queue.OpTick})
			continue
		}
		delete(rows, rowOf[r])
	}
	for n, at := range rows {
		d.at, d.n = append(d.at, int64(at)), append(d.n, n)
	}
	return d, err
}

// readDue reads rows that are due: their instants by n, and their jobs.
func readDue(ctx context.Context, conn *pgxpool.Conn, args []any, at map[int64]queue.Instant, found func(n int64, r *jobRow)) error {
	rows, err := conn.Query(ctx, sqlDue, args...)
	if err != nil {
		return err
	}
	var n, rowAt int64
	var num, armed, seq *int64
	var c jobScan
	_, err = pgx.ForEachRow(rows, []any{&n, &rowAt, &num, &armed, &seq, &c.ep, &c.id, &c.owner, &c.key, &c.state}, func() error {
		at[n] = queue.Instant(rowAt)
		if num == nil {
			return nil
		}
		c.num, c.armed, c.seq = *num, *armed, *seq
		r, err := c.row()
		found(n, r)
		return err
	})
	return err
}

func (q *Jobs) dropDue(ctx context.Context, at, n []int64) error {
	if len(n) == 0 {
		return nil
	}
	return q.exec(ctx, sqlDropDue, at, n)
}

// exec runs one statement, which is its own transaction.
func (q *Jobs) exec(ctx context.Context, sql string, args ...any) error {
	return q.repeat(ctx, func(conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, sql, args...)
		return err
	})
}

// How many rows are looked at for what is due next, at first and at most.
const (
	dueStep    = 8
	maxDueStep = 512
)

// nextDue returns when a job is due, and drops rows before it whose jobs all moved since. If there
// are many of those, the next one is looked at later.
func (q *Jobs) nextDue(ctx context.Context, from queue.Instant) (next queue.Instant, err error) {
	for step := q.sizes.due; step <= q.sizes.dueMost; step *= 4 {
		var at, n []int64
		err := q.read(ctx, func(conn *pgxpool.Conn) error {
			at, n, next = nil, nil, 0
			rows, err := conn.Query(ctx, sqlNextDue, step, int64(from))
			if err != nil {
				return err
			}
			var rowAt, rowN int64
			var live bool
			_, err = pgx.ForEachRow(rows, []any{&rowAt, &rowN, &live}, func() error {
				switch {
				case next != 0:
				case live:
					next = queue.Instant(rowAt)
				default:
					at, n = append(at, rowAt), append(n, rowN)
				}
				return nil
			})
			return err
		})
		if err == nil {
			err = q.dropDue(ctx, at, n)
		}
		if err != nil || next != 0 || len(n) < step {
			return next, err
		}
		next = queue.Instant(at[len(at)-1])
	}
	return next, nil
}

// Purge implements queue.JobQueue.
func (q *Jobs) Purge(ctx context.Context, now queue.Instant, p queue.PurgeQuery) (removed int, next uint64, err error) {
	var ops []queue.Op
	examined := 0
	err = q.read(ctx, func(conn *pgxpool.Conn) error {
		ops, examined = nil, 0
		rows, err := conn.Query(ctx, sqlPurge, []byte(p.Endpoint), clampSeq(p.After), clampSeq(p.UpTo), p.Limit)
		if err != nil {
			return err
		}
		var seq int64
		var id, owner []byte
		var status int16
		_, err = pgx.ForEachRow(rows, []any{&seq, &id, &status, &owner}, func() error {
			examined++
			next = uint64(seq)
			if queue.Status(status) == queue.InQueue && (p.Owner == "" || p.Owner == string(owner)) {
				ops = append(ops, queue.Op{Ref: queue.Ref{Endpoint: p.Endpoint, ID: queue.JobID(id)}, Kind: queue.OpPurge})
			}
			return nil
		})
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	if examined < p.Limit {
		next = 0
	}
	res, err := q.applyOwn(ctx, now, ops)
	if err != nil {
		return 0, 0, err
	}
	for i := range res {
		if res[i].Err == nil {
			removed++
		}
	}
	return removed, next, nil
}

// clampSeq returns a Seq as the database compares it.
func clampSeq(seq uint64) int64 { return int64(min(seq, 1<<63-1)) }
