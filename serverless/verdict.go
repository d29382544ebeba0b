package serverless

import (
	"fmt"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// A Verdict is an error of a Worker that is no failure: it says what becomes of the job
// (docs/decisions.md 62). At least one of its members is set, and of Snooze and Cancel at most one.
type Verdict struct {
	Snooze  time.Duration // the job is queued again and is ready after this time, queue.MinSnooze at least
	Cancel  bool          // the job ends as CANCELLED
	HoldKey time.Duration // no job of the same owner and key starts for so long, queue.MaxHold at most
}

// Snooze returns the error with which a Worker puts its job off. The job is queued again and ready after
// d, which spends no attempt and no delivery. If that is past the ttl of the job, or it was put off
// queue.MaxSnoozes times, it has failed.
func Snooze(d time.Duration) error { return &Verdict{Snooze: d} }

// CancelJob returns the error with which a Worker ends its job as CANCELLED: there is nothing to do.
func CancelJob() error { return &Verdict{Cancel: true} }

// HoldKey returns the error with which a Worker holds the key of its job: no job of the same owner with this
// key starts on the endpoint for d, from 1 ms to queue.MaxHold. The job has completed with the output that the
// Worker returns. A job without a key holds nothing. The last hold of a key counts.
func HoldKey(d time.Duration) error {
	if d == 0 {
		d = -1 // not none
	}
	return &Verdict{HoldKey: d}
}

// Error implements error.
func (v *Verdict) Error() string {
	switch {
	case v.Cancel:
		return "the worker has cancelled the job"
	case v.holdsOnly():
		return fmt.Sprintf("the worker holds the key of the job for %d ms", v.HoldKey.Milliseconds())
	}
	return fmt.Sprintf("the worker has put the job off for %d ms", v.Snooze.Milliseconds())
}

// holdsOnly reports whether the job ends with its output.
func (v *Verdict) holdsOnly() bool { return !v.Cancel && v.Snooze == 0 && v.HoldKey != 0 }

// Fault says why v can be the verdict of no worker; empty: it can.
func (v *Verdict) Fault() string {
	switch {
	case v.Cancel && v.Snooze != 0:
		return "a job is snoozed or cancelled, and not both"
	case v.HoldKey != 0 && (v.HoldKey < time.Millisecond || v.HoldKey > queue.MaxHold):
		return fmt.Sprintf("holdKey must be from 1 to %d milliseconds", queue.MaxHold.Milliseconds())
	case !v.Cancel && !v.holdsOnly() && v.Snooze < queue.MinSnooze:
		return fmt.Sprintf("snooze must be at least %d milliseconds", queue.MinSnooze.Milliseconds())
	}
	return ""
}

// end makes op the end of a lease with this verdict at now.
func (v *Verdict) end(op queue.Op, now Instant) queue.Op {
	output := op.Payload
	op.Kind, op.Payload, op.Error, op.Hold = queue.OpFinish, nil, "", v.HoldKey
	switch fault := v.Fault(); {
	case fault != "":
		op.Status, op.Error, op.Hold = Failed, fault, 0
	case v.holdsOnly():
		op.Status, op.Payload = Completed, output
	case v.Cancel:
		op.Status = Cancelled
	default:
		op.Status, op.Ready = InQueue, max(now, 1).Add(v.Snooze)
	}
	return op
}

// Decided returns op, which is the report of a result, as the report of a verdict.
func (s *Service) Decided(op queue.Op, v *Verdict) queue.Op { return v.end(op, s.now()) }
