package batches

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
)

// Limits of batches.
const (
	// MaxRequests is the most requests of a batch.
	MaxRequests = 5000
	// maxNumbers is the most numbers of requests of a batch. A request that was deleted, or could
	// not be queued, keeps its number.
	maxNumbers = 4 * MaxRequests
	// MaxActive is the most batches of one user on one endpoint that have not ended.
	MaxActive = 10
	// MaxKept is the most batches of one user on one endpoint that are kept. The oldest one that
	// has ended makes room for a new one.
	MaxKept = 1000
	// MaxName is the longest name in characters.
	MaxName = 200
	// DraftLife is how long a draft is kept from its creation.
	DraftLife = 24 * time.Hour
	// ResultRetention is how long results are kept after the last request has ended, within
	// their ttl.
	ResultRetention = 30 * time.Minute
	// Retention is how long a batch is kept after its last request has ended.
	Retention = 7 * 24 * time.Hour
	// DefaultPriority is the priority of a request that names none.
	DefaultPriority = 3
)

// A Status is the status of a batch. No status says that the requests run, or that they have
// ended: their counts do.
type Status string

// The statuses of a batch.
const (
	Draft     Status = "DRAFT"     // requests are added and deleted
	Finalized Status = "FINALIZED" // the requests run or have run
	Failed    Status = "FAILED"    // finalized, but none of the requests was there any more
	Cancelled Status = "CANCELLED" // no request is started any more
)

// An Outcome is what became of a request.
type Outcome byte

// The outcomes. Stores keep these letters.
const (
	Reserved  Outcome = 'r' // the number is taken, the job may not be queued yet
	Pending   Outcome = 'p' // the job has not ended
	Completed Outcome = 'c'
	Faulty    Outcome = 'f' // the job is FAILED
	Stopped   Outcome = 'x' // the job is CANCELLED
	TimedOut  Outcome = 't'
	Expired   Outcome = 'e' // the job was deleted before its end was seen, mostly by its ttl
	Deleted   Outcome = 'd' // from the draft
)

// A Batch is a number of requests of one user to one endpoint.
type Batch struct {
	ID       string
	Owner    string
	Endpoint string
	Created  time.Time
	Name     string // for users; may be empty
	Webhook  string // URL that gets the batch when its last request has ended; empty: none
	Status   Status
	// Finalized is the instant from which the ttl of the requests counts; zero: not yet.
	Finalized time.Time
	Outcomes  []byte // an Outcome for each number of a request
	// Moved is the number below which the requests have been started or cancelled, according to
	// Status.
	Moved   int
	Ended   time.Time // when the last request had ended; zero: not yet
	Cleaned bool      // the jobs were deleted after ResultRetention
	Notice  Notice
}

// A Notice is the delivery of Batch.Webhook.
type Notice struct {
	Tries   int       // attempts that were begun
	Next    time.Time // of the next attempt, and the end of an attempt that was cut short
	Settled bool      // it was delivered, or has failed for good
}

// failed notes that an attempt, the one of this number, has failed.
func (n *Notice) failed(attempt int, now time.Time) {
	n.Tries, n.Settled = attempt, attempt >= noticeTries
	n.Next = now.Add(noticeDelay)
}

// Clone returns a copy that shares nothing that is changed.
func (b Batch) Clone() Batch {
	b.Outcomes = slices.Clone(b.Outcomes)
	return b
}

// Compare orders batches by creation, then by id.
func Compare(a, b Batch) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
}

// JobID returns the id of the job of a request.
func (b *Batch) JobID(n int) queue.JobID { return queue.JobID(b.ID + "-" + strconv.Itoa(n)) }

// Has reports whether a job is a request of the batch with an id.
func Has(id string, job queue.JobID) bool {
	batch, _, ok := parseJobID(job)
	return ok && batch == id
}

func (b *Batch) ref(n int) queue.Ref { return queue.Ref{Endpoint: b.Endpoint, ID: b.JobID(n)} }

const prefix = "batch_"

