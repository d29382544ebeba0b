package disk

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/podyard/podyard/internal/jobindex"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
)

// Jobs is a serverless.JobQueue: an index in memory, payloads and truth on disk.
//
// A move marks its job busy, is committed, and is then made visible; other moves of the
// job wait meanwhile. Claims and renewals are written and not synced: power can take them,
// and the job is claimed once more then, under a token that was never issued.
type Jobs struct{ s *Store }

// A queue is the jobs of an engine.
type queue struct {
	e *engine

	mu     sync.Mutex
	x      *jobindex.Index
	outbox outbox
	token  serverless.Token // the last one that was issued
	uid    atomic.Uint64    // the next one; behind mu but for the committer, who looks at it
	waits  map[uint32]chan struct{}

	// The committer's own: it writes one commit after the other.
	seq       uint64 // the next one
	uidStored uint64 // uids up to here may be used
	seqStored uint64
	pins      map[uint64]*pin
}

// reserve is how many numbers are taken at once: those not used are left out after a
// restart.
const reserve = 1 << 20

func (q *queue) init(e *engine) {
	q.e, q.x = e, jobindex.New()
	q.waits, q.pins = map[uint32]chan struct{}{}, map[uint64]*pin{}
	q.token = serverless.Token(e.meta.epoch) << 32
	q.uid.Store(max(e.meta.uid, 1))
	q.seq, q.uidStored, q.seqStored = max(e.meta.seq, 1), e.meta.uid, e.meta.seq
	q.outbox.init(e.meta.epoch)
}

// numbers keeps what is reserved ahead of what is used. The committer calls it.
func (q *queue) numbers(b *pebble.Batch) {
	if used := q.uid.Load(); used+reserve/2 > q.uidStored {
		q.uidStored = used + reserve
		putNumber(b, metaUID, q.uidStored)
	}
	if q.seq+reserve/2 > q.seqStored {
		q.seqStored = q.seq + reserve
		putNumber(b, metaSeq, q.seqStored)
	}
}

// wait waits until the job's move under way has ended. It holds mu before and after and
// not meanwhile: the job may be gone then.
func (q *queue) wait(ctx context.Context, i uint32) error {
	ch := q.waits[i]
	if ch == nil {
		ch = make(chan struct{})
		q.waits[i] = ch
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

// rest ends the job's move.
func (q *queue) rest(i uint32) {
	if ch := q.waits[i]; ch != nil {
		close(ch)
		delete(q.waits, i)
	}
}

// find is the job, at rest; 0 when there is none.
func (q *queue) find(ctx context.Context, ref serverless.Ref) (uint32, error) {
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
func (q *Jobs) Enqueue(ctx context.Context, jobs []serverless.Job) error {
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
	if !q.s.jobHub.watched() {
		return nil
	}
	evs := make([]serverless.Event, len(jobs))
	for i := range jobs {
		evs[i] = serverless.Event{Kind: serverless.EventReady, Ref: jobs[i].Ref}
	}
	q.s.jobHub.tell(evs)
	return nil
}

// measure looks at what can be said of the jobs without the queue.
func measure(jobs []serverless.Job) (size int64, err error) {
	for i := range jobs {
		if n := len(jobs[i].ID); n == 0 || n > serverless.MaxJobID {
			return 0, problem.Newf(problem.Invalid, "a job id has 1 to %d bytes", serverless.MaxJobID)
		}
		size += int64(len(jobs[i].Input) + len(jobs[i].Output) + len(jobs[i].Extra))
	}
	return size, nil
}

func (s *Store) admitJobs(ctx context.Context, what need, size int64) (*engine, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e, err := s.engine()
	if err != nil {
		return nil, err
	}
	return e, s.space.check(size, what)
}

// A coming job is one on its way in.
type coming struct {
	i      uint32
	uid    uint64
	extras []byte
	early  bool // its input is stored already
}

func (q *queue) enqueue(ctx context.Context, jobs []serverless.Job) error {
	in := make([]coming, len(jobs))
	if err := q.take(ctx, jobs, in); err != nil {
		return err
	}
	if err := q.prepare(ctx, jobs, in); err != nil {
		q.untake(in)
		return err
	}
	return q.e.commit(true, func(b *pebble.Batch) {
		q.numbers(b)
		for k := range jobs {
			q.writeNew(b, &jobs[k], &in[k])
		}
	}, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		for k := range jobs {
			q.x.Mark(in[k].i, 0, jobindex.Busy)
			q.x.Show(in[k].i, &jobs[k].State)
			q.rest(in[k].i)
		}
	})
}

// take makes room in the index for all jobs or none.
func (q *queue) take(ctx context.Context, jobs []serverless.Job, in []coming) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for k := range jobs {
		// One that is on its way out or in decides first: ErrExists says that it is there.
		i, err := q.find(ctx, jobs[k].Ref)
		if err != nil {
			return err
		}
		if i != 0 {
			return serverless.ErrExists
		}
	}
	for k := range jobs {
		i, ok := q.x.Add(jobs[k].Ref, jobs[k].Owner)
		if !ok { // twice among jobs, or find let somebody in
			q.drop(in[:k])
			return serverless.ErrExists
		}
		uid := q.uid.Add(1) - 1
		note, marks := jobindex.Note{Tag: uid}, jobindex.Busy
		if jobs[k].Output != nil || jobs[k].Error != "" {
			note.Output = 1
		}
		if jobs[k].Webhook != "" || jobs[k].Extra != nil {
			marks |= jobindex.Extras
		}
		q.x.SetNote(i, note)
		q.x.Mark(i, marks, 0)
		in[k] = coming{i: i, uid: uid}
	}
	return nil
}

func (q *queue) untake(in []coming) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop(in)
}

