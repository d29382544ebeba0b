package serverless

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/queue"
)

// A Request describes a job to submit (docs/interface.md 2.8).
type Request struct {
	Input   []byte // one JSON object; owned by the queue after Submit
	Webhook string // absolute http or https URL, or empty
	Policy  Policy
	Queue   QueueOptions
	Extra   []byte // a JSON object with members that only the worker sees (s3Config), or nil
	Trace   Trace  // kept with the job as far as it is valid (docs/decisions.md 45)

	// Sync submits the job as runsync does: its result is kept for the duration Wait, within
	// MinSyncRetention and MaxSyncRetention.
	Sync bool
	Wait time.Duration
	// OpenAI says that the request came by the OpenAI route, for metrics.
	OpenAI bool

	// Endpoint is what CheckEndpoint has just returned for the owner and the endpoint of the
	// call, so that Submit does not read it again. Nil: Submit reads it.
	Endpoint *Endpoint

	// Checked says that the caller has checked that Input and Extra are JSON objects.
	Checked bool
	// Queued is called once by SubmitAndWait when the job is in the queue, which keeps its own
	// copy of the input. It may be nil.
	Queued func()
	// Idempotency is the key of the request (docs/decisions.md 38). Nil: it has none.
	Idempotency *idempotency.Request

	// Violations are faults that a decoder found. Submit reports them with its own.
	Violations problem.Violations
}

// A Policy holds the limits of one job (docs/interface.md 8.1). A nil
// field means the default.
type Policy struct {
	ExecutionTimeout *time.Duration // default: that of the endpoint, else DefaultExecTimeout
	TTL              *time.Duration // default DefaultTTL
	LowPriority      bool           // the scaler starts no worker for the job
}

// QueueOptions say which jobs of an owner are given to workers first, and what follows a
// failure (docs/decisions.md 39). The zero value is first in, first out, and no retry.
type QueueOptions struct {
	Priority *int    // 0 to MaxPriority, which goes first; default DefaultPriority
	Key      *string // 1 to MaxKey characters: the keys of an owner take turns
	// StartAfter and StartAt say when the job is ready: after a time from now, or at an instant.
	// An instant that has passed is now. Not both.
	StartAfter *time.Duration
	StartAt    time.Time
	Retry      *RetryPolicy // default: that of the endpoint; see DefaultRetry
	// Retain says how long the result is kept, from the end of the job and also past its ttl:
	// MinRetain to MaxRetain. Default: that of the endpoint, else RunRetention at most until the ttl.
	Retain *time.Duration
	Unique *UniqueOptions // nil: the job is made whatever others there are
}

// DefaultRetry is queue.DefaultRetry.
func DefaultRetry() RetryPolicy { return queue.DefaultRetry() }

// requestFields are the fields of a request in their documented order.
var requestFields = []string{"input", "webhook", "policy", "policy/executionTimeout", "policy/lowPriority", "policy/ttl",
	"queue", "queue/priority", "queue/key", "queue/startAfter",
	"queue/retry", "queue/retry/attempts", "queue/retry/delay", "queue/retry/factor", "queue/retry/maxDelay", "queue/retry/jitter", "queue/retry/timeouts", "queue/retain",
	"queue/unique", "queue/unique/key", "queue/unique/while", "queue/unique/period", "queue/unique/onConflict",
	"s3Config"}

// check returns all faults of the request in one error. now is the time of the submission.
func (r *Request) check(now Instant) error {
	v := &r.Violations
	if !v.Has("/input") {
		switch {
		case len(r.Input) == 0:
			v.Add(problem.Invalid, "/input", "is required")
		case !r.Checked && !isObject(r.Input):
			v.Add(problem.Invalid, "/input", "must be a JSON object")
		}
	}
	checkWebhook(v, r.Webhook)
	checkBounds(v, "/policy/executionTimeout", r.Policy.ExecutionTimeout, MinExecTimeout, MaxExecTimeout)
	r.Queue.check(v)
	r.checkTimes(v, now)
	if !r.Checked && r.Extra != nil && !isObject(r.Extra) {
		v.Add(problem.Invalid, "/s3Config", "must be a JSON object")
	}
	return v.Err(requestFields)
}

// checkTimes adds the faults of when the job begins and how long it lives.
func (r *Request) checkTimes(v *problem.Violations, now Instant) {
	delay := r.Queue.start(now).Sub(now)
	if r.Queue.StartAfter == nil && delay > MaxStartAfter {
		v.Add(problem.Invalid, "/queue/startAfter", "must be at most %d days from now", MaxStartAfter/(24*time.Hour))
	}
	delay = min(delay, MaxStartAfter)
	checkBounds(v, "/policy/ttl", r.Policy.TTL, MinTTL, MaxTTL+delay.Truncate(time.Millisecond))
	if _, late := r.lifetime(now); late {
		v.Add(problem.Invalid, "/queue/startAfter", "must be before the end of the job's ttl")
	}
}

func (q *QueueOptions) check(v *problem.Violations) {
	if p := q.Priority; p != nil && (*p < 0 || *p > queue.MaxPriority) {
		v.Add(problem.Invalid, "/queue/priority", "must be from 0 to %d", queue.MaxPriority)
	}
	if k := q.Key; k != nil && (*k == "" || utf8.RuneCountInString(*k) > queue.MaxKey) {
		v.Add(problem.Invalid, "/queue/key", "must have 1 to %d characters", queue.MaxKey)
	}
	checkBounds(v, "/queue/startAfter", q.StartAfter, 0, MaxStartAfter)
	if q.Retry != nil {
		q.Retry.Check(v, "/queue/retry")
	}
	checkBounds(v, "/queue/retain", q.Retain, MinRetain, MaxRetain)
	if q.Unique != nil {
		q.Unique.check(v)
	}
}

