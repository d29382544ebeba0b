package serverless

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/batches"
	"github.com/podyard/podyard/serverless/queue"
)

// Batches returns the batches of jobs, or nil without Options.Batches. CreateBatch and AddToBatch
// put requests into them.
func (s *Service) Batches() *batches.Service { return s.batches }

// drafts tells which jobs are requests of a draft, for one call.
func (s *Service) drafts() *batches.Drafts {
	if s.batches == nil {
		return nil
	}
	return s.batches.Drafts()
}

// newBatches returns nil where o has no batches.
func (s *Service) newBatches(o *Options) *batches.Service {
	if o.Batches == nil {
		return nil
	}
	bo := batches.Options{Clock: s.clock, Rand: s.rand, Logger: s.log}
	if s.sender != nil {
		bo.Send, bo.Place = s.sendBatch, s.placeOfBatch
	}
	if o.Deterministic {
		bo.Wake = func() { s.arm(s.now()) }
	}
	if s.shared {
		bo.Refresh = refreshPeriod
	}
	if s.server != nil {
		bo.Lead = func(ctx context.Context) (bool, error) {
			_, leads, err := s.server.Lead(ctx, batchesLease, nil)
			return leads, err
		}
	}
	return batches.New(o.Batches, &batchedJobs{s.queue, s}, &bo)
}

// batchedJobs is the queue of batches. What they do there makes Run call Step in time.
type batchedJobs struct {
	JobQueue
	s *Service
}

// Enqueue implements batches.Queue.
func (q *batchedJobs) Enqueue(ctx context.Context, jobs []Job) error {
	if err := q.JobQueue.Enqueue(ctx, jobs); err != nil {
		return err
	}
	for i := range jobs {
		q.s.arm(jobs[i].Due())
	}
	return nil
}

// Apply implements batches.Queue.
func (q *batchedJobs) Apply(ctx context.Context, now Instant, ops []queue.Op, res []queue.Result) error {
	if err := q.JobQueue.Apply(ctx, now, ops, res); err != nil {
		return err
	}
	for i := range res {
		q.s.armFor(&res[i])
	}
	return nil
}

// placeOfBatch takes a place for the webhook of a batch among those of jobs: the same limits hold for
// its receiver and its owner.
func (s *Service) placeOfBatch(b *batches.Batch) (done func(context.Context, error), postpone time.Duration, err error) {
	if s.deliveryLimit.available() <= 0 {
		return nil, busyDelay, nil
	}
	d := Delivery{Job: Job{Owner: b.Owner, Webhook: b.Webhook, State: queue.State{Finished: At(b.Ended)}}}
	slot, postpone, err := s.deliveryLimit.acquire(&d, s.now())
	if slot == nil {
		return nil, postpone, err
	}
	return func(ctx context.Context, err error) {
		outcome := deliveryMade
		switch {
		case err != nil && ctx.Err() != nil, errors.Is(err, context.Canceled):
			outcome = deliveryCut
		case err != nil:
			outcome = deliveryFailed
		}
		s.deliveryLimit.release(slot, s.now(), outcome)
		s.arm(s.now())
	}, 0, nil
}

// sendBatch makes one attempt to deliver the webhook of a batch.
func (s *Service) sendBatch(ctx context.Context, id, url string, v batches.Summary) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	d := Delivery{ID: id, Job: Job{Ref: Ref{Endpoint: v.EndpointID, ID: JobID(v.ID)}, Webhook: url}, Body: body}
	status, err := s.attempt(ctx, &d)
	if err == nil && (status < 200 || status >= 300) {
		err = fmt.Errorf("the receiver of the webhook answered %d", status)
	}
	return err
}

// A BatchRequest has the requests of CreateBatch and AddToBatch, and the settings of a new batch.
type BatchRequest struct {
	// Requests are checked as Submit checks them, and have no start: the batch has one.
	Requests []Request
	// Place is where the requests are in the body of the caller, as a JSON pointer.
	Place         string
	Name, Webhook string
	Finalize      bool // start the requests at once
	// Idempotency is the key of the request (docs/decisions.md 38). Nil: it has none.
	Idempotency *idempotency.Request
	// Violations are faults that a decoder found. They are reported with those of the rules.
	Violations problem.Violations
}

// batchFields are the members of a BatchRequest in their documented order.
var batchFields = []string{"name", "webhook", "finalize", "requests"}