func (q *queue) drop(in []coming) {
	for _, c := range in {
		q.rest(c.i)
		q.x.Drop(c.i)
	}
}

// prepare does what can fail before the commit: sealing, and storing what is big.
func (q *queue) prepare(ctx context.Context, jobs []serverless.Job, in []coming) (err error) {
	for k := range jobs {
		j, c := &jobs[k], &in[k]
		if j.Webhook != "" || j.Extra != nil {
			if c.extras, err = encodeExtras(q.e.seals, bodyKey(c.uid, bodyExtras), j); err != nil {
				return err
			}
		}
		if len(j.Input) > bigBody {
			if err := q.e.storeBig(ctx, bodyKey(c.uid, bodyInput), j.Input); err != nil {
				return err
			}
			c.early = true
		}
	}
	return nil
}

func (q *queue) writeNew(b *pebble.Batch, j *serverless.Job, c *coming) {
	j.Seq = q.seq
	q.seq++
	s := stored{ref: j.Ref, owner: j.Owner, state: j.State, note: jobindex.Note{Tag: c.uid}}
	if c.extras != nil {
		s.marks = jobindex.Extras
		put(b, bodyKey(c.uid, bodyExtras), c.extras)
	}
	if j.Output != nil || j.Error != "" {
		s.note.Output = 1
		head, payload := outputParts(&serverless.Op{Payload: j.Output, Error: j.Error})
		put(b, outputKey(c.uid, 1), head, payload)
	}
	key := bodyKey(c.uid, bodyInput)
	if c.early {
		bigStored(b, key)
	} else {
		put(b, key, j.Input)
	}
	q.writeJob(b, &s)
}

func (q *queue) writeJob(b *pebble.Batch, s *stored) {
	var room [256]byte
	put(b, uidKey(keyJob, s.note.Tag), s.appendTo(room[:0]))
}

// load reads all jobs without their payloads.
func (q *queue) load(ctx context.Context, e *engine) error {
	q.init(e)
	type at struct {
		seq uint64
		i   uint32
	}
	var order []at
	var last serverless.Instant
	err := each(e.db, []byte{keyJob}, func(key, value []byte) error {
		var s stored
		if err := s.decode(key, value); err != nil {
			return err
		}
		if len(order)%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		i, ok := q.x.Add(s.ref, s.owner)
		if !ok {
			return fmt.Errorf("%w: two jobs of the same id", damaged(key))
		}
		q.x.SetNote(i, s.note)
		q.x.Mark(i, s.marks, 0)
		q.x.Load(i, &s.state)
		order = append(order, at{s.state.Seq, i})
		last = max(last, s.state.Submitted)
		return nil
	})
	if err != nil {
		return err
	}
	// They are in the order of their uids yet.
	uids := func(k int) (i uint32, uid uint64) { return order[k].i, q.x.Note(order[k].i).Tag }
	if err := q.loadLogs(len(order), uids); err != nil {
		return err
	}
	slices.SortFunc(order, func(a, b at) int {
		switch {
		case a.seq < b.seq:
			return -1
		case a.seq > b.seq:
			return 1
		}
		return 0
	})
	q.x.Begin(last)
	for _, o := range order {
		q.x.ShowLoaded(o.i)
	}
	if err := q.loadCounts(); err != nil {
		return err
	}
	return q.loadEntries()
}

func (q *queue) loadCounts() error {
	return each(q.e.db, []byte{keyCount}, func(key, value []byte) error {
		var s sums
		if err := s.add(value); err != nil {
			return fmt.Errorf("%w: %w", damaged(key), err)
		}
		q.x.Count(string(key[1:]), s[0], s[1], s[2])
		return nil
	})
}

// recoverStep is how many jobs one commit hands back.
const recoverStep = 1000

// recover hands back what was in progress when the store was left with workers that are
// gone.
func (q *queue) recover(ctx context.Context) error {
	gone := q.e.s.opts.Gone
	if gone == nil {
		return nil
	}
	var running []serverless.Ref
	q.x.All(func(i uint32) {
		if s := q.x.State(i); s.Status == serverless.InProgress && gone(s.Worker) {
			running = append(running, q.x.Ref(i))
		}
	})
	now := serverless.At(q.e.s.opts.Clock.Now())
	for len(running) > 0 {
		n := min(len(running), recoverStep)
		ops, res := make([]serverless.Op, n), make([]serverless.Result, n)
		for k := range ops {
			ops[k] = serverless.Op{Ref: running[k], Kind: serverless.OpRecover}
		}
		if _, err := q.apply(ctx, now, ops, res, nil); err != nil {
			return err
		}
		running = running[n:]
	}
	return nil
}

// Watch implements serverless.JobQueue.
func (q *Jobs) Watch(ctx context.Context, f func([]serverless.Event)) error {
	return q.s.jobHub.watch(ctx, f, func() { f([]serverless.Event{{Kind: serverless.EventGap}}) })
}

// Len is how many jobs there are, in whatever status.
func (q *Jobs) Len() int {
	e, err := q.s.engine()
	if err != nil {
		return 0
	}
	e.jobs.mu.Lock()
	defer e.jobs.mu.Unlock()
	return e.jobs.x.Len()
}
