package events

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/queue"
)

// Limits of what is kept.
const (
	// Keep is how long an event is kept, and a feed without readers.
	Keep = 10 * time.Minute
	// MaxKept is the most events of an endpoint.
	MaxKept = 10_000
	// maxPending is the most hints of which the jobs were not read yet.
	maxPending = 10_000
)

// A Type is the type of an event.
type Type string

// The types of events.
const (
	Queued    Type = "queued" // submitted, or retried by its user; may be missing if the job ended at once
	Completed Type = "completed"
	Failed    Type = "failed"
	Cancelled Type = "cancelled"
	TimedOut  Type = "timed_out"
	Deleted   Type = "deleted" // by its ttl, before it had ended
	Gap       Type = "gap"     // events are missing here: read the jobs that matter

	WorkerStarted Type = "worker_started" // the fleet has started it
	WorkerJoined  Type = "worker_joined"  // it has asked for its first job
	WorkerLeft    Type = "worker_left"    // it has ended, or is not heard of any more
	WorkerFailed  Type = "worker_failed"  // it could not be started, or has ended although it should not
)

// Types are the types that readers can ask for. They get Gap in any case.
func Types() []Type {
	return []Type{Queued, Completed, Failed, Cancelled, TimedOut, Deleted, WorkerStarted, WorkerJoined, WorkerLeft, WorkerFailed}
}

// typeOf returns the type of the end of a job.
func typeOf(s queue.Status) Type {
	return map[queue.Status]Type{queue.Completed: Completed, queue.Failed: Failed, queue.Cancelled: Cancelled, queue.TimedOut: TimedOut}[s]
}

// An Event is something that has happened to a job or to a worker. It has no payload.
type Event struct {
	ID     ID
	Type   Type
	Time   time.Time
	Job    queue.JobID    // empty: Gap, or an event of a worker
	Owner  string         // of the job
	Worker queue.WorkerID // empty: not an event of a worker
}

// Status returns the status that the job got by the event, and false where there is none.
func (e *Event) Status() (queue.Status, bool) {
	for _, s := range []queue.Status{queue.Completed, queue.Failed, queue.Cancelled, queue.TimedOut} {
		if typeOf(s) == e.Type {
			return s, true
		}
	}
	return queue.InQueue, e.Type == Queued
}

// An ID is the place of an event: the feed it belongs to, and its number there. A feed of
// another server, or of an earlier one, is another feed.
type ID struct {
	Feed   int64
	Number uint64
}

// String returns the form that ParseID reads.
func (id ID) String() string { return fmt.Sprintf("%d-%d", id.Feed, id.Number) }

var errID = problem.New(problem.Invalid, "Last-Event-ID must be an id that this stream has sent")

// ParseID reads the id of an event. Its error has the kind problem.Invalid.
func ParseID(s string) (ID, error) {
	a, b, _ := strings.Cut(s, "-")
	feed, err1 := strconv.ParseInt(a, 10, 64)
	number, err2 := strconv.ParseUint(b, 10, 64)
	if err1 != nil || err2 != nil || feed <= 0 {
		return ID{}, errID
	}
	return ID{feed, number}, nil
}

// ErrBehind is returned by Reader.Read when events were dropped that it has not read.
var ErrBehind = errors.New("events: the reader is too far behind")
