package serverless

import (
	"fmt"
	"time"

	"github.com/podyard/podyard/problem"
)

// An Instant is Unix milliseconds; 0 is never. Jobs live by integer milliseconds on the
// wire and a queue holds millions of them, so the seam carries 8 bytes and not 24.
type Instant int64

// At is the instant of t, rounded down to the millisecond.
func At(t time.Time) Instant { return Instant(t.UnixMilli()) }

// Time is the inverse of At, in UTC; the zero time for never.
func (i Instant) Time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(i)).UTC()
}

// Add is the instant d later, rounded down to the millisecond.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d.Milliseconds()) }

// A Status is where a job is in its life (section 3.2).
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

func (s Status) String() string { return statusNames[s] }

// Terminal reports whether a job in this status has ended.
func (s Status) Terminal() bool { return s >= Completed }

// ParseStatus is the inverse of String.
func ParseStatus(s string) (Status, bool) {
	for i, n := range statusNames {
		if n == s {
			return Status(i), true
		}
	}
	return 0, false
}

// A Token fences a lease: epoch<<32 | counter. The epoch is made durable when a store is
// opened, so that a token is never issued twice even where claims are not synced.
type Token uint64

type (
	// A WorkerID names a worker, for as long as it lives.
	WorkerID string
	// A JobID names a job within its endpoint: 1 to MaxJobID bytes.
	JobID string
	// A Ref names a job. Every lookup carries the endpoint: it is the shard, the
	// partition and the boundary of authorisation.
	Ref struct {
		Endpoint string
		ID       JobID
	}
)

// MaxJobID is the longest job id in bytes.
const MaxJobID = 63

// Flags are settled at submit.
type Flags uint8

// The flags of a job.
const (
	LowPriority Flags = 1 << iota // does not make the scaler start workers; its place in the queue is the same
	Sync                          // made by runsync
	HasWebhook                    // a terminal state writes an outbox entry
)

// A Reason is why a job ended that no worker ended. It becomes the text of its error.
type Reason uint8

// The reasons.
const (
	NoReason     Reason = iota
	WorkersLost         // MaxDeliveries workers took the job and were lost
	OverTime            // it ran longer than its execution timeout
	TooManyCrash        // it was running at MaxRestarts restarts of the server
	Damaged             // what it was submitted with can no longer be read
)

// reasonText is what a client reads about a job that ended for s.Reason.
func (s *State) reasonText() string {
	switch s.Reason {
	case WorkersLost:
		return fmt.Sprintf("worker lost: the job was given to %d workers and none of them reported a result", MaxDeliveries)
	case OverTime:
		return fmt.Sprintf("execution timeout: the job ran longer than %d ms", s.ExecTimeout)
	case TooManyCrash:
		return fmt.Sprintf("harmful: the job was running at %d restarts of the service and is not run again", MaxRestarts)
	case Damaged:
		return "damaged: the input of the job can no longer be read, and no worker can have it; submit it again"
	}
	return ""
}

// Bounds of a job's life.
const (
	// MaxDeliveries is how many workers may lose a job before it fails.
	MaxDeliveries = 3
	// MaxRestarts is how many crashes of the server a job may be found running at.
	MaxRestarts = 10
	// MaxStream is how many bytes of chunks a job keeps for readers that do not come.
	MaxStream = 64 << 20
)

// State is everything that the rules read or write of a job: of fixed size, without
// payload, comparable. A backend stores it and never computes with it: it calls Apply.
type State struct {
	Status     Status
	Flags      Flags
	Reason     Reason
	Deliveries uint8  // claims of this run that were not handed back
	Restarts   uint8  // crashes of the server it was running at
	Run        uint32 // grows with retry; names the output, chunks and outbox entry of a run
	Seq        uint64
	Token      Token
	Worker     WorkerID // holds the lease; after the end, the one that held it last
	Lost       WorkerID // the last worker that lost the lease: not given this job again
	Submitted,
	Queued, // submit or retry: delayTime counts from here
	Started,
	Finished,
	LeaseUntil,
	RunUntil,
	Expires Instant
	ExecTimeout, Retain int64 // ms; settled at submit, so that Apply needs no configuration
	Chunks, Drained     uint32
	Stream              int64 // bytes of chunks not drained
}

