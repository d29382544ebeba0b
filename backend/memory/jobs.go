package memory

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/podyard/podyard/internal/jobindex"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
)

// Jobs is a queue.JobQueue in memory. It keeps the payload slices that it gets, and loses
// everything when the process ends. Create one with NewJobs. It is safe for concurrent use.
//
// One mutex guards it. A move takes a few hundred nanoseconds, and the work under the mutex
// does not grow with the number of jobs.
type Jobs struct {
	keyed
	mu     sync.Mutex
	x      *jobindex.Index
	bodies bodies
	extras map[uint32]*extra // by job
	outbox outbox
	dead   jobindex.DeadLetters[queue.DeadLetter]
	seq    uint64
	token  queue.Token
	due    []uint32            // of Expire, used again
	report func([]queue.Moved) // may be nil

	limits   atomic.Pointer[budget.Set]
	watchMu  sync.Mutex // guards changes of watchers
	watchers atomic.Pointer[[]*watcher]
}

var _ queue.JobQueue = (*Jobs)(nil)

// NewJobs returns an empty queue.
func NewJobs() *Jobs {
	q := &Jobs{x: jobindex.New(), extras: map[uint32]*extra{}, token: 1 << 32}
	q.outbox.entries = map[entryKey]*entry{}
	q.dead.Count = q.x.HoldDead
	q.watchers.Store(&[]*watcher{})
	return q
}

// Len returns the number of jobs of any status.
func (q *Jobs) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.x.Len()
}

// Enqueue implements queue.JobQueue.
func (q *Jobs) Enqueue(_ context.Context, jobs []queue.Job) error {
	if err := q.enqueueKeyed(jobs); err != nil {
		return err
	}
	if !q.watched() {
		return nil
	}
	q.notify(queue.ReadyEvents(jobs))
	return nil
}

// enqueueKeyed is enqueue with the records of Idempotency-Keys, if the jobs have any.
func (q *Jobs) enqueueKeyed(jobs []queue.Job) error {
	keys := queue.Creations(jobs)
	if len(keys) == 0 {
		return q.enqueue(jobs)
	}
	return q.addKeyed(func() error { return q.enqueue(jobs) }, keys...)
}

func (q *Jobs) enqueue(jobs []queue.Job) error {
	for i := range jobs {
		if err := jobs[i].Check(); err != nil {
			return err
		}
	}
	var one [1]uint32
	recs := one[:0]
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range jobs {
		rec, ok := q.x.Add(jobs[i].Ref, jobs[i].Owner, jobs[i].Key, jobs[i].Priority)
		if !ok {
			for _, rec := range recs {
				q.x.Discard(rec)
			}
			return queue.ErrExists
		}
		q.x.Size(rec, &jobs[i].State)
		recs = append(recs, rec)
	}
	err := q.x.CheckKeys(jobs)
	if err == nil {
		err = q.admit(recs, jobs)
	}
	if err != nil {
		for _, rec := range recs {
			q.x.Discard(rec)
		}
		return err
	}
	q.x.TakeKeys(recs, jobs)
	for i, rec := range recs {
		q.publish(rec, &jobs[i])
	}
	return nil
}

// publish makes an added job visible.
func (q *Jobs) publish(i uint32, j *queue.Job) {
	q.seq++
	j.Seq = q.seq
	*q.bodies.put(i) = body{input: j.Input, output: j.Output}
	if j.Webhook != "" || j.Extra != nil || j.Trace != (queue.Trace{}) {
		q.extras[i] = &extra{webhook: j.Webhook, workerExtra: j.Extra, trace: j.Trace}
	}
	q.x.Show(i, &j.State)
}

// job returns a job with its payloads.
func (q *Jobs) job(i uint32) queue.Job {
	var j queue.Job
	q.x.Read(i, &j.State)
	q.fill(&j, i)
	return j
}

// fill sets all of j but its state.
func (q *Jobs) fill(j *queue.Job, i uint32) {
	b := q.bodies.at(i)
	j.Ref, j.Owner, j.Key = q.x.Identity(i)
	j.Input, j.Output, j.Creation = b.input, b.output, nil
	x := q.extras[i]
	if x == nil {
		j.Webhook, j.Extra, j.Trace, j.Error = "", nil, queue.Trace{}, ""
		return
	}
	j.Webhook, j.Extra, j.Trace, j.Error = x.webhook, x.workerExtra, x.trace, x.err
}

func (q *Jobs) extra(i uint32) *extra {
	x := q.extras[i]
	if x == nil {
		x = &extra{}
		q.extras[i] = x
	}
	return x
}

