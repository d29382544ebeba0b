package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
)

// A Job is a State with its payloads. Payload bytes are immutable: a queue may keep the
// slices that it gets and may return the slices that it keeps. Everything else is copied.
type Job struct {
	Ref
	Owner string // the user who submitted it
	Key   string // jobs of one owner with the same key take turns with those of others (docs/decisions.md 39); empty: none
	State
	Input   []byte // one JSON object, as submitted
	Output  []byte // JSON; while the job runs, its last progress value; nil: none
	Error   string // the worker's text of a failure
	Webhook string // URL; empty: none
	Extra   []byte // a JSON object that only the worker sees; encrypted at rest: see PlainExtra
	Trace   Trace  // the trace context that the job was submitted with
	// Creation is the record of an Idempotency-Key. Enqueue stores it with the job, and no
	// method returns it. Nil: the request had no key.
	Creation *idempotency.Record
	// Existing says that a submit made no job, because this one holds its key (Terms.Unique). No queue
	// sets it.
	Existing bool
}

// PlainExtra reports whether an Extra has only members that are no secrets: schedule and batchId,
// which the service adds. A store without a key to encrypt with keeps such an Extra as it is, and
// refuses others. Otherwise schedules and batches would be accepted there, and their jobs never be
// queued. Something encrypted is no such Extra, because it is no JSON.
func PlainExtra(extra []byte) bool {
	if len(extra) == 0 || extra[0] != '{' {
		return false
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(extra, &members) != nil {
		return false
	}
	for name := range members {
		if name != "schedule" && name != "batchId" {
			return false
		}
	}
	return true
}

// Creations returns the records in Job.Creation of jobs, for a queue that enqueues them.
func Creations(jobs []Job) (list []idempotency.Record) {
	for i := range jobs {
		if r := jobs[i].Creation; r != nil {
			list = append(list, *r)
		}
	}
	return list
}

// Check returns an error if a queue cannot keep j, and sets State.InBytes and State.OutBytes.
// Every queue calls it in Enqueue.
func (j *Job) Check() error {
	j.InBytes = j.inputBytes()
	j.OutBytes = size(len(j.Output) + len(j.Error))
	if n := len(j.ID); n == 0 || n > MaxJobID {
		return problem.Newf(problem.Invalid, "a job id has 1 to %d bytes", MaxJobID)
	}
	if j.Priority > MaxPriority {
		return problem.Newf(problem.Invalid, "a priority is 0 to %d", MaxPriority)
	}
	return j.Unique.check()
}

// inputBytes is State.InBytes of a new job.
func (j *Job) inputBytes() uint32 {
	return size(len(j.Input) + len(j.Webhook) + len(j.Extra) + len(j.Trace.Parent) + len(j.Trace.State))
}

// A Slot asks for up to N jobs of one endpoint for one worker.
type Slot struct {
	Endpoint string
	Worker   WorkerID
	N        int
	Bytes    int     // see Full; 0: no limit
	Until    Instant // end of the first lease
	Rules    *Rules  // of the endpoint; nil: none
}

// Full reports whether a slot gets no more jobs after n with so many bytes of State.InBytes. A queue
// that claims several jobs at once may give up to three more because of the bytes.
func (s *Slot) Full(n, bytes int) bool { return n >= s.N || s.Bytes > 0 && bytes >= s.Bytes }

// Rules limit which jobs of an endpoint can be claimed now (docs/decisions.md 40). A queue keeps
// no settings: callers pass the rules of the endpoint.
type Rules struct {
	PerKey  int           // the most running jobs of one owner with the same key; 0: no limit
	PerUser int           // the most running jobs of one owner; 0: no limit
	Total   int           // the most running jobs of the endpoint; 0: no limit
	Ageing  time.Duration // a job rises by one priority each time it has waited this long; 0: never
	Paused  bool          // no job is claimed

	Rate        Rate      // starts of the endpoint
	PerKeyRate  Rate      // starts of one owner with the same key; jobs without a key have none
	PerUserRate Rate      // starts of one owner
	Keys        *KeyRules // single keys with limits of their own; nil: none. See Equal
	HoldsSince  Instant   // a Hold that was made until then keeps nothing from starting; 0: each one does. It never goes back
}

// A Result is the answer to an Op.
type Result struct {
	State  State // after the move; unchanged if Err is set
	Effect Effect
	Err    error // nil, ErrNotFound, ErrLeaseLost, ErrStatus, ErrStreamFull, ErrInputLost, ErrExpired, ErrReplaced, a *TakenError, or of State.Fits
}

// A JobQueue is what a backend implements. It is safe for concurrent use. A call may be
// delayed a little to share a commit with other calls: the backend merges calls, so callers
// pass slices only when they have several items anyway.
//
// No method reads a clock or decides a rule. State.Apply decides, inside the backend's own
// atomic section. Nobody may see a State before its write is as durable as OpKind.Durable
// asks for.
//
// A queue whose stored payloads can be damaged must detect damage and return no damaged
// bytes:
//
//   - A queued job whose input, webhook or Extra is damaged cannot be given to a worker. Claim or
//     Get, whichever finds the damage, ends the job with OpDamage.
//   - For a running or ended job, a damaged input, webhook or Extra is left out.
//   - A read of a damaged output or chunk returns ErrDamaged.
//
// Damage of one job does not affect other jobs.
//
// An error of a whole call means that the outcome is unknown. The caller may repeat the call.
// A repeated Enqueue that had succeeded before returns ErrExists.
type JobQueue interface {
	// Enqueue adds all jobs in order, durably, or none of them. It assigns State.Seq, which is
	// greater than that of every job whose Enqueue had returned before, on any server. Calls
	// that overlap may be in any order, so a smaller Seq may appear after a greater one. It
	// returns ErrExists if one of the ids is in use, and idempotency.ErrTaken as
	// idempotency.Store requires it for the records in Job.Creation. It returns a *TakenError if
	// another job holds the key of Terms.Unique of one of the jobs (State.HoldsKey at its Submitted);
	// else the jobs take their keys. Effect.TakeKey takes the key of a job that was there.
	//
	// If all jobs have the flag DurableAtEnd and none has a Creation, Enqueue need not be durable: somebody waits for
	// the end of the job, and nobody else knows of it. The job becomes durable with its first
	// durable move, or before Get, Chunks or List return it. A crash before that may forget it,
	// although a worker has it.
	Enqueue(ctx context.Context, jobs []Job) error
	// Claim leases the jobs that are ready, appends them to out and returns at once. It serves
	// slots in the order given, and job after job. A job can be claimed if it is queued, not
	// delayed, not barred for this worker (State.Barred), within the limits and rates of Slot.Rules, and its key is not held (Hold).
	// Each claim is a start for the rates (Bucket.Start); Effect.GiveStart gives it back. Of these jobs of an endpoint it chooses (docs/decisions.md 39):
	//
	//   - the owner whose turn is first;
	//   - of this owner, the priority p for which p plus the wait of its oldest job (the lowest
	//     Seq; the wait counts from Queued) divided by Rules.Ageing is highest, the higher p if
	//     equal; with an Ageing of 0 the highest p;
	//   - in this priority the key whose turn is first, and of this key the oldest job.
	//
	// A turn is when the owner, or the key in its priority, was last served, or the Seq of its
	// oldest job that can be claimed, whichever is later: who was served comes after all whose
	// jobs were there then. A queue may forget who was served when it is opened again. Choose
	// decides all of this. Claim returns no error when nothing is ready.
	Claim(ctx context.Context, now Instant, slots []Slot, out []Job) ([]Job, error)
	// Apply makes each move independently; several moves of one job are made in order. res[i]
	// is the result of ops[i]. All effects of one op (state, output, chunk, outbox entry) are
	// one commit. A queue that is a budget.Counter refuses reports that State.Fits refuses, and
	// then changes nothing.
	Apply(ctx context.Context, now Instant, ops []Op, res []Result) error
	// Expire applies OpTick to at most limit jobs whose Due has passed, and deletes dead letters
	// whose time has passed. Jobs that one call makes ready are queued in the order of
	// State.Queued, and then of Seq. It returns the instant of the next call, which is no later
	// than the next thing that is due and may be earlier; 0 means that nothing is scheduled.
	// Several servers may call it at once.
	Expire(ctx context.Context, now Instant, limit int) (next Instant, err error)
	// Purge applies OpPurge to the queued jobs that p selects. It examines at most p.Limit
	// jobs, and returns the Seq from which the caller continues (PurgeQuery.After); 0 means
	// that Purge is done. It must not block other calls for longer than that takes.
	Purge(ctx context.Context, now Instant, p PurgeQuery) (removed int, next uint64, err error)

	// Get returns the job. It returns ErrNotFound for an unknown job and for a job that is
	// Gone. With ErrDamaged it returns the job without its output.
	Get(ctx context.Context, now Instant, ref Ref) (Job, error)
	// Chunks returns the chunks that are not drained, in order: at most maxBytes, but at
	// least one chunk if there is any. A chunk is a JSON object with the member output; a
	// queue need not know that. The State is of the same instant: State.Drained is the number
	// of the first chunk, and the result has all chunks if State.Chunks-State.Drained of them
	// are returned. Chunks does not move the cursor; OpDrain does.
	Chunks(ctx context.Context, now Instant, ref Ref, maxBytes int) ([][]byte, State, error)
	// List yields the jobs that q selects, newest first. It fills only Ref, Owner, Key and State.
	// In a Shared queue the cost of a query for the jobs in progress only depends on their
	// number: the servers find with it which workers are busy. See Counter for the number of jobs.
	List(ctx context.Context, now Instant, q ListQuery) iter.Seq2[Job, error]
	// Stats returns the counts of one endpoint under rules (nil: none); all are zero for an
	// endpoint that never had a job. Its cost does not depend on the number of jobs. A caller
	// passes the same rules to Claim and Stats.
	Stats(ctx context.Context, now Instant, endpoint string, rules *Rules) (Stats, error)

	// Watch calls f with the events of this store, from any server, until ctx ends. Events
	// are hints: they are sent after the commit, and may be merged, repeated or lost. EventGap
	// reports a loss, such as that of a connection; everybody who waits then looks again. A
	// Shared queue need not report each loss, because a service looks once a second. f must
	// not block and must not keep the slice; f may call the queue. A Service calls Watch once
	// and passes the events on.
	Watch(ctx context.Context, f func([]Event)) error

	// JobLogs, Outbox and DeadLetters are parts of the queue because their entries are written in
	// the same commit.
	JobLogs
	Outbox
	DeadLetters
	// Finder returns the records of Job.Creation (docs/decisions.md 38).
	idempotency.Finder
}

// JobLogs are what a job has behind it.
type JobLogs interface {
	// PastAttempts returns the attempts of the present run that were followed by another one, in
	// order. Errors are those of Get, without ErrDamaged; and ErrDamaged if an attempt cannot be
	// read.
	PastAttempts(ctx context.Context, now Instant, ref Ref) ([]JobAttempt, error)
	// PastLeases returns the leases of the job after which it was queued again, of all runs, in
	// order: the last MaxLeases of State.Leases. Errors are those of PastAttempts.
	PastLeases(ctx context.Context, now Instant, ref Ref) ([]JobLease, error)
}

// An EventKind is the kind of an Event.
type EventKind uint8

// The kinds of events.
const (
	EventReady EventKind = iota // at least one job of the endpoint can be claimed
	EventDone                   // the job has ended or was deleted
	EventStop                   // Worker must stop the job
	EventChunk                  // the job has a new chunk
	EventGap                    // events were lost: check everything that you wait for
)

var eventNames = [...]string{"ready", "done", "stop", "chunk", "gap"}

// String returns the name of the kind, such as ready.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "EventKind(" + strconv.Itoa(int(k)) + ")"
}