// Due is a lower bound of the next instant at which OpTick changes s. A renewal moves the
// lease later and need not move an index entry: the tick finds nothing to do and re-arms.
func (s *State) Due() Instant {
	d := s.Expires
	switch {
	case s.Status == InProgress:
		d = min(d, s.LeaseUntil, s.RunUntil)
	case s.Status.Terminal():
		d = min(d, s.Finished+Instant(s.Retain))
	}
	return d
}

// Gone reports whether the job is past its ttl or its retention: whoever looks at it then
// must not find it, swept or not.
func (s *State) Gone(now Instant) bool {
	return s.Expires <= now || s.Status.Terminal() && s.Finished+Instant(s.Retain) <= now
}

// An OpKind is a move.
type OpKind uint8

// The moves of a job.
const (
	OpClaim     OpKind = iota // Worker takes it until Until, under Token
	OpRenew                   // Worker keeps it until Until
	OpFinish                  // Worker ends it: Status, Payload the output, Error
	OpRelease                 // Worker hands it back unharmed: no delivery is counted
	OpChunk                   // Worker adds Payload to the stream
	OpProgress                // Worker replaces the interim output by Payload
	OpDrain                   // chunks From to From+N of the lease Token were handed out, Bytes in all
	OpCancel                  // the user ends it
	OpPurge                   // cancels only what is queued
	OpRetry                   // the user runs a failed job again
	OpSetTTL                  // the user moves its expiry to Until
	OpTick                    // time has passed
	OpRecover                 // the server that ran it is gone
	OpLose                    // Worker is gone: its lease is over now
	OpRedeliver               // the user has the webhook of an ended job sent again
	OpDamage                  // what the queued job was submitted with can no longer be read
)

// Durable reports whether the effect must be on disk before the call returns. What is not
// can be lost with power, and a job is then claimed or reported once more.
func (k OpKind) Durable() bool {
	return k == OpFinish || k == OpCancel || k == OpPurge || k == OpRetry || k == OpSetTTL || k == OpRedeliver || k == OpDamage
}

// An Op asks for one move of one job. Ops are data: they merge into one commit, travel in
// one statement, replay from a seed.
type Op struct {
	Ref
	Kind   OpKind
	Status Status // of OpFinish: Completed or Failed
	Worker WorkerID
	// Token fences. Zero with a Worker means "the lease this worker holds": the worker
	// protocol carries no token, only job and worker ids.
	Token Token
	// Adopt lets the worker that lost the lease go on as if it had not, while nobody else
	// has the job: work that is done is not thrown away.
	Adopt   bool
	Until   Instant
	Payload []byte // the queue's from the call on: nobody changes it again
	Error   string
	From, N uint32
	Bytes   int64
}

// An Effect is what the backend must do in the same commit as the new State, and whom it
// must tell afterwards.
type Effect uint16

// The effects.
const (
	Put        Effect = 1 << iota // write State
	Delete                        // remove job, payloads and chunks; an outbox entry keeps its own
	NewSeq                        // give State a new Seq: the end of the queue
	PutOutput                     // Op.Payload is the output, Op.Error the error
	DropOutput                    // output, error and chunks so far are void
	DropInput                     // the input is void, for the outbox entries of earlier runs too
	AddChunk                      // Op.Payload is chunk State.Chunks-1
	DropChunks                    // chunks before State.Drained are done with
	PutOutbox                     // one webhook entry for (job, run), unless there is one
	Requeued                      // count it: a worker lost the job and it is queued again
	EvReady                       // afterwards: a job of the endpoint can be claimed
	EvDone                        // afterwards: the job has ended or is gone
	EvStop                        // afterwards: the worker that held it should drop it
	EvChunk                       // afterwards: there is something to drain
)

