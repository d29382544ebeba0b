package disk

import (
	"context"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/podyard/podyard/internal/jobindex"
	"github.com/podyard/podyard/serverless/queue"
)

// A move is one op on one job. The job is busy until the move ends.
type move struct {
	i             uint32
	ref           queue.Ref
	owner, key    string
	before, after queue.State
	was, note     jobindex.Metadata // before and after
	marks         jobindex.Marks
	eff           queue.Effect
	err           error
	op            *queue.Op
	now           queue.Instant
	slot          int           // index of the slot of a claim
	payloadStored bool          // the payload is already on disk
	rearm         bool          // the job was taken out of the queue of due jobs
	promised      int64         // bytes that count for the owner until the move is published
	unwritten     *unwrittenJob // nil: the job is on disk
	written       bool          // the move was added to a batch
	keeps         []byte        // the chunk that stays in memory until it is read; nil: none
	extras        []byte        // encoded, of OpReplace
	shows         bool          // the job becomes durable because somebody wants to see it
}

// begin computes a move of a job that is not busy. It marks the job as busy if the move
// changes something. The caller must hold mu.
func (q *jobQueue) begin(now queue.Instant, i uint32, op *queue.Op) (m move) {
	m = move{i: i, before: q.x.State(i), op: op, now: now}
	m.after = m.before
	if m.err = q.prepareInput(&m, i); m.err != nil {
		return m
	}
	m.eff, m.err = m.after.Apply(now, op)
	q.fits(&m)
	q.takeKey(&m)
	if m.eff == 0 {
		return m
	}
	q.prepareMove(&m)
	if m.eff&queue.PutInput != 0 {
		if m.marks = 0; m.extras != nil {
			m.marks = jobindex.HasExtra
		}
	}
	if m.eff&queue.PutOutput != 0 {
		m.note.Output = nextOutput(m.was.Output)
	}
	if m.eff&queue.DropOutput != 0 {
		// The next run has other keys for its chunks and its output. So those of this run can
		// be removed later, when no reader needs them.
		m.note.Chunk++
		m.note.Output = noOutput(m.was.Output)
	}
	return m
}

// prepareMove completes a move that changes something, and marks its job as busy. The caller must
// hold mu.
func (q *jobQueue) prepareMove(m *move) {
	m.ref, m.owner, m.key = q.x.Identity(m.i)
	m.was = q.x.Metadata(m.i)
	m.note = m.was
	if q.x.Has(m.i, jobindex.HasExtra) {
		m.marks = jobindex.HasExtra
	}
	m.unwritten = q.unwritten.by[m.i]
	q.x.Mark(m.i, jobindex.Busy, 0)
}

// The version of an output is odd if there is an output. It only grows, so that two outputs of
// a job never have the same version.
func nextOutput(v uint32) uint32 { return (v + 1) | 1 }
func noOutput(v uint32) uint32   { return (v + 1) &^ 1 }
func hasOutput(v uint32) bool    { return v&1 != 0 }

// durable reports whether the move must be on disk before it is visible. That is so for the
// results of workers, the calls of users, and every end of a job.
func (m *move) durable() bool {
	if m.eff&queue.Delete != 0 {
		// If the deletion of an expired job is lost, it is deleted again.
		return m.op.Kind == queue.OpDelete
	}
	return m.shows || m.op.Kind.Durable() || m.eff&queue.PutAttempt != 0 || m.after.Status.Terminal() && !m.before.Status.Terminal()
}

