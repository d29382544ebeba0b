package serverless

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/batches"
	"github.com/podyard/podyard/serverless/queue"
)

// An Action is what ActOnJobs does with each job.
type Action string

// The actions.
const (
	CancelJobs Action = "cancel" // as Cancel, of jobs that have not ended
	RetryJobs  Action = "retry"  // as Retry, of FAILED and TIMED_OUT jobs
	StartJobs  Action = "start"  // makes delayed jobs ready now
	DeleteJobs Action = "delete" // removes jobs that have ended, with their results
)

// Limits of ActOnJobs and Scan.
const (
	MaxActionJobs = 1000   // the most jobs of one call
	scanJobs      = 10_000 // the most jobs that one call examines
	actionStep    = 100    // jobs of one call of the queue, which may lock for that long
)

// A JobFilter selects jobs. The zero value selects all.
type JobFilter struct {
	IDs           []JobID
	Prefix        string // of the id; empty: any
	Status        []Status
	Key           *string   // of Job.Key
	Batch         string    // the id of the batch that the jobs are requests of; empty: any
	Before, After time.Time // of the submission: before the one, and not before the other; zero: any
}

// An ActionRequest asks for an action on many jobs (docs/decisions.md 40).
type ActionRequest struct {
	Action  Action
	Filter  JobFilter
	Preview bool   // only count
	Limit   int    // the most jobs; 1 to MaxActionJobs
	From    uint64 // ActionResult.Next of the call before; 0: the first call
}

// An ActionResult is the result of a call of ActOnJobs.
type ActionResult struct {
	Matched int // jobs that the filter selects and to which the action applies, or that it names
	Done    int // jobs on which the action was done
	Failed  []FailedAction
	Next    uint64 // for the next call; 0: there are no more jobs
}

// A FailedAction is a job on which an action was not done.
type FailedAction struct {
	ID  JobID
	Err error // a problem.Error
}

// ActOnJobs does an action on the jobs of owner, or of AllOwners, that the filter selects:
// those that were submitted first come first within a call, and newer calls have older jobs.
// It examines a bounded number of jobs, so a call may match none and still have a Next. Jobs
// that are submitted or queued again after the first call are not met, nor are the requests of a
// batch that was not started: they belong to their batch. An error means that the
// outcome is unknown; the same call can be made again. It returns ErrNoEndpoint for an unknown
// endpoint.
func (s *Service) ActOnJobs(ctx context.Context, owner, endpoint string, r ActionRequest) (res ActionResult, err error) {
	if _, err := s.endpoints.Get(ctx, endpoint); err != nil {
		return res, err
	}
	if err := r.check(); err != nil {
		return res, err
	}
	drafts, failed := s.drafts(), error(nil)
	keep := func(j *Job) bool {
		if failed != nil || !r.selects(j) {
			return false
		}
		var draft bool
		draft, failed = drafts.Has(ctx, j.ID)
		return !draft
	}
	jobs, next, err := s.scan(ctx, owner, endpoint, scanQuery{ids: r.Filter.IDs, before: r.From, limit: r.Limit, keep: keep})
	if err = cmp.Or(err, failed); err != nil {
		return res, err
	}
	res.Matched, res.Next = len(jobs), next
	if r.From == 0 {
		if res.Failed, err = r.missing(ctx, drafts, jobs); err != nil {
			return res, err
		}
	}
	if r.Preview {
		return res, nil
	}
	slices.Reverse(jobs)
	for part := range slices.Chunk(jobs, actionStep) {
		if err := s.act(ctx, &r, part, &res); err != nil {
			return ActionResult{}, fmt.Errorf("serverless: %s jobs of %q: %w", r.Action, endpoint, err)
		}
	}
	return res, nil
}

// check returns an error for an action that does not exist, or a limit out of bounds.
func (r *ActionRequest) check() error {
	if !slices.Contains([]Action{CancelJobs, RetryJobs, StartJobs, DeleteJobs}, r.Action) {
		return problem.Newf(problem.Invalid, "action must be one of cancel, retry, start, delete")
	}
	if r.Limit < 1 || r.Limit > MaxActionJobs {
		return problem.Newf(problem.Invalid, "limit must be from 1 to %d", MaxActionJobs)
	}
	return nil
}

// act does the action on some jobs.
func (s *Service) act(ctx context.Context, r *ActionRequest, jobs []Job, res *ActionResult) error {
	ops, results := make([]queue.Op, len(jobs)), make([]queue.Result, len(jobs))
	for i := range jobs {
		ops[i] = queue.Op{Ref: jobs[i].Ref, Kind: r.op()}
	}
	if err := s.queue.Apply(ctx, s.now(), ops, results); err != nil {
		return err
	}
	for i := range results {
		s.armFor(&results[i])
		if err := r.outcome(&results[i]); err != nil {
			res.Failed = append(res.Failed, FailedAction{jobs[i].ID, err})
			continue
		}
		res.Done++
	}
	return nil
}

// op returns the move of the action. A cancel of jobs that wait must not end one that a
// worker has taken meanwhile.
func (r *ActionRequest) op() queue.OpKind {
	switch r.Action {
	case RetryJobs:
		return queue.OpRetry
	case StartJobs:
		return queue.OpStart
	case DeleteJobs:
		return queue.OpDelete
	}
	if len(r.Filter.Status) > 0 && !slices.Contains(r.Filter.Status, InProgress) {
		return queue.OpPurge
	}
	return queue.OpCancel
}

// outcome returns why the action was not done.
func (r *ActionRequest) outcome(res *queue.Result) error {
	if !errors.Is(res.Err, ErrStatus) && (res.Err != nil || res.Effect != 0) {
		return res.Err
	}
	switch r.Action {
	case RetryJobs:
		return refused("only a FAILED or TIMED_OUT job can be retried")
	case StartJobs:
		return refused("only a delayed job can be started")
	case DeleteJobs:
		return refused("only a job that has ended can be deleted: cancel it first")
	}
	return refused("the job has ended, or a worker has taken it meanwhile")
}

