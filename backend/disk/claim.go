package disk

import (
	"context"
	"errors"
	"slices"

	"github.com/podyard/podyard/internal/jobindex"
	"github.com/podyard/podyard/serverless/queue"
)

// Claim implements serverless.JobQueue.
func (q *Jobs) Claim(ctx context.Context, now queue.Instant, slots []queue.Slot, out []queue.Job) ([]queue.Job, error) {
	e, err := q.s.admitJobs(ctx, underWay, 0)
	if err != nil {
		return out, err
	}
	out, evs, err := e.jobs.claim(now, slots, out)
	if len(evs) > 0 && q.s.jobHub.Watched() {
		q.s.jobHub.Notify(evs)
	}
	return out, err
}

// claim picks jobs, reads what their workers need, and commits the leases. If the data of a
// job cannot be read, it picks another job.
func (q *jobQueue) claim(now queue.Instant, slots []queue.Slot, out []queue.Job) ([]queue.Job, []queue.Event, error) {
	c := claiming{q: q, now: now, slots: slots, jobs: out}
	for again := true; again; {
		var err error
		if again, err = c.round(); err != nil {
			return out, nil, err
		}
	}
	q.putBack(c.later)
	if len(c.jobs) > len(out) {
		c.cause = nil
	}
	return c.jobs, c.events, c.cause
}

// A claiming is the state of one call of claim.
type claiming struct {
	q      *jobQueue
	now    queue.Instant
	slots  []queue.Slot // with N reduced to what is still empty
	jobs   []queue.Job
	events []queue.Event
	later  []uint32 // jobs that could not be read now, but perhaps later
	cause  error    // the reason for later
}

// round claims a job for each slot. It returns true if slots are still empty because a job
// could not be read.
func (c *claiming) round() (again bool, err error) {
	ms, ops := c.q.pick(c.now, c.slots)
	if len(ms) == 0 {
		return false, nil
	}
	jobs, keep := c.jobs, ms[:0] // beyond c.jobs, which the commit extends
	for k := range ms {
		m := &ms[k]
		m.op = &ops[k]
		if m.err == nil {
			j := queue.Job{Ref: m.ref, Owner: m.owner, Key: m.key, State: m.after}
			err := c.q.readForWorker(&j, m)
			if ended := c.q.e.err(); err != nil && ended != nil {
				return false, ended
			}
			if err != nil && !again { // the next round fills only the slots of unreadable jobs
				c.slots, again = emptySlots(c.slots), true
			}
			if err == nil {
				jobs = append(jobs, j)
			} else if c.unreadable(m, err) {
				continue
			}
		}
		keep = append(keep, *m)
	}
	return again, c.commit(keep, jobs)
}

// unreadable frees the slot of a job that cannot be read. A damaged job ends. Any other job
// stays in the queue, and later is true.
func (c *claiming) unreadable(m *move, err error) (later bool) {
	c.slots[m.slot].N++
	if errors.Is(err, ErrDamaged) {
		c.q.e.s.damages.Add(1)
		m.damage()
		return false
	}
	c.later, c.cause = append(c.later, m.i), err
	return true
}

// commit writes the leases and the ends of damaged jobs. It syncs them if a job has ended.
func (c *claiming) commit(ms []move, jobs []queue.Job) error {
	if err := c.q.coverTokens(); err != nil {
		return err
	}
	if err := c.q.commit(ms); err != nil {
		return err
	}
	for k := range ms {
		if m := &ms[k]; m.op.Kind != queue.OpClaim || m.err != nil { // the job has ended
			c.events = m.eff.Events(c.events, m.ref, m.before.Worker)
			c.q.e.s.reportMoves(ms[k : k+1])
		}
	}
	c.jobs = jobs
	return nil
}

// emptySlots returns a copy of slots in which every N is 0.
func emptySlots(slots []queue.Slot) []queue.Slot {
	slots = slices.Clone(slots)
	for k := range slots {
		slots[k].N = 0
	}
	return slots
}

// readForWorker reads the data of a job for its worker. It reads damaged data a second time,
// because damage ends the job.
func (q *jobQueue) readForWorker(j *queue.Job, m *move) error {
	if m.unwritten != nil {
		m.unwritten.fill(j)
		return nil
	}
	err := q.e.payloads(j, m.note, m.marks)
	if errors.Is(err, ErrDamaged) {
		err = q.e.payloads(j, m.note, m.marks)
	}
	if err != nil && q.e.err() == nil {
		q.e.s.opts.Logger.Error("a job cannot be read, and is given to nobody", "endpoint", m.ref.Endpoint, "job", m.ref.ID, "err", err)
	}
	return err
}

