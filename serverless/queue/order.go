package queue

import "math/bits"

// Heads are the ready jobs of an endpoint, as a queue hands them to Choose: one at a time, and only
// those that are asked for, so that a claim costs the same whether ten jobs wait or a million
// (docs/decisions.md 39). A line is the ready jobs of one owner, priority and key, the oldest
// (with the lowest Seq) first; a level is the lines of one owner and priority:
//
//	the owner whose turn is first ── level 9 ── the line whose turn is first ── its oldest job
//	                              ├─ level 5 ── ...
//	                              └─ level 0 ── ...
//
// A queue keeps these, so that each takes O(log n) to find and to change:
//
//   - of each line its oldest job, and its turn: Turn.Next of when the line was last served, and of
//     the Seq of this job;
//   - of each owner its turn: Turn.Next of when the owner was last served, and of the lowest Seq
//     in its lines;
//   - an index of the owners of an endpoint by turn, one of the lines of a level by turn, and one
//     of the lines of a level by the Seq of their oldest jobs.
//
// A line is out of these indexes while it has no ready job, while its key is at Rules.PerKey, and
// while it is held until an instant. An owner is out of them while it has no line there, and while it
// is at Rules.PerUser. What is held until an instant belongs into an index by this instant: a claim
// first puts back what has become free, so no claim has to step over what is held.
//
// The queue advances turns, Choose never does: when a job is claimed, its line and its owner are
// served now, which is Turn{the greatest Seq that the endpoint has so far, the number of
// this claim on the endpoint, from 1}. For example, with the jobs A1 A2 A3 B4 (the number is the Seq)
// the owner A has the turn 1 and B the turn 4. The claim of A1 gives A the turn (4, 1), so the next
// one is B4, and then A2. A queue may forget when somebody was served, for example when it is opened
// again; with an owner it forgets all lines of it.
type Heads[J any] interface {
	// Levels returns a bit for each priority of which the owner whose turn is first has a line; 0:
	// there is no owner. A queue that could not read its indexes returns 0 too, and keeps the
	// error for who called Choose.
	Levels() uint16
	// Oldest returns the job with the lowest Seq of a level of this owner.
	Oldest(priority int) Head[J]
	// First returns the oldest job of the line whose turn is first of a level of this owner.
	First(priority int) Head[J]
}

// A Head is the oldest ready job of a line.
type Head[J any] struct {
	Job    J       // what the queue calls it
	Queued Instant // State.Queued
	// Barred is set if this slot cannot get the job, although it is ready: the job is barred for
	// the worker (State.Barred) or Gone, or another claim has it.
	Barred bool
}

// A Choice says what to do with the job that Choose returns.
type Choice uint8

// The choices.
const (
	ChooseNone Choice = iota // no job can be claimed
	ChooseJob                // the job is the next one: claim it, and advance the turns of its line and its owner
	// ChoosePast: the job is Barred, and the order can only be told without it. Take it out of its
	// line until the slot is served, and call Choose again. No turn is advanced.
	ChoosePast
)

// Choose returns the job of an endpoint that a slot gets next at now. running is how many jobs of
// the endpoint run.
//
// It looks at the oldest job of each level only if there are several, and then at the first line of
// one of them: at most eleven jobs. If one of those is Barred, it has to go first (ChoosePast),
// because the turns were found as if it could be claimed. The turns are right as soon as no job that
// was looked at is Barred: what else is barred can only make the turns of others too early, and
// even so they are not first.
func Choose[J any](h Heads[J], r *Rules, running int, now Instant) (job J, c Choice) {
	if r.Paused || r.Total > 0 && running >= r.Total {
		return job, ChooseNone
	}
	levels := h.Levels()
	if levels == 0 {
		return job, ChooseNone
	}
	best, most := bits.Len16(levels)-1, uint64(0)
	for left := levels; levels&(levels-1) != 0 && left != 0; {
		p := bits.Len16(left) - 1
		left &^= 1 << p
		oldest := h.Oldest(p)
		if oldest.Barred {
			return oldest.Job, ChoosePast
		}
		if s := r.score(p, now-oldest.Queued); s > most { // the higher priority if equal
			best, most = p, s
		}
	}
	first := h.First(best)
	if first.Barred {
		return first.Job, ChoosePast
	}
	return first.Job, ChooseJob
}

// score is the priority and what the wait of its oldest job adds to it, in units of one priority
// divided by Ageing: whole milliseconds, so that what is equal compares as equal.
func (r *Rules) score(priority int, wait Instant) uint64 {
	ageing := r.Ageing.Milliseconds()
	if ageing == 0 {
		return uint64(priority)
	}
	return uint64(priority)*uint64(ageing) + uint64(max(wait, 0))
}

// A Turn says when a line or an owner is next: the lowest turn is first. It is the Seq of a job, or
// a claim that was made when this Seq was the greatest. So who was served comes after everybody who
// had a job then, and before jobs that came later; and a turn does not depend on the order in
// which jobs were queued again or deleted.
type Turn struct {
	Seq    uint64
	Serial uint64 // of a claim on the endpoint; 0: not a claim
}

// Before reports whether the turn t is before u.
func (t Turn) Before(u Turn) bool { return t.Seq < u.Seq || t.Seq == u.Seq && t.Serial < u.Serial }

// Next returns the turn of who was last served at t (never: the zero Turn), and whose oldest job
// that can be claimed has this Seq: the later of both.
func (t Turn) Next(oldest uint64) Turn {
	if job := (Turn{Seq: oldest}); t.Before(job) {
		return job
	}
	return t
}
