package queue

import (
	"strconv"
	"time"

	"github.com/podyard/podyard/problem"
)

// Terms are what is agreed on when a job is submitted, so that Apply needs no configuration. Only
// OpReplace changes them, and the new job of a dead letter has them too. Durations are whole milliseconds, and
// a backend may store them as such.
type Terms struct {
	ExecTimeout time.Duration // how long a run may take
	Retain      time.Duration // how long the job is kept after its end
	Retry       RetryPolicy
	DeadLetter  time.Duration // how long a copy is kept of a job that failed for good; 0: none
	Unique      Unique        // that no other job has its key
}

// An OpKind is the kind of a move.
type OpKind uint8

// The moves of a job.
const (
	OpClaim      OpKind = iota // Worker leases the job until Until, with Token
	OpRenew                    // Worker extends its lease to Until
	OpFinish                   // Worker ends the attempt with Status, Payload (the output) and Error, or puts the job off
	OpRelease                  // Worker returns the job to the queue; the delivery is not counted
	OpChunk                    // Worker adds Payload to the stream
	OpProgress                 // Worker replaces the interim output with Payload
	OpDrain                    // a reader got the chunks From to From+N of lease Token, Bytes in total
	OpCancel                   // the user ends the job
	OpPurge                    // the user ends the job if it is queued
	OpRetry                    // the user queues a failed job again
	OpSetTTL                   // the user sets Expires to Until
	OpTick                     // time has passed: end, requeue, make ready or delete what is due
	OpRecover                  // the server that ran the job is gone
	OpWorkerLost               // Worker is gone, and Error may say why: its lease ends now
	OpRedeliver                // the user has the webhook of an ended job sent again
	OpDamage                   // the stored input, webhook or Extra of a queued job can no longer be read
	OpStart                    // the user has a delayed job be ready now
	OpDelete                   // the user removes a job that has ended
	OpDropInput                // the endpoint of a job that has ended is gone, so nothing but a webhook needs its input
	OpNoResult                 // Worker says that it does not have the job, and it has reported no result: the delivery is counted
	OpReplace                  // the user submits Job in place of a queued job that holds its key
)

var opNames = [...]string{"claim", "renew", "finish", "release", "chunk", "progress", "drain", "cancel", "purge", "retry", "set-ttl", "tick", "recover", "worker-lost", "redeliver", "damage", "start", "delete", "drop-input", "no-result", "replace"}

// String returns the name of the move, such as worker-lost.
func (k OpKind) String() string {
	if int(k) < len(opNames) {
		return opNames[k]
	}
	return "OpKind(" + strconv.Itoa(int(k)) + ")"
}

// Durable reports whether the effect of the move must be on disk before the call returns. The
// other moves can be lost in a power failure; the job is then claimed or reported again.
func (k OpKind) Durable() bool {
	return k == OpFinish || k == OpCancel || k == OpPurge || k == OpRetry || k == OpSetTTL || k == OpRedeliver || k == OpDamage || k == OpStart || k == OpDelete || k == OpReplace
}

// An Op asks for one move of one job. It is plain data, so that a backend can merge ops into
// one commit, send them in one statement or replay them. Ref is the job's also where a backend
// has found the job in another way: the jitter of a delay is made from the id.
type Op struct {
	Ref
	Kind    OpKind
	Status  Status  // of OpFinish: Completed, Failed, Cancelled, or InQueue for a snooze until Ready
	Ready   Instant // of a snooze: when the job is ready again
	NoRetry bool    // of OpFinish with Failed: no other attempt follows
	// Hold is of OpFinish with another status than Failed: for how long no job of this key starts. See HoldUntil.
	Hold   time.Duration
	Worker WorkerID
	// Token is the fencing token. Zero with a Worker means the lease that this worker holds:
	// the worker protocol has no tokens, only job and worker ids.
	Token Token
	// Adopt gives the job back to Worker if Worker lost its lease and nobody has claimed the
	// job since, so that finished work is not thrown away.
	Adopt  bool
	Begins bool // of OpRenew: the run begins only now, because the worker had no room for it before
	// Untouched is of OpRelease: no worker has begun with the job, because it never got it or had no
	// room for it. The job keeps its place, however often that happens.
	Untouched bool
	Until     Instant
	Payload   []byte // owned by the queue from the call on
	Error     string
	From, N   uint32
	Bytes     int64
	Job       *Job // of OpReplace: its payloads, Flags and ExecTimeout; owned by the queue from the call on
}

