package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/podyard/podyard/serverless/queue"
)

const (
	sqlGet = `SELECT ` + jobColumns + `, ` + payloadColumns + ` FROM podyard.jobs j
	LEFT JOIN LATERAL (SELECT b.input, b.webhook, b.extra, b.trace_parent, b.trace_state FROM podyard.job_bodies b WHERE b.num = j.num OFFSET 0) b ON true
	LEFT JOIN LATERAL (SELECT o.output, o.error FROM podyard.job_outputs o WHERE o.num = j.num OFFSET 0) o ON true WHERE j.ep = $1 AND j.id = $2`

	// The first chunk, and those after it that fit.
	sqlChunks = `SELECT ` + jobColumns + `, c.data FROM podyard.jobs j LEFT JOIN LATERAL (
		SELECT x.n, x.data, sum(octet_length(x.data)) OVER (ORDER BY x.n) AS size, row_number() OVER (ORDER BY x.n) AS place
		FROM podyard.job_chunks x WHERE x.num = j.num) c ON c.size <= $3 OR c.place = 1
	WHERE j.ep = $1 AND j.id = $2 ORDER BY c.n`

	// The rows of attempts, or of leases, between two numbers.
	sqlTries = `SELECT ` + jobColumns + `, t.n, t.data FROM podyard.jobs j LEFT JOIN podyard.job_tries t ON t.num = j.num AND t.n >= $3 AND t.n < $4
	WHERE j.ep = $1 AND j.id = $2 ORDER BY t.n`

	sqlList = `SELECT ` + jobColumns + ` FROM podyard.jobs j WHERE (j.ep || ''::bytea) = $1 AND j.seq < $2 AND j.gone > $6
		AND ($3::bytea IS NULL OR j.owner = $3) AND ($4::int2[] IS NULL OR j.status = ANY($4)) ORDER BY j.seq DESC LIMIT $5`

	// Before is where the prefix of an id ends: few jobs are found by their ids, and of many the newest
	// by their places.
	sqlListPrefix = `SELECT ` + jobColumns + ` FROM podyard.jobs j WHERE j.ep = $1 AND j.seq < $2 AND j.gone > $6
		AND ($3::bytea IS NULL OR j.owner = $3) AND ($4::int2[] IS NULL OR j.status = ANY($4))
		AND j.id >= $7 AND ($8::bytea IS NULL OR j.id < $8) ORDER BY j.seq DESC LIMIT $5`

	sqlListIDs = `SELECT ` + jobColumns + ` FROM unnest($2::bytea[]) u(id), LATERAL (SELECT ` + jobColumns + ` FROM podyard.jobs j WHERE j.ep = $1 AND j.id = u.id OFFSET 0) j`

	sqlListRunning = `SELECT ` + jobColumns + ` FROM podyard.job_running r, LATERAL (SELECT ` + jobColumns + ` FROM podyard.jobs j WHERE j.ep = r.ep AND j.id = r.id OFFSET 0) j
	WHERE r.ep = $1`

	sqlCounts = `SELECT count(*), coalesce(sum(queued), 0)::int8, coalesce(sum(queued_low), 0)::int8, coalesce(sum(delayed), 0)::int8,
		coalesce(sum(delayed_low), 0)::int8, coalesce(sum(running), 0)::int8, coalesce(sum(completed), 0)::int8,
		coalesce(sum(failed), 0)::int8, coalesce(sum(retried), 0)::int8, coalesce(max(last_seq), 0),
		EXISTS (SELECT FROM podyard.job_key_holds h WHERE h.ep = $1 AND h.until > ` + rateNow + `)
	FROM podyard.job_counters WHERE ep = $1`

	// The ready jobs of each owner and key, all and those without low priority.
	sqlReadyCounts = `SELECT owner, key, count(*), count(*) FILTER (WHERE NOT low) FROM podyard.job_ready WHERE ep = $1 GROUP BY owner, key`

	sqlUse = `SELECT owner, key, count(*) FROM podyard.job_running WHERE ep = $1 GROUP BY owner, key`

	// The oldest job of normal priority of an endpoint with one line.
	sqlHead = `SELECT r.queued FROM ` + oneLine + `, LATERAL (SELECT r.queued FROM podyard.job_ready r
		WHERE r.ep = e.ep AND r.owner = e.owner AND r.prio = e.prio AND r.key = e.key AND r.seq >= f.seq AND NOT r.low ORDER BY r.seq LIMIT 1) r
	WHERE e.ep = $1 AND NOT e.mixed`

	// The oldest job of each line, of any kind or of normal priority.
	sqlHeads = `WITH RECURSIVE l AS (
		(SELECT r.owner, r.prio, r.key FROM podyard.job_ready r WHERE r.ep = $1 ORDER BY r.owner, r.prio, r.key LIMIT 1)
		UNION ALL
		SELECT n.owner, n.prio, n.key FROM l, LATERAL (SELECT r.owner, r.prio, r.key FROM podyard.job_ready r
			WHERE r.ep = $1 AND (r.owner, r.prio, r.key) > (l.owner, l.prio, l.key) ORDER BY r.owner, r.prio, r.key LIMIT 1) n
	) SELECT l.owner, l.key, h.seq, h.queued FROM l, LATERAL (
		SELECT r.seq, r.queued FROM podyard.job_ready r
		WHERE r.ep = $1 AND r.owner = l.owner AND r.prio = l.prio AND r.key = l.key AND ($2 OR NOT r.low) ORDER BY r.seq LIMIT 1) h`
)

