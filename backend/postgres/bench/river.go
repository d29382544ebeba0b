package main

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// theirs is River in the same database, with as many connections. It fetches as often as it can be
// told to.
type theirs struct {
	pool *pgxpool.Pool
	only *river.Client[pgx.Tx] // inserts only
}

func openTheirs(ctx context.Context, url string) (*theirs, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 32
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	t := &theirs{pool: pool}
	m, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err == nil {
		t.only, err = river.NewClient(riverpgxv5.New(pool), &river.Config{})
	}
	return t, err
}

func (t *theirs) close() { t.pool.Close() }

type args struct {
	Data string `json:"data"`
}

func (args) Kind() string { return "bench" }

var someArgs = args{string(payload)}

type worker struct {
	river.WorkerDefaults[args]
	work func(ctx context.Context) error
}

func (w *worker) Work(ctx context.Context, _ *river.Job[args]) error { return w.work(ctx) }

// during runs f while a client works with n workers.
func (t *theirs) during(ctx context.Context, n int, notify bool, work func(ctx context.Context) error, f func(c *river.Client[pgx.Tx]) error) error {
	if _, err := t.pool.Exec(ctx, "TRUNCATE river_job"); err != nil {
		return err
	}
	all := river.NewWorkers()
	river.AddWorker(all, &worker{work: work})
	c, err := river.NewClient(riverpgxv5.New(t.pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: n}}, Workers: all,
		FetchCooldown: time.Millisecond, FetchPollInterval: time.Second, PollOnly: !notify,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	err = f(c)
	limited, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_ = c.StopAndCancel(limited)
	return err
}

// cycles are the jobs that are worked in d, while callers insert. A caller waits for the insert only.
func (t *theirs) cycles(ctx context.Context, callers int, d time.Duration) (perSecond float64, err error) {
	var done atomic.Int64
	err = t.during(ctx, callers, true, func(context.Context) error { done.Add(1); return nil }, func(c *river.Client[pgx.Tx]) error {
		before := done.Load()
		began := time.Now()
		_, err := rate(ctx, callers, d, func(ctx context.Context, _ int) error { return insert(ctx, c) })
		perSecond = float64(done.Load()-before) / time.Since(began).Seconds()
		return err
	})
	return perSecond, err
}

func insert(ctx context.Context, c *river.Client[pgx.Tx]) error {
	_, err := c.Insert(ctx, someArgs, nil)
	return err
}

func (t *theirs) inserts(ctx context.Context, callers int, d time.Duration) (float64, error) {
	if _, err := t.pool.Exec(ctx, "TRUNCATE river_job"); err != nil {
		return 0, err
	}
	return rate(ctx, callers, d, func(ctx context.Context, _ int) error { return insert(ctx, t.only) })
}

func (t *theirs) bulk(ctx context.Context, n int) error {
	list := make([]river.InsertManyParams, n)
	for i := range list {
		list[i].Args = someArgs
	}
	_, err := t.only.InsertManyFast(ctx, list)
	return err
}

func (t *theirs) bulks(ctx context.Context, d time.Duration) (float64, error) {
	if _, err := t.pool.Exec(ctx, "TRUNCATE river_job"); err != nil {
		return 0, err
	}
	perBulk, err := rate(ctx, 1, d, func(ctx context.Context, _ int) error { return t.bulk(ctx, bulkSize) })
	return bulkSize * perBulk, err
}

func (t *theirs) backlog(ctx context.Context, n int) (perSecond float64, err error) {
	var done atomic.Int64
	var first atomic.Pointer[time.Time]
	over := make(chan struct{})
	hold := make(chan struct{})
	work := func(context.Context) error {
		<-hold
		now := time.Now()
		first.CompareAndSwap(nil, &now)
		if done.Add(1) == int64(n) {
			close(over)
		}
		return nil
	}
	err = t.during(ctx, 100, true, work, func(*river.Client[pgx.Tx]) error {
		for range n / bulkSize {
			if err := t.bulk(ctx, bulkSize); err != nil {
				return err
			}
		}
		close(hold)
		select {
		case <-over:
		case <-ctx.Done():
			return ctx.Err()
		}
		err := t.stored(ctx)
		perSecond = float64(n) / time.Since(*first.Load()).Seconds()
		return err
	})
	return perSecond, err
}

// stored waits until the database knows that all jobs are done: it is told so after the worker has ended.
func (t *theirs) stored(ctx context.Context) error {
	for {
		left := false
		if err := t.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM river_job WHERE state <> 'completed')").Scan(&left); err != nil || !left {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (t *theirs) starts(ctx context.Context, n, rounds int, notify bool) (list []time.Duration, err error) {
	m := &meeting{n: n}
	err = t.during(ctx, n, notify, m.start, func(*river.Client[pgx.Tx]) error {
		list, err = m.rounds(ctx, rounds, func() error { return insert(ctx, t.only) })
		return err
	})
	return list, err
}
