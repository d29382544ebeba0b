package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/podyard/podyard/serverless/queue"
)

var (
	_ queue.Reporter = (*Jobs)(nil)
	_ queue.Measurer = (*Jobs)(nil)
	_ queue.Surveyor = (*Jobs)(nil)
)

const (
	// The delivery that was added first has the lowest n: an attempt that fails does not change it.
	sqlLoad = `SELECT (SELECT coalesce(sum(c.size), 0)::int8 FROM (SELECT octet_length(data) AS size FROM podyard.job_chunks LIMIT $1) c),
		(SELECT count(*) FROM podyard.job_outbox),
		(SELECT x.state FROM podyard.job_outbox x ORDER BY x.n LIMIT 1)`

	sqlPriorities = `SELECT prio, count(*) FROM (
		SELECT r.prio FROM podyard.job_ready r WHERE r.ep = $1 AND NOT r.low LIMIT $2) r GROUP BY prio`

	// A row for each endpoint and priority. An array has the first seq and when that job was queued.
	sqlSurvey = `SELECT c.ep, c.queued, c.low, c.running, r.prio, r.n, r.first FROM (
		SELECT ep, sum(queued)::int8 AS queued, sum(queued_low)::int8 AS low, sum(running)::int8 AS running
		FROM podyard.job_counters GROUP BY ep HAVING sum(queued) > 0 OR sum(running) > 0) c
	LEFT JOIN LATERAL (
		SELECT r.prio, count(*) AS n, min(ARRAY[r.seq, r.queued]) AS first FROM (
			SELECT r.prio, r.seq, r.queued FROM podyard.job_ready r WHERE r.ep = c.ep AND NOT r.low LIMIT $1) r
		GROUP BY r.prio) r ON c.queued > c.low`
)

// maxCounted is how many jobs of an endpoint are counted by priority, and how many chunks in all.
const maxCounted = 100_000

// Report implements queue.Reporter: each server reports the moves that it has made.
func (q *Jobs) Report(f func([]queue.Moved)) { q.report = f }

// applyOwn makes moves that no caller has asked for, and reports them.
func (q *Jobs) applyOwn(ctx context.Context, now queue.Instant, ops []queue.Op) ([]queue.Result, error) {
	res := make([]queue.Result, len(ops))
	if err := q.Apply(ctx, now, ops, res); err != nil || q.report == nil {
		return res, err
	}
	var list []queue.Moved
	for i := range res {
		if r := &res[i]; r.Effect != 0 {
			list = append(list, queue.Moved{Ref: ops[i].Ref, Kind: ops[i].Kind, State: r.State, Effect: r.Effect})
		}
	}
	if len(list) > 0 {
		q.report(list)
	}
	return res, nil
}

// Load implements queue.Measurer. It visits the chunks that were not read too, at most 100,000 of
// them. A webhook is as old as the end of its job.
func (q *Jobs) Load(ctx context.Context) (l queue.Load, err error) {
	err = q.read(ctx, func(conn *pgxpool.Conn) error {
		var oldest []byte
		if err := conn.QueryRow(ctx, sqlLoad, maxCounted).Scan(&l.Undrained, &l.Deliveries, &oldest); err != nil || oldest == nil {
			return err
		}
		s, err := decodeState(oldest, 0)
		l.OldestDelivery = s.Finished
		return err
	})
	return l, err
}

// Survey implements queue.Surveyor, with one statement. It visits as many jobs of an endpoint as
// Priorities does, and finds the oldest among them.
func (q *Jobs) Survey(ctx context.Context) (map[string]queue.Summary, error) {
	var sums map[string]queue.Summary
	err := q.read(ctx, func(conn *pgxpool.Conn) error {
		sums = map[string]queue.Summary{}
		rows, err := conn.Query(ctx, sqlSurvey, maxCounted)
		if err != nil {
			return err
		}
		firsts := map[string]int64{} // the least seq
		var ep []byte
		var queued, low, running int64
		var prio *int16
		var n *int64
		var first []int64
		_, err = pgx.ForEachRow(rows, []any{&ep, &queued, &low, &running, &prio, &n, &first}, func() error {
			s, known := sums[string(ep)]
			if !known {
				s.Running, s.Queued[queue.MaxPriority+1] = running, low
				s.Queued[queue.DefaultPriority] = queued - low
			}
			if prio != nil {
				s.Queued[queue.DefaultPriority] -= *n
				s.Queued[*prio] += *n
				if at, ok := firsts[string(ep)]; !ok || first[0] < at {
					firsts[string(ep)], s.Oldest = first[0], queue.Instant(first[1])
				}
			}
			s.Queued[queue.DefaultPriority] = max(s.Queued[queue.DefaultPriority], 0)
			sums[string(ep)] = s
			return nil
		})
		return err
	})
	return sums, err
}

// Priorities implements queue.Measurer. It visits the queued jobs of the endpoint, at most 100,000
// of them: those above that, and delayed ones, count at the default priority.
func (q *Jobs) Priorities(ctx context.Context, endpoint string) (n [queue.MaxPriority + 2]int64, err error) {
	s, err := q.Stats(ctx, 0, endpoint, nil)
	if err != nil || s.Queued == 0 {
		return n, err
	}
	err = q.read(ctx, func(conn *pgxpool.Conn) error {
		n = [queue.MaxPriority + 2]int64{queue.MaxPriority + 1: s.QueuedLow}
		rows, err := conn.Query(ctx, sqlPriorities, []byte(endpoint), maxCounted)
		if err != nil {
			return err
		}
		var prio int16
		var count int64
		rest := s.Queued - s.QueuedLow
		_, err = pgx.ForEachRow(rows, []any{&prio, &count}, func() error {
			n[prio] += count
			rest -= count
			return nil
		})
		n[queue.DefaultPriority] += max(rest, 0)
		return err
	})
	return n, err
}