// one reads a job and more columns of its rows.
func (q *Jobs) one(ctx context.Context, now queue.Instant, sql string, args []any, more []any, each func() error) (*jobRow, error) {
	var r *jobRow
	err := q.read(ctx, func(conn *pgxpool.Conn) error {
		r = nil
		rows, err := conn.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		var c jobScan
		_, err = pgx.ForEachRow(rows, c.targets(more...), func() (err error) {
			if r == nil {
				if r, err = c.row(); err != nil {
					return err
				}
			}
			return each()
		})
		return err
	})
	if err == nil && (r == nil || r.job.Gone(now)) {
		return nil, queue.ErrNotFound
	}
	return r, err
}

// read calls fn, which only reads and may run more than once.
func (q *Jobs) read(ctx context.Context, fn func(conn *pgxpool.Conn) error) error {
	return q.repeat(ctx, func(conn *pgxpool.Conn) error {
		if err := fn(conn); err != nil {
			return &unchanged{err}
		}
		return nil
	})
}

// Get implements queue.JobQueue.
func (q *Jobs) Get(ctx context.Context, now queue.Instant, ref queue.Ref) (queue.Job, error) {
	var p payloads
	r, err := q.one(ctx, now, sqlGet, []any{[]byte(ref.Endpoint), []byte(ref.ID)}, p.targets(), func() error { return nil })
	if err != nil {
		return queue.Job{}, err
	}
	return r.job, q.fill(&p, &r.job)
}

// Chunks implements queue.JobQueue.
func (q *Jobs) Chunks(ctx context.Context, now queue.Instant, ref queue.Ref, maxBytes int) (list [][]byte, _ queue.State, err error) {
	var data []byte
	r, err := q.one(ctx, now, sqlChunks, []any{[]byte(ref.Endpoint), []byte(ref.ID), maxBytes}, []any{&data}, func() error {
		if data != nil {
			list, data = append(list, data), nil
		}
		return nil
	})
	if err != nil {
		return nil, queue.State{}, err
	}
	return list, r.job.State, nil
}

// PastAttempts implements queue.JobQueue.
func (q *Jobs) PastAttempts(ctx context.Context, now queue.Instant, ref queue.Ref) ([]queue.JobAttempt, error) {
	r, rows, err := readTries[queue.JobAttempt](ctx, q, now, ref, 0)
	if err != nil {
		return nil, err
	}
	var list []queue.JobAttempt
	for n := range int16(r.job.Attempt) {
		if a, ok := rows[n]; ok {
			list = append(list, a)
		}
	}
	return list, nil
}

