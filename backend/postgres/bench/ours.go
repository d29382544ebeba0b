package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// ours is the queue of backend/postgres at two servers.
type ours struct {
	a, b *postgres.Store
	made atomic.Int64
}

func openOurs(ctx context.Context, url string, of budget.Limits) (*ours, error) {
	a, err := postgres.Open(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	b, err := postgres.Open(ctx, url, nil)
	if err != nil {
		a.Close()
		return nil, err
	}
	limits := budget.NewSet(budget.Users{Limits: of})
	a.Limit(limits)
	b.Limit(limits)
	return &ours{a: a, b: b}, nil
}

func (o *ours) close() {
	o.a.Close()
	o.b.Close()
}

// fresh returns the name of an endpoint that no measurement had before.
func (o *ours) fresh() string { return fmt.Sprintf("e%d-%d", time.Now().UnixNano(), o.made.Add(1)) }

// job returns a job of a user of its own for each endpoint, who is far from every limit.
func (o *ours) job(endpoint string) queue.Job {
	now := queue.At(time.Now())
	return queue.Job{
		Ref: queue.Ref{Endpoint: endpoint, ID: queue.JobID(fmt.Sprint(endpoint, "-", o.made.Add(1)))}, Owner: endpoint, Input: payload,
		State: queue.State{Submitted: now, Queued: now, Expires: now + 86_400_000, Terms: queue.Terms{ExecTimeout: time.Minute, Retain: time.Hour}},
	}
}

// cycle submits a job, claims one and ends it.
func (o *ours) cycle(ctx context.Context, q *postgres.Jobs, endpoint string, caller int) error {
	if err := q.Enqueue(ctx, []queue.Job{o.job(endpoint)}); err != nil {
		return err
	}
	_, err := work(ctx, q, endpoint, caller, 1)
	return err
}

// work claims up to n jobs and ends them.
func work(ctx context.Context, q *postgres.Jobs, endpoint string, caller, n int) (done int, err error) {
	now := queue.At(time.Now())
	jobs, err := claim(ctx, q, now, endpoint, caller, n)
	if err != nil || len(jobs) == 0 {
		return 0, err
	}
	return len(jobs), end(ctx, q, now, jobs)
}

func claim(ctx context.Context, q *postgres.Jobs, now queue.Instant, endpoint string, caller, n int) ([]queue.Job, error) {
	w := queue.WorkerID(fmt.Sprint("w", caller))
	return q.Claim(ctx, now, []queue.Slot{{Endpoint: endpoint, Worker: w, N: n, Until: now + 30_000}}, nil)
}

func end(ctx context.Context, q *postgres.Jobs, now queue.Instant, jobs []queue.Job) error {
	ops := make([]queue.Op, len(jobs))
	for i, j := range jobs {
		ops[i] = queue.Op{Ref: j.Ref, Kind: queue.OpFinish, Status: queue.Completed, Worker: j.Worker, Token: j.Token, Payload: payload}
	}
	return q.Apply(ctx, now, ops, make([]queue.Result, len(ops)))
}

func (o *ours) cycles(ctx context.Context, callers int, d time.Duration) (float64, error) {
	return o.cyclesOf(o.fresh())(ctx, callers, d)
}

// cyclesOf is cycles on one endpoint each time.
func (o *ours) cyclesOf(endpoint string) measure {
	return func(ctx context.Context, callers int, d time.Duration) (float64, error) {
		return rate(ctx, callers, d, func(ctx context.Context, c int) error { return o.cycle(ctx, o.a.Jobs(), endpoint, c) })
	}
}

// twoServers is cycles with half of the callers at each server.
func (o *ours) twoServers(ctx context.Context, callers int, d time.Duration) (float64, error) {
	endpoint := o.fresh()
	return rate(ctx, callers, d, func(ctx context.Context, c int) error {
		return o.cycle(ctx, []*postgres.Store{o.a, o.b}[c%2].Jobs(), endpoint, c)
	})
}

func (o *ours) inserts(ctx context.Context, callers int, d time.Duration) (float64, error) {
	endpoint := o.fresh()
	return rate(ctx, callers, d, func(ctx context.Context, _ int) error {
		return o.a.Jobs().Enqueue(ctx, []queue.Job{o.job(endpoint)})
	})
}

func (o *ours) bulk(ctx context.Context, endpoint string, n int) error {
	jobs := make([]queue.Job, n)
	for i := range jobs {
		jobs[i] = o.job(endpoint)
	}
	return o.a.Jobs().Enqueue(ctx, jobs)
}

func (o *ours) bulks(ctx context.Context, d time.Duration) (float64, error) {
	endpoint := o.fresh()
	perBulk, err := rate(ctx, 1, d, func(ctx context.Context, _ int) error { return o.bulk(ctx, endpoint, bulkSize) })
	return bulkSize * perBulk, err
}

// backlog claims as a worker of 100 slots does: the next jobs while the ends of those before are stored.
func (o *ours) backlog(ctx context.Context, n int) (float64, error) {
	endpoint := o.fresh()
	for range n / bulkSize {
		if err := o.bulk(ctx, endpoint, bulkSize); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	ended := make(chan error, 1)
	ended <- nil
	for left := n; left > 0; {
		now := queue.At(time.Now())
		jobs, err := claim(ctx, o.a.Jobs(), now, endpoint, 0, 100)
		if err = errors.Join(err, <-ended); err != nil || len(jobs) == 0 {
			return 0, fmt.Errorf("%d jobs are left: %w", left, err)
		}
		left -= len(jobs)
		go func() { ended <- end(ctx, o.a.Jobs(), now, jobs) }()
	}
	err := <-ended
	return float64(n) / time.Since(began).Seconds(), err
}

// deaf is a queue that gets no notifications: it polls.
type deaf struct{ queue.JobQueue }

func (d deaf) Unwrap() queue.JobQueue { return d.JobQueue }

func (d deaf) Watch(ctx context.Context, _ func([]queue.Event)) error {
	<-ctx.Done()
	return ctx.Err()
}

// starts submits at one server, and returns how long the starts of n jobs took at another one,
// which has n workers that wait. Each job waits until all have started.
func (o *ours) starts(ctx context.Context, n, rounds int, notify bool) (list []time.Duration, err error) {
	ctx, stop := context.WithCancel(ctx)
	eps := memory.NewEndpoints()
	var there queue.JobQueue = o.b.Jobs()
	if !notify {
		there = deaf{there}
	}
	a, b := serverless.New(o.a.Jobs(), eps, nil), serverless.New(there, eps, nil)
	endpoint := o.fresh()
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	if err := a.EnsureEndpoint(ctx, endpoint); err != nil {
		return nil, err
	}
	for _, s := range []*serverless.Service{a, b} {
		all.Go(func() { _ = s.Run(ctx) })
	}
	m := &meeting{n: n}
	for i := range n {
		all.Go(func() {
			_ = b.Serve(ctx, endpoint, serverless.WorkerFunc(func(ctx context.Context, _ *serverless.Task) ([]byte, error) {
				return []byte("1"), m.start(ctx)
			}), &serverless.ServeOptions{ID: serverless.WorkerID(fmt.Sprint(serverless.LocalWorkerPrefix, i))})
		})
	}
	return m.rounds(ctx, rounds, func() error {
		_, err := a.Submit(ctx, "u", endpoint, serverless.Request{Input: payload})
		return err
	})
}
