package disk

import (
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/podyard/podyard/problem"
)

// A commit is the change of one caller.
type commit struct {
	// write adds the records to the batch. The committer calls the write functions one after
	// the other. Synced commits are published in the same order.
	write func(b *pebble.Batch)
	// batch is what write would add, if write is nil.
	batch *pebble.Batch
	// publish makes the change visible in memory. It may be nil.
	publish func()
	sync    bool
	flush   bool          // the file system must have it before it is published
	ordered bool          // it assigns places in the queue: commits that do are published in order
	unshown bool          // it adds jobs that need not be durable yet
	done    chan struct{} // nil: nobody waits
}

// A group is a list of commits that share a write and a sync.
type group struct {
	number   uint64
	began    time.Time // zero without an observer
	changes  int       // commits, those that are not synced included
	ordered  bool      // it has an ordered commit that is synced
	unwaited bool      // nobody waits for its sync: see applyFlushed
	batch    *pebble.Batch
	commits  []*commit
}

const (
	queueLength = 1024
	syncLength  = 64
	groupBytes  = 1 << 20
	groupLength = 512
	// gatherLength is how many commits do not wait for the sync of those before them.
	gatherLength = 64
	// spareBatches is how many batches of groups are kept.
	spareBatches = 8
	// flushEvery is the longest time that a change which is not synced is only in the memory of the
	// process.
	flushEvery  = 100 * time.Millisecond
	firstClaims = 10 // see mayFlush
)

// commit writes a change, waits until it is durable, and publishes it. After an
// error the engine has ended and it is unknown whether the change is on disk. This engine
// never publishes it.
func (e *engine) commit(write func(*pebble.Batch), publish func()) error {
	return e.await(&commit{write: write, publish: publish, sync: true, done: make(chan struct{})})
}

// await submits a commit and waits until it is published.
func (e *engine) await(c *commit) error {
	if err := e.submit(c); err != nil {
		return err
	}
	select {
	case <-c.done:
		return nil
	case <-e.failed:
		return e.err()
	}
}

// submit queues a commit and does not wait for it.
func (e *engine) submit(c *commit) error {
	e.sendMu.RLock()
	defer e.sendMu.RUnlock()
	if e.closed {
		return ErrClosed
	}
	select {
	case e.queue <- c:
		if len(e.queue) >= gatherLength {
			signal(e.many)
		}
		return nil
	case <-e.failed:
		return e.err()
	}
}

// commitLoop forms groups and writes them. With many commits it writes the next group while the last
// one is being synced.
func (e *engine) commitLoop() {
	defer close(e.sync)
	defer e.recoverPanic()
	number := uint64(0)
	for c := range e.queue {
		e.gather()
		number++
		g := &group{number: number, batch: e.groupBatch(), began: e.s.commitBegins()}
		g.add(c)
	fill:
		for len(g.commits) < groupLength && g.batch.Len() < groupBytes {
			select {
			case c, ok := <-e.queue:
				if !ok {
					break fill
				}
				g.add(c)
			default:
				break fill
			}
		}
		if e.err() != nil || !e.write(g) {
			return
		}
	}
	if e.err() == nil {
		e.writeRest(number + 1)
	}
}

// gather waits for the sync of the groups before, so that more commits share the next one: each
// group wakes the committer and the log. It does not wait when many commits are there already.
func (e *engine) gather() {
	for e.syncing.Load() > 0 && len(e.queue) < gatherLength {
		select {
		case <-e.idle:
		case <-e.many:
		case <-e.failed:
			return
		}
	}
}

func (g *group) add(c *commit) {
	if c.write != nil {
		c.write(g.batch)
	} else {
		_ = g.batch.Apply(c.batch, nil) // a batch in memory accepts every record
		_ = c.batch.Close()
	}
	g.changes++
	g.commits = append(g.commits, c)
}

// groupBatch returns an empty batch for a group.
func (e *engine) groupBatch() *pebble.Batch {
	select {
	case b := <-e.spare:
		return b
	default:
		return e.db.NewBatch()
	}
}

// reuse keeps the memory of a batch that is written for the next groups, or drops it. A batch that is
// closed goes to the database's pool, and from there to small changes: a thousand of them that wait in
// the queue would each have the memory of a group.
func (e *engine) reuse(b *pebble.Batch) {
	b.Reset()
	select {
	case e.spare <- b:
	default:
	}
}

// write applies a group and publishes its commits that need no sync. It returns false if the
// engine has ended.
func (e *engine) write(g *group) bool {
	synced := e.toSync(g)
	e.s.space.spend(int64(g.batch.Len()))
	flush := slices.ContainsFunc(g.commits, func(c *commit) bool { return c.flush })
	if (flush || len(synced) > 0) && !g.batch.Empty() {
		e.unflushed.Store(0)
		e.flushed.Store(e.now())
	}
	var err error
	switch {
	case g.batch.Empty():
	case flush:
		g.unwaited = len(synced) == 0
		err = e.applyFlushed(g.batch)
	case len(synced) > 0:
		err = e.db.ApplyNoSyncWait(g.batch, pebble.Sync)
	default:
		e.flushSoon()
		err = e.db.Apply(g.batch, pebble.NoSync)
	}
	if err != nil {
		e.fail(problem.Newf(problem.Unavailable, "the store failed: write: %w", err))
	}
	if e.err() != nil {
		return false
	}
	for _, c := range g.commits {
		if !c.sync {
			if c.unshown {
				e.unshown.Store(g.number)
			}
			c.finish()
		}
	}
	if len(synced) == 0 && !g.unwaited {
		e.s.commitEnds(g)
		e.reuse(g.batch)
		return true
	}
	g.commits = synced
	if !g.unwaited {
		e.syncing.Add(1)
	}
	select {
	case e.sync <- g:
		return true
	case <-e.failed:
		return false
	}
}