// An Effect is a set of things that the backend must do in the same commit as the new State,
// and of events that it must send afterwards.
type Effect uint32

// The effects.
const (
	Put        Effect = 1 << iota // write State
	Delete                        // remove job, payloads and chunks; an outbox entry keeps its own
	NewSeq                        // give State a new Seq, which is the end of the queue
	PutOutput                     // store Op.Payload as the output and Op.Error as the error
	DropOutput                    // remove output, error and chunks
	PutInput                      // store the payloads of Op.Job in place of those that the job was submitted with, and the new Terms
	TakeKey                       // give the job its key (Terms.Unique), or refuse the move with a *TakenError
	DropInput                     // remove the input, also from the outbox entries of earlier runs
	AddChunk                      // store Op.Payload as chunk State.Chunks-1
	DropChunks                    // remove the chunks before State.Drained
	PutOutbox                     // add a webhook entry for (job, run), unless there is one
	PutDead                       // keep a dead letter of the job, instead of one with the same Ref
	DropDead                      // remove the dead letter of an earlier run, if there is one
	PutAttempt                    // add the result of State.EndedAttempt to the job's log of attempts
	GiveStart                     // give the start of the lease back to the buckets (Bucket.GiveBack): no worker has begun with the job
	PutLease                      // add the result of State.EndedLease to the job's log of leases
	HoldKey                       // start no job of the job's owner and key for a while (Op.HoldUntil), instead of what held it before; nothing if the job has no key
	Requeued                      // count in Stats.Retried: the job is queued again because a worker lost it or an attempt failed
	EvReady                       // send EventReady: a job of the endpoint can be claimed
	EvDone                        // send EventDone: the job has ended or is deleted
	EvStop                        // send EventStop: the worker that held the lease must stop the job
	EvChunk                       // send EventChunk: the job has a new chunk
)

// Errors of Apply and of queues.
var (
	ErrNotFound   = problem.New(problem.NotFound, "job not found")
	ErrLeaseLost  = problem.New(problem.Conflict, "the lease is no longer held")
	ErrStatus     = problem.New(problem.Conflict, "the job's status does not allow this")
	ErrExists     = problem.New(problem.Conflict, "job id is taken")
	ErrStreamFull = problem.New(problem.TooLarge, "the stream is full: too many of its bytes were not read")
	ErrInputLost  = problem.New(problem.Conflict, "the input of the job was damaged: it cannot be run again")
	ErrExpired    = problem.New(problem.Conflict, "the ttl of the job has passed: submit it again")
	ErrDamaged    = problem.New(problem.Unavailable, "the output of the job is damaged and can no longer be read")
)

