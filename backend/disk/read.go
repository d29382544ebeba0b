package disk

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/podyard/podyard/internal/jobindex"
	"github.com/podyard/podyard/serverless/queue"
)

// A view is the state of a job in the index at one instant.
type view struct {
	i     uint32
	job   queue.Job // without payloads
	note  jobindex.Metadata
	marks jobindex.Marks
	tail  tail
}

// lookup returns the visible state of a job. ok is false if there is no such job.
func (q *jobQueue) lookup(now queue.Instant, ref queue.Ref) (v view, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.x.Find(ref)
	if i == 0 || q.x.Has(i, jobindex.Hidden) {
		return v, false
	}
	v = q.view(i)
	v.tail = q.tails.view(i)
	return v, !v.job.Gone(now)
}

func (q *jobQueue) view(i uint32) view {
	v := view{i: i, note: q.x.Metadata(i), job: q.x.Job(i)}
	if q.x.Has(i, jobindex.HasExtra) {
		v.marks = jobindex.HasExtra
	}
	return v
}

// read calls fn with the job, and repeats it if the job moved meanwhile, because data on disk
// may then not match the view. If the job did not move, missing data is damage. A damaged
// queued job ends. For another job, fn is called again with legible set, and must then leave
// out damaged data.
func (q *jobQueue) read(ctx context.Context, now queue.Instant, ref queue.Ref, fn func(v *view, legible bool) error) error {
	for damages := 0; ; {
		v, ok := q.lookup(now, ref)
		if !ok {
			return q.e.missing(keyJob, queue.ErrNotFound)
		}
		if v.job.Unshown() {
			if err := q.cover(ctx, []queue.Job{v.job}); err != nil {
				return err
			}
		}
		queued := v.job.Status == queue.InQueue
		err := fn(&v, damages > 0 && !queued)
		if damages == 0 && err == nil || err != nil && !errors.Is(err, ErrDamaged) {
			return err
		}
		if same, werr := q.settled(ctx, ref, &v); werr != nil {
			return werr
		} else if !same {
			damages = 0
			continue
		}
		switch damages++; {
		case err == nil, damages > 1 && !queued:
			return err
		case damages > 1: // it was read twice
			if err := q.damage(ctx, now, ref, err); err != nil {
				return err
			}
		}
	}
}

// damage ends a queued job that cannot be read, unless it has moved.
func (q *jobQueue) damage(ctx context.Context, now queue.Instant, ref queue.Ref, err error) error {
	q.e.s.opts.Logger.Error("a job cannot be read, and ends", "endpoint", ref.Endpoint, "job", ref.ID, "err", err)
	q.e.s.damages.Add(1)
	ops, res := []queue.Op{{Ref: ref, Kind: queue.OpDamage}}, make([]queue.Result, 1)
	evs, err := q.apply(ctx, now, ops, res)
	q.e.s.reportResults(ops, res)
	if len(evs) > 0 && q.e.s.jobHub.Watched() {
		q.e.s.jobHub.Notify(evs)
	}
	return err
}

// settled waits until the job is not busy, and reports whether it is still as v shows it.
func (q *jobQueue) settled(ctx context.Context, ref queue.Ref, v *view) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	busy := q.x.Find(ref) == v.i && q.x.Has(v.i, jobindex.Busy)
	i, err := q.find(ctx, ref)
	if err != nil {
		return false, err
	}
	return !busy && i == v.i && q.x.Metadata(i) == v.note && q.x.State(i) == v.job.State, nil
}

// Get implements serverless.JobQueue.
func (q *Jobs) Get(ctx context.Context, now queue.Instant, ref queue.Ref) (j queue.Job, err error) {
	e, err := q.s.engine()
	if err != nil {
		return j, err
	}
	err = e.jobs.read(ctx, now, ref, func(v *view, legible bool) error {
		if j = v.job; legible {
			return e.readablePayloads(&j, v.note, v.marks)
		}
		return e.payloads(&j, v.note, v.marks)
	})
	switch {
	case errors.Is(err, ErrDamaged):
		return j, fmt.Errorf("%w: %w", queue.ErrDamaged, err)
	case err != nil:
		return queue.Job{}, err
	}
	return j, nil
}

// Chunks implements serverless.JobQueue.
func (q *Jobs) Chunks(ctx context.Context, now queue.Instant, ref queue.Ref, maxBytes int) (chunks [][]byte, s queue.State, err error) {
	e, err := q.s.engine()
	if err != nil {
		return nil, s, err
	}
	err = e.jobs.read(ctx, now, ref, func(v *view, _ bool) (err error) {
		s = v.job.State
		chunks, err = e.chunks(v, maxBytes)
		return err
	})
	if errors.Is(err, ErrDamaged) {
		err = fmt.Errorf("%w: %w", queue.ErrDamaged, err)
	}
	if err != nil {
		return nil, queue.State{}, err
	}
	return chunks, s, nil
}

