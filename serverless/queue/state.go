package queue

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
)

// An Instant is a point in time in Unix milliseconds; 0 is never. It has 8 bytes where a
// time.Time has 24, because a queue holds millions of jobs. Durations are time.Durations;
// stored durations are whole milliseconds.
type Instant int64

// At returns the instant of t, rounded down to the millisecond. Like Add and Sub it returns the
// nearest value where the result has none: times may be those of users, and one that wrapped would
// be long past instead of far away.
func At(t time.Time) Instant {
	const most = math.MaxInt64 / 1000
	if s := t.Unix(); s < -most || s > most-1 {
		return farthest(s > 0)
	}
	return Instant(t.UnixMilli())
}

func farthest(later bool) Instant {
	if later {
		return math.MaxInt64
	}
	return math.MinInt64
}

// Time returns i as a time in UTC. It returns the zero time for 0.
func (i Instant) Time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(i)).UTC()
}

// Add returns the instant d after i. It ignores the part of d below a millisecond.
func (i Instant) Add(d time.Duration) Instant {
	sum := i + Instant(d.Milliseconds())
	if (sum < i) != (d.Milliseconds() < 0) {
		return farthest(d > 0)
	}
	return sum
}

// Sub returns the time from j to i, 292 years at most.
func (i Instant) Sub(j Instant) time.Duration {
	const most = Instant(math.MaxInt64 / time.Millisecond)
	diff := i - j
	switch wrapped := (diff > 0) != (i > j); {
	case i > j && (wrapped || diff > most):
		return math.MaxInt64
	case i < j && (wrapped || diff < -most):
		return math.MinInt64
	}
	return time.Duration(diff) * time.Millisecond
}

// Sooner returns the earlier of two instants, where 0 is never.
func Sooner(a, b Instant) Instant {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// A Status is the status of a job (docs/interface.md 3.2).
type Status uint8

// The statuses of a job. Those from Completed on are terminal.
const (
	InQueue Status = iota
	InProgress
	Completed
	Failed
	Cancelled
	TimedOut
)

var statusNames = [...]string{"IN_QUEUE", "IN_PROGRESS", "COMPLETED", "FAILED", "CANCELLED", "TIMED_OUT"}

// String returns the name on the wire, such as IN_QUEUE.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return "Status(" + strconv.Itoa(int(s)) + ")"
}

// MarshalText returns the name on the wire, so that a status is a text in JSON and in logs.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads such a name.
func (s *Status) UnmarshalText(text []byte) error {
	v, ok := ParseStatus(string(text))
	if !ok {
		return fmt.Errorf("queue: %q is no status of a job", text)
	}
	*s = v
	return nil
}

// UnmarshalJSON reads a name, or the number that records of earlier versions have.
func (s *Status) UnmarshalJSON(b []byte) error {
	if n, err := strconv.Atoi(string(b)); err == nil && n >= 0 && n < len(statusNames) {
		*s = Status(n)
		return nil
	}
	var name string
	if err := json.Unmarshal(b, &name); err != nil {
		return fmt.Errorf("queue: %s is no status of a job", b)
	}
	return s.UnmarshalText([]byte(name))
}

// Terminal reports whether a job in this status has ended.
func (s Status) Terminal() bool { return s >= Completed }

// ParseStatus is the inverse of Status.String. It reports false for an unknown name.
func ParseStatus(s string) (Status, bool) {
	for i, n := range statusNames {
		if n == s {
			return Status(i), true
		}
	}
	return 0, false
}

// A Token is the fencing token of a lease. A store never issues one twice, on any server, also
// after a crash that lost claims. Tokens need not grow. A store of one process can make them
// from an epoch, which it makes durable when it is opened, and a counter: epoch<<32 | counter.
type Token uint64

