package endpoints

import (
	"context"
	"fmt"
	"time"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/queue"
)

// Limits of the settings of a queue.
const (
	// MaxRunning is the highest limit of running jobs.
	MaxRunning = 1_000_000
	// MaxAgeing is the longest ageing: no job waits longer than its ttl.
	MaxAgeing = queue.MaxTTL
)

// QueueSettings are the settings of an endpoint's queue (docs/decisions.md 40).
type QueueSettings struct {
	PerKey     int               // the most running jobs of one owner with the same key; 0: no limit
	PerUser    int               // the most running jobs of one owner; 0: no limit
	Total      int               // the most running jobs of the endpoint; 0: no limit
	Ageing     time.Duration     // a job rises by one priority each time it has waited this long; 0: never
	Retry      queue.RetryPolicy // of jobs whose request has none
	DeadLetter time.Duration     // how long a job that fails for good is kept as a dead letter; 0: not at all
	Retain     time.Duration     // how long results of jobs whose request has none are kept, also past the ttl; 0: queue.RunRetention, within the ttl
	Paused     bool              // no job is given to a worker
}

// QueueSettings returns the settings of the endpoint's queue, or the defaults: no limits,
// queue.DefaultAgeing, no retry and no dead letters.
func (e *Endpoint) QueueSettings() QueueSettings {
	if e.Queue == nil {
		return QueueSettings{Ageing: queue.DefaultAgeing}
	}
	return *e.Queue
}

// Rules returns what the settings say about claims.
func (q QueueSettings) Rules() queue.Rules {
	return queue.Rules{PerKey: q.PerKey, PerUser: q.PerUser, Total: q.Total, Ageing: q.Ageing, Paused: q.Paused}
}

// A QueueUpdate changes the settings that it has and leaves the others. A limit of 0 takes the
// limit away, and a zero Retry the retry.
type QueueUpdate struct {
	PerKey, PerUser, Total *int
	Ageing, DeadLetter     *time.Duration
	Retain                 *time.Duration // 0 takes it away
	Retry                  *queue.RetryPolicy
	Paused                 *bool

	// Violations are faults that a decoder found. They are reported together with the faults
	// of the values.
	Violations problem.Violations
}

var queueOrder = []string{
	"perKey", "perUser", "total", "ageing",
	"retry", "retry/attempts", "retry/delay", "retry/factor", "retry/maxDelay", "retry/jitter", "retry/timeouts",
	"deadLetter", "retain", "paused",
}

func (r *QueueUpdate) check() error {
	faults := r.Violations
	for _, x := range [...]struct {
		place string
		n     *int
	}{{"/perKey", r.PerKey}, {"/perUser", r.PerUser}, {"/total", r.Total}} {
		if x.n != nil && (*x.n < 0 || *x.n > MaxRunning) {
			faults.Add(problem.Invalid, x.place, "must be from 1 to %d, or null for no limit", MaxRunning)
		}
	}
	for _, x := range [...]struct {
		place string
		d     *time.Duration
		most  time.Duration
	}{{"/ageing", r.Ageing, MaxAgeing}, {"/deadLetter", r.DeadLetter, queue.MaxDeadLetter}} {
		if x.d != nil && (*x.d < 0 || *x.d > x.most) {
			faults.Add(problem.Invalid, x.place, "must be from 0 to %d milliseconds", x.most.Milliseconds())
		}
	}
	if d := r.Retain; d != nil && *d != 0 && (*d < queue.MinRetain || *d > queue.MaxRetain) {
		faults.Add(problem.Invalid, "/retain", "must be from %d to %d milliseconds, or null for the default", queue.MinRetain.Milliseconds(), queue.MaxRetain.Milliseconds())
	}
	if r.Retry != nil && *r.Retry != (queue.RetryPolicy{}) {
		r.Retry.Check(&faults, "/retry")
	}
	return faults.Err(queueOrder)
}

func (r *QueueUpdate) apply(q *QueueSettings) {
	setIfGiven(&q.PerKey, r.PerKey)
	setIfGiven(&q.PerUser, r.PerUser)
	setIfGiven(&q.Total, r.Total)
	setIfGiven(&q.Ageing, r.Ageing)
	setIfGiven(&q.Retry, r.Retry)
	setIfGiven(&q.DeadLetter, r.DeadLetter)
	setIfGiven(&q.Retain, r.Retain)
	setIfGiven(&q.Paused, r.Paused)
	if q.Retry.Attempts <= 1 {
		q.Retry = queue.RetryPolicy{}
	}
}

// UpdateQueue changes the settings of an endpoint's queue, whoever owns it. It is no release.
// Errors: ErrNotFound, and the violations of r.
func (s *Service) UpdateQueue(ctx context.Context, id string, r QueueUpdate) (*Endpoint, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	e, err := s.store.Update(ctx, id, func(e *Endpoint) error {
		q := e.QueueSettings()
		r.apply(&q)
		e.Queue = &q
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("endpoints: queue of endpoint %q: %w", id, err)
	}
	return e, nil
}

// InitQueue is UpdateQueue of an endpoint whose settings were never set. It changes nothing else.
func (s *Service) InitQueue(ctx context.Context, id string, r QueueUpdate) (*Endpoint, error) {
	if e, err := s.store.Get(ctx, id); err == nil && e.Queue != nil {
		return e, nil
	}
	return s.UpdateQueue(ctx, id, r)
}
