package queue

import "context"

// A Moved is a move that a queue has made and that no result of Apply, Claim or Enqueue shows.
type Moved struct {
	Ref
	Kind   OpKind
	State  State // after the move
	Effect Effect
}

// A Reporter is an optional interface of a JobQueue. Without it, metrics miss the jobs that end
// or are queued again because time has passed.
type Reporter interface {
	// Report makes the queue call f with the moves of Expire, of Purge and of jobs whose payloads
	// are damaged. During the call f gets those that were made when the queue was opened. f is
	// called after the commit and outside locks. It must not block and must not keep the slice.
	// Report is called at most once, before the queue is used.
	Report(f func([]Moved))
}

// A Load is what a queue keeps at an instant.
type Load struct {
	// Undrained is the bytes of chunks that were not read, of all jobs.
	Undrained int64
	// Deliveries is the number of webhooks that are not settled, and OldestDelivery since when the
	// oldest of them is due; 0: there is none. After a restart an entry is as old as its next
	// attempt.
	Deliveries     int
	OldestDelivery Instant
}

// A Summary is what a queue keeps of an endpoint at an instant.
type Summary struct {
	Queued  [MaxPriority + 2]int64 // as Measurer.Priorities returns it
	Delayed int64                  // as Stats has it
	Running int64
	// Oldest is State.Queued of the oldest ready job without low priority, whether or not Rules
	// or a Hold block it; 0: there is none.
	Oldest Instant
	Held   bool // keys of the endpoint are held: only Stats knows which jobs can start
}

// A Surveyor is an optional interface of a Measurer for which one look at all endpoints costs less
// than a look at each.
type Surveyor interface {
	// Survey returns the summaries of all endpoints that have jobs queued or running, and may
	// return others. errors.ErrUnsupported says that the queue cannot after all.
	Survey(ctx context.Context) (map[string]Summary, error)
}

// A Measurer is an optional interface of a JobQueue that keeps such counts. Its methods do not
// depend on the number of jobs, except that Load visits the webhooks that are not settled. A queue
// in a database may visit more, within bounds that it names.
type Measurer interface {
	Load(ctx context.Context) (Load, error)
	// Priorities returns the queued jobs of an endpoint by priority, delayed ones included. The
	// last number is that of the jobs with the flag LowPriority, whatever their priority is.
	Priorities(ctx context.Context, endpoint string) ([MaxPriority + 2]int64, error)
}
