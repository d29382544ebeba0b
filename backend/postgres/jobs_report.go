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

	// Each table is read once, and the two are joined by the caller: a join depends on what the planner
	// knows of tables that have just grown.
	sqlSurvey = `SELECT ep, sum(queued)::int8, sum(queued_low)::int8, sum(delayed)::int8, sum(running)::int8 FROM podyard.job_counters
		GROUP BY ep HAVING sum(queued) > 0 OR sum(running) > 0`

	// The endpoints with holds that have not been dropped yet. Few have any.
	sqlSurveyHeld = `SELECT DISTINCT ep FROM podyard.job_key_holds`

	// An array has the first seq and when that job was queued.
	sqlSurveyReady = `SELECT ep, prio, count(*), min(ARRAY[seq, queued]) FROM (
		SELECT r.ep, r.prio, r.seq, r.queued FROM podyard.job_ready r WHERE NOT r.low LIMIT $1) r GROUP BY ep, prio`
)

const (
	// maxCounted is how many jobs of an endpoint are counted by priority, and how many chunks in all.
	maxCounted = 100_000
	// maxSurveyed is how many jobs of all endpoints are.
	maxSurveyed = 1_000_000
)

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

// Survey implements queue.Surveyor, with one round trip. It visits the queued jobs of all endpoints,
// at most a million, and finds the oldest among them.
func (q *Jobs) Survey(ctx context.Context) (map[string]queue.Summary, error) {
	var v survey
	err := q.read(ctx, func(conn *pgxpool.Conn) error {
		v = survey{map[string]queue.Summary{}, map[string]int64{}}
		b := &pgx.Batch{}
		b.Queue(sqlSurvey).Query(v.counters)
		b.Queue(sqlSurveyReady, maxSurveyed).Query(v.ready)
		b.Queue(sqlSurveyHeld).Query(v.held)
		return conn.SendBatch(ctx, b).Close()
	})
	return v.sums, err
}

// A survey collects the answer of Survey.
type survey struct {
	sums   map[string]queue.Summary
	firsts map[string]int64 // the least seq of the ready jobs of an endpoint
}

func (v *survey) counters(rows pgx.Rows) error {
	var ep []byte
	var queued, low, delayed, running int64
	_, err := pgx.ForEachRow(rows, []any{&ep, &queued, &low, &delayed, &running}, func() error {
		s := queue.Summary{Delayed: delayed, Running: running}
		s.Queued[queue.MaxPriority+1], s.Queued[queue.DefaultPriority] = low, queued-low
		v.sums[string(ep)] = s
		return nil
	})
	return err
}

func (v *survey) ready(rows pgx.Rows) error {
	var ep []byte
	var prio int16
	var n int64
	var first []int64
	_, err := pgx.ForEachRow(rows, []any{&ep, &prio, &n, &first}, func() error {
		s := v.sums[string(ep)]
		if prio != queue.DefaultPriority {
			s.Queued[queue.DefaultPriority] = max(s.Queued[queue.DefaultPriority]-n, 0)
			s.Queued[prio] += n
		}
		if at, ok := v.firsts[string(ep)]; !ok || first[0] < at {
			v.firsts[string(ep)], s.Oldest = first[0], queue.Instant(first[1])
		}
		v.sums[string(ep)] = s
		return nil
	})
	return err
}

func (v *survey) held(rows pgx.Rows) error {
	var ep []byte
	_, err := pgx.ForEachRow(rows, []any{&ep}, func() error {
		if s, ok := v.sums[string(ep)]; ok {
			s.Held = true
			v.sums[string(ep)] = s
		}
		return nil
	})
	return err
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