// selects reports whether the request is about a job. A job to which the action does not
// apply is left out, unless the filter names it.
func (r *ActionRequest) selects(j *Job) bool {
	f := &r.Filter
	if len(f.Status) > 0 && !slices.Contains(f.Status, j.Status) || f.Key != nil && *f.Key != j.Key {
		return false
	}
	if f.Batch != "" && !batches.Has(f.Batch, j.ID) || !strings.HasPrefix(string(j.ID), f.Prefix) {
		return false
	}
	at := j.Submitted.Time()
	if !f.Before.IsZero() && !at.Before(f.Before) || !f.After.IsZero() && at.Before(f.After) {
		return false
	}
	return len(f.IDs) > 0 || r.applies(j)
}

func (r *ActionRequest) applies(j *Job) bool {
	switch r.Action {
	case RetryJobs:
		return j.Status == Failed || j.Status == TimedOut
	case StartJobs:
		return j.Delayed
	case DeleteJobs:
		return j.Status.Terminal()
	}
	return !j.Status.Terminal()
}

// missing returns the named jobs on which the action is not done: those that were not found, and
// requests of drafts. jobs are those on which it is.
func (r *ActionRequest) missing(ctx context.Context, drafts *batches.Drafts, jobs []Job) (list []FailedAction, err error) {
	if len(r.Filter.IDs) == 0 || r.Limit < len(r.Filter.IDs) {
		return nil, nil
	}
	found := map[JobID]bool{}
	for i := range jobs {
		found[jobs[i].ID] = true
	}
	for _, id := range r.Filter.IDs {
		if found[id] {
			continue
		}
		found[id] = true
		draft, err := drafts.Has(ctx, id)
		if err != nil {
			return nil, err
		}
		why := FailedAction{id, ErrNotFound}
		if draft {
			why.Err = refused("it is a request of a draft: start the batch, or delete the request from it")
		}
		list = append(list, why)
	}
	return list, nil
}

// A scanQuery says which jobs scan returns.
type scanQuery struct {
	ids    []JobID
	before uint64 // Seq; 0: any
	limit  int
	keep   func(*Job) bool
}

// scan returns the next jobs of owner that q keeps, newest first, without payloads. It examines
// a bounded number. next is where the next call begins; 0: there are no more.
func (s *Service) scan(ctx context.Context, owner, endpoint string, q scanQuery) (jobs []Job, next uint64, err error) {
	lq := queue.ListQuery{Endpoint: endpoint, Owner: ownerFilter(owner), IDs: q.ids, Before: q.before, Limit: scanJobs}
	examined := 0
	for j, err := range s.queue.List(ctx, s.now(), lq) {
		if err != nil {
			return nil, 0, fmt.Errorf("serverless: list %q: %w", endpoint, err)
		}
		if len(jobs) == q.limit {
			return jobs, next, nil // there is one more
		}
		next = j.Seq
		if examined++; q.keep(&j) {
			jobs = append(jobs, j)
		}
	}
	if examined < scanJobs {
		next = 0
	}
	return jobs, next, nil
}

// JobsByID returns the jobs of owner, or of AllOwners, that have these ids, at most MaxActionJobs of
// them, newest first and without payloads. Ids that no such job has are left out.
func (s *Service) JobsByID(ctx context.Context, owner, endpoint string, ids []JobID) ([]Job, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	jobs, _, err := s.scan(ctx, owner, endpoint, scanQuery{ids: ids, limit: MaxActionJobs, keep: func(*Job) bool { return true }})
	return jobs, err
}

// A JobsQuery selects jobs for Jobs.
type JobsQuery struct {
	Status []Status // empty: any status
	Limit  int      // the most jobs, at least 1
	From   uint64   // JobsPage.Next of the page before; 0: the first page
}

// A JobsPage is a page of Jobs.
type JobsPage struct {
	Jobs []Job
	Next uint64 // for the next page; 0: it was the last one
}

// maxPageBytes is the size of payloads from which a page of Jobs is complete.
const maxPageBytes = 16 << 20

// Jobs returns jobs of owner, or of AllOwners, with their payloads, newest first. It examines a
// bounded number of jobs and reads a bounded number of bytes, so a page may have fewer than
// q.Limit jobs and still have a Next. An output that can no longer be read is left out. It
// returns ErrNoEndpoint for an unknown endpoint.
func (s *Service) Jobs(ctx context.Context, owner, endpoint string, q JobsQuery) (p JobsPage, err error) {
	if _, err := s.endpoints.Get(ctx, endpoint); err != nil {
		return p, err
	}
	keep := func(j *Job) bool { return len(q.Status) == 0 || slices.Contains(q.Status, j.Status) }
	jobs, next, err := s.scan(ctx, owner, endpoint, scanQuery{before: q.From, limit: q.Limit, keep: keep})
	if err != nil {
		return p, err
	}
	size := 0
	for i := range jobs {
		j, err := s.queue.Get(ctx, s.now(), jobs[i].Ref)
		switch {
		case errors.Is(err, ErrNotFound):
			continue // deleted since it was listed
		case err != nil && !errors.Is(err, ErrDamaged):
			return JobsPage{}, fmt.Errorf("serverless: list %q: %w", endpoint, err)
		}
		p.Jobs = append(p.Jobs, j)
		if size += len(j.Input) + len(j.Output); size >= maxPageBytes && i+1 < len(jobs) {
			return JobsPage{p.Jobs, jobs[i].Seq}, nil
		}
	}
	p.Next = next
	return p, nil
}