// Apply implements queue.JobQueue.
func (q *Jobs) Apply(_ context.Context, now queue.Instant, ops []queue.Op, res []queue.Result) error {
	var evs []queue.Event
	q.mu.Lock()
	for i := range ops {
		rec := q.x.Find(ops[i].Ref)
		if rec == 0 {
			res[i] = queue.Result{Err: queue.ErrNotFound}
			continue
		}
		r := &res[i]
		r.Effect, evs, r.Err = q.move(now, rec, &ops[i], &r.State, evs)
	}
	q.mu.Unlock()
	q.notify(evs)
	return nil
}

// eventEffects are the effects that produce events.
const eventEffects = queue.EvReady | queue.EvDone | queue.EvStop | queue.EvChunk

// move applies one op to a job, sets s to the state after it, and appends the events of the move.
// It makes no events if nobody watches: a watcher that starts later reads the job as the move left
// it.
func (q *Jobs) move(now queue.Instant, i uint32, op *queue.Op, s *queue.State, evs []queue.Event) (queue.Effect, []queue.Event, error) {
	q.x.Tell(now)
	q.x.Read(i, s)
	worker := s.Worker
	eff, err := s.Apply(now, op)
	if err == nil && op.Adds() {
		if err := q.fits(i, s, eff, op); err != nil {
			return 0, evs, err
		}
	}
	if err == nil && eff&queue.TakeKey != 0 {
		if err := q.x.TakeKey(i, now); err != nil {
			q.x.Read(i, s)
			return 0, evs, err
		}
	}
	if eff&eventEffects != 0 && q.watched() {
		ref := op.Ref
		if ref.ID == "" {
			ref = q.x.Ref(i)
		}
		evs = eff.Events(evs, ref, worker)
	}
	if eff != 0 {
		q.applyEffect(now, i, s, eff, op)
	}
	return eff, evs, err
}

// applyEffect carries out the effects of a move.
func (q *Jobs) applyEffect(now queue.Instant, i uint32, s *queue.State, eff queue.Effect, op *queue.Op) {
	if eff&queue.Delete != 0 {
		q.x.Commit(i, s, eff)
		q.bodies.drop(i)
		delete(q.extras, i)
		return
	}
	if eff&queue.NewSeq != 0 {
		q.seq++
		s.Seq = q.seq
	}
	if eff&queue.PutAttempt != 0 {
		x, before := q.extra(i), q.x.State(i)
		x.tries = append(x.tries[:min(int(before.Attempt), len(x.tries))], before.EndedAttempt(now, s, op))
	}
	if eff&queue.PutLease != 0 {
		q.putLease(now, i, s, op)
	}
	q.payloads(i, eff, op)
	if eff&queue.DropInput != 0 {
		q.outbox.dropInput(q.x.Ref(i), s)
	}
	q.x.Commit(i, s, eff)
	if eff&queue.HoldKey != 0 {
		q.x.HoldKey(i, op.HoldUntil(now), jobindex.HoldTag{})
	}
	if eff&queue.PutOutbox != 0 {
		q.addDelivery(q.job(i), now)
	}
	if eff&queue.DropDead != 0 {
		q.dead.Remove(q.x.Ref(i))
	}
	if eff&queue.PutDead != 0 {
		j := q.job(i)
		q.dead.Put(j.Ref, j.Owner, s.Kept(), j.Bytes(), queue.DeadLetter{Job: j, Until: s.Kept()})
	}
}

// putLease adds the lease that a move has ended to the log of the job.
func (q *Jobs) putLease(now queue.Instant, i uint32, s *queue.State, op *queue.Op) {
	x, before := q.extra(i), q.x.State(i)
	if len(x.leases) == queue.MaxLeases {
		x.leases = slices.Delete(x.leases, 0, 1)
	}
	x.leases = append(x.leases, before.EndedLease(now, s, op))
}

// payloads stores and removes payloads as the effects say.
func (q *Jobs) payloads(i uint32, eff queue.Effect, op *queue.Op) {
	if eff&queue.PutInput != 0 {
		q.bodies.at(i).input = op.Job.Input
		x := q.extra(i)
		x.webhook, x.workerExtra, x.trace = op.Job.Webhook, op.Job.Extra, op.Job.Trace
	}
	if eff&queue.DropOutput != 0 {
		q.bodies.at(i).output = nil
		if x := q.extras[i]; x != nil {
			x.err, x.chunks = "", nil
		}
	}
	if eff&queue.DropInput != 0 {
		q.bodies.at(i).input = nil
	}
	if eff&queue.PutOutput != 0 {
		q.bodies.at(i).output = op.Payload
		if op.Error != "" {
			q.extra(i).err = op.Error
		}
	}
	if eff&queue.AddChunk != 0 {
		x := q.extra(i)
		x.chunks = append(x.chunks, op.Payload)
	}
	if eff&queue.DropChunks != 0 {
		x := q.extra(i)
		clear(x.chunks[:op.N])
		x.chunks = x.chunks[op.N:]
	}
}