func checkBounds(v *problem.Violations, path string, d *time.Duration, lo, hi time.Duration) {
	if d != nil && (*d < lo || *d > hi) {
		v.Add(problem.Invalid, path, "must be from %d to %d milliseconds", lo.Milliseconds(), hi.Milliseconds())
	}
}

// CheckWait returns an error if d is not from MinWait to MaxWait.
func CheckWait(d time.Duration) error {
	return checkQuery("wait", d, MinWait, MaxWait)
}

// CheckTTL returns an error if d is not from MinStatusTTL to MaxTTL, the bounds of a status
// request.
func CheckTTL(d time.Duration) error {
	return checkQuery("ttl", d, MinStatusTTL, MaxTTL)
}

func checkQuery(name string, d, lo, hi time.Duration) error {
	if d < lo || d > hi {
		return problem.Newf(problem.Invalid, "%s must be from %d to %d milliseconds", name, lo.Milliseconds(), hi.Milliseconds())
	}
	return nil
}

func isObject(b []byte) bool {
	b = bytes.TrimLeft(b, " \t\r\n")
	return len(b) > 0 && b[0] == '{' && json.Valid(b)
}

// urlFault says why no webhook can ever be sent to a URL; empty: one can.
func urlFault(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return "must be an absolute http or https URL"
	}
	if u.User != nil {
		return "must have no user name and no password"
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return "must have a port from 1 to 65535, or none"
		}
	}
	return ""
}

// start returns the instant at which the first attempt is ready, now at the earliest.
func (q *QueueOptions) start(now Instant) Instant {
	switch {
	case q.StartAfter != nil:
		return max(now, now.Add(*q.StartAfter))
	case !q.StartAt.IsZero():
		return max(now, At(q.StartAt))
	}
	return now
}

// lifetime returns the ttl of the job. late reports that the job would not be ready within it.
// The ttl of a request without one is DefaultTTL from the instant at which the job is ready.
func (r *Request) lifetime(now Instant) (ttl time.Duration, late bool) {
	delay := r.Queue.start(now).Sub(now)
	ttl = DefaultTTL + min(delay, MaxStartAfter)
	if r.Policy.TTL != nil {
		ttl = *r.Policy.TTL
	}
	return ttl, delay > 0 && delay <= MaxStartAfter && delay >= ttl // a longer delay is a fault of its own
}

// job returns the job of r. It writes all limits into the State, so that nothing later
// depends on the settings of the endpoint.
func (r *Request) job(ep *Endpoint, owner string, id JobID, now Instant) Job {
	j := Job{
		Ref: Ref{Endpoint: ep.ID, ID: id}, Owner: owner,
		Input: r.Input, Webhook: r.Webhook, Extra: r.Extra, Trace: r.Trace.Valid(),
		State: queue.State{Submitted: now, Queued: r.Queue.start(now), Priority: queue.DefaultPriority},
	}
	j.Retry = ep.QueueSettings().Retry
	r.Queue.apply(&j)
	j.DeadLetter = deadLetterTime(ep)
	exec := ep.ExecTimeout
	if exec == 0 {
		exec = DefaultExecTimeout
	}
	if r.Policy.ExecutionTimeout != nil {
		exec = *r.Policy.ExecutionTimeout
	}
	ttl, _ := r.lifetime(now)
	keep := RunRetention
	if r.Sync {
		keep = min(max(r.Wait, MinSyncRetention), MaxSyncRetention)
		j.Flags |= queue.Sync
	}
	if r.OpenAI {
		j.Flags |= queue.OpenAI
	}
	if r.Policy.LowPriority {
		j.Flags |= queue.LowPriority
	}
	if r.Webhook != "" {
		j.Flags |= queue.HasWebhook
	}
	if r.Queue.StartAfter != nil {
		j.Flags |= queue.FromSubmit
	}
	if retain := r.retain(ep); retain != 0 {
		keep = retain
		j.Flags |= queue.KeepsResult
	}
	j.Expires, j.ExecTimeout, j.Retain = now.Add(ttl), exec.Truncate(time.Millisecond), keep.Truncate(time.Millisecond)
	if r.Queue.Unique != nil {
		r.Queue.Unique.apply(&j)
	}
	return j
}

// retain returns how long the result is kept also past the ttl; 0: not past it.
func (r *Request) retain(ep *Endpoint) time.Duration {
	if r.Queue.Retain != nil {
		return *r.Queue.Retain
	}
	return ep.QueueSettings().Retain
}

// apply writes the options into a job that is ready at j.Queued.
func (q *QueueOptions) apply(j *Job) {
	j.Delayed = j.Queued > j.Submitted
	if q.Priority != nil {
		j.Priority = uint8(*q.Priority)
	}
	if q.Key != nil {
		j.Key = *q.Key
	}
	if q.Retry != nil {
		j.Retry = RetryPolicy{}
		if q.Retry.Attempts > 1 {
			j.Retry = *q.Retry
		}
	}
}
