package disk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/podyard/podyard/internal/jobindex"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/queue"
)

// Jobs is a serverless.JobQueue with an index in memory and all data on disk.
//
// A move marks its job as busy, is committed, and is then made visible. Other moves of the job
// wait for it. Claims and renewals are written but not synced: a power failure may lose them.
// The job is then claimed again, with a token that was never issued.
type Jobs struct{ s *Store }

// A jobQueue contains the jobs of an engine.
type jobQueue struct {
	e *engine

	mu      sync.Mutex
	x       *jobindex.Index
	outbox  outbox
	dead    jobindex.DeadLetters[*stored] // of which the caller may see
	token   queue.Token                   // the last one that was issued
	epoch   atomic.Uint64                 // tokens up to this epoch may be issued: it is durable
	uid     atomic.Uint64                 // the next one; written under mu, read by the committer without it
	waiters map[uint32]chan struct{}

	unwritten unwrittenJobs
	tails     tails
	ordering  int           // calls whose commits assign places in the queue
	seq       atomic.Uint64 // the next one; written by the committer, and under mu while ordering is 0

	// The committer writes these. It writes one commit after the other.
	uidStored atomic.Uint64 // uids below this may be used
	seqStored atomic.Uint64
	pins      map[uint64]*pin
	written   jobindex.DeadLetters[*stored] // dead letters as they are in the batches
}

// reserve is how many numbers are reserved at once. Unused numbers are skipped after a
// restart.
const reserve = 1 << 20

func (q *jobQueue) init(e *engine) {
	q.e, q.x = e, jobindex.New()
	q.dead.Count = q.x.HoldDead
	q.waiters, q.pins = map[uint32]chan struct{}{}, map[uint64]*pin{}
	q.unwritten.by, q.tails.by = map[uint32]*unwrittenJob{}, map[uint32]*tail{}
	q.token = queue.Token(e.meta.epoch) << 32
	q.uid.Store(max(e.meta.uid, 1))
	q.seq.Store(max(e.meta.seq, 1))
	q.uidStored.Store(e.meta.uid)
	q.seqStored.Store(e.meta.seq)
	q.outbox.init(e.meta.epoch)
	q.epoch.Store(uint64(e.meta.epoch))
}

// coverTokens makes the epoch of the last token durable. It must return before anyone sees
// that token. An epoch has 2^32 tokens. If one opening issues more, the counter continues in
// the next epoch, which the next opening must then skip.
func (q *jobQueue) coverTokens() error {
	q.mu.Lock()
	epoch := uint64(max(q.token, q.outbox.token) >> 32)
	q.mu.Unlock()
	if epoch <= q.epoch.Load() {
		return nil
	}
	return q.e.commit(func(b *pebble.Batch) { putNumber(b, metaEpoch, epoch) }, func() { q.epoch.Store(epoch) })
}

// numbers reserves more numbers before the reserved ones are used up. The committer calls it.
func (q *jobQueue) numbers(b *pebble.Batch) {
	if used := q.uid.Load(); used+reserve/2 > q.uidStored.Load() {
		q.uidStored.Store(used + reserve)
		putNumber(b, metaUID, used+reserve)
	}
	if used := q.seq.Load(); used+reserve/2 > q.seqStored.Load() {
		q.seqStored.Store(used + reserve)
		putNumber(b, metaSeq, used+reserve)
	}
}

// nextSeq returns the next number of the order of submission.
func (q *jobQueue) nextSeq() uint64 { return q.seq.Add(1) - 1 }

// hasNumbers reports whether numbers would reserve none.
func (q *jobQueue) hasNumbers() bool {
	return q.uid.Load()+reserve/2 <= q.uidStored.Load() && q.seq.Load()+reserve/2 <= q.seqStored.Load()
}