// PastLeases implements queue.JobQueue. A move by a server of a version without leases empties the log.
func (q *Jobs) PastLeases(ctx context.Context, now queue.Instant, ref queue.Ref) ([]queue.JobLease, error) {
	r, rows, err := readTries[queue.JobLease](ctx, q, now, ref, firstLease)
	if err != nil {
		return nil, err
	}
	var list []queue.JobLease
	for _, place := range r.job.LeasePlaces() {
		if l, ok := rows[firstLease+int16(place)]; ok {
			list = append(list, l)
		}
	}
	return list, nil
}

// readTries returns a job and its rows of one kind, whose numbers begin with first.
func readTries[T any](ctx context.Context, q *Jobs, now queue.Instant, ref queue.Ref, first int16) (*jobRow, map[int16]T, error) {
	var n *int16
	var data []byte
	rows := map[int16]T{}
	r, err := q.one(ctx, now, sqlTries, []any{[]byte(ref.Endpoint), []byte(ref.ID), first, first + firstLease}, []any{&n, &data}, func() error {
		if n == nil {
			return nil
		}
		var v T
		if err := json.Unmarshal(data, &v); err != nil {
			return fmt.Errorf("postgres: a record of a job does not decode: %w", err)
		}
		rows[*n] = v
		return nil
	})
	return r, rows, err
}

// List implements queue.JobQueue. It reads in steps, so a job that moves meanwhile is seen before or
// after the move.
func (q *Jobs) List(ctx context.Context, now queue.Instant, lq queue.ListQuery) iter.Seq2[queue.Job, error] {
	switch {
	case len(lq.IDs) > 0:
		ids := make([][]byte, len(lq.IDs))
		for i, id := range lq.IDs {
			ids[i] = []byte(id)
		}
		return lq.Limited(q.listSorted(ctx, now, lq, sqlListIDs, []byte(lq.Endpoint), ids))
	case slices.Equal(lq.Status, []queue.Status{queue.InProgress}):
		return lq.Limited(q.listSorted(ctx, now, lq, sqlListRunning, []byte(lq.Endpoint)))
	}
	return lq.Limited(q.listSteps(ctx, now, lq))
}

// listSorted yields the jobs of one query, newest first.
func (q *Jobs) listSorted(ctx context.Context, now queue.Instant, lq queue.ListQuery, sql string, args ...any) iter.Seq2[queue.Job, error] {
	return func(yield func(queue.Job, error) bool) {
		rows, err := q.jobs(ctx, sql, args...)
		if err != nil {
			yield(queue.Job{}, err)
			return
		}
		var jobs []queue.Job
		for _, r := range rows {
			if lq.Selects(&r.job, now) {
				jobs = append(jobs, r.job)
			}
		}
		for _, j := range queue.NewestFirst(jobs) {
			if !yield(j, nil) {
				return
			}
		}
	}
}

func (q *Jobs) jobs(ctx context.Context, sql string, args ...any) (list []*jobRow, err error) {
	err = q.read(ctx, func(conn *pgxpool.Conn) (err error) {
		rows, err := conn.Query(ctx, sql, args...)
		list, err = jobRows(rows, err)
		return err
	})
	return list, err
}

// The first step of a listing, and the largest one.
const (
	listStep    = 64
	maxListStep = 1024
)

// listSteps yields the jobs that lq selects, newest first.
func (q *Jobs) listSteps(ctx context.Context, now queue.Instant, lq queue.ListQuery) iter.Seq2[queue.Job, error] {
	owner, status := selection(&lq)
	sql, rest := sqlList, []any(nil)
	if lq.Prefix != "" {
		sql, rest = sqlListPrefix, []any{[]byte(lq.Prefix), afterPrefix(lq.Prefix)}
	}
	return func(yield func(queue.Job, error) bool) {
		before := clampSeq(lq.Before - 1) // 0 is none
		if before < 1<<63-1 {
			before++
		}
		for step := q.sizes.list; ; step = min(4*step, q.sizes.listMost) {
			rows, err := q.jobs(ctx, sql, append([]any{[]byte(lq.Endpoint), before, owner, status, step, int64(now)}, rest...)...)
			if err != nil {
				yield(queue.Job{}, err)
				return
			}
			for _, r := range rows {
				before = int64(r.job.Seq)
				if !yield(r.job, nil) {
					return
				}
			}
			if len(rows) < step {
				return
			}
		}
	}
}