// write adds the move to a batch. The committer calls it.
func (q *jobQueue) write(b *pebble.Batch, m *move) {
	uid := m.was.Tag
	q.count(b, m)
	m.written = true
	if m.eff&queue.Delete != 0 {
		if m.unwritten == nil {
			q.erase(b, m)
		}
		return
	}
	if u := m.unwritten; u != nil {
		q.writeSubmitted(b, &u.insertion, u.input)
	}
	if m.eff&queue.NewSeq != 0 {
		q.numbers(b)
		m.after.Seq = q.nextSeq()
	}
	if m.eff&queue.DropInput != 0 && !q.keepInput(uid) {
		dropBody(b, bodyKey(uid, bodyInput), m.before.InBytes)
	}
	if m.eff&queue.PutInput != 0 {
		m.writeInput(b)
	}
	if m.eff&queue.PutOutput != 0 {
		key := outputKey(uid, m.note.Output)
		if head, payload := outputParts(m.op); m.payloadStored {
			bigStored(b, key)
		} else {
			put(b, key, head, payload)
		}
	}
	if m.eff&queue.AddChunk != 0 {
		key := chunkKey(uid, m.note.Chunk, m.after.Chunks-1)
		if m.payloadStored {
			bigStored(b, key)
		} else {
			put(b, key, m.op.Payload)
		}
	}
	if m.eff&queue.DropChunks != 0 {
		// A reader that misses one of these finds that the job has moved.
		for n := m.before.Drained; n < m.after.Drained; n++ {
			drop(b, chunkKey(uid, m.was.Chunk, n))
		}
	}
	s := stored{ref: m.ref, owner: m.owner, key: m.key, state: m.after, note: m.note, marks: m.marks}
	if m.eff&(queue.PutAttempt|queue.PutLease) != 0 {
		m.writeLogs(b)
	}
	if m.holds() {
		m.writeHold(b)
	}
	switch {
	case m.eff&queue.PutDead != 0:
		q.writeDead(b, &s)
	case m.eff&queue.DropDead != 0:
		q.dropWritten(b, m.ref)
	}
	if m.eff&queue.PutOutbox != 0 && q.pin(uid, m.after.Run, m.note.Output, forWebhook) {
		s.due = m.now
		var room [256]byte
		put(b, entryKey(uid, m.after.Run), s.appendTo(room[:0]))
		s.due = 0
	}
	q.writeJob(b, &s)
}

// writeLogs adds the attempt and the lease that the move has ended to a batch.
func (m *move) writeLogs(b *pebble.Batch) {
	if m.eff&queue.PutAttempt != 0 {
		a := m.before.EndedAttempt(m.now, &m.after, m.op)
		putJSON(b, tryKey(m.was.Tag, m.before.Run, m.after.Attempt), &a)
	}
	if m.eff&queue.PutLease != 0 {
		l := m.before.EndedLease(m.now, &m.after, m.op)
		putJSON(b, leaseKey(m.was.Tag, m.after.LeasePlace()), &l)
	}
}

// count adds a job to the counters of its endpoint when its state no longer shows its end.
func (q *jobQueue) count(b *pebble.Batch, m *move) {
	var s endpointCounters
	// A job that is deleted or runs again has still ended once.
	if m.eff&queue.Delete != 0 || m.before.Status.Terminal() && !m.after.Status.Terminal() {
		switch m.before.Status {
		case queue.Completed:
			s[0] = 1
		case queue.Failed, queue.TimedOut:
			s[1] = 1
		}
	}
	if m.eff&queue.Requeued != 0 {
		s[2] = 1
	}
	if s != (endpointCounters{}) {
		_ = b.Merge(textKey(keyCount, m.ref.Endpoint), s.bytes(), nil) // a batch accepts every record
	}
}

// erase removes the job. An unsettled webhook keeps its payloads.
func (q *jobQueue) erase(b *pebble.Batch, m *move) {
	uid := m.was.Tag
	drop(b, uidKey(keyJob, uid))
	if q.e.lostPayloads[uid] {
		dropAll(b, lossKey(uidKey(keyBody, uid)))
	}
	if p := q.pins[uid]; p != nil {
		p.gone = true
	} else {
		q.eraseBodies(b, m)
	}
	if m.before.Flags&queue.HasWebhook != 0 {
		q.eraseLog(b, m)
	}
}