// wait waits until the current move of the job has ended. It needs mu, and unlocks it while it
// waits, so the job may be gone when it returns.
func (q *jobQueue) wait(ctx context.Context, i uint32) error {
	ch := q.waiters[i]
	if ch == nil {
		ch = make(chan struct{})
		q.waiters[i] = ch
	}
	q.mu.Unlock()
	defer q.mu.Lock()
	select {
	case <-ch:
		return nil
	case <-q.e.failed:
		return q.e.err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endMove wakes the callers that wait for the job's move.
func (q *jobQueue) endMove(i uint32) {
	if ch := q.waiters[i]; ch != nil {
		close(ch)
		delete(q.waiters, i)
	}
}

// find waits until the job is not busy, and returns it. It returns 0 if there is no such job.
func (q *jobQueue) find(ctx context.Context, ref queue.Ref) (uint32, error) {
	for {
		i := q.x.Find(ref)
		if i == 0 || !q.x.Has(i, jobindex.Busy) {
			return i, nil
		}
		if err := q.wait(ctx, i); err != nil {
			return 0, err
		}
	}
}

// Enqueue implements serverless.JobQueue.
func (q *Jobs) Enqueue(ctx context.Context, jobs []queue.Job) error {
	size, err := measure(jobs)
	if err != nil || len(jobs) == 0 {
		return err
	}
	e, err := q.s.admitJobs(ctx, newWork, size)
	if err != nil {
		return err
	}
	if err := e.jobs.enqueue(ctx, jobs); err != nil {
		return err
	}
	if !q.s.jobHub.Watched() {
		return nil
	}
	q.s.jobHub.Notify(queue.ReadyEvents(jobs))
	return nil
}

// FindKey implements queue.JobQueue.
func (q *Jobs) FindKey(_ context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return q.s.findKey(key)
}

// measure checks jobs and returns the size of their payloads.
func measure(jobs []queue.Job) (size int64, err error) {
	for i := range jobs {
		if err := jobs[i].Check(); err != nil {
			return 0, err
		}
		size += int64(len(jobs[i].Input) + len(jobs[i].Output) + len(jobs[i].Extra))
	}
	return size, nil
}

func (s *Store) admitJobs(ctx context.Context, what priority, size int64) (*engine, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e, err := s.engine()
	if err != nil {
		return nil, err
	}
	return e, s.space.check(size, what)
}

// An insertion is a job that is being added.
type insertion struct {
	i           uint32
	uid         uint64
	extras      []byte
	inputStored bool // the input is already on disk
}

func (q *jobQueue) enqueue(ctx context.Context, jobs []queue.Job) error {
	keys, err := q.e.keyed.reserve(ctx, q.e, queue.Creations(jobs)...)
	if err != nil {
		return err
	}
	defer keys.end()
	in := make([]insertion, len(jobs))
	if err := q.addAll(ctx, jobs, in); err != nil {
		return err
	}
	if err := q.prepare(ctx, jobs, in); err != nil {
		q.removeAll(in)
		return err
	}
	unshown := keys == nil && !slices.ContainsFunc(jobs, func(j queue.Job) bool { return !j.Unshown() })
	var unwritten []*unwrittenJob // nil: they are written now
	if unshown {
		unwritten = q.reserveUnwritten(jobs, in)
	}
	if unwritten != nil {
		if shown, err := q.showUnwritten(jobs, in, unwritten); shown || err != nil {
			return err
		}
	}
	q.beginOrdered()
	return q.e.await(&commit{sync: !unshown, ordered: true, unshown: unshown && unwritten == nil, done: make(chan struct{}), write: func(b *pebble.Batch) {
		q.numbers(b)
		keys.write(b)
		for k := range jobs {
			jobs[k].Seq = q.nextSeq()
			if unwritten == nil {
				q.writeNew(b, &jobs[k], &in[k])
			}
		}
	}, publish: func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.ordering--
		q.show(jobs, in, unwritten)
	}})
}

// beginOrdered begins a commit that assigns places in the queue. It ends with ordering--, in the
// section of mu that publishes it. After an error the engine has ended, and so it need not end.
func (q *jobQueue) beginOrdered() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ordering++
}