// parseJobID returns the batch and the number of a request. It reports false for another job.
func parseJobID(id queue.JobID) (batch string, n int, ok bool) {
	batch, number, ok := strings.Cut(string(id), "-")
	if !ok || !strings.HasPrefix(batch, prefix) {
		return "", 0, false
	}
	n, err := strconv.Atoi(number)
	return batch, n, err == nil && n >= 0 && n < maxNumbers && strconv.Itoa(n) == number
}

// number returns the number of a request of the batch that was not deleted.
func (b *Batch) number(request string) (int, bool) {
	id, n, ok := parseJobID(queue.JobID(request))
	if !ok || id != b.ID || n >= len(b.Outcomes) {
		return 0, false
	}
	return n, b.outcome(n) != Deleted && b.outcome(n) != Reserved
}

func (b *Batch) outcome(n int) Outcome { return Outcome(b.Outcomes[n]) }

// with returns the numbers of the requests that have one of the outcomes, in order.
func (b *Batch) with(outcomes ...Outcome) []int {
	var list []int
	for n := range b.Outcomes {
		if slices.Contains(outcomes, b.outcome(n)) {
			list = append(list, n)
		}
	}
	return list
}

// moving reports whether requests are to be started or cancelled.
func (b *Batch) moving() bool { return b.Status != Draft && b.Moved < len(b.Outcomes) }

// active reports whether the batch has not ended.
func (b *Batch) active() bool { return b.Ended.IsZero() }

// gone reports whether the time of the batch has passed. It is then deleted.
func (b *Batch) gone(now time.Time) bool {
	last := b.last()
	return !last.IsZero() && !now.Before(last)
}

// last returns when the batch is deleted; zero: not while its requests run.
func (b *Batch) last() time.Time {
	switch {
	case b.Status == Draft:
		return b.Created.Add(DraftLife)
	case b.active():
		return time.Time{}
	}
	return b.Ended.Add(Retention)
}

// due returns the instant at which a Step has something to do for the batch; zero: not before
// a request ends.
func (b *Batch) due() time.Time {
	switch {
	case b.moving():
		return b.Created
	case b.active():
		return b.last()
	}
	at := b.last()
	if !b.Cleaned {
		at = b.Ended.Add(ResultRetention)
	}
	if b.unsent() && b.Notice.Next.Before(at) {
		at = b.Notice.Next
	}
	return at
}

func (b *Batch) unsent() bool { return b.Webhook != "" && !b.Notice.Settled && !b.active() }

// note sets the outcome of a request whose job has ended. A job that was retried may end again.
func (b *Batch) note(n int, o Outcome) {
	switch old := b.outcome(n); {
	case old == Pending, old == Faulty && o != Expired, old == TimedOut && o != Expired:
		b.Outcomes[n] = byte(o)
	}
}

// end notes that the last request has ended, if it has. now is the present.
func (b *Batch) end(now time.Time) {
	if b.Status == Draft || !b.active() || b.moving() || slices.Contains(b.Outcomes, byte(Pending)) {
		return
	}
	b.Ended, b.Notice.Next = now, now
}

// moved notes that the requests below a number were started or cancelled. A batch of which none
// could be started has failed.
func (b *Batch) moved(to int) {
	b.Moved = to
	if !b.moving() && b.Status == Finalized && len(b.with(Pending, Completed, Faulty, Stopped, TimedOut)) == 0 {
		b.Status = Failed
	}
}

// outcomeOf returns the outcome of a job that has ended.
func outcomeOf(s queue.Status) Outcome {
	switch s {
	case queue.Completed:
		return Completed
	case queue.Cancelled:
		return Stopped
	case queue.TimedOut:
		return TimedOut
	}
	return Faulty
}

// status returns the status of the job of a request that has ended.
func (o Outcome) status() queue.Status {
	switch o {
	case Completed:
		return queue.Completed
	case Stopped:
		return queue.Cancelled
	case TimedOut:
		return queue.TimedOut
	}
	return queue.Failed
}

// Holding is what a batch takes of its owner's budgets, without its requests, which are jobs
// (docs/decisions.md 37).
func (b *Batch) Holding() budget.Holding {
	return budget.Holding{User: b.Owner, Of: [2]budget.Amount{{Budget: budget.Batches, N: 1}}}
}