// eraseLog removes the log of webhook attempts, which may have grown since the move began.
func (q *jobQueue) eraseLog(b *pebble.Batch, m *move) {
	q.mu.Lock()
	some, more := q.x.Has(m.i, jobindex.Logged), q.x.Has(m.i, jobindex.LoggedMore)
	q.mu.Unlock()
	switch {
	case more:
		dropAll(b, uidKey(keyAttempt, m.was.Tag))
	case some:
		drop(b, attemptKey(m.was.Tag, firstAttempt))
	}
}

// oneByOne is how many records are removed one by one. A range deletion in a table in memory
// makes the next read sort all ranges again.
const oneByOne = 32

// eraseBodies removes all payloads of a job. Most jobs have few payloads, with known keys.
// Others may be left from an earlier lease or run.
func (q *jobQueue) eraseBodies(b *pebble.Batch, m *move) {
	uid, n := m.was.Tag, m.was
	big := m.before.InBytes > bigPayload || m.before.OutBytes > bigPayload || m.before.Stream > bigPayload
	if big || n.Chunk > 0 || n.Output > oneByOne || m.before.Chunks > oneByOne {
		dropAll(b, uidKey(keyBody, uid))
		return
	}
	drop(b, bodyKey(uid, bodyInput))
	for v := uint32(1); v <= n.Output; v += 2 {
		drop(b, outputKey(uid, v))
	}
	for k := range m.before.Chunks {
		drop(b, chunkKey(uid, 0, k))
	}
	if m.marks&jobindex.HasExtra != 0 {
		drop(b, bodyKey(uid, bodyExtras))
	}
}

// A batch in memory accepts every record, so these calls cannot fail.
func drop(b *pebble.Batch, key []byte) { _ = b.Delete(key, nil) }

// dropBody removes a payload of a known length. The table of a large one goes with all its bytes as
// soon as a table has the deletion of its range.
func dropBody(b *pebble.Batch, key []byte, n uint32) {
	if n > bigPayload {
		_ = b.DeleteRange(key, following(key), nil)
		return
	}
	drop(b, key)
}

func dropAll(b *pebble.Batch, prefix []byte) {
	from, to := prefixRange(prefix)
	_ = b.DeleteRange(from, to, nil)
}

// clean removes payloads that the move made obsolete. It runs when no reader can need them.
func (q *jobQueue) clean(b *pebble.Batch, m *move) {
	uid := m.was.Tag
	if m.eff&queue.DropOutput != 0 && m.before.Chunks > 0 {
		dropAll(b, chunkKey(uid, m.was.Chunk, 0)[:14])
	}
	if m.newRun() {
		for n := range m.before.Attempt {
			drop(b, tryKey(uid, m.before.Run, n+1))
		}
	}
	if hasOutput(m.was.Output) && m.was.Output != m.note.Output && !q.keep(uid, m.was.Output) {
		dropBody(b, outputKey(uid, m.was.Output), m.before.OutBytes)
	}
}

// newRun reports whether the user has the job run again.
func (m *move) newRun() bool { return m.after.Run != m.before.Run }

// needsClean reports whether clean has something to remove.
func (m *move) needsClean() bool {
	if m.eff&queue.Delete != 0 {
		return false
	}
	return m.eff&queue.DropOutput != 0 && (m.before.Chunks > 0 || hasOutput(m.was.Output)) || m.newRun() && m.before.Attempt > 0 ||
		m.eff&queue.PutOutput != 0 && hasOutput(m.was.Output)
}