// What Apply and queues answer.
var (
	ErrNotFound   = problem.New(problem.NotFound, "job not found")
	ErrLeaseLost  = problem.New(problem.Conflict, "the lease is no longer held")
	ErrStatus     = problem.New(problem.Conflict, "the job's status does not allow this")
	ErrExists     = problem.New(problem.Conflict, "job id is taken")
	ErrStreamFull = problem.New(problem.TooLarge, "the stream holds too much that nobody read")
	ErrInputLost  = problem.New(problem.Conflict, "the input of the job was damaged: it cannot be run again")
	ErrDamaged    = problem.New(problem.Unavailable, "what the job has put out can no longer be read")
)

// Apply is the whole state machine: pure, total, without clock or configuration. On an
// error s is unchanged; the effects are to be carried out all the same (a job found past
// its ttl is deleted by whoever finds it).
//
// A memory or disk backend calls it under the job's lock; one on a database between
// reading the row for update and writing it.
func (s *State) Apply(now Instant, op *Op) (Effect, error) {
	if s.Gone(now) {
		return s.gone(op)
	}
	switch op.Kind {
	case OpClaim:
		return s.claim(now, op)
	case OpRenew, OpProgress, OpChunk, OpRelease, OpFinish:
		return s.held(now, op)
	case OpDrain:
		return s.drain(op), nil
	case OpCancel:
		if s.Status.Terminal() {
			return 0, nil // answered with the status as it is
		}
		return s.end(now, Cancelled), nil
	case OpPurge:
		if s.Status != InQueue {
			return 0, ErrStatus
		}
		return s.end(now, Cancelled), nil
	case OpRetry:
		return s.retry(now)
	case OpSetTTL:
		s.Expires = op.Until
		return Put, nil
	case OpTick:
		return s.tick(now), nil
	case OpRecover:
		return s.recover(now), nil
	case OpLose:
		if s.Status != InProgress || s.Worker != op.Worker {
			return 0, ErrLeaseLost
		}
		return s.lose(now), nil
	case OpRedeliver:
		return s.redeliver()
	case OpDamage:
		return s.damage(now)
	}
	return 0, ErrStatus
}

// gone is the ttl's and the retention's move. The ttl is absolute, even for a job that
// runs: its worker is told to stop.
func (s *State) gone(op *Op) (Effect, error) {
	e := Delete
	if !s.Status.Terminal() {
		e |= EvDone
	}
	if s.Status == InProgress {
		e |= EvStop
	}
	if op.Kind == OpTick || op.Kind == OpRecover {
		return e, nil
	}
	return e, ErrNotFound
}

func (s *State) claim(now Instant, op *Op) (Effect, error) {
	if s.Status != InQueue || s.Lost != "" && s.Lost == op.Worker {
		return 0, ErrStatus
	}
	s.Status, s.Worker, s.Token = InProgress, op.Worker, op.Token
	s.Deliveries++
	s.Started, s.LeaseUntil, s.RunUntil = now, op.Until, now+Instant(s.ExecTimeout)
	return Put, nil
}

// held is a move of the worker that has the lease. A lease whose time is over is lost,
// ticked or not, unless the worker may adopt and nobody else has taken the job.
func (s *State) held(now Instant, op *Op) (Effect, error) {
	mine := op.Token == 0 || op.Token == s.Token
	full := op.Kind == OpChunk && s.Stream+int64(len(op.Payload)) > MaxStream
	if op.Kind == OpFinish && op.Status != Completed && op.Status != Failed {
		return 0, ErrStatus
	}
	switch {
	case s.Status == InProgress && s.Worker == op.Worker && mine && now < s.RunUntil && (now < s.LeaseUntil || op.Adopt):
	case s.Status == InQueue && op.Adopt && op.Worker != "" && s.Lost == op.Worker && mine && !full:
		s.adopt(now, op)
	default:
		return 0, ErrLeaseLost
	}
	if full {
		return 0, ErrStreamFull
	}
	s.LeaseUntil = max(s.LeaseUntil, op.Until)
	switch op.Kind {
	case OpChunk:
		s.Chunks++
		s.Stream += int64(len(op.Payload))
		return Put | AddChunk | EvChunk, nil
	case OpProgress:
		return Put | PutOutput, nil
	case OpRelease:
		s.Deliveries--
		return s.requeue(), nil
	case OpFinish:
		return s.end(now, op.Status) | PutOutput, nil
	}
	return Put, nil
}

