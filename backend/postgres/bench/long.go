package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/serverless/queue"
)

// partTime is how long one line of old takes, and oldCallers how many callers it has.
const (
	partTime   = 15 * time.Second
	oldCallers = 64
)

// old prints the cycles a second, and the processor time of one, before and while a transaction is open
// that keeps dead rows, or as long after it without one: each cycle leaves a job, and a table of some
// million jobs costs more than a small one. A sweep and a count run once a second, as a service makes them.
func (s *settings) old(ctx context.Context, out io.Writer, o *ours) error {
	endpoint := o.fresh()
	stop := o.serve(ctx, endpoint)
	defer stop()
	part := func() (n, cost float64, err error) {
		return s.costly(ctx, func(ctx context.Context) (float64, error) {
			return o.cyclesOf(endpoint)(ctx, oldCallers, min(partTime, s.oldFor))
		})
	}
	if _, _, err := part(); err != nil { // connections, and the first pages of tables
		return err
	}
	before, costBefore, err := part()
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "first, without an old transaction: %.0f/s\n", before)
	conn, err := pgx.Connect(ctx, s.database)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if !s.control {
		if _, err := conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()"); err != nil {
			return err
		}
	}
	for began := time.Now(); time.Since(began) < s.oldFor; {
		n, cost, err := part()
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "after %4.0f s: %.0f/s, %.2f of the first; processor time of a cycle %.2f\n",
			time.Since(began).Seconds(), n, n/before, cost/costBefore)
	}
	return nil
}

// serve makes sweeps and counts of an endpoint until stop is called.
func (o *ours) serve(ctx context.Context, endpoint string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for ctx.Err() == nil {
			now := queue.At(time.Now())
			_, _ = o.a.Jobs().Expire(ctx, now, 1000)         // the next one reports what lasts
			_, _ = o.a.Jobs().Stats(ctx, now, endpoint, nil) // as well
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return func() { cancel(); all.Wait() }
}

// shallow is how many jobs are queued beside the many of deep.
const shallow = 1000

// deep prints how fast jobs are claimed where many are queued, beside an endpoint with few, in turn.
func (s *settings) deep(ctx context.Context, out io.Writer, o *ours) error {
	many := o.fresh()
	began := time.Now()
	for range s.deepBy / bulkSize {
		if err := o.bulk(ctx, many, bulkSize); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintf(out, "%d jobs were queued in %.0f s\n", s.deepBy, time.Since(began).Seconds())
	var deep, few, cyclesDeep, cyclesFew []float64
	for range s.rounds {
		endpoint := o.fresh()
		if err := o.bulk(ctx, endpoint, shallow); err != nil {
			return err
		}
		cd, err := o.cyclesOf(many)(ctx, 32, s.time)
		if err != nil {
			return err
		}
		cf, err := o.cyclesOf(endpoint)(ctx, 32, s.time)
		if err != nil {
			return err
		}
		d, err := o.claims(ctx, many)
		if err != nil {
			return err
		}
		f, err := o.claims(ctx, endpoint)
		if err != nil {
			return err
		}
		deep, few, cyclesDeep, cyclesFew = append(deep, d), append(few, f), append(cyclesDeep, cd), append(cyclesFew, cf)
	}
	_, err := fmt.Fprintf(out, "claims of 100: %.0f jobs/s with %d queued, %.0f with %d, ratio %.2f\ncycles of 32 callers: %.0f/s and %.0f/s, ratio %.2f\n",
		median(deep), s.deepBy, median(few), shallow, median(deep)/median(few), median(cyclesDeep), median(cyclesFew), median(cyclesDeep)/median(cyclesFew))
	return err
}

// claims claims 1,000 jobs of an endpoint, 100 at once, and returns how many in a second.
func (o *ours) claims(ctx context.Context, endpoint string) (float64, error) {
	began := time.Now()
	for range shallow / 100 {
		now := queue.At(time.Now())
		jobs, err := o.a.Jobs().Claim(ctx, now, []queue.Slot{{Endpoint: endpoint, Worker: "w", N: 100, Until: now + 3_600_000}}, nil)
		if err != nil || len(jobs) != 100 {
			return 0, fmt.Errorf("a claim of 100 got %d jobs: %w", len(jobs), err)
		}
	}
	return shallow / time.Since(began).Seconds(), nil
}
