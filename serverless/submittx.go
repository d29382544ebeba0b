package serverless

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/telemetry"
)

// SubmitTx is Submit in a transaction of the caller, a pgx.Tx or a *sql.Tx on the database of the
// queue: the job is there exactly if the transaction commits, and the commit wakes workers. It takes
// what Submit takes, and checks what Submit checks. After an error that is not of the database, the
// transaction is as it was before the call.
//
// A unique key that another job holds is an error that wraps queue.ErrKeyTaken, a *queue.TakenError with
// the job if it is committed; Replace is refused, because the job that it would change may be of another
// transaction. A key in r.Idempotency is part of the transaction, too. Of two open transactions with the same key
// the second one waits for the end of the first.
//
// Observers are told of the job at the call, and nobody tells them of a rollback. A queue that is not
// in such a database returns queue.ErrNoTx. Transactions of one user that overlap may exceed a budget
// together.
func (s *Service) SubmitTx(ctx context.Context, tx any, owner, endpoint string, r Request) (Job, error) {
	jobs, err := s.submitAllTx(ctx, tx, owner, endpoint, []Request{r}, "")
	if err != nil {
		return Job{}, err
	}
	return jobs[0], nil
}

// SubmitAllTx is SubmitTx for any number of requests: it queues all of them or none. It reports the
// faults of all requests together, at "/0/input" for the input of the first.
func (s *Service) SubmitAllTx(ctx context.Context, tx any, owner, endpoint string, rs []Request) ([]Job, error) {
	return s.submitAllTx(ctx, tx, owner, endpoint, rs, "/")
}

// submitAllTx reports the faults of request n at the place with this number; without a place there is
// only one request.
func (s *Service) submitAllTx(ctx context.Context, tx any, owner, endpoint string, rs []Request, place string) ([]Job, error) {
	in, err := queue.InTx(s.queue, tx)
	if err != nil {
		return nil, err
	}
	ep, err := s.eps.Visible(ctx, owner, endpoint)
	if err != nil {
		return nil, err
	}
	t := submission{s: s, in: in, jobs: make([]Job, len(rs)), now: s.clock.Now()}
	if t.faults = checkAll(rs, s.now(), place); problem.KindOf(t.faults) == problem.Invalid && t.faults != nil {
		return nil, t.faults
	}
	for i := range rs {
		id, err := s.newID(rs[i].Sync)
		if err != nil {
			return nil, fmt.Errorf("serverless: make a job id: %w", err)
		}
		t.jobs[i] = rs[i].job(ep, owner, id, s.now())
	}
	if err := t.add(ctx, rs, 0); err != nil {
		return nil, err
	}
	return t.jobs, nil
}

// checkAll returns all faults of requests in one error.
func checkAll(rs []Request, now Instant, place string) error {
	var all problem.Violations
	for i := range rs {
		_ = rs[i].check(now) // its faults are in the violations
		if u := rs[i].Queue.Unique; u != nil && u.Replace {
			rs[i].Violations.Add(problem.Invalid, "/queue/unique/onConflict", "must be keep in a transaction")
		}
		at := place
		if at != "" {
			at += strconv.Itoa(i)
		}
		all.AddBelow(at, &rs[i].Violations, requestFields)
	}
	return all.Err(nil)
}

// A submission adds jobs in a transaction of the caller.
type submission struct {
	s      *Service
	in     queue.Tx
	jobs   []Job
	now    time.Time
	faults error
}

// add adds the jobs, after it has done what the keys of the requests from n on need.
func (t *submission) add(ctx context.Context, rs []Request, n int) error {
	if n == len(rs) {
		return t.enqueue(ctx)
	}
	if rs[n].Idempotency == nil {
		return t.add(ctx, rs, n+1)
	}
	_, err := idempotency.Do(ctx, rs[n].Idempotency, idempotency.Creation[struct{}]{
		Guard: new(idempotency.Guard), // the database has the twins of a key wait for each other
		Store: t.in, Now: t.now, Check: func() error { return t.faults },
		Create: func(k *idempotency.Record) (struct{}, error) {
			k.ID, t.jobs[n].Creation = string(t.jobs[n].ID), k
			return struct{}{}, t.add(ctx, rs, n+1)
		},
	})
	return err
}

func (t *submission) enqueue(ctx context.Context) error {
	if t.faults != nil {
		return t.faults
	}
	if len(t.jobs) == 0 {
		return nil
	}
	size := 0
	for i := range t.jobs {
		size += len(t.jobs[i].Input)
	}
	endpoint := t.jobs[0].Endpoint
	done, err := t.s.startWrite(ctx, endpoint, size)
	if err != nil {
		return err
	}
	defer done()
	if err := t.in.Enqueue(ctx, t.jobs); err != nil {
		return fmt.Errorf("serverless: submit to %q: %w", endpoint, err)
	}
	for i := range t.jobs {
		j := &t.jobs[i]
		j.Creation = nil
		t.s.arm(j.Due())
		if t.s.observer != nil {
			t.s.observer.Job(telemetry.JobEvent{Change: telemetry.JobSubmitted, Ref: &j.Ref, State: &j.State, Trace: &j.Trace, Bytes: len(j.Input)})
		}
	}
	return nil
}
