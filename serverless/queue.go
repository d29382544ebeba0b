package serverless

import (
	"context"
	"iter"
)

// A Job is a State with its payloads. Payload bytes are immutable: a queue may keep the
// slice it is given and may return the slice it keeps. Everything else is copied.
type Job struct {
	Ref
	Owner string // the user whose key submitted it
	State
	Input   []byte // one JSON object, verbatim
	Output  []byte // JSON; while in progress the last progress value; nil when there is none
	Error   string // what the worker said of a failure
	Webhook string
	Extra   []byte // members of the job that only the worker sees (s3Config), as a JSON object; sealed at rest
}

// A Slot asks for up to N jobs of one endpoint for one worker.
type Slot struct {
	Endpoint string
	Worker   WorkerID
	N        int
	Until    Instant // end of the first lease
}

// A Result answers an Op.
type Result struct {
	State  State // after the move, or as it is when Err is set
	Effect Effect
	Err    error // nil, ErrNotFound, ErrLeaseLost, ErrStatus, ErrStreamFull, ErrInputLost
}

// A JobQueue is what a backend implements. It is safe for concurrent use. Callers are
// many and a call may be held back a little to share a commit with others: merging is
// the backend's business, slices are for a caller that has several anyway.
//
// No method reads a clock or knows a rule: State.Apply decides, inside the backend's own
// atomic section. No state may be seen by anyone before the write that made it is as
// durable as OpKind.Durable asks.
//
// A queue that keeps payloads where they can be damaged finds that out and serves none of
// it. A queued job whose input, webhook or Extra can no longer be read can be given to
// nobody: whoever comes upon it, Claim or Get, ends it by OpDamage. Of a job that runs or
// has ended they are left out, and where its output or a chunk is to be read the answer is
// ErrDamaged. Nothing of this concerns other jobs.
//
// An error of a whole call means that the outcome is unknown: the caller may repeat it,
// and an Enqueue that had happened then answers ErrExists.
type JobQueue interface {
	// Enqueue adds all jobs or none, durably, in order, and assigns State.Seq. ErrExists
	// if one of the ids is taken.
	Enqueue(ctx context.Context, jobs []Job) error
	// Claim leases what is ready, appends it to out and returns at once: oldest Seq first
	// within an endpoint, slots of one endpoint in the order given. A job is not given to
	// the worker that lost it. Nothing ready is no error.
	Claim(ctx context.Context, now Instant, slots []Slot, out []Job) ([]Job, error)
	// Apply makes each move, independently, several of one job in order; res[i] answers
	// ops[i]. Everything of one op (state, output, chunk, outbox entry) is one commit.
	Apply(ctx context.Context, now Instant, ops []Op, res []Result) error
	// Expire applies OpTick to at most limit jobs whose Due has passed and says when to
	// call again (0: nothing scheduled). Several servers may call it at once.
	Expire(ctx context.Context, now Instant, limit int) (next Instant, err error)
	// Purge applies OpPurge to the queued jobs that p selects, looks at no more than
	// p.Limit of them, and says where to go on (0: done). It never holds anything up for
	// longer than that takes.
	Purge(ctx context.Context, now Instant, p PurgeQuery) (removed int, next uint64, err error)

	// Get returns the job, or ErrNotFound, also when it is Gone. With ErrDamaged it returns
	// the job without its output.
	Get(ctx context.Context, now Instant, ref Ref) (Job, error)
	// Chunks returns chunks (items: JSON objects with the member output, which a queue
	// need not know) that were not drained, from the first, at most maxBytes of
	// them but at least one, with the State of the same instant: State.Drained is the
	// number of the first, and they are the last ones when State.Chunks-State.Drained is
	// their count. The cursor stays: OpDrain moves it.
	Chunks(ctx context.Context, now Instant, ref Ref, maxBytes int) ([][]byte, State, error)
	// List yields the jobs that q selects, newest first: their Ref, Owner and State, and
	// nothing else.
	List(ctx context.Context, now Instant, q ListQuery) iter.Seq2[Job, error]
	// Stats answers for one endpoint, all zero when it has had no job. It costs the same
	// however many jobs there are.
	Stats(ctx context.Context, now Instant, endpoint string) (Stats, error)

	// Watch calls f with what happened on this store, on any server, until ctx ends. The
	// events are hints: sent after the commit, repeated or lost now and then (EventGap
	// says so). f must not block, must not keep the slice, and may call the queue. One
	// Watch per Service, which passes them on.
	Watch(ctx context.Context, f func([]Event)) error

	// Outbox is the same value as the queue: a separate one could not share the commit.
	Outbox
}