// publish makes the move visible and ends it. The caller must hold mu.
func (q *jobQueue) publish(m *move) {
	if m.unwritten != nil && (m.written || m.eff&queue.Delete != 0) {
		q.unwritten.remove(m.i)
	}
	q.tails.update(m)
	q.x.Promise(m.i, -m.promised)
	q.x.Tell(m.now)
	if m.eff&(queue.Delete|queue.DropInput) != 0 {
		q.e.s.space.deleted(m.before.Bytes())
	}
	q.x.Commit(m.i, &m.after, m.eff)
	if m.eff&queue.Delete != 0 {
		q.endMove(m.i)
		return
	}
	if m.holds() {
		q.x.HoldKey(m.i, m.op.HoldUntil(m.now), m.holdTag())
	}
	q.x.SetMetadata(m.i, m.note)
	if m.eff&queue.PutInput != 0 {
		q.x.Mark(m.i, m.marks, jobindex.HasExtra)
	}
	passed := q.x.Has(m.i, jobindex.Skipped)
	q.x.Mark(m.i, 0, jobindex.Busy|jobindex.Skipped)
	if passed && m.after.Status == queue.InQueue && m.eff&queue.EvReady == 0 {
		q.x.Requeue(m.i)
		m.eff |= queue.EvReady // whoever passed it by does not look again by itself
	}
	if m.rearm {
		q.x.Rearm(m.i)
	}
	if m.eff&queue.PutOutbox != 0 {
		q.addDelivery(&stored{owner: m.owner, state: m.after, note: m.was, due: m.now})
	}
	if m.eff&queue.DropDead != 0 {
		q.dead.Remove(m.ref)
	}
	if m.eff&queue.PutDead != 0 {
		q.publishDead(&stored{ref: m.ref, owner: m.owner, key: m.key, state: m.after, note: m.note, marks: m.marks})
	}
	q.endMove(m.i)
}

// publishAll publishes moves. ordered: their commit has assigned places in the queue.
func (q *jobQueue) publishAll(ms []move, ordered bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ordered {
		q.ordering--
	}
	for k := range ms {
		q.publish(&ms[k])
	}
}

// commit writes moves, publishes them, and removes obsolete payloads.
func (q *jobQueue) commit(ms []move) error {
	if len(ms) == 0 {
		return nil
	}
	if !slices.ContainsFunc(ms, func(m move) bool { return !m.inMemory() }) {
		q.publishAll(ms, false)
		return nil
	}
	if q.mayWait(ms) {
		return q.commitLater(ms)
	}
	sync, ordered, messy, unshown := false, false, false, false
	for k := range ms {
		ordered = ordered || ms[k].eff&queue.NewSeq != 0
		sync = sync || ms[k].durable()
		messy = messy || ms[k].needsClean()
		unshown = unshown || ms[k].unwritten != nil
	}
	if ordered {
		q.beginOrdered()
	}
	err := q.e.await(&commit{sync: sync, ordered: ordered, unshown: unshown, done: make(chan struct{}), write: func(b *pebble.Batch) {
		for k := range ms {
			q.write(b, &ms[k])
		}
	}, publish: func() { q.publishAll(ms, ordered) }})
	if err != nil || !messy {
		return err
	}
	return q.e.submit(&commit{write: func(b *pebble.Batch) {
		for k := range ms {
			if ms[k].needsClean() {
				q.clean(b, &ms[k])
			}
		}
	}, done: make(chan struct{})})
}

// laterEffects are those of claims, renewals, chunks and drains.
const laterEffects = queue.Put | queue.AddChunk | queue.EvChunk | queue.DropChunks

