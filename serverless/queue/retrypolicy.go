package queue

import (
	"time"

	"github.com/podyard/podyard/problem"
)

// A RetryPolicy says how often a job that fails is run, and when (docs/decisions.md 39). The
// zero value is no retry.
type RetryPolicy struct {
	Attempts uint8         // the most attempts in all, the first one included; 0 and 1: no retry
	Timeouts bool          // an attempt that ended as TIMED_OUT is followed by another one too
	Factor   float32       // each delay is this many times the one before
	Jitter   float32       // the share of a delay that is random: 0 is none, 1 is all of it
	Delay    time.Duration // before the second attempt, in whole milliseconds
	MaxDelay time.Duration // the longest delay, in whole milliseconds
}

// DefaultRetry returns the policy of a body whose member retry is an empty object: one attempt,
// and the defaults of all other members.
func DefaultRetry() RetryPolicy {
	return RetryPolicy{Attempts: 1, Factor: DefaultFactor, Jitter: DefaultJitter, Delay: DefaultDelay, MaxDelay: DefaultMaxDelay}
}

// Check adds the faults of the policy, which is at path, to v.
func (p *RetryPolicy) Check(v *problem.Violations, path string) {
	if p.Attempts < 1 || p.Attempts > MaxAttempts {
		v.Add(problem.Invalid, path+"/attempts", "must be from 1 to %d", MaxAttempts)
	}
	checkDelay(v, path+"/delay", p.Delay)
	if !(p.Factor >= 1 && p.Factor <= MaxFactor) { // NaN is a fault too
		v.Add(problem.Invalid, path+"/factor", "must be from 1 to %d", MaxFactor)
	}
	checkDelay(v, path+"/maxDelay", p.MaxDelay)
	if p.Delay > p.MaxDelay {
		v.Add(problem.Invalid, path+"/delay", "must be at most maxDelay, which is %d", p.MaxDelay.Milliseconds())
	}
	if !(p.Jitter >= 0 && p.Jitter <= 1) {
		v.Add(problem.Invalid, path+"/jitter", "must be from 0 to 1")
	}
}

// checkDelay adds a fault if d is negative or longer than a job can live.
func checkDelay(v *problem.Violations, path string, d time.Duration) {
	if d < 0 || d > MaxTTL {
		v.Add(problem.Invalid, path, "must be from 0 to %d milliseconds", MaxTTL.Milliseconds())
	}
}
