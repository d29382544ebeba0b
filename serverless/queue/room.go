package queue

import "github.com/podyard/podyard/ratelimit/budget"

// SmallResult is how many bytes a result may have that no budget refuses. So every job can end.
const SmallResult = 1 << 10

// Grows returns how many more bytes are kept after a move from before to s with the effect e:
// those of the job, of its webhook and of its dead letter.
func (s *State) Grows(before *State, e Effect) int64 {
	if e&Delete != 0 {
		return -before.Bytes()
	}
	n := s.Bytes() - before.Bytes()
	if e&PutOutbox != 0 {
		n += s.Bytes()
	}
	if e&PutDead != 0 {
		n += s.Bytes()
	}
	return n
}

// Adds reports whether a budget may refuse the move: a chunk, an interim output, a result that is not
// small, or another input.
func (op *Op) Adds() bool {
	switch op.Kind {
	case OpChunk, OpProgress, OpReplace:
		return true
	case OpFinish:
		return len(op.Payload)+len(op.Error) > SmallResult
	}
	return false
}

// Fits returns a *budget.Error if the owner of a job has no room for a move with op from before
// to s with the effect e. l are the limits of the owner, and used are the bytes of budget.JobBytes
// that the owner has. A queue that is a budget.Counter asks it in the atomic section of Apply.
func (s *State) Fits(before *State, e Effect, op *Op, l *budget.Limits, used int64) error {
	if !op.Adds() {
		return nil
	}
	return l.Check(budget.JobBytes, used, s.Grows(before, e))
}