// show makes new jobs visible. unwritten is nil if they are written. The caller must hold mu.
func (q *jobQueue) show(jobs []queue.Job, in []insertion, unwritten []*unwrittenJob) {
	for k := range jobs {
		q.x.Mark(in[k].i, 0, jobindex.Busy)
		q.x.Show(in[k].i, &jobs[k].State)
		if unwritten != nil {
			q.unwritten.by[in[k].i] = unwritten[k]
		}
		q.endMove(in[k].i)
	}
}

// addAll adds all jobs to the index, or none.
func (q *jobQueue) addAll(ctx context.Context, jobs []queue.Job, in []insertion) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for waited := true; waited; {
		for k := range jobs {
			// If the job is being added or removed, wait for that: ErrExists must be certain.
			i, err := q.find(ctx, jobs[k].Ref)
			if err != nil {
				return err
			}
			if i != 0 {
				return queue.ErrExists
			}
		}
		var err error
		if waited, err = q.waitForKeys(ctx, jobs); err != nil {
			return err
		}
	}
	for k := range jobs {
		i, ok := q.x.Add(jobs[k].Ref, jobs[k].Owner, jobs[k].Key, jobs[k].Priority)
		if !ok { // twice in jobs, or added by another caller while find waited
			q.drop(in[:k])
			return queue.ErrExists
		}
		uid := q.uid.Add(1) - 1
		note, marks := jobindex.Metadata{Tag: uid}, jobindex.Busy
		if jobs[k].Output != nil || jobs[k].Error != "" {
			note.Output = 1
		}
		if hasExtras(&jobs[k]) {
			marks |= jobindex.HasExtra
		}
		q.x.SetMetadata(i, note)
		q.x.Mark(i, marks, 0)
		q.x.Size(i, &jobs[k].State)
		in[k] = insertion{i: i, uid: uid}
	}
	err := q.x.CheckKeys(jobs)
	if err == nil {
		err = q.admit(jobs, in)
	}
	if err != nil {
		q.drop(in)
		return err
	}
	q.takeKeys(jobs, in)
	return nil
}

func (q *jobQueue) removeAll(in []insertion) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop(in)
}

func (q *jobQueue) drop(in []insertion) {
	for _, c := range in {
		q.endMove(c.i)
		q.x.Discard(c.i)
	}
}

// prepare does what can fail before the commit: it encrypts secrets and stores large payloads.
func (q *jobQueue) prepare(ctx context.Context, jobs []queue.Job, in []insertion) (err error) {
	for k := range jobs {
		j, c := &jobs[k], &in[k]
		if hasExtras(j) {
			if c.extras, err = encodeExtras(q.e.seals, bodyKey(c.uid, bodyExtras), j); err != nil {
				return err
			}
		}
		if len(j.Input) > bigPayload {
			if err := q.e.storeBig(ctx, bodyKey(c.uid, bodyInput), j.Input); err != nil {
				return err
			}
			c.inputStored = true
		}
	}
	return nil
}

func (q *jobQueue) writeNew(b *pebble.Batch, j *queue.Job, c *insertion) {
	s := stored{ref: j.Ref, owner: j.Owner, key: j.Key, state: j.State, note: jobindex.Metadata{Tag: c.uid}}
	if c.extras != nil {
		s.marks = jobindex.HasExtra
	}
	if j.Output != nil || j.Error != "" {
		s.note.Output = 1
		head, payload := outputParts(&queue.Op{Payload: j.Output, Error: j.Error})
		put(b, outputKey(c.uid, 1), head, payload)
	}
	q.writeSubmitted(b, c, j.Input)
	q.writeJob(b, &s)
}

// writeSubmitted writes the payloads that a job was submitted with.
func (q *jobQueue) writeSubmitted(b *pebble.Batch, c *insertion, input []byte) {
	if c.extras != nil {
		put(b, bodyKey(c.uid, bodyExtras), c.extras)
	}
	key := bodyKey(c.uid, bodyInput)
	if c.inputStored {
		bigStored(b, key)
	} else {
		put(b, key, input)
	}
}

func (q *jobQueue) writeJob(b *pebble.Batch, s *stored) {
	var room [256]byte
	put(b, uidKey(keyJob, s.note.Tag), s.appendTo(room[:0]))
}

