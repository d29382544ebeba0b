package queue

// A JobLease is a lease of a job that did not end the job: the job was queued again. The lease
// that a job has, or that its end ended, is in its State.
type JobLease struct {
	Run        uint32 `json:",omitzero"`
	Attempt    int    // its number in the run, from 1
	Worker     WorkerID
	Started    Instant
	FirstChunk Instant `json:",omitzero"` // 0: the worker sent none
	Finished   Instant
	End        LeaseEnd
	Ready      Instant // when the job could be claimed again
}

// A LeaseEnd says how a lease ended.
type LeaseEnd string

// The ends of leases.
const (
	LeaseLost      LeaseEnd = "lost"      // nothing was heard of the worker, it ended, or it reported no result
	LeaseReleased  LeaseEnd = "released"  // the worker gave the job back, or nobody got the claim
	LeaseSnoozed   LeaseEnd = "snoozed"   // the worker put the job off
	LeaseFailed    LeaseEnd = "failed"    // the worker reported a failure
	LeaseTimedOut  LeaseEnd = "timed_out" // the worker took too long
	LeaseRestarted LeaseEnd = "restarted" // the server that had given out the job was gone
)

// MaxLeases is how many leases the log of a job keeps: the last ones.
const MaxLeases = 10

// mostLeases is where State.Leases goes back by MaxLeases, so that the place of a lease in the
// log always follows that of the one before.
const mostLeases = 25 * MaxLeases

func (s *State) countLease() {
	if s.Leases >= mostLeases {
		s.Leases -= MaxLeases
	}
	s.Leases++
}

// LeasePlaces returns the places, from 0 to MaxLeases-1, at which a queue keeps the leases of the
// log, oldest first.
func (s *State) LeasePlaces() []uint8 {
	places := make([]uint8, min(s.Leases, MaxLeases))
	for i := range places {
		places[i] = (s.Leases - uint8(len(places)) + uint8(i)) % MaxLeases
	}
	return places
}

// LeasePlace returns the last of LeasePlaces: PutLease puts the lease there, instead of an older one.
func (s *State) LeasePlace() uint8 { return (s.Leases - 1) % MaxLeases }

// EndedLease returns the lease that op has ended at now, for the effect PutLease. s is the state
// before, after the state after the move.
func (s *State) EndedLease(now Instant, after *State, op *Op) JobLease {
	l := JobLease{
		Run: s.Run, Attempt: s.Number(), Worker: s.Worker, Started: s.Started, FirstChunk: s.FirstChunk,
		Finished: now, End: s.leaseEnd(now, op), Ready: now,
	}
	switch {
	case op.Kind == OpRetry:
		l.Finished = s.Finished
	case s.Started == 0: // its worker had lost it and has adopted it with this move
		l.Worker, l.Started = op.Worker, s.LostStarted
	}
	if after.Attempt != s.Attempt || after.Snoozes > s.Snoozes {
		l.Ready = after.Queued
	}
	return l
}

// leaseEnd returns how op, which queues the job again, ends the lease. A retry of the user comes
// after the end of the lease.
func (s *State) leaseEnd(now Instant, op *Op) LeaseEnd {
	switch {
	case op.Kind == OpFinish && op.Status == InQueue:
		return LeaseSnoozed
	case op.Kind == OpRelease:
		return LeaseReleased
	case op.Kind == OpRecover, op.Kind == OpRetry && s.Reason == TooManyRestarts:
		return LeaseRestarted
	case op.Kind == OpRetry && s.Status == TimedOut, op.Kind == OpTick && s.RunUntil <= now:
		return LeaseTimedOut
	case op.Kind == OpFinish, op.Kind == OpRetry && s.Reason == NoReason:
		return LeaseFailed
	}
	return LeaseLost
}