// damage replaces the claim of a job by its end as damaged.
func (m *move) damage() {
	m.op = &queue.Op{Ref: m.ref, Kind: queue.OpDamage}
	m.after = m.before
	m.eff, m.err = m.after.Apply(m.now, m.op)
}

// putBack cancels moves and puts their jobs back at the front of the queue.
func (q *jobQueue) putBack(list []uint32) {
	if len(list) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, i := range list {
		q.x.Mark(i, 0, jobindex.Busy|jobindex.Skipped)
		q.x.Requeue(i)
		q.endMove(i)
	}
}

// pick begins claims of ready jobs for each slot. A busy job that was skipped returns to the
// queue after its move, if it is still queued.
func (q *jobQueue) pick(now queue.Instant, slots []queue.Slot) (ms []move, ops []queue.Op) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for k := range slots {
		s := &slots[k]
		for n, bytes := 0, 0; !s.Full(n, bytes); {
			i := q.x.NextReady(now, s)
			if i == 0 {
				break
			}
			op := queue.Op{Kind: queue.OpClaim, Worker: s.Worker, Token: q.token + 1, Until: s.Until}
			m := q.begin(now, i, &op)
			m.slot = k
			if m.err == nil {
				q.token++
				n, bytes = n+1, bytes+int(m.after.InBytes)
			}
			if m.eff != 0 {
				ms, ops = append(ms, m), append(ops, op)
			}
		}
	}
	return ms, ops
}

// payloads reads the payloads of a job for a worker or a reader. If one is missing or damaged,
// the error wraps ErrDamaged.
func (e *engine) payloads(j *queue.Job, n jobindex.Metadata, marks jobindex.Marks) error {
	if err := e.submitted(j, n, marks); err != nil {
		return err
	}
	return e.readOutput(j, n)
}

// readablePayloads is payloads for a job that no worker will get any more. It leaves out
// damaged data of the submission. A damaged output is still an error, because without it the
// result would be wrong.
func (e *engine) readablePayloads(j *queue.Job, n jobindex.Metadata, marks jobindex.Marks) error {
	if err := e.submitted(j, n, marks); err != nil {
		if !errors.Is(err, ErrDamaged) {
			return err
		}
		e.s.opts.Logger.Error("a job is read without what is damaged of it", "endpoint", j.Endpoint, "job", j.ID, "err", err)
	}
	return e.readOutput(j, n)
}

// submitted reads the data that a job was submitted with, as far as it is readable.
func (e *engine) submitted(j *queue.Job, n jobindex.Metadata, marks jobindex.Marks) (err error) {
	if j.HasInput() {
		j.Input, err = e.mustGet(bodyKey(n.Tag, bodyInput))
	} else if j.Reason != queue.Damaged && j.InBytes > 0 { // earlier versions have kept it
		j.Input, _, err = e.get(bodyKey(n.Tag, bodyInput))
	}
	if len(j.Input) == 0 {
		j.Input = nil
	}
	xerr := e.extras(j, n, marks)
	if err == nil || !errors.Is(xerr, ErrDamaged) && xerr != nil {
		err = xerr
	}
	return err
}

// extras reads what a job was submitted with besides its input: webhook, trace, Extra.
func (e *engine) extras(j *queue.Job, n jobindex.Metadata, marks jobindex.Marks) error {
	if marks&jobindex.HasExtra == 0 {
		return nil
	}
	key := bodyKey(n.Tag, bodyExtras)
	v, err := e.mustGet(key)
	if err != nil {
		return err
	}
	return decodeExtras(e.seals, key, v, j)
}

func (e *engine) readOutput(j *queue.Job, n jobindex.Metadata) error {
	if !hasOutput(n.Output) {
		return nil
	}
	key := outputKey(n.Tag, n.Output)
	v, err := e.mustGet(key)
	if err != nil {
		return err
	}
	j.Output, j.Error, err = decodeOutput(key, v)
	return err
}

// mustGet is get, but a missing record counts as damaged.
func (e *engine) mustGet(key []byte) ([]byte, error) {
	v, ok, err := e.get(key)
	if err == nil && !ok {
		err = damaged(key)
	}
	return v, err
}
