package queue

import (
	"context"
	"iter"
)

// DeadLetters are copies of jobs that failed for good (docs/decisions.md 40). The effect PutDead
// creates one, which is identified by the Ref of its job. It keeps the payloads of its run, even
// when the job is deleted or retried afterwards, and stays until State.DeadLetter has passed since
// the end of the job. Expire deletes it then. The effect DropDead deletes it when its job was retried
// and has completed.
//
// An owner has at most MaxDeadLetters on an endpoint. Another one takes the place of the oldest.
type DeadLetters interface {
	// DeadLetters yields the dead letters of an endpoint, newest first, without payloads. An
	// empty owner means any owner.
	DeadLetters(ctx context.Context, now Instant, endpoint, owner string) iter.Seq2[DeadLetter, error]
	// DeadLetter returns one with its payloads, or ErrNotFound. With ErrDamaged it returns it
	// without its output. A damaged input is left out.
	DeadLetter(ctx context.Context, now Instant, ref Ref) (DeadLetter, error)
	// DropDead deletes dead letters, durably. It ignores those that do not exist.
	DropDead(ctx context.Context, refs []Ref) error
}

// A DeadLetter is a copy of a job as it was when it failed.
type DeadLetter struct {
	Job
	Until Instant // when it is deleted
}

// Kept returns how long the dead letter of the job is kept.
func (s *State) Kept() Instant { return s.Finished.Add(s.DeadLetter) }