// Apply makes one move. It is the whole state machine: it needs no clock and no
// configuration, and has an answer for every op in every state. If it returns an error, s is
// unchanged, but the backend must still carry out the effects: a job found past its ttl is
// deleted by any op.
//
// A memory or disk backend calls Apply under the lock of the job. A database backend calls it
// between reading the row for update and writing it.
func (s *State) Apply(now Instant, op *Op) (Effect, error) {
	if s.Gone(now) {
		return s.gone(op)
	}
	switch op.Kind {
	case OpClaim:
		return s.claim(now, op)
	case OpRenew, OpProgress, OpChunk, OpRelease, OpFinish, OpNoResult:
		return s.held(now, op)
	case OpDrain:
		return s.drain(op), nil
	case OpCancel:
		if s.Status.Terminal() {
			return 0, nil // the caller reads the status in Result.State
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
		return s.tick(now, op), nil
	case OpRecover:
		return s.recover(now), nil
	case OpWorkerLost:
		if s.Status != InProgress || s.Worker != op.Worker {
			return 0, ErrLeaseLost
		}
		return s.lose(now, op) | EvStop, nil
	case OpRedeliver:
		return s.redeliver()
	case OpDamage:
		return s.damage(now)
	case OpStart:
		return s.start(now)
	case OpReplace:
		return s.replace(op)
	case OpDelete:
		if !s.Status.Terminal() {
			return 0, ErrStatus
		}
		return Delete, nil
	case OpDropInput:
		if !s.Status.Terminal() || s.Flags&HasWebhook != 0 {
			return 0, ErrStatus
		}
		if s.InBytes == 0 {
			return 0, nil
		}
		return Put | s.dropInput(), nil
	}
	return 0, ErrStatus
}

// gone is the move of a job past its ttl or retention. The ttl is absolute: a job past it is
// deleted even while it runs, and its worker is stopped.
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
	if barred := s.Barred(); s.Status != InQueue || s.Delayed || barred != "" && barred == op.Worker {
		return 0, ErrStatus
	}
	s.Status, s.Worker, s.Token, s.LostStarted = InProgress, op.Worker, op.Token, 0
	s.Deliveries++
	s.Started, s.LeaseUntil, s.RunUntil = now, op.Until, now.Add(s.ExecTimeout)
	return Put, nil
}

// held is a move of the worker that holds the lease. An expired lease is lost, also before a
// tick, unless op.Adopt is set and nobody else has claimed the job.
func (s *State) held(now Instant, op *Op) (Effect, error) {
	mine := op.Token == 0 || op.Token == s.Token
	full := op.Kind == OpChunk && s.Stream+int64(len(op.Payload)) > MaxStream
	was := s.Status
	if op.Kind == OpFinish && !op.ends() {
		return 0, ErrStatus
	}
	switch {
	case s.Status == InProgress && s.Worker == op.Worker && mine && now < s.RunUntil && (now < s.LeaseUntil || op.Adopt):
	case s.Status == InQueue && op.Adopt && op.Worker != "" && s.Lost == op.Worker && mine && !full && s.takesLate(now, op):
		s.adopt(op)
	default:
		return 0, ErrLeaseLost
	}
	if full {
		return 0, ErrStreamFull
	}
	s.LeaseUntil = max(s.LeaseUntil, op.Until)
	switch op.Kind {
	case OpRenew:
		if op.Begins {
			s.Started, s.RunUntil = now, now.Add(s.ExecTimeout)
		}
	case OpChunk:
		if s.Chunks == 0 {
			s.FirstChunk = now
		}
		s.Chunks++
		s.Stream += int64(len(op.Payload))
		return Put | AddChunk | EvChunk, nil
	case OpProgress:
		return Put | s.putOutput(op), nil
	case OpRelease:
		return s.release(op, was), nil
	case OpNoResult:
		return s.lose(now, op), nil
	case OpFinish:
		return s.finish(now, op), nil
	}
	return Put, nil
}

// finish ends the attempt with the result of its worker. The output and the error of an
// attempt that is followed by another one are not stored.
func (s *State) finish(now Instant, op *Op) Effect {
	hold := Effect(0)
	if op.Hold > 0 {
		hold = HoldKey
	}
	switch op.Status {
	case Completed:
		return s.end(now, Completed) | s.putOutput(op) | hold
	case Cancelled: // the worker need not be told to stop
		return s.end(now, Cancelled)&^EvStop | hold
	case InQueue:
		return s.snooze(now, op) | hold
	case InProgress, Failed, TimedOut:
	}
	e := s.fail(now, Failed, op)
	if s.Status.Terminal() {
		e |= s.putOutput(op)
	}
	return e
}

// snooze queues the job again, ready at op.Ready. That spends no attempt and no delivery. A job that
// would not be ready before its ttl, or was put off too often, has failed.
func (s *State) snooze(now Instant, op *Op) Effect {
	if op.Ready >= s.Expires || s.Snoozes >= MaxSnoozes {
		s.Reason = SnoozedTooLong
		return s.end(now, Failed)
	}
	s.Snoozes++
	s.Deliveries--
	s.Lost, s.LostStarted, s.Returned = "", 0, false // who reports late is too late
	s.Queued, s.Delayed = op.Ready, op.Ready > now
	e := s.requeue()
	if s.Delayed {
		return e &^ EvReady
	}
	return e | NewSeq
}