type (
	// A WorkerID is the id of a worker. It is unique within the endpoint while the worker lives.
	WorkerID string
	// A JobID is the id of a job within its endpoint. It has 1 to MaxJobID bytes.
	JobID string
	// A Ref identifies a job. Every lookup has the endpoint, because the endpoint is the
	// shard, the partition and the boundary of authorisation.
	Ref struct {
		Endpoint string
		ID       JobID
	}
)

// MaxJobID is the longest job id in bytes.
const MaxJobID = 63

// Flags are properties of a job that are set at submit and never change.
type Flags uint8

// The flags of a job.
const (
	LowPriority  Flags = 1 << iota // the scaler starts no worker for the job; its place in the queue is the same
	Sync                           // submitted by runsync
	HasWebhook                     // the end of the job writes an outbox entry
	DurableAtEnd                   // Enqueue need not make the job durable: see JobQueue
	OpenAI                         // submitted by the OpenAI route; only metrics read it
	FromSubmit                     // the first delay is a time from the submit, and not until an instant that the user gave
	KeepsResult                    // the result is kept for Retain, also past the ttl (docs/decisions.md 61)
)

// A Reason says why the service ended a job without a report of a worker. Job.ErrorText
// turns it into the text that clients read.
type Reason uint8

// The reasons for which the service ends a job.
const (
	NoReason          Reason = iota
	WorkersLost              // it was claimed MaxDeliveries times, and its worker was lost each time
	ExecutionTimedOut        // it ran longer than its execution timeout
	TooManyRestarts          // it was running at MaxRestarts crashes of its server
	Damaged                  // its stored input, webhook or Extra can no longer be read
	SnoozedTooLong           // its worker put it off past its ttl, or more than MaxSnoozes times
)

var reasonNames = [...]string{"none", "workers-lost", "execution-timed-out", "too-many-restarts", "damaged", "snoozed-too-long"}

// String returns a name for logs, such as workers-lost. Job.ErrorText has the words for clients.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return "Reason(" + strconv.Itoa(int(r)) + ")"
}

// reasonText returns the text of s.Reason that clients read.
func (s *State) reasonText() string {
	switch s.Reason {
	case WorkersLost:
		return fmt.Sprintf("worker lost: the job was given to workers %d times and none of them reported a result", MaxDeliveries)
	case ExecutionTimedOut:
		return fmt.Sprintf("execution timeout: the job ran longer than %d ms", s.ExecTimeout.Milliseconds())
	case TooManyRestarts:
		return fmt.Sprintf("harmful: the job was running at %d restarts of the service and is not run again", MaxRestarts)
	case Damaged:
		return "damaged: the input of the job can no longer be read, and no worker can have it; submit it again"
	case SnoozedTooLong:
		return fmt.Sprintf("snoozed: its worker put the job off past the end of its ttl, or more than %d times", MaxSnoozes)
	}
	return ""
}

// Limits of a job.
const (
	// MaxDeliveries is the number of lost leases after which a job fails.
	MaxDeliveries = 3
	// MaxReleases is the number of releases from which on a job goes to the end of its turn.
	MaxReleases = 10
	// MostReleases is where State.Releases stops, so that it has six bits.
	MostReleases = 63
	// MaxSnoozes is how often the workers of one run may put the job off.
	MaxSnoozes = 1000
	// MaxRestarts is the number of server crashes during its runs after which a job fails.
	MaxRestarts = 10
	// MaxStream is the most bytes of chunks that a job keeps until they are read.
	MaxStream = 64 << 20
)