// check returns all faults of the request in one error.
func (r *BatchRequest) check(now Instant) error {
	v := &r.Violations
	checkBatchName(v, r.Name)
	checkWebhook(v, r.Webhook)
	if len(r.Requests) > batches.MaxRequests {
		v.Add(problem.Invalid, r.Place, "there must be at most %d requests", batches.MaxRequests)
	}
	for i := range r.Requests {
		q := &r.Requests[i]
		if q.Queue.StartAfter != nil || !q.Queue.StartAt.IsZero() {
			q.Violations.Add(problem.Invalid, "/queue/startAfter", "must be absent: the batch says when its requests start")
			q.Queue.StartAfter, q.Queue.StartAt = nil, time.Time{} // the bounds of others do not follow it
		}
		if q.Queue.Unique != nil {
			q.Violations.Add(problem.Invalid, "/queue/unique", "must be absent: a batch has each of its requests")
		}
		if q.Queue.Retain != nil {
			q.Violations.Add(problem.Invalid, "/queue/retain", "must be absent: the results of a batch are kept together")
		}
		_ = q.check(now) // its faults are in the violations
		v.AddBelow(r.Place+"/"+strconv.Itoa(i), &q.Violations, requestFields)
	}
	return v.Err(batchFields)
}

func checkBatchName(v *problem.Violations, name string) {
	if utf8.RuneCountInString(name) > batches.MaxName {
		v.Add(problem.Invalid, "/name", "must have at most %d characters", batches.MaxName)
	}
}

func checkWebhook(v *problem.Violations, url string) {
	if url == "" {
		return
	}
	if fault := urlFault(url); fault != "" {
		v.Add(problem.Invalid, "/webhook", "%s", fault)
	}
}

// jobs returns the jobs of the requests, without ids.
func (r *BatchRequest) jobs(ep *Endpoint, owner string, now Instant) []Job {
	priority := batches.DefaultPriority
	jobs := make([]Job, len(r.Requests))
	for i := range r.Requests {
		q := r.Requests[i]
		if q.Queue.Priority == nil {
			q.Queue.Priority = &priority
		}
		jobs[i] = q.job(ep, owner, "", now)
	}
	return jobs
}

// CreateBatch makes a batch of owner with all of its requests, or nothing. Without r.Finalize it
// is a draft. It reports all faults together (422), and ErrNoEndpoint for an endpoint that owner
// does not see. Other errors are those of batches.Service.Create.
func (s *Service) CreateBatch(ctx context.Context, owner, endpoint string, r BatchRequest) (batches.Summary, error) {
	now := s.now()
	ep, err := s.eps.Visible(ctx, owner, endpoint)
	if err != nil {
		return batches.Summary{}, err
	}
	if r.Finalize && len(r.Requests) == 0 {
		r.Violations.Add(problem.BadRequest, "/requests", "must not be empty in a batch that is finalized at once")
	}
	return s.batches.Create(ctx, batches.Creation{
		Owner: owner, Endpoint: endpoint, Name: r.Name, Webhook: r.Webhook, Finalize: r.Finalize,
		Jobs: r.jobs(ep, owner, now), Idempotency: r.Idempotency, Check: func() error { return r.check(now) },
	})
}

// AddToBatch adds requests to a draft of owner, all of them or none. Errors are as in
// CreateBatch, and those of batches.Service.Add.
func (s *Service) AddToBatch(ctx context.Context, owner, endpoint, id string, r BatchRequest) (batches.Summary, error) {
	now := s.now()
	ep, err := s.eps.Visible(ctx, owner, endpoint)
	if err != nil {
		return batches.Summary{}, err
	}
	if err := r.check(now); err != nil {
		return batches.Summary{}, err
	}
	return s.batches.Add(ctx, owner, endpoint, id, r.jobs(ep, owner, now))
}

// UpdateBatch changes a batch of owner. It reports all faults together; other errors are those of
// batches.Service.Update.
func (s *Service) UpdateBatch(ctx context.Context, owner, endpoint, id string, r batches.Settings, v problem.Violations) (batches.Summary, error) {
	if r.Name != nil {
		checkBatchName(&v, *r.Name)
	}
	if r.Webhook != nil {
		checkWebhook(&v, *r.Webhook)
	}
	if err := v.Err(batchFields); err != nil {
		return batches.Summary{}, err
	}
	return s.batches.Update(ctx, owner, endpoint, id, r)
}

// removeBatches removes the batches on an endpoint that was deleted.
func (s *Service) removeBatches(ctx context.Context, endpoint string) error {
	if s.batches == nil {
		return nil
	}
	if err := s.batches.EndpointGone(ctx, endpoint); err != nil {
		return fmt.Errorf("serverless: delete endpoint %q: %w", endpoint, err)
	}
	return nil
}

// stepBatches is Step for the batches.
func (s *Service) stepBatches(ctx context.Context, now time.Time) (Instant, error) {
	if s.batches == nil {
		return 0, nil
	}
	next, err := s.batches.Step(ctx, now)
	if err != nil || next.IsZero() {
		return 0, err
	}
	return At(next), nil
}