// ends reports whether OpFinish may have this status.
func (op *Op) ends() bool {
	return op.Status == Completed || op.Status == Failed || op.Status == Cancelled || op.Status == InQueue && op.Ready > 0
}

func (s *State) putOutput(op *Op) Effect {
	s.OutBytes = size(len(op.Payload) + len(op.Error))
	return PutOutput
}

func (s *State) dropInput() Effect {
	s.InBytes = 0
	return DropInput
}

// release returns the job to the queue. The delivery is not counted, because the worker is not at
// fault: usually its server ends. From the MaxReleases-th time on the job goes to the end of its
// turn. Otherwise a job that takes longer than its server runs between two restarts would keep all
// jobs behind it from ever running. A job that is untouched keeps nobody from running, and is not
// counted. Its start is given back with the lease that it began, and not again by a release that comes late,
// when the job waits already.
func (s *State) release(op *Op, was Status) Effect {
	s.Deliveries--
	s.keepLoser()
	s.Returned = true
	e := s.requeue()
	switch {
	case op.Untouched && was == InProgress:
		return e | GiveStart
	case op.Untouched:
		return e
	}
	if s.Releases = min(s.Releases+1, MostReleases); s.Releases >= MaxReleases {
		e |= NewSeq
	}
	return e
}

// keepLoser remembers who loses the lease, so that its late result can be taken. A result that
// comes after chunks is not taken late: the chunks are dropped with the lease, and the stream
// would not be whole without them.
func (s *State) keepLoser() {
	s.Lost, s.LostStarted, s.Returned = s.Worker, s.Started, false
	if s.Chunks > 0 {
		s.LostStarted = 0
	}
}

// takesLate reports whether Lost, which has no lease any more, may report op. It may go on with the
// job only until its execution timeout, which counts from the start of its work; a result is taken
// later, too.
//
// A renewal of a lease that was given back may have begun before that. It takes nothing back, unless it is by a
// worker of elsewhere, which names no lease: a server that ends gives back what such workers go on with.
func (s *State) takesLate(now Instant, op *Op) bool {
	if s.Returned && op.Kind == OpRenew && op.Token != 0 {
		return false
	}
	return s.LostStarted != 0 && (op.Kind == OpFinish || now < s.LostStarted.Add(s.ExecTimeout))
}

// adopt gives a queued job back to the worker that lost it and kept working. The times are those of
// the lease that it had. If that delivery was not counted, it is counted now.
func (s *State) adopt(op *Op) {
	s.Started, s.RunUntil, s.LeaseUntil = s.LostStarted, s.LostStarted.Add(s.ExecTimeout), op.Until
	if s.Returned {
		s.Deliveries++
	}
	s.Status, s.Worker = InProgress, op.Worker
	s.Lost, s.LostStarted, s.Returned = "", 0, false
}

// drain moves the cursor of the stream. It does nothing if another reader has moved the
// cursor, or if the chunks that were read came from an earlier lease.
func (s *State) drain(op *Op) Effect {
	if op.From != s.Drained || op.N == 0 || op.N > s.Chunks-s.Drained || op.Token != s.Token {
		return 0
	}
	s.Drained += op.N
	s.Stream -= op.Bytes
	s.Read = s.Retry.Attempts > 1
	return Put | DropChunks
}

// requeue puts the job back at the front: it keeps its Seq, which is lower than those of
// later jobs. A caller that adds NewSeq puts it at the end instead. It drops everything that the run produced, because the next run starts over.
func (s *State) requeue() Effect {
	e := Put | DropOutput | EvReady
	if s.Started != 0 {
		s.countLease()
		e |= PutLease
	}
	s.Status, s.Worker = InQueue, ""
	s.Started, s.LeaseUntil, s.RunUntil, s.FirstChunk = 0, 0, 0, 0
	s.Chunks, s.Drained, s.Stream, s.OutBytes = 0, 0, 0, 0
	return e
}