// A loadedJob is a job of the index with its position in the order of submission.
type loadedJob struct {
	seq uint64
	i   uint32
}

// load loads all jobs without their payloads.
func (q *jobQueue) load(ctx context.Context, e *engine) error {
	q.init(e)
	jobs, last, err := q.loadStates(ctx)
	if err != nil {
		return err
	}
	// The jobs are still in the order of their uids.
	uids := func(k int) (i uint32, uid uint64) { return jobs[k].i, q.x.Metadata(jobs[k].i).Tag }
	if err := q.loadLogs(len(jobs), uids); err != nil {
		return err
	}
	slices.SortFunc(jobs, func(a, b loadedJob) int { return cmp.Compare(a.seq, b.seq) })
	q.x.AdvanceTo(last)
	for _, j := range jobs {
		q.x.ShowLoaded(j.i)
	}
	if err := q.loadCounts(); err != nil {
		return err
	}
	if err := q.loadHolds(); err != nil {
		return err
	}
	if err := q.loadEntries(); err != nil {
		return err
	}
	return q.loadDead()
}

// loadStates loads the states of all jobs, in the order of their uids. last is the latest time
// of submission.
func (q *jobQueue) loadStates(ctx context.Context) (jobs []loadedJob, last queue.Instant, err error) {
	err = q.e.loadEach(keyJob, func(key, value []byte) error {
		var s stored
		if err := s.decode(key, value); err != nil {
			return err
		}
		if len(jobs)%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		i, ok := q.x.Add(s.ref, s.owner, s.key, s.state.Priority)
		if !ok {
			return fmt.Errorf("%w: two jobs of the same id", damaged(key))
		}
		q.x.SetMetadata(i, s.note)
		q.x.Mark(i, s.marks, 0)
		q.x.Load(i, &s.state)
		jobs = append(jobs, loadedJob{s.state.Seq, i})
		last = max(last, s.state.Submitted)
		return nil
	})
	return jobs, last, err
}

func (q *jobQueue) loadCounts() error {
	return q.e.loadEach(keyCount, func(key, value []byte) error {
		var s endpointCounters
		if err := s.add(value); err != nil {
			return fmt.Errorf("%w: %w", damaged(key), err)
		}
		q.x.AddCounts(string(key[1:]), s[0], s[1], s[2])
		return nil
	})
}

// recoverStep is how many jobs one commit puts back into the queue.
const recoverStep = 1000

// recover puts jobs in progress back into the queue if their workers are gone
// (Options.WorkerGone).
func (q *jobQueue) recover(ctx context.Context) error {
	gone := q.e.s.opts.WorkerGone
	if gone == nil {
		return nil
	}
	var running []queue.Ref
	q.x.All(func(i uint32) {
		if s := q.x.State(i); s.Status == queue.InProgress && gone(s.Worker) {
			running = append(running, q.x.Ref(i))
		}
	})
	now := queue.At(q.e.s.opts.Clock.Now())
	for len(running) > 0 {
		n := min(len(running), recoverStep)
		ops, res := make([]queue.Op, n), make([]queue.Result, n)
		for k := range ops {
			ops[k] = queue.Op{Ref: running[k], Kind: queue.OpRecover}
		}
		if _, err := q.apply(ctx, now, ops, res); err != nil {
			return err
		}
		q.e.s.reportResults(ops, res)
		running = running[n:]
	}
	return nil
}

// Watch implements serverless.JobQueue.
func (q *Jobs) Watch(ctx context.Context, f func([]queue.Event)) error {
	return q.s.jobHub.Watch(ctx, f, func() { f([]queue.Event{{Kind: queue.EventGap}}) })
}

// Len returns the number of jobs in any status, or 0 if the store has failed.
func (q *Jobs) Len() int {
	e, err := q.s.engine()
	if err != nil {
		return 0
	}
	e.jobs.mu.Lock()
	defer e.jobs.mu.Unlock()
	return e.jobs.x.Len()
}
