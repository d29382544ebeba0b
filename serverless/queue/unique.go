package queue

import (
	"errors"
	"time"

	"github.com/podyard/podyard/problem"
)

// A Unique says that a job is the only one of its owner on its endpoint with a key, and for how long
// (docs/decisions.md 60). The zero value is a job like others. The last job that took a key has it,
// and holds it while State.HoldsKey reports true.
type Unique struct {
	Key    string        // 1 to MaxKey characters
	While  UniqueWhile   // for how long the job holds the key
	Period time.Duration // of ForPeriod, in whole milliseconds
}

// A UniqueWhile says for how long a job holds its key.
type UniqueWhile uint8

// How long a job holds its key.
const (
	NotUnique   UniqueWhile = iota
	WhileQueued             // while it waits for a worker
	WhileActive             // until it has ended
	ForPeriod               // for Unique.Period from its submission, as long as it is there
)

// Bounds of a Unique.Period.
const (
	MinPeriod = time.Second
	MaxPeriod = MaxRetain
)

// HoldsKey reports whether no other job may have the key of s at now.
func (s *State) HoldsKey(now Instant) bool {
	if s.Gone(now) {
		return false
	}
	switch s.Unique.While {
	case WhileQueued:
		return s.Status == InQueue
	case WhileActive:
		return !s.Status.Terminal()
	case ForPeriod:
		return now < s.Submitted.Add(s.Unique.Period)
	case NotUnique:
	}
	return false
}

// ErrKeyTaken is what a TakenError wraps.
var ErrKeyTaken = problem.New(problem.Conflict, "another job holds the unique key of this job")

// ErrReplaced means that the job that holds a key cannot be replaced, because the user has retried it:
// webhooks and dead letters of its earlier runs have its input.
var ErrReplaced = problem.New(problem.Conflict, "the queued job with this unique key was retried, and cannot be replaced: cancel it, or wait for its end")

// A TakenError is the error of an Enqueue, or of OpRetry, of a job whose key another one holds. Of several jobs
// whose keys are taken it names one.
type TakenError struct{ Ref Ref } // the job that holds the key

// Error implements error.
func (e *TakenError) Error() string { return "job " + string(e.Ref.ID) + " holds the unique key" }

// Unwrap returns ErrKeyTaken.
func (e *TakenError) Unwrap() error { return ErrKeyTaken }

// Is reports whether target is the error of the same job.
func (e *TakenError) Is(target error) bool {
	t := (*TakenError)(nil)
	return errors.As(target, &t) && t.Ref == e.Ref
}

// check returns an error if no queue can keep u.
func (u *Unique) check() error {
	if (u.Key == "") != (u.While == NotUnique) || u.While > ForPeriod {
		return problem.New(problem.Invalid, "a unique job has a key, and holds it while something is so")
	}
	return nil
}

// replace gives a queued job the payloads of another submission, and what that says about its run. Its
// place, id, attempts and ttl stay.
func (s *State) replace(op *Op) (Effect, error) {
	switch {
	case s.Status != InQueue || s.Unique.While != WhileQueued || op.Job == nil:
		return 0, ErrStatus
	case s.Run > 0:
		return 0, ErrReplaced
	}
	const changed = HasWebhook | LowPriority
	s.Flags = s.Flags&^changed | op.Job.Flags&changed
	s.ExecTimeout = op.Job.ExecTimeout
	s.InBytes = op.Job.inputBytes()
	return Put | PutInput, nil
}
