package queue

import (
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// A JobAttempt is an attempt of a job (docs/decisions.md 39).
type JobAttempt struct {
	Number            int
	Last              bool   `json:",omitzero"` // no other attempt has followed
	Status            Status // of the last one, the status of the job; else Failed or TimedOut
	Error             string // at most MaxAttemptError bytes of it
	Worker            WorkerID
	Started, Finished Instant       // Started is 0 if no worker had it
	Delay             time.Duration // from Finished until the next attempt is ready
}

// MaxAttemptError is how many bytes of an error the log of attempts keeps.
const MaxAttemptError = 4096

// fail ends the attempt. Another one follows, or the job ends with st.
func (s *State) fail(now Instant, st Status, op *Op) Effect {
	ready, again := s.nextAttempt(now, st, op)
	if !again {
		return s.end(now, st)
	}
	e := PutAttempt | Requeued
	if st == TimedOut {
		e |= EvStop
	}
	s.Attempt++
	s.Deliveries, s.Reason = 0, NoReason
	s.Lost, s.LostStarted, s.Returned = "", 0, false // who reports late is too late
	s.Queued, s.Delayed = ready, ready > now
	e |= s.requeue()
	if s.Delayed {
		return e &^ EvReady
	}
	return e | NewSeq
}

// nextAttempt returns when the attempt after the present one, which ends with st, is ready. ok
// is false if there is none: also if the job would be deleted before.
func (s *State) nextAttempt(now Instant, st Status, op *Op) (ready Instant, ok bool) {
	if s.Attempt+1 >= s.Retry.Attempts || s.Read || op.NoRetry || st == TimedOut && !s.Retry.Timeouts {
		return 0, false
	}
	ready = now.Add(s.Retry.wait(s.Attempt+1, spread(op.ID, s.Run, s.Attempt)))
	return ready, ready < s.Expires
}

// wait returns the time from the end of attempt n, the first being 1, to the next one. random is
// from 0 to 1.
func (p *RetryPolicy) wait(n uint8, random float64) time.Duration {
	d := float64(p.Delay) * math.Pow(float64(p.Factor), float64(n-1))
	d = min(d, float64(p.MaxDelay))
	return time.Duration(d - d*float64(p.Jitter)*random).Truncate(time.Millisecond)
}

// spread returns a number from 0 to 1 that looks random and is always the same for an attempt:
// State.Apply must not depend on anything else.
func spread(id JobID, run uint32, attempt uint8) float64 {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	h ^= uint64(run)<<8 | uint64(attempt)
	// The finalizer of SplitMix64: FNV alone hardly changes the high bits at the end.
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	h ^= h >> 31
	return float64(h>>11) / (1 << 53)
}

// Number is that of the present attempt, or of the last one of a job that has ended, from 1. A worker
// that is lost does not begin another attempt.
func (s *State) Number() int { return int(s.Attempt) + 1 }

// EndedAttempt returns the attempt that op has ended at now, for the effect PutAttempt. s is the
// state before, after the state after the move.
func (s *State) EndedAttempt(now Instant, after *State, op *Op) JobAttempt {
	a := JobAttempt{
		Number: int(after.Attempt), Status: Failed, Error: op.Error, Worker: s.Worker,
		Started: s.Started, Finished: now, Delay: after.Queued.Sub(now),
	}
	ended := *s
	switch {
	case op.Kind == OpFinish:
		a.Worker = op.Worker // it may have adopted the job
	case op.Kind == OpTick && s.RunUntil <= now:
		a.Status, ended.Reason = TimedOut, ExecutionTimedOut
	default:
		ended.Reason = WorkersLost
	}
	ended.Status = a.Status
	if a.Started == 0 {
		a.Started = s.LostStarted
	}
	j := Job{State: ended, Error: a.Error}
	a.Error = cut(j.ErrorText())
	return a
}

// LastAttempt returns the present attempt of a job, or its last one. It is not ok for a job that
// waits for a worker, or was cancelled while it waited.
func (j *Job) LastAttempt() (a JobAttempt, ok bool) {
	if j.Started == 0 {
		return a, false
	}
	return JobAttempt{
		Number: j.Number(), Last: true, Status: j.Status, Error: cut(j.ErrorText()), Worker: j.Worker,
		Started: j.Started, Finished: j.Finished,
	}, true
}

// cut returns at most MaxAttemptError bytes of s, whole characters. It replaces those that are
// not UTF-8, so that every store keeps the same.
func cut(s string) string {
	if s = strings.ToValidUTF8(s, "\uFFFD"); len(s) <= MaxAttemptError {
		return s
	}
	n := MaxAttemptError
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