// adopt gives a queued job back to the worker that lost it and went on all the while. Its
// execution timeout begins anew: when the first one began is forgotten with the lease.
func (s *State) adopt(now Instant, op *Op) {
	s.Status, s.Worker, s.Lost = InProgress, op.Worker, ""
	s.Started = now
	s.LeaseUntil, s.RunUntil = op.Until, now+Instant(s.ExecTimeout)
}

// drain moves the cursor of the stream, unless another reader has moved it, or the chunks
// are void by now and those that are there come from another lease.
func (s *State) drain(op *Op) Effect {
	if op.From != s.Drained || op.N == 0 || op.N > s.Chunks-s.Drained || op.Token != s.Token {
		return 0
	}
	s.Drained += op.N
	s.Stream -= op.Bytes
	return Put | DropChunks
}

// requeue keeps Seq, which is older than that of everything queued later: the front.
// What the run has produced so far is void, because the next one starts over.
func (s *State) requeue() Effect {
	s.Status, s.Worker = InQueue, ""
	s.Started, s.LeaseUntil, s.RunUntil = 0, 0, 0
	s.Chunks, s.Drained, s.Stream = 0, 0, 0
	return Put | DropOutput | EvReady
}

func (s *State) retry(now Instant) (Effect, error) {
	if s.Status != Failed && s.Status != TimedOut {
		return 0, ErrStatus
	}
	if s.Reason == Damaged {
		return 0, ErrInputLost
	}
	s.Run++
	s.Deliveries, s.Restarts, s.Reason, s.Lost = 0, 0, NoReason, ""
	s.Queued, s.Finished = now, 0
	return s.requeue() | NewSeq, nil
}

// redeliver makes the outbox entry anew, with the id of the run's delivery.
func (s *State) redeliver() (Effect, error) {
	if !s.Status.Terminal() || s.Flags&HasWebhook == 0 {
		return 0, ErrStatus
	}
	return PutOutbox, nil
}

// damage ends a job that can be given to nobody. One that runs has a worker that was given
// its input, and goes on.
func (s *State) damage(now Instant) (Effect, error) {
	if s.Status != InQueue {
		return 0, ErrStatus
	}
	s.Reason = Damaged
	return s.end(now, Failed) | DropInput, nil
}

func (s *State) tick(now Instant) Effect {
	if s.Status != InProgress {
		return 0
	}
	switch {
	case s.RunUntil <= now:
		s.Reason = OverTime
		return s.end(now, TimedOut)
	case s.LeaseUntil <= now:
		return s.lose(now)
	}
	return 0
}

// lose takes the job from a worker that is lost: for another one, unless there were too
// many already.
func (s *State) lose(now Instant) Effect {
	if s.Deliveries >= MaxDeliveries {
		s.Reason = WorkersLost
		return s.end(now, Failed) | EvStop
	}
	s.Lost = s.Worker
	return s.requeue() | Requeued | EvStop
}

// recover hands a job back whose server is gone. Nobody is charged for a server's stop,
// but a job that is there at every crash is likely its cause.
func (s *State) recover(now Instant) Effect {
	if s.Status != InProgress {
		return 0
	}
	s.Restarts++
	if s.Restarts >= MaxRestarts {
		s.Reason = TooManyCrash
		return s.end(now, Failed)
	}
	s.Deliveries--
	return s.requeue()
}

func (s *State) end(now Instant, st Status) Effect {
	e := Put | EvDone
	if s.Status == InProgress && st != Completed && st != Failed {
		e |= EvStop
	}
	if s.Flags&HasWebhook != 0 {
		e |= PutOutbox
	}
	s.Status, s.Finished = st, now
	return e
}