// An Event is a hint that a job has changed. EventReady concerns only the endpoint of Ref. One
// of it may stand for several jobs: a worker that gets one wakes the next.
// Only EventStop has a Worker. EventGap has neither.
type Event struct {
	Kind EventKind
	Ref
	Worker WorkerID
}

// ReadyEvents returns the events of new jobs. A delayed job has none before it is ready.
func ReadyEvents(jobs []Job) []Event {
	evs := make([]Event, 0, len(jobs))
	for i := range jobs {
		if !jobs[i].Delayed {
			evs = append(evs, Event{Kind: EventReady, Ref: jobs[i].Ref})
		}
	}
	return evs
}

// Events appends the events of an effect to to. ref is the job, worker the worker that held
// its lease before the move.
func (e Effect) Events(to []Event, ref Ref, worker WorkerID) []Event {
	if e&EvReady != 0 {
		to = append(to, Event{Kind: EventReady, Ref: ref})
	}
	if e&EvDone != 0 {
		to = append(to, Event{Kind: EventDone, Ref: ref})
	}
	if e&EvStop != 0 && worker != "" {
		to = append(to, Event{Kind: EventStop, Ref: ref, Worker: worker})
	}
	if e&EvChunk != 0 {
		to = append(to, Event{Kind: EventChunk, Ref: ref})
	}
	return to
}