// Stats implements queue.JobQueue.
func (q *Jobs) Stats(ctx context.Context, now queue.Instant, endpoint string, rules *queue.Rules) (s queue.Stats, err error) {
	var rows, delayedLow int64
	var holding bool
	err = q.read(ctx, func(conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, sqlCounts, []byte(endpoint), q.givenNow(now)).Scan(&rows, &s.Queued, &s.QueuedLow, &s.Delayed, &delayedLow,
			&s.Running, &s.Completed, &s.Failed, &s.Retried, &s.LastSeq, &holding)
	})
	if err != nil || rows == 0 {
		return queue.Stats{}, err
	}
	if rules == nil {
		rules = &queue.Rules{}
	}
	o := &inUse{rates: usedRates{rules: rules, holding: holding}}
	ready := s.Queued - s.Delayed
	switch {
	case rules.Paused:
	case holding || limited(rules):
		s.Ready, s.ReadyLow, err = q.readyWithin(ctx, now, endpoint, o, rules)
		if s.Free = o.rates.free; s.Free > 0 && o.rates.now > 0 && !q.sizes.callersTime {
			s.Free += now - o.rates.now // it is of the database's clock
		}
	default:
		s.Ready, s.ReadyLow = ready, s.QueuedLow-delayedLow
	}
	s.Blocked = max(ready-s.Ready, 0)
	if err == nil && s.Ready > s.ReadyLow {
		s.Oldest, err = q.oldest(ctx, endpoint, o, rules, s.Blocked > 0)
	}
	return s, err
}

// inUse is what runs of an endpoint.
type inUse struct {
	keys    map[[2]string]int // by owner and key
	users   map[string]int
	running int
	rates   usedRates
}

// read adds the query for it to a batch.
func (u *inUse) read(b *pgx.Batch, endpoint string) {
	b.Queue(sqlUse, []byte(endpoint)).Query(func(rows pgx.Rows) error {
		var owner, key []byte
		var n int
		_, err := pgx.ForEachRow(rows, []any{&owner, &key, &n}, func() error {
			u.keys[[2]string{string(owner), string(key)}] += n
			u.users[string(owner)] += n
			u.running += n
			return nil
		})
		return err
	})
}

// isFull reports whether an owner, or a key of it, is at a limit.
func (u *inUse) isFull(r *queue.Rules, owner, key string) bool {
	limit := r.KeyLimit(key)
	return r.PerUser > 0 && u.users[owner] >= r.PerUser || limit > 0 && u.keys[[2]string{owner, key}] >= limit || u.rates.isFull(owner, key)
}

// readyWithin returns how many ready jobs the limits allow, all of them and those of low priority.
func (q *Jobs) readyWithin(ctx context.Context, now queue.Instant, endpoint string, o *inUse, r *queue.Rules) (ready, low int64, err error) {
	var all, normal map[string]int
	err = q.read(ctx, func(conn *pgxpool.Conn) error {
		*o = inUse{keys: map[[2]string]int{}, users: map[string]int{}, rates: usedRates{rules: r, holding: o.rates.holding}}
		all, normal = map[string]int{}, map[string]int{}
		b := &pgx.Batch{}
		o.read(b, endpoint)
		o.rates.read(b, endpoint, q.givenNow(now))
		b.Queue(sqlReadyCounts, []byte(endpoint)).Query(func(rows pgx.Rows) error {
			var owner, key []byte
			var n, m int
			_, err := pgx.ForEachRow(rows, []any{&owner, &key, &n, &m}, func() error {
				who, room := string(owner), math.MaxInt
				if len(key) > 0 {
					room = left(r.KeyLimit(string(key)), o.keys[[2]string{who, string(key)}])
				}
				if o.rates.buckets != nil {
					room = min(room, o.rates.room(rateName{rateOfKey, who, string(key)}, n))
				}
				all[who] += min(n, room)
				normal[who] += min(m, room)
				return nil
			})
			return err
		})
		return conn.SendBatch(ctx, b).Close()
	})
	within := func(owners map[string]int) (sum int) {
		for who, n := range owners {
			n = min(n, left(r.PerUser, o.users[who]))
			if o.rates.buckets != nil {
				n = o.rates.room(rateName{what: rateOfOwner, owner: who}, n)
			}
			sum += n
		}
		if sum = min(sum, left(r.Total, o.running)); o.rates.buckets != nil {
			sum = o.rates.room(rateName{}, sum)
		}
		return sum
	}
	n := within(all)
	return int64(n), int64(n - within(normal)), err
}

