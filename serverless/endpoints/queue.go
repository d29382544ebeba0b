package endpoints

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

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

	Rate        queue.Rate     `json:",omitzero"` // starts of the endpoint (docs/decisions.md 59); zero: no limit, as in the others
	PerKeyRate  queue.Rate     `json:",omitzero"` // starts of one owner with the same key
	PerUserRate queue.Rate     `json:",omitzero"` // starts of one owner
	Keys        queue.KeyRules `json:",omitzero"` // single keys that have limits of their own, by name; at most queue.MaxKeyRules
	HoldsSince  queue.Instant  `json:",omitzero"` // what workers have held until then is lifted; 0: nothing is
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
	r := queue.Rules{
		PerKey: q.PerKey, PerUser: q.PerUser, Total: q.Total, Ageing: q.Ageing, Paused: q.Paused,
		Rate: q.Rate, PerKeyRate: q.PerKeyRate, PerUserRate: q.PerUserRate, HoldsSince: q.HoldsSince,
	}
	if len(q.Keys) > 0 {
		r.Keys = &q.Keys
	}
	return r
}

// A QueueUpdate changes the settings that it has and leaves the others. A limit of 0 takes the
// limit away, and a zero Retry the retry.
type QueueUpdate struct {
	PerKey, PerUser, Total *int
	Ageing, DeadLetter     *time.Duration
	Retain                 *time.Duration // 0 takes it away
	Retry                  *queue.RetryPolicy
	Paused                 *bool

	Rate, PerKeyRate, PerUserRate *queue.Rate // a zero rate takes the rate away
	// Keys changes the limits of the keys that it names. A zero KeyRule takes those of a key away, and
	// ClearKeys those of all keys first.
	Keys      queue.KeyRules
	ClearKeys bool
	LiftHolds bool // the keys that workers hold now may start jobs

	// Violations are faults that a decoder found. They are reported together with the faults
	// of the values.
	Violations problem.Violations
}

var queueOrder = []string{
	"perKey", "perUser", "total", "ageing",
	"retry", "retry/attempts", "retry/delay", "retry/factor", "retry/maxDelay", "retry/jitter", "retry/timeouts",
	"deadLetter", "retain", "paused", "rate", "perKeyRate", "perUserRate", "keys", "liftHolds",
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
	for _, x := range [...]struct {
		place string
		rate  *queue.Rate
	}{{"/rate", r.Rate}, {"/perKeyRate", r.PerKeyRate}, {"/perUserRate", r.PerUserRate}} {
		if x.rate != nil {
			checkRate(&faults, x.place, *x.rate)
		}
	}
	r.checkKeys(&faults)
	if r.Retry != nil && *r.Retry != (queue.RetryPolicy{}) {
		r.Retry.Check(&faults, "/retry")
	}
	return faults.Err(queueOrder)
}

func checkRate(faults *problem.Violations, place string, rate queue.Rate) {
	if rate == (queue.Rate{}) {
		return
	}
	if rate.Limit < 1 || rate.Limit > queue.MaxRateLimit {
		faults.Add(problem.Invalid, place+"/limit", "must be from 1 to %d", queue.MaxRateLimit)
	}
	if rate.Per < queue.MinRatePer || rate.Per > queue.MaxRatePer || rate.Per%time.Millisecond != 0 {
		faults.Add(problem.Invalid, place+"/per", "must be from %d to %d milliseconds", queue.MinRatePer.Milliseconds(), queue.MaxRatePer.Milliseconds())
	}
}

func (r *QueueUpdate) checkKeys(faults *problem.Violations) {
	if len(r.Keys) > queue.MaxKeyRules {
		faults.Add(problem.Invalid, "/keys", "at most %d keys have limits of their own", queue.MaxKeyRules)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(r.Keys)) {
		rule, place := r.Keys[name], "/keys/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
		if n := utf8.RuneCountInString(name); n < 1 || n > queue.MaxKey {
			faults.Add(problem.Invalid, place, "a key has 1 to %d characters", queue.MaxKey)
		}
		if rule.PerKey < 0 || rule.PerKey > MaxRunning {
			faults.Add(problem.Invalid, place+"/perKey", "must be from 1 to %d, or null for that of all keys", MaxRunning)
		}
		checkRate(faults, place+"/rate", rule.Rate)
	}
}

// applyKeys returns the limits of single keys after the update. It changes no map that is in use.
func (r *QueueUpdate) applyKeys(known queue.KeyRules) (queue.KeyRules, error) {
	if r.ClearKeys {
		known = nil
	}
	if len(r.Keys) == 0 {
		return known, nil
	}
	keys := maps.Clone(known)
	if keys == nil {
		keys = queue.KeyRules{}
	}
	for name, rule := range r.Keys {
		if keys[name] = rule; rule == (queue.KeyRule{}) {
			delete(keys, name)
		}
	}
	if len(keys) > queue.MaxKeyRules {
		var faults problem.Violations
		faults.Add(problem.Invalid, "/keys", "at most %d keys have limits of their own: this would be %d", queue.MaxKeyRules, len(keys))
		return known, faults.Err(queueOrder)
	}
	if len(keys) == 0 {
		keys = nil
	}
	return keys, nil
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
	setIfGiven(&q.Rate, r.Rate)
	setIfGiven(&q.PerKeyRate, r.PerKeyRate)
	setIfGiven(&q.PerUserRate, r.PerUserRate)
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
		if r.LiftHolds {
			q.HoldsSince = max(q.HoldsSince, queue.At(s.clock.Now()))
		}
		var err error
		if q.Keys, err = r.applyKeys(q.Keys); err != nil {
			return err
		}
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
