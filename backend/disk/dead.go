package disk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/podyard/podyard/serverless/queue"
)

// A dead letter is a record of its own, with the state of the job when it failed. It has no
// payloads: it pins those of the job.

// putDead adds a dead letter to an index. The order of the index is that of the calls.
func (q *jobQueue) putDead(s *stored, written bool) (replaced []*stored) {
	index := &q.dead
	if written {
		index = &q.written
	}
	return index.Put(s.ref, s.owner, s.state.Kept(), s.state.Bytes(), s)
}

// writeDead adds a dead letter to a batch, and removes those that it takes the place of. The
// committer calls it.
func (q *jobQueue) writeDead(b *pebble.Batch, s *stored) {
	q.numbers(b)
	kept := *s
	kept.due = queue.Instant(q.nextSeq()) // their order at the next opening
	for _, old := range q.putDead(&kept, true) {
		q.eraseDead(b, old)
	}
	q.pin(s.note.Tag, s.state.Run, s.note.Output, forDead)
	var room [256]byte
	put(b, uidKey(keyDead, s.note.Tag), kept.appendTo(room[:0]))
}

// dropWritten removes a dead letter, if there is one. The committer calls it.
func (q *jobQueue) dropWritten(b *pebble.Batch, ref queue.Ref) {
	if s, there := q.written.Get(0, ref); there {
		q.written.Remove(ref)
		q.eraseDead(b, s)
	}
}

func (q *jobQueue) eraseDead(b *pebble.Batch, s *stored) {
	drop(b, uidKey(keyDead, s.note.Tag))
	q.unpin(b, s.note.Tag, s.state.Run, forDead)
}

// publishDead makes a dead letter visible. The caller must hold mu.
func (q *jobQueue) publishDead(s *stored) { q.putDead(s, false) }

func (q *jobQueue) loadDead() error {
	var all []*stored
	err := q.e.loadEach(keyDead, func(key, value []byte) error {
		s := &stored{}
		if err := s.decode(key, value); err != nil {
			return err
		}
		q.pinLoaded(s, forDead)
		all = append(all, s)
		return nil
	})
	slices.SortFunc(all, func(a, b *stored) int { return cmp.Compare(a.due, b.due) })
	for _, s := range all {
		q.putDead(s, true)
		q.putDead(s, false)
	}
	return err
}

// expireDead removes dead letters whose time has passed.
func (q *jobQueue) expireDead(now queue.Instant, limit int) error {
	q.mu.Lock()
	refs := q.dead.Due(now, limit)
	q.mu.Unlock()
	return q.dropDead(refs, func(s *stored) bool { return s.state.Kept() <= now })
}

// dropDead removes the dead letters that ok selects. It is synced, as their creation is: so both
// indexes see all changes in the same order.
func (q *jobQueue) dropDead(refs []queue.Ref, ok func(*stored) bool) error {
	if len(refs) == 0 {
		return nil
	}
	var dropped []queue.Ref
	return q.e.commit(func(b *pebble.Batch) {
		for _, ref := range refs {
			if s, there := q.written.Get(0, ref); there && ok(s) {
				q.written.Remove(ref)
				q.eraseDead(b, s)
				dropped = append(dropped, ref)
			}
		}
	}, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, ref := range dropped {
			q.dead.Remove(ref)
		}
	})
}

// DeadLetters implements queue.DeadLetters.
func (q *Jobs) DeadLetters(_ context.Context, now queue.Instant, endpoint, owner string) iter.Seq2[queue.DeadLetter, error] {
	return func(yield func(queue.DeadLetter, error) bool) {
		e, err := q.s.engine()
		if err != nil {
			yield(queue.DeadLetter{}, err)
			return
		}
		e.jobs.mu.Lock()
		list := e.jobs.dead.List(now, endpoint, owner)
		e.jobs.mu.Unlock()
		for _, s := range list {
			if !yield(s.letter(), nil) {
				return
			}
		}
		if err := e.missing(keyDead, nil); err != nil {
			yield(queue.DeadLetter{}, err)
		}
	}
}