func (e *engine) chunks(v *view, maxBytes int) (chunks [][]byte, err error) {
	size := 0
	for n := v.job.Drained; n < v.job.State.Chunks; n++ {
		c, err := e.chunk(v, n)
		if len(chunks) > 0 && errors.Is(err, ErrDamaged) {
			break // return these; the damaged chunk follows
		}
		if err != nil {
			return nil, err
		}
		if size += len(c); size > maxBytes && len(chunks) > 0 {
			break
		}
		chunks = append(chunks, c)
	}
	return chunks, nil
}

func (e *engine) chunk(v *view, n uint32) ([]byte, error) {
	if c := v.tail.at(n); c != nil {
		return c, nil
	}
	return e.mustGet(chunkKey(v.note.Tag, v.note.Chunk, n))
}

// Stats implements serverless.JobQueue.
func (q *Jobs) Stats(_ context.Context, now queue.Instant, endpoint string, rules *queue.Rules) (queue.Stats, error) {
	e, err := q.s.engine()
	if err != nil {
		return queue.Stats{}, err
	}
	e.jobs.mu.Lock()
	defer e.jobs.mu.Unlock()
	return e.jobs.x.Stats(endpoint, rules, now), nil
}

// HeldBy implements queue.RateHolder.
func (q *Jobs) HeldBy(_ context.Context, now queue.Instant, endpoint, owner, key string, rules *queue.Rules) (queue.Held, error) {
	e, err := q.s.engine()
	if err != nil {
		return queue.Held{}, err
	}
	e.jobs.mu.Lock()
	defer e.jobs.mu.Unlock()
	return e.jobs.x.HeldBy(now, endpoint, owner, key, rules), nil
}

// listStep is how many jobs List reads while it holds the lock.
const listStep = 256

// List implements serverless.JobQueue. It releases the lock between steps, so a job that moves
// meanwhile is returned either as it was or as it is.
func (q *Jobs) List(ctx context.Context, now queue.Instant, lq queue.ListQuery) iter.Seq2[queue.Job, error] {
	return func(yield func(queue.Job, error) bool) {
		e, err := q.s.engine()
		if err != nil {
			yield(queue.Job{}, err)
			return
		}
		lq := lq
		some := func() ([]queue.Job, bool) { return e.jobs.listed(now, &lq), false }
		if len(lq.IDs) == 0 {
			l := jobindex.NewListing(&lq)
			some = func() ([]queue.Job, bool) { return e.jobs.list(now, &lq, l) }
		}
		lq.Limited(func(yield func(queue.Job, error) bool) {
			for more := true; more; {
				var jobs []queue.Job
				jobs, more = some()
				if err := e.jobs.cover(ctx, jobs); err != nil {
					yield(queue.Job{}, err)
					return
				}
				for k := range jobs {
					if !yield(jobs[k], nil) {
						return
					}
				}
			}
			if err := e.missing(keyJob, nil); err != nil {
				yield(queue.Job{}, err)
			}
		})(yield)
	}
}

// list returns some jobs of a listing.
func (q *jobQueue) list(now queue.Instant, lq *queue.ListQuery, l *jobindex.Listing) (jobs []queue.Job, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	more = q.x.Next(l, now, listStep, func(i uint32) {
		if v := q.view(i); lq.Selects(&v.job, now) {
			jobs = append(jobs, v.job)
		}
	})
	return jobs, more
}

// Count implements queue.Counter. Without all records of jobs it has no number.
func (q *Jobs) Count(ctx context.Context, now queue.Instant, lq queue.ListQuery) (n int, err error) {
	e, err := q.s.engine()
	if err != nil {
		return 0, err
	}
	if lq.Prefix == "" && len(lq.IDs) == 0 {
		e.jobs.mu.Lock()
		defer e.jobs.mu.Unlock()
		return e.jobs.x.Count(now, &lq), e.missing(keyJob, nil)
	}
	lq.Before, lq.Offset, lq.Limit = 0, 0, 0
	for _, err := range q.List(ctx, now, lq) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

// listed returns the jobs that lq names.
func (q *jobQueue) listed(now queue.Instant, lq *queue.ListQuery) (jobs []queue.Job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	others := *lq
	others.IDs = nil // the lookup selects them
	for _, id := range lq.IDs {
		i := q.x.Find(queue.Ref{Endpoint: lq.Endpoint, ID: id})
		if i == 0 || q.x.Has(i, jobindex.Hidden) {
			continue
		}
		if v := q.view(i); others.Selects(&v.job, now) {
			jobs = append(jobs, v.job)
		}
	}
	return queue.NewestFirst(jobs)
}