// A PurgeQuery selects queued jobs.
type PurgeQuery struct {
	Endpoint string
	Owner    string // empty: any owner
	After    uint64 // only jobs with a greater Seq
	UpTo     uint64 // only jobs with at most this Seq, so that jobs submitted later survive
	Limit    int    // the most jobs that one call examines
}

// A ListQuery selects jobs.
type ListQuery struct {
	Endpoint string
	Owner    string   // empty: any owner
	Status   []Status // empty: any status
	IDs      []JobID  // the jobs that are looked up; empty: all
	Prefix   JobID    // only jobs whose id begins with it; empty: any
	Before   uint64   // only jobs with a lower Seq; 0: any
	Offset   int      // how many of the first jobs are left out
	Limit    int      // the most jobs that are yielded; 0: all. A queue reads no more than it needs for them
}

// Selects reports whether q selects a job at now.
func (q *ListQuery) Selects(j *Job, now Instant) bool {
	return j.Endpoint == q.Endpoint && (q.Owner == "" || q.Owner == j.Owner) && (q.Before == 0 || j.Seq < q.Before) &&
		(len(q.Status) == 0 || slices.Contains(q.Status, j.Status)) &&
		(len(q.IDs) == 0 || slices.Contains(q.IDs, j.ID)) && strings.HasPrefix(string(j.ID), string(q.Prefix)) && !j.Gone(now)
}