func (s *State) retry(now Instant) (Effect, error) {
	if s.Status != Failed && s.Status != TimedOut {
		return 0, ErrStatus
	}
	if s.Reason == Damaged || s.InBytes == 0 {
		return 0, ErrInputLost
	}
	if s.Expires <= now { // it would be deleted at once, and its result with it
		return 0, ErrExpired
	}
	s.Run++
	s.Deliveries, s.Restarts, s.Releases, s.Reason = 0, 0, 0, NoReason
	s.Lost, s.LostStarted, s.Returned = "", 0, false
	s.Attempt, s.Read, s.Snoozes = 0, false, 0
	s.Queued, s.Finished = now, 0
	e := s.requeue() | NewSeq
	if s.HoldsKey(now) {
		e |= TakeKey
	}
	return e, nil
}

// start makes a delayed job ready, at the end of the queue.
func (s *State) start(now Instant) (Effect, error) {
	if s.Status != InQueue || !s.Delayed {
		return 0, ErrStatus
	}
	s.Delayed, s.Queued = false, now
	return Put | NewSeq | EvReady, nil
}

// redeliver creates the outbox entry again, with the delivery id of the run.
func (s *State) redeliver() (Effect, error) {
	if !s.Status.Terminal() || s.Flags&HasWebhook == 0 {
		return 0, ErrStatus
	}
	return PutOutbox, nil
}

// damage ends a queued job that cannot be given to a worker. A running job goes on, because
// its worker has the input.
func (s *State) damage(now Instant) (Effect, error) {
	if s.Status != InQueue {
		return 0, ErrStatus
	}
	s.Reason = Damaged
	return s.end(now, Failed), nil
}

func (s *State) tick(now Instant, op *Op) Effect {
	switch {
	case s.Delayed && s.Queued <= now:
		s.Delayed = false
		return Put | NewSeq | EvReady // at the end of the queue, where it has not waited yet
	case s.Barred() != "" && s.LeaseUntil <= now:
		s.LeaseUntil = 0
		return Put | EvReady // the worker that has lost it may wait for a job
	case s.Status != InProgress:
		return 0
	case s.RunUntil <= now:
		s.Reason = ExecutionTimedOut
		return s.fail(now, TimedOut, op)
	case s.LeaseUntil <= now:
		return s.lose(now, op) | EvStop
	}
	return 0
}

// lose takes the job from a worker that has reported no result. The job is queued again. If the
// worker was lost, it is for a while only for other workers; with OpNoResult the worker is there, and
// may have it at once. After MaxDeliveries losses the attempt has failed.
func (s *State) lose(now Instant, op *Op) Effect {
	if s.Deliveries >= MaxDeliveries {
		s.Reason = WorkersLost
		e := s.fail(now, Failed, op)
		if s.Status.Terminal() && op.Error != "" {
			e |= s.putOutput(op)
		}
		return e
	}
	s.keepLoser()
	e := s.requeue() | Requeued
	if op.Kind != OpNoResult {
		s.LeaseUntil = now.Add(LoserWait)
	}
	return e
}

// recover queues a job again whose server is gone. The delivery is not counted, because the
// worker is not at fault. A job that was running at MaxRestarts crashes fails, because it is
// probably their cause.
func (s *State) recover(now Instant) Effect {
	if s.Status != InProgress {
		return 0
	}
	s.Restarts++
	if s.Restarts >= MaxRestarts {
		s.Reason = TooManyRestarts
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
	if s.DeadLetter > 0 && (st == Failed || st == TimedOut) {
		e |= PutDead
	}
	if s.DeadLetter > 0 && s.Run > 0 && st == Completed { // nobody is to do the work again
		e |= DropDead
	}
	s.Status, s.Finished, s.Delayed, s.LostStarted, s.Snoozes = st, now, false, 0, 0
	if !s.needsInput() { // a cancelled job cannot be retried
		e |= s.dropInput()
	}
	return e
}
