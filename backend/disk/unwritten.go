package disk

import (
	"context"

	"github.com/cockroachdb/pebble/v2"

	"github.com/podyard/podyard/internal/jobindex"
	"github.com/podyard/podyard/serverless/queue"
)

// A job that is durable at its end (queue.DurableAtEnd) is only in memory until somebody but a
// worker sees it, or a move changes more than its state. So most of these jobs are written once,
// with their end. A crash forgets such a job, as it may.

// maxUnwritten is how many bytes of payloads are kept in memory of jobs that are not written. A
// job for which there is no room is written at once, without a sync.
const maxUnwritten = 16 << 20

// An unwrittenJob is what must be written of a job before anything else of it.
type unwrittenJob struct {
	insertion
	input, extra []byte
	webhook      string
	trace        queue.Trace
}

func (u *unwrittenJob) size() int64 { return int64(len(u.input) + len(u.extra) + len(u.extras)) }

// fill sets the payloads of a job.
func (u *unwrittenJob) fill(j *queue.Job) {
	j.Input, j.Extra, j.Webhook, j.Trace = u.input, u.extra, u.webhook, u.trace
	if len(j.Input) == 0 {
		j.Input = nil
	}
}

// unwrittenJobs are the jobs of a queue that are not written, by number. The queue's mutex guards
// them.
type unwrittenJobs struct {
	by    map[uint32]*unwrittenJob
	bytes int64
}

// reserveUnwritten returns what must be kept of new jobs, or nil if they must be written now.
func (q *jobQueue) reserveUnwritten(jobs []queue.Job, in []insertion) []*unwrittenJob {
	list, size := make([]*unwrittenJob, len(jobs)), int64(0)
	for k := range jobs {
		j := &jobs[k]
		if in[k].inputStored || j.Output != nil || j.Error != "" {
			return nil
		}
		list[k] = &unwrittenJob{in[k], j.Input, j.Extra, j.Webhook, j.Trace}
		size += list[k].size()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.unwritten.bytes+size > maxUnwritten {
		return nil
	}
	q.unwritten.bytes += size
	return list
}

// showUnwritten makes new jobs visible that are not written now. It reports false if the committer
// must do it: jobs before them in the queue are not visible yet, or numbers must be reserved.
func (q *jobQueue) showUnwritten(jobs []queue.Job, in []insertion, unwritten []*unwrittenJob) (shown bool, err error) {
	q.e.sendMu.RLock() // what is shown before the end of the committer is written by writeRest
	defer q.e.sendMu.RUnlock()
	if q.e.closed {
		return false, ErrClosed
	}
	if err := q.e.err(); err != nil {
		return false, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ordering > 0 || !q.hasNumbers() {
		return false, nil
	}
	for k := range jobs {
		jobs[k].Seq = q.nextSeq()
	}
	q.show(jobs, in, unwritten)
	return true, nil
}

func (u *unwrittenJobs) remove(i uint32) {
	if j := u.by[i]; j != nil {
		u.bytes -= j.size()
		delete(u.by, i)
	}
}

// inMemory reports whether nothing of the move has to be written now.
func (m *move) inMemory() bool {
	return m.unwritten != nil && !m.durable() && (m.eff == queue.Put || m.eff&queue.Delete != 0)
}

// cover makes jobs durable that may not be, before anybody but a worker sees them.
func (q *jobQueue) cover(ctx context.Context, jobs []queue.Job) error {
	unshown := false
	for k := range jobs {
		unshown = unshown || jobs[k].Unshown()
	}
	for unshown {
		ms, err := q.beginCover(ctx, jobs)
		if err != nil {
			return err
		}
		if len(ms) == 0 {
			break
		}
		if err := q.commit(ms); err != nil {
			return err
		}
		q.notify(ms)
	}
	if !unshown || q.e.unshown.Load() <= q.e.synced.Load() {
		return nil
	}
	// A group is synced only if it writes something.
	return q.e.commit(func(b *pebble.Batch) { putNumber(b, metaSeq, q.seqStored.Load()) }, nil)
}

// notify sends the events of moves that were committed.
func (q *jobQueue) notify(ms []move) {
	var evs []queue.Event
	for k := range ms {
		evs = ms[k].eff.Events(evs, ms[k].ref, ms[k].before.Worker)
	}
	if len(evs) > 0 && q.e.s.jobHub.Watched() {
		q.e.s.jobHub.Notify(evs)
	}
}

// beginCover begins a move without a change for each job that is not written. It waits for a busy
// job only before it has begun a move.
func (q *jobQueue) beginCover(ctx context.Context, jobs []queue.Job) (ms []move, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for k := 0; k < len(jobs); {
		i := q.x.Find(jobs[k].Ref)
		if i == 0 || q.unwritten.by[i] == nil {
			k++
			continue
		}
		if q.x.Has(i, jobindex.Busy) {
			if len(ms) > 0 {
				return ms, nil
			}
			if err := q.wait(ctx, i); err != nil {
				return nil, err
			}
			continue
		}
		ms = append(ms, q.beginShow(i))
		k++
	}
	return ms, nil
}

// beginShow begins a move that makes a job durable and changes nothing. The caller must hold mu.
func (q *jobQueue) beginShow(i uint32) move {
	m := move{i: i, before: q.x.State(i), op: &queue.Op{Kind: queue.OpTick}, eff: queue.Put, shows: true}
	m.after = m.before
	q.prepareMove(&m)
	return m
}

// writeRest writes the jobs that are not written when the store is closed. Those that are busy
// have moves that were refused, so their callers know that the outcome is unknown.
func (e *engine) writeRest(number uint64) {
	q := &e.jobs
	g := &group{number: number, batch: e.groupBatch(), began: e.s.commitBegins()}
	g.add(&commit{sync: true, done: make(chan struct{}), write: func(b *pebble.Batch) {
		q.mu.Lock()
		defer q.mu.Unlock()
		for i, u := range q.unwritten.by {
			if q.x.Has(i, jobindex.Busy) {
				continue
			}
			q.writeSubmitted(b, &u.insertion, u.input)
			q.writeJob(b, q.stored(i))
		}
	}})
	e.write(g)
}

// stored returns the record of a job as it is in the index. The caller must hold mu.
func (q *jobQueue) stored(i uint32) *stored {
	s := &stored{note: q.x.Metadata(i), state: q.x.State(i)}
	s.ref, s.owner, s.key = q.x.Identity(i)
	if q.x.Has(i, jobindex.HasExtra) {
		s.marks = jobindex.HasExtra
	}
	return s
}