// State is everything that the rules read or write of a job. It has no payload and is
// comparable. A backend stores it and changes it only by Apply, except Seq. See Numbers for a way
// to store it that later versions need not change.
type State struct {
	Status     Status
	Flags      Flags
	Reason     Reason
	Deliveries uint8    // claims of this attempt, without those that were released
	Restarts   uint8    // server crashes while this run was in progress
	Priority   uint8    // 0 to MaxPriority, which is claimed first (docs/decisions.md 39)
	Attempt    uint8    // attempts of this run that have ended: Number is that of the present one
	Delayed    bool     // a queued job that is not ready before Queued
	Read       bool     // a chunk of this run was read, so it is not retried by itself; only with a retry policy
	Leases     uint8    // leases of all runs after which the job was queued again; from 241 on only "more than 240": see JobLease
	Releases   uint8    // leases of this run that were released; at most MostReleases
	Returned   bool     // Lost has released its lease: that delivery is not counted
	Snoozes    uint16   // of a run that has not ended: how often its workers have put it off
	Run        uint32   // number of retries; identifies the output, chunks and outbox entry of a run
	Seq        uint64   // place in the queue; assigned by the queue
	Token      Token    // of the last claim
	Worker     WorkerID // the worker that holds the lease; empty while the job is queued; after the end, the one that held it then
	Lost       WorkerID // the last worker that lost or released the lease; see Barred
	Submitted,
	Queued, // the instant from which the present attempt is ready; delayTime starts here
	Started,
	Finished,
	LeaseUntil, // in a queued job that was lost: the instant until which Lost does not get it
	RunUntil,
	Expires,
	FirstChunk, // of the present lease
	LostStarted Instant // of a queued job: when the lease of Lost began; 0: its late result is not taken
	Terms
	Chunks, Drained   uint32 // chunks of this run, and how many of them were read
	Stream            int64  // bytes of chunks not drained
	InBytes, OutBytes uint32 // of what was submitted and is kept, and of output and error
}

// Bytes are those of the payloads that are kept of the job.
func (s *State) Bytes() int64 { return int64(s.InBytes) + int64(s.OutBytes) + s.Stream }

// HasInput reports whether the input is kept. It is not for a job that was damaged, for a
// cancelled job whose input nothing needs, and after OpDropInput.
func (s *State) HasInput() bool {
	return s.needsInput() && (s.InBytes > 0 || !s.Status.Terminal())
}

func (s *State) needsInput() bool {
	return s.Reason != Damaged && (s.Status != Cancelled || s.Flags&HasWebhook != 0 || s.DeadLetter > 0)
}

// size is a number of bytes in a State.
func size(n int) uint32 { return uint32(min(uint64(n), math.MaxUint32)) }

// Due returns a lower bound of the next instant at which OpTick changes s. A renewal moves
// the lease later and need not move an index entry: the tick then changes nothing and the
// caller asks for Due again.
func (s *State) Due() Instant {
	d := s.GoneAt()
	switch {
	case s.Delayed:
		d = min(d, s.Queued)
	case s.Status == InProgress:
		d = min(d, s.LeaseUntil, s.RunUntil)
	case s.Barred() != "":
		d = min(d, s.LeaseUntil)
	}
	return d
}

// Barred returns the worker that does not get the queued job s because it has lost it; empty:
// none. So another worker has the first chance. It ends with LoserWait, at a tick, because the
// worker may be the only one.
func (s *State) Barred() WorkerID {
	if s.Status != InQueue || s.LeaseUntil == 0 {
		return ""
	}
	return s.Lost
}

// Unshown reports whether a queue may have s only in memory: its submit needs no durability of
// its own, and it has not ended. A queue makes such a job durable before it returns it to
// anybody but a worker.
func (s *State) Unshown() bool { return s.Flags&DurableAtEnd != 0 && !s.Status.Terminal() }

// Gone reports whether the ttl or the retention of the job has passed at now. A reader must
// not find such a job, even if no sweep has deleted it yet.
func (s *State) Gone(now Instant) bool { return s.GoneAt() <= now }

// GoneAt returns the instant from which Gone reports true, unless the job moves before.
func (s *State) GoneAt() Instant {
	switch {
	case !s.Status.Terminal():
		return s.Expires
	case s.Flags&KeepsResult != 0:
		return s.Finished.Add(s.Retain)
	}
	return min(s.Expires, s.Finished.Add(s.Retain))
}
