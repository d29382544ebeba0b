package disk

import (
	"context"

	"github.com/podyard/podyard/internal/jobindex"
	"github.com/podyard/podyard/serverless"
)

// Claim implements serverless.JobQueue.
func (q *Jobs) Claim(ctx context.Context, now serverless.Instant, slots []serverless.Slot, out []serverless.Job) ([]serverless.Job, error) {
	e, err := q.s.admitJobs(ctx, underWay, 0)
	if err != nil {
		return out, err
	}
	out, evs, err := e.jobs.claim(now, slots, out)
	if len(evs) > 0 && q.s.jobHub.watched() {
		q.s.jobHub.tell(evs)
	}
	return out, err
}

// claim picks jobs, reads what their workers need, and commits the leases. A job whose
// payloads cannot be read is given to nobody.
func (q *queue) claim(now serverless.Instant, slots []serverless.Slot, out []serverless.Job) ([]serverless.Job, []serverless.Event, error) {
	ms, ops := q.pick(now, slots)
	if len(ms) == 0 {
		return out, nil, nil
	}
	jobs := make([]serverless.Job, 0, len(ms))
	keep := ms[:0]
	for k := range ms {
		m := &ms[k]
		m.op = &ops[k]
		if m.err == nil {
			j := serverless.Job{Ref: m.ref, Owner: m.owner, State: m.after}
			if err := q.e.payloads(&j, m.note, m.marks); err != nil {
				if cause := q.e.err(); cause != nil {
					return out, nil, cause
				}
				q.e.s.opts.Logger.Error("a job cannot be read", "endpoint", m.ref.Endpoint, "job", m.ref.ID, "err", err)
				q.leave(m.i)
				continue
			}
			jobs = append(jobs, j)
		}
		keep = append(keep, *m)
	}
	if err := q.commit(keep); err != nil {
		return out, nil, err
	}
	var evs []serverless.Event
	for k := range keep {
		if keep[k].err != nil { // past its ttl: it is deleted now, and that is to be told
			evs = keep[k].eff.Events(evs, keep[k].ref, keep[k].before.Worker)
		}
	}
	return append(out, jobs...), evs, nil
}

// leave ends a move that is not made. A job whose payloads are damaged stays out of its
// line until the store is opened again.
func (q *queue) leave(i uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.x.Mark(i, 0, jobindex.Busy|jobindex.Passed)
	q.rest(i)
}

// pick begins a claim of what is ready for each slot. A job that is busy is put back when
// it is at rest, if it is queued then.
func (q *queue) pick(now serverless.Instant, slots []serverless.Slot) (ms []move, ops []serverless.Op) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for k := range slots {
		s := &slots[k]
		var kept []uint32
		for n := s.N; n > 0; {
			i := q.x.NextReady(s.Endpoint)
			if i == 0 {
				break
			}
			if q.x.Has(i, jobindex.Busy) {
				q.x.Mark(i, jobindex.Passed, 0)
				continue
			}
			if q.x.LostBy(i, s.Worker) {
				kept = append(kept, i)
				continue
			}
			op := serverless.Op{Kind: serverless.OpClaim, Worker: s.Worker, Token: q.token + 1, Until: s.Until}
			m := q.begin(now, i, &op)
			if m.err == nil {
				q.token++
				n--
			}
			if m.eff != 0 {
				ms, ops = append(ms, m), append(ops, op)
			}
		}
		for _, i := range kept {
			q.x.PutBack(i)
		}
	}
	return ms, ops
}

// payloads reads what a worker or a reader gets of a job.
func (e *engine) payloads(j *serverless.Job, n jobindex.Note, marks jobindex.Marks) (err error) {
	if j.Input, err = e.mustGet(bodyKey(n.Tag, bodyInput)); err != nil {
		return err
	}
	if len(j.Input) == 0 {
		j.Input = nil
	}
	if hasOutput(n.Output) {
		key := outputKey(n.Tag, n.Output)
		v, err := e.mustGet(key)
		if err != nil {
			return err
		}
		if j.Output, j.Error, err = decodeOutput(key, v); err != nil {
			return err
		}
	}
	if marks&jobindex.Extras == 0 {
		return nil
	}
	key := bodyKey(n.Tag, bodyExtras)
	v, err := e.mustGet(key)
	if err != nil {
		return err
	}
	return decodeExtras(e.seals, key, v, j)
}

// mustGet is get where nothing is damage.
func (e *engine) mustGet(key []byte) ([]byte, error) {
	v, ok, err := e.get(key)
	if err == nil && !ok {
		err = damaged(key)
	}
	return v, err
}
