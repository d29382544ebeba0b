package serverless

import (
	"fmt"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// A Verdict is an error of a Worker that is no failure: it says what becomes of the job
// (docs/decisions.md 62). Exactly one of its members is set.
type Verdict struct {
	Snooze time.Duration // the job is queued again and is ready after this time, queue.MinSnooze at least
	Cancel bool          // the job ends as CANCELLED
}

// Snooze returns the error with which a Worker puts its job off. The job is queued again and ready after
// d, which spends no attempt and no delivery. If that is past the ttl of the job, or it was put off
// queue.MaxSnoozes times, it has failed.
func Snooze(d time.Duration) error { return &Verdict{Snooze: d} }

// CancelJob returns the error with which a Worker ends its job as CANCELLED: there is nothing to do.
func CancelJob() error { return &Verdict{Cancel: true} }

// Error implements error.
func (v *Verdict) Error() string {
	if v.Cancel {
		return "the worker has cancelled the job"
	}
	return fmt.Sprintf("the worker has put the job off for %d ms", v.Snooze.Milliseconds())
}

// Fault says why v can be the verdict of no worker; empty: it can.
func (v *Verdict) Fault() string {
	switch {
	case v.Cancel && v.Snooze != 0:
		return "a job is snoozed or cancelled, and not both"
	case !v.Cancel && v.Snooze < queue.MinSnooze:
		return fmt.Sprintf("snooze must be at least %d milliseconds", queue.MinSnooze.Milliseconds())
	}
	return ""
}

// end makes op the end of a lease with this verdict at now.
func (v *Verdict) end(op queue.Op, now Instant) queue.Op {
	op.Kind, op.Payload, op.Error = queue.OpFinish, nil, ""
	switch fault := v.Fault(); {
	case fault != "":
		op.Status, op.Error = Failed, fault
	case v.Cancel:
		op.Status = Cancelled
	default:
		op.Status, op.Ready = InQueue, max(now, 1).Add(v.Snooze)
	}
	return op
}

// Decided returns op, which is the report of a result, as the report of a verdict.
func (s *Service) Decided(op queue.Op, v *Verdict) queue.Op { return v.end(op, s.now()) }