// letter returns the dead letter without payloads.
func (s *stored) letter() queue.DeadLetter {
	return queue.DeadLetter{Job: queue.Job{Ref: s.ref, Owner: s.owner, Key: s.key, State: s.state}, Until: s.state.Kept()}
}

// DeadLetter implements queue.DeadLetters. If the dead letter is removed meanwhile, what is
// missing of it is not damaged.
func (q *Jobs) DeadLetter(_ context.Context, now queue.Instant, ref queue.Ref) (queue.DeadLetter, error) {
	e, err := q.s.engine()
	if err != nil {
		return queue.DeadLetter{}, err
	}
	for {
		s, ok := e.jobs.deadOf(now, ref)
		if !ok {
			return queue.DeadLetter{}, e.missing(keyDead, queue.ErrNotFound)
		}
		d := s.letter()
		err := e.readablePayloads(&d.Job, s.note, s.marks)
		if again, _ := e.jobs.deadOf(now, ref); err != nil && again != s {
			continue
		}
		switch {
		case errors.Is(err, ErrDamaged):
			d.Output, d.Error = nil, ""
			return d, fmt.Errorf("%w: %w", queue.ErrDamaged, err)
		case err != nil:
			return queue.DeadLetter{}, err
		}
		return d, nil
	}
}

func (q *jobQueue) deadOf(now queue.Instant, ref queue.Ref) (*stored, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dead.Get(now, ref)
}

// DropDead implements queue.DeadLetters.
func (q *Jobs) DropDead(ctx context.Context, refs []queue.Ref) error {
	e, err := q.s.admitJobs(ctx, deletions, 0)
	if err != nil {
		return err
	}
	return e.jobs.dropDead(refs, func(*stored) bool { return true })
}

// PastAttempts implements queue.JobQueue.
func (q *Jobs) PastAttempts(ctx context.Context, now queue.Instant, ref queue.Ref) ([]queue.JobAttempt, error) {
	return readLog[queue.JobAttempt](ctx, q, now, ref, func(v *view) (keys [][]byte) {
		for n := range v.job.Attempt {
			keys = append(keys, tryKey(v.note.Tag, v.job.Run, n+1))
		}
		return keys
	})
}

// PastLeases implements queue.JobQueue.
func (q *Jobs) PastLeases(ctx context.Context, now queue.Instant, ref queue.Ref) ([]queue.JobLease, error) {
	return readLog[queue.JobLease](ctx, q, now, ref, func(v *view) (keys [][]byte) {
		for _, place := range v.job.LeasePlaces() {
			keys = append(keys, leaseKey(v.note.Tag, place))
		}
		return keys
	})
}

// readLog reads a log of a job, whose records have the keys that keys returns.
func readLog[T any](ctx context.Context, q *Jobs, now queue.Instant, ref queue.Ref, keys func(v *view) [][]byte) (list []T, err error) {
	e, err := q.s.engine()
	if err != nil {
		return nil, err
	}
	for {
		v, ok := e.jobs.lookup(now, ref)
		if !ok {
			return nil, e.missing(keyJob, queue.ErrNotFound)
		}
		list, err = decodeRecords[T](e, keys(&v))
		if !errors.Is(err, ErrDamaged) {
			return list, err
		}
		// If the job has moved since, it may have removed what is missing.
		if same, werr := e.jobs.settled(ctx, ref, &v); werr != nil {
			return nil, werr
		} else if same {
			return nil, fmt.Errorf("%w: %w", queue.ErrDamaged, err)
		}
	}
}

func decodeRecords[T any](e *engine, keys [][]byte) (list []T, err error) {
	for _, key := range keys {
		value, err := e.mustGet(key)
		if err != nil {
			return nil, err
		}
		var a T
		if err := json.Unmarshal(value, &a); err != nil {
			return nil, damaged(key)
		}
		list = append(list, a)
	}
	return list, nil
}