// mayWait reports whether moves may be visible before they are written. They need no sync, so a
// crash loses them anyway, with all that was written after the last sync.
func (q *jobQueue) mayWait(ms []move) bool {
	for k := range ms {
		if m := &ms[k]; m.eff&^laterEffects != 0 || m.durable() || m.unwritten != nil {
			return false
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for k := range ms {
		if m := &ms[k]; m.eff&queue.AddChunk != 0 && !m.payloadStored {
			if !q.tails.fits(m.op.Payload) {
				return false
			}
			m.keeps = append([]byte{}, m.op.Payload...)
		}
	}
	return true
}

// commitLater has the committer write moves, and publishes them at once. Later moves of the jobs
// are written after them. It waits only if the committer is far behind, and for some claims.
func (q *jobQueue) commitLater(ms []move) error {
	b := q.e.db.NewBatch()
	for k := range ms {
		q.write(b, &ms[k])
	}
	if ms[0].op.Kind == queue.OpClaim && q.e.mayFlush() {
		return q.e.await(&commit{batch: b, flush: true, done: make(chan struct{}), publish: func() { q.publishAll(ms, false) }})
	}
	if err := q.e.submit(&commit{batch: b}); err != nil {
		return err
	}
	q.publishAll(ms, false)
	return nil
}

// storeEarly stores a large payload before the commit that refers to it, because it would
// delay the commit. The job is busy meanwhile.
func (q *jobQueue) storeEarly(ctx context.Context, m *move) (err error) {
	if len(m.op.Payload) <= bigPayload || m.eff&queue.Delete != 0 {
		return nil
	}
	switch {
	case m.eff&queue.PutOutput != 0:
		head, payload := outputParts(m.op)
		err = q.e.storeBig(ctx, outputKey(m.was.Tag, m.note.Output), head, payload)
	case m.eff&queue.AddChunk != 0:
		err = q.e.storeBig(ctx, chunkKey(m.was.Tag, m.note.Chunk, m.after.Chunks-1), m.op.Payload)
	default:
		return nil
	}
	m.payloadStored = err == nil
	return err
}

// Apply implements serverless.JobQueue.
func (q *Jobs) Apply(ctx context.Context, now queue.Instant, ops []queue.Op, res []queue.Result) error {
	size := int64(0)
	for i := range ops {
		size += int64(len(ops[i].Payload))
		if ops[i].Job != nil {
			size += int64(len(ops[i].Job.Input))
		}
	}
	what := deletions
	if slices.ContainsFunc(ops, func(op queue.Op) bool { return !frees(op.Kind) }) {
		what = underWay
	}
	e, err := q.s.admitJobs(ctx, what, size)
	if err != nil {
		return err
	}
	tell := q.s.jobHub.Watched()
	evs, err := e.jobs.apply(ctx, now, ops, res)
	if tell && len(evs) > 0 {
		q.s.jobHub.Notify(evs)
	}
	return err
}

// frees reports whether moves of a kind make room, or come before those that do.
func frees(k queue.OpKind) bool {
	return k == queue.OpCancel || k == queue.OpPurge || k == queue.OpDelete || k == queue.OpSetTTL || k == queue.OpDrain || k == queue.OpDropInput
}

// apply makes the moves. Before it waits for a busy job, it completes the moves that it has
// begun.
func (q *jobQueue) apply(ctx context.Context, now queue.Instant, ops []queue.Op, res []queue.Result) (evs []queue.Event, err error) {
	for done := 0; done < len(ops); {
		ms, n, err := q.beginSome(ctx, now, ops[done:], res[done:])
		if err != nil {
			return evs, err
		}
		for k := range ms {
			if err := q.storeEarly(ctx, &ms[k]); err != nil {
				// The store has failed, so no other caller waits for the job.
				return evs, err
			}
		}
		if err := q.commit(ms); err != nil {
			return evs, err
		}
		k := 0
		for j := range n {
			if r := &res[done+j]; r.Effect != 0 {
				r.State = ms[k].after // with the new Seq
				evs = ms[k].eff.Events(evs, ops[done+j].Ref, ms[k].before.Worker)
				k++
			}
		}
		done += n
	}
	return evs, nil
}

// beginSome begins as many ops as fit into one commit.
func (q *jobQueue) beginSome(ctx context.Context, now queue.Instant, ops []queue.Op, res []queue.Result) (ms []move, n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for n < len(ops) {
		op := &ops[n]
		i := q.x.Find(op.Ref)
		if i == 0 {
			res[n] = queue.Result{Err: q.e.missing(keyJob, queue.ErrNotFound)}
			n++
			continue
		}
		if busy := q.blocks(i, op); busy != 0 {
			if len(ms) > 0 {
				return ms, n, nil
			}
			if err := q.wait(ctx, busy); err != nil {
				return nil, 0, err
			}
			continue
		}
		m := q.begin(now, i, op)
		if len(ms) > 0 && isFull(m.err) {
			return ms, n, nil // what is counted is exact when they are published
		}
		res[n] = queue.Result{State: m.after, Effect: m.eff, Err: m.err}
		if m.eff != 0 {
			ms = append(ms, m)
		}
		n++
	}
	return ms, n, nil
}