// left is how many more jobs may run.
func left(limit, running int) int {
	if limit == 0 {
		return math.MaxInt
	}
	return max(limit-running, 0)
}

// oldest returns State.Queued of the oldest job of normal priority or, if some are blocked, of the
// oldest one that could be claimed.
func (q *Jobs) oldest(ctx context.Context, endpoint string, o *inUse, r *queue.Rules, blocked bool) (at queue.Instant, err error) {
	err = q.read(ctx, func(conn *pgxpool.Conn) error {
		at = 0
		if !blocked {
			e, _ := q.news.of(endpoint)
			err := conn.QueryRow(ctx, sqlHead, []byte(endpoint), e.from).Scan(&at)
			if !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
		}
		rows, err := conn.Query(ctx, sqlHeads, []byte(endpoint), blocked)
		if err != nil {
			return err
		}
		var owner, key []byte
		var seq, queued, first int64
		_, err = pgx.ForEachRow(rows, []any{&owner, &key, &seq, &queued}, func() error {
			if blocked && o.isFull(r, string(owner), string(key)) || at != 0 && seq > first {
				return nil
			}
			first, at = seq, queue.Instant(queued)
			return nil
		})
		return err
	})
	return at, err
}

const sqlCountJobs = `SELECT count(*) FROM podyard.jobs j WHERE j.ep = $1 AND j.gone > $4
	AND ($2::bytea IS NULL OR j.owner = $2) AND ($3::int2[] IS NULL OR j.status = ANY($3))`

const sqlCountPrefix = sqlCountJobs + ` AND j.id >= $5 AND ($6::bytea IS NULL OR j.id < $6)`

// Count implements queue.Counter.
func (q *Jobs) Count(ctx context.Context, now queue.Instant, lq queue.ListQuery) (n int, err error) {
	if len(lq.IDs) > 0 || len(lq.Status) == 1 && lq.Status[0] == queue.InProgress {
		lq.Before, lq.Offset, lq.Limit = 0, 0, 0
		for _, err := range q.List(ctx, now, lq) {
			if err != nil {
				return 0, err
			}
			n++
		}
		return n, nil
	}
	owner, status := selection(&lq)
	sql, args := sqlCountJobs, []any{[]byte(lq.Endpoint), owner, status, int64(now)}
	if lq.Prefix != "" {
		sql, args = sqlCountPrefix, append(args, []byte(lq.Prefix), afterPrefix(lq.Prefix))
	}
	err = q.read(ctx, func(conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, sql, args...).Scan(&n)
	})
	return n, err
}

// afterPrefix returns the least id above those that begin with prefix; nil: there is none.
func afterPrefix(prefix queue.JobID) []byte {
	b := bytes.TrimRight([]byte(prefix), "\xff")
	if len(b) > 0 {
		b[len(b)-1]++
		return b
	}
	return nil
}

// selection returns the arguments of a query for jobs; nil selects all.
func selection(lq *queue.ListQuery) (owner []byte, status []int16) {
	if lq.Owner != "" {
		owner = []byte(lq.Owner)
	}
	for _, s := range lq.Status {
		status = append(status, int16(s))
	}
	return owner, status
}
