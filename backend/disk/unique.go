package disk

import (
	"context"

	"github.com/cockroachdb/pebble/v2"

	"github.com/podyard/podyard/internal/jobindex"
	"github.com/podyard/podyard/serverless/queue"
)

// waitForKeys waits for the move of a job that has the key of one of jobs, if there is such a move. It
// needs mu, and unlocks it while it waits.
func (q *jobQueue) waitForKeys(ctx context.Context, jobs []queue.Job) (waited bool, err error) {
	for k := range jobs {
		i := q.x.KeyHolder(jobs[k].Endpoint, jobs[k].Owner, jobs[k].Unique.Key)
		if i != 0 && q.x.Has(i, jobindex.Busy) {
			return true, q.wait(ctx, i)
		}
	}
	return false, nil
}

func (q *jobQueue) takeKeys(jobs []queue.Job, in []insertion) {
	added := make([]uint32, len(in))
	for k := range in {
		added[k] = in[k].i
	}
	q.x.TakeKeys(added, jobs)
}

// blocks returns the job for whose move an op of job i waits, or 0: that of i, or for a retry that of
// the job that has its key. The caller must hold mu.
func (q *jobQueue) blocks(i uint32, op *queue.Op) uint32 {
	if op.Kind == queue.OpRetry && !q.x.Has(i, jobindex.Busy) {
		if s := q.x.State(i); s.Unique.Key != "" {
			ref, owner, _ := q.x.Identity(i)
			i = q.x.KeyHolder(ref.Endpoint, owner, s.Unique.Key)
		}
	}
	if i != 0 && q.x.Has(i, jobindex.Busy) {
		return i
	}
	return 0
}

// takeKey carries out queue.TakeKey, or undoes the move. The caller must hold mu.
func (q *jobQueue) takeKey(m *move) {
	if m.err != nil || m.eff&queue.TakeKey == 0 {
		return
	}
	if err := q.x.TakeKey(m.i, m.now); err != nil {
		m.after, m.eff, m.err = m.before, 0, err
	}
}

// prepareInput encrypts what replaces the payloads of a job. The caller must hold mu, and the job is not
// busy.
func (q *jobQueue) prepareInput(m *move, i uint32) (err error) {
	if m.op.Kind != queue.OpReplace || m.op.Job == nil || !hasExtras(m.op.Job) {
		return nil
	}
	m.extras, err = encodeExtras(q.e.seals, bodyKey(q.x.Metadata(i).Tag, bodyExtras), m.op.Job)
	return err
}

// writeInput adds the payloads that replace those of the submission to a batch: also large ones, because
// an input in a table of its own would be there before the commit.
func (m *move) writeInput(b *pebble.Batch) {
	key, extras := bodyKey(m.was.Tag, bodyInput), bodyKey(m.was.Tag, bodyExtras)
	dropBody(b, key, m.before.InBytes)
	put(b, key, m.op.Job.Input)
	if m.marks&jobindex.HasExtra != 0 {
		put(b, extras, m.extras)
	} else {
		drop(b, extras)
	}
}