// An EventKind says what happened.
type EventKind uint8

// The kinds of events.
const (
	EventReady EventKind = iota // the endpoint has a job that can be claimed
	EventDone                   // the job has ended or is gone
	EventStop                   // Worker should drop the job
	EventChunk                  // the job has something to drain
	EventGap                    // events were lost: look at everything you wait for
)

// An Event is a hint.
type Event struct {
	Kind EventKind
	Ref
	Worker WorkerID
}

// Events appends the hints of an effect on the job ref, which worker held before.
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
	Owner    string // empty: everyone's
	After    uint64 // Seq above this
	UpTo     uint64 // and not above this: jobs submitted meanwhile survive
	Limit    int
}

// A ListQuery selects jobs.
type ListQuery struct {
	Endpoint string
	Owner    string // empty: everyone's
	Status   []Status
}

// Stats feeds health, the scaler and purge.
type Stats struct {
	Queued    int64
	QueuedLow int64 // of Queued, those of low priority
	Running   int64
	Completed int64   // ever, also those that are deleted by now; so are the next two
	Failed    int64   // FAILED and TIMED_OUT
	Retried   int64   // given to another worker because one was lost
	Oldest    Instant // Queued of the oldest queued job that is not of low priority; 0: none
	LastSeq   uint64
}

// Note counts the move of a job from before to after; before is nil for a new job. A
// backend calls it in the commit of the move.
func (c *Stats) Note(before, after *State, e Effect) {
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
	case InProgress:
		c.Running += n
	}
}

// An Outbox keeps webhook deliveries. Entries appear by PutOutbox; each pins the
// payloads of its (job, run), even when the job is deleted or retried meanwhile.
//
// Each is sent at least once, and tried until it is settled: an entry stays until the
// Record that settles it is durable. As long as a lease lasts its caller alone has the
// delivery. Leases need not survive the process: it is given again when its lease is over
// or the store was opened anew. So what was sent and not recorded (the process ended, the
// store failed, the lease was over) is sent once more, under the same id, by which its
// receiver knows it, and is not counted as a try.
type Outbox interface {
	// Deliveries leases at most limit entries due at now until the given instant,
	// earliest first.
	Deliveries(ctx context.Context, now, until Instant, limit int) ([]Delivery, error)
	// Record writes attempts to the log and settles each entry or schedules it anew. A
	// delivery whose lease was lost is left alone.
	Record(ctx context.Context, a []Attempt) error
	// NextDelivery says when Deliveries will have something; 0 is never.
	NextDelivery(ctx context.Context) (Instant, error)
	// Attempts is the delivery log of a job, oldest first, as long as it is kept.
	Attempts(ctx context.Context, ref Ref) ([]Attempt, error)
}

// A Delivery is one webhook on its way.
type Delivery struct {
	ID    string // stable over attempts
	Token Token  // of the lease
	Tries int    // attempts that were made before
	Job   Job    // as it was at the terminal moment, with input and output
	Fault string // why it cannot be sent, when its payloads are damaged: what was sent else would be wrong
}

// An Attempt is what became of a Delivery.
type Attempt struct {
	Ref
	DeliveryID string
	Token      Token
	At         Instant
	Next       Instant // when to try again; 0: settled
	Postponed  bool    // nothing was sent: the receiver has enough under way
	Status     int     // HTTP status of the answer; 0: none
	Err        string
}

// A Sender posts one delivery. It neither retries nor outlives ctx; what it returns as
// an error is kept in the delivery log and holds no secret.
type Sender interface {
	Send(ctx context.Context, d *Delivery) (status int, err error)
}