// flushSoon has what was written without a sync given to the file system within flushEvery. The
// database keeps the end of its log in memory until a sync is asked for. So without that a claim on a
// quiet server would be lost when the process is killed, however old it is.
func (e *engine) flushSoon() {
	e.unflushed.CompareAndSwap(0, e.now())
	if !e.flushing.Swap(true) {
		e.flushAt(e.now() + int64(flushEvery))
	}
}

func (e *engine) now() int64 { return e.s.opts.Clock.Now().UnixNano() }

func (e *engine) flushAt(at int64) {
	e.s.opts.Clock.AfterFunc(time.Unix(0, at), func() {
		if since := e.unflushed.Load(); since > at-int64(flushEvery) && since <= at { // there was a sync meanwhile, and other changes after it
			e.flushAt(since + int64(flushEvery))
			return
		}
		e.flushing.Store(false)
		if e.unflushed.Load() > 0 {
			c := &commit{flush: true, write: func(b *pebble.Batch) { _ = b.LogData(nil, nil) }}
			go func() { _ = e.submit(c) }() // it fails if the engine has ended
		}
	})
}

// mayFlush reports whether a claim is given to the file system before its job runs. The handler may
// end the process at once, and would never be known as harmful otherwise. A server that syncs all the
// time does that for its first claims, where the jobs are that ran when it crashed.
func (e *engine) mayFlush() bool {
	since := e.now() - e.flushed.Load()
	return since < 0 || since >= int64(flushEvery) || e.claims.Add(1) <= firstClaims
}

// applyFlushed writes a batch and waits until the file system has it. It does not wait for the sync
// that follows.
func (e *engine) applyFlushed(b *pebble.Batch) error {
	select {
	case <-e.fs.syncs: // an earlier one
	default:
	}
	if err := e.db.ApplyNoSyncWait(b, pebble.Sync); err != nil || e.syncing.Load() > 0 {
		return err // a sync is under way, and the next one must not be waited for
	}
	select {
	case <-e.fs.syncs:
	case <-e.failed:
	}
	return nil
}

// toSync returns the commits of a group that are published after its sync. An ordered commit is
// one of them if another one, with a lower place in the queue, still waits for its sync.
func (e *engine) toSync(g *group) (synced []*commit) {
	orderly := func(c *commit) bool { return c.sync && c.ordered }
	g.ordered = slices.ContainsFunc(g.commits, orderly)
	behind := g.ordered || e.ordered.Load() > 0
	for _, c := range g.commits {
		if behind && c.ordered {
			c.sync = true
		}
		if c.sync {
			synced = append(synced, c)
		}
	}
	g.ordered = g.ordered || slices.ContainsFunc(synced, orderly)
	if g.ordered {
		e.ordered.Add(1)
	}
	return synced
}

// wait waits until the group is on disk.
func (g *group) wait() error { return g.batch.SyncWait() }

func (c *commit) finish() {
	if c.publish != nil {
		c.publish()
	}
	if c.done != nil {
		close(c.done)
	}
}

// syncLoop waits for syncs and publishes the groups in order. A failed sync ends the engine:
// it is unknown what is on disk, and a second sync would not show it.
func (e *engine) syncLoop() {
	defer close(e.done)
	defer e.recoverPanic()
	for g := range e.sync {
		if e.err() != nil {
			continue // drain the channel, so that the committer ends
		}
		if !g.batch.Empty() {
			if err := e.s.opts.wait(g); err != nil {
				e.fail(problem.Newf(problem.Unavailable, "the store failed: sync: %w", err))
			}
		}
		if e.err() != nil {
			continue
		}
		if !g.unwaited && e.syncing.Add(-1) == 0 {
			signal(e.idle)
		}
		if !g.batch.Empty() { // an empty group has synced nothing of those before it
			e.synced.Store(g.number)
		}
		for _, c := range g.commits {
			c.finish()
		}
		if g.ordered {
			e.ordered.Add(-1)
		}
		e.s.commitEnds(g)
		e.reuse(g.batch)
	}
}

// signal wakes the one who waits for ch, which has room for one signal.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// recoverPanic turns a panic into a failure of the engine. The database panics on some failed
// writes.
func (e *engine) recoverPanic() {
	if r := recover(); r != nil {
		e.fail(problem.Newf(problem.Unavailable, "the store failed: %w", fmt.Errorf("%v", r)))
	}
}

// stop ends the engine after all submitted commits. If the engine has failed, stop does not
// wait for the database: the fence keeps its writes from the disk. What waits for room on the disk
// fails now.
func (e *engine) stop() error {
	var err error
	e.ending.Do(func() {
		e.fs.patient.Store(false)
		e.sendMu.Lock()
		if !e.closed {
			e.closed = true
			close(e.queue)
		}
		e.sendMu.Unlock()
		select {
		case <-e.done:
		case <-e.failed:
		}
		if e.err() != nil {
			e.fs.close()
			go e.abandon()
			return
		}
		err = e.db.Close()
		e.fs.close()
	})
	return err
}

// abandon closes a failed database to free its memory.
func (e *engine) abandon() {
	defer func() { _ = recover() }() // the database may be in any state
	e.copying.Lock()                 // a backup still reads it
	defer e.copying.Unlock()
	_ = e.db.Close()
}