// NewestFirst sorts jobs as List yields them, and drops repetitions.
func NewestFirst(jobs []Job) []Job {
	slices.SortFunc(jobs, func(a, b Job) int { return cmp.Compare(b.Seq, a.Seq) })
	return slices.CompactFunc(jobs, func(a, b Job) bool { return a.Ref == b.Ref })
}

// Limited leaves q.Offset jobs of a listing out, and stops it after q.Limit further ones.
func (q *ListQuery) Limited(all iter.Seq2[Job, error]) iter.Seq2[Job, error] {
	if q.Limit == 0 && q.Offset == 0 {
		return all
	}
	return func(yield func(Job, error) bool) {
		n := -q.Offset
		for j, err := range all {
			if n++; n <= 0 && err == nil {
				continue
			}
			if !yield(j, err) || n == q.Limit {
				return
			}
		}
	}
}

// Stats are the counts of one endpoint. Health, the scaler and purge use them.
type Stats struct {
	Queued    int64
	QueuedLow int64 // the part of Queued that has low priority
	Delayed   int64 // the part of Queued that is not ready yet (State.Delayed)
	Ready     int64 // the jobs that could be claimed one after the other, by any worker, while none ends
	ReadyLow  int64 // the part of Ready that has low priority
	Blocked   int64 // the jobs that are ready, but not part of Ready, because of the Rules
	// Free is when a job that a rate or a Hold keeps from starting may start, at the earliest; 0: there is none. A queue may
	// return an earlier instant, but none that has passed, and leave out jobs that a limit keeps from starting, too.
	Free      Instant
	Running   int64
	Completed int64 // Completed, Failed and Retried are totals and include deleted jobs
	Failed    int64 // FAILED and TIMED_OUT
	Retried   int64 // queued again because a worker was lost
	// Oldest is State.Queued of the oldest ready job without low priority. If jobs are blocked, it
	// is that of the oldest job of any kind that could be claimed. It is 0 if no job without low
	// priority is part of Ready.
	Oldest  Instant
	LastSeq uint64 // the greatest Seq that was assigned
}

// Count updates c for the move of a job from before to after with effect e. before is nil for
// a new job. A backend calls Count in the commit of the move.
func (c *Stats) Count(before, after *State, e Effect) {
	if before != nil {
		c.add(before, -1)
	}
	if e&Delete == 0 {
		c.add(after, 1)
		if before != nil && before.Status != after.Status {
			switch after.Status {
			case Completed:
				c.Completed++
			case Failed, TimedOut:
				c.Failed++
			}
		}
	}
	if e&Requeued != 0 {
		c.Retried++
	}
}

func (c *Stats) add(s *State, n int64) {
	switch s.Status {
	case InQueue:
		c.Queued += n
		if s.Flags&LowPriority != 0 {
			c.QueuedLow += n
		}
		if s.Delayed {
			c.Delayed += n
		}
	case InProgress:
		c.Running += n
	}
}
