package disk

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/queue"
)

// A mistake makes the store wrong in one way. It is added around the store or in one of its
// hooks: the store itself has no code for it.
type mistake struct {
	name   string
	queue  func(queue.JobQueue, *engine) queue.JobQueue // replaces the queue of the store
	fs     func(vfs.FS) vfs.FS                          // replaces the file system
	before func(vfs.FS) error                           // runs before each opening
	wait   func(*group) error                           // Options.wait
}

// around returns the queue with the mistake, if it is a mistake of the queue.
func (m *mistake) around(q queue.JobQueue, e *engine) queue.JobQueue {
	if m.queue == nil {
		return q
	}
	return m.queue(q, e)
}

var mistakes = []mistake{{
	name:  "a move is not fenced",
	queue: func(q queue.JobQueue, e *engine) queue.JobQueue { return &unfenced{q, e} },
}, {
	name: "the answer does not wait for the sync",
	fs:   func(fs vfs.FS) vfs.FS { return unsynced{fs} },
}, {
	name: "what is written is seen before it is durable",
	wait: func(g *group) error {
		for _, c := range g.commits {
			if c.publish != nil {
				c.publish()
				c.publish = nil
			}
		}
		return g.wait()
	},
}, {
	name:  "a job is seen before it is durable",
	queue: func(q queue.JobQueue, e *engine) queue.JobQueue { return &uncovered{q, e} },
}, {
	name: "tokens start anew at each opening",
	before: func(fs vfs.FS) error {
		return edit(fs, func(e *engine, b *pebble.Batch) error {
			epoch, _, err := e.number(metaEpoch)
			if epoch > 0 {
				putNumber(b, metaEpoch, epoch-1)
			}
			return err
		})
	},
}, {
	name: "the webhook is not in the commit of the end",
	before: func(fs vfs.FS) error {
		return edit(fs, func(_ *engine, b *pebble.Batch) error {
			from, to := prefixRange([]byte{keyEntry})
			return b.DeleteRange(from, to, nil)
		})
	},
}, {
	name: "a dead letter does not outlive a restart",
	queue: func(q queue.JobQueue, e *engine) queue.JobQueue {
		f := &forgetful{JobQueue: q, dead: map[queue.Ref]bool{}}
		for _, s := range e.jobs.dead.List(0, "echo", "") {
			f.dead[s.ref] = true
		}
		return f
	},
}, {
	name:  "a restart forgets that an attempt has ended",
	queue: afterRestart(func(s *queue.State) { s.Attempt-- }),
}, {
	name:  "a restart counts an attempt twice",
	queue: afterRestart(func(s *queue.State) { s.Attempt++ }),
}, {
	name:  "a restart forgets that a lease has ended",
	queue: afterRestart(func(s *queue.State) { s.Leases-- }),
}, {
	name: "a restart ends the job that waits for its next attempt",
	queue: afterRestart(func(s *queue.State) {
		if s.Status == queue.InQueue {
			s.Status, s.Finished = queue.Failed, s.Queued
		}
	}),
}}

// A forgetful queue has lost something of what was there when the store was opened.
type forgetful struct {
	queue.JobQueue
	dead   map[queue.Ref]bool
	states map[queue.Ref]queue.State
	change func(*queue.State)
}

// afterRestart changes the jobs of which an attempt had ended before the opening.
func afterRestart(change func(*queue.State)) func(queue.JobQueue, *engine) queue.JobQueue {
	return func(q queue.JobQueue, e *engine) queue.JobQueue {
		f := &forgetful{JobQueue: q, states: map[queue.Ref]queue.State{}, change: change}
		e.jobs.x.All(func(i uint32) {
			if s := e.jobs.x.State(i); s.Attempt > 0 {
				f.states[e.jobs.x.Ref(i)] = s
			}
		})
		return f
	}
}

func (f *forgetful) Get(ctx context.Context, now queue.Instant, ref queue.Ref) (queue.Job, error) {
	j, err := f.JobQueue.Get(ctx, now, ref)
	if s, ok := f.states[ref]; ok && j.State == s {
		f.change(&j.State)
	}
	return j, err
}

func (f *forgetful) DeadLetter(ctx context.Context, now queue.Instant, ref queue.Ref) (queue.DeadLetter, error) {
	if f.dead[ref] {
		return queue.DeadLetter{}, queue.ErrNotFound
	}
	return f.JobQueue.DeadLetter(ctx, now, ref)
}

// The crash test must fail for each mistake.
func TestTheCrashTestFindsMistakes(t *testing.T) {
	suite.SkipUnlessLong(t)
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			points := 0
			for seed := range uint64(40) {
				n, err := crash(t.Context(), seed, m)
				points += n
				if err != nil {
					t.Logf("found after %d points: %v", points, err)
					return
				}
			}
			t.Errorf("%d crash points have not found it", points)
		})
	}
}

// An unfenced queue accepts the ops of a worker without the right lease.
type unfenced struct {
	queue.JobQueue
	e *engine
}

func (u *unfenced) Apply(ctx context.Context, now queue.Instant, ops []queue.Op, res []queue.Result) error {
	ops = slices.Clone(ops)
	for i := range ops {
		op := &ops[i]
		v, ok := u.e.jobs.lookup(now, op.Ref)
		if ok && op.Kind > queue.OpClaim && op.Kind <= queue.OpProgress {
			op.Token, op.Worker = v.job.Token, v.job.Worker
		}
	}
	return u.JobQueue.Apply(ctx, now, ops, res)
}

// An uncovered queue takes every job that it returns for durable.
type uncovered struct {
	queue.JobQueue
	e *engine
}

func (u *uncovered) Get(ctx context.Context, now queue.Instant, ref queue.Ref) (queue.Job, error) {
	u.e.unshown.Store(0)
	if j, ok := u.unwritten(ref); ok && !j.Gone(now) {
		return j, nil
	}
	return u.JobQueue.Get(ctx, now, ref)
}

func (u *uncovered) unwritten(ref queue.Ref) (j queue.Job, ok bool) {
	q := &u.e.jobs
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.x.Find(ref)
	if q.unwritten.by[i] == nil {
		return j, false
	}
	j = q.x.Job(i)
	q.unwritten.by[i].fill(&j)
	return j, true
}

// An unsynced file system reports syncs of the database's log that it did not make.
type unsynced struct{ vfs.FS }

func (u unsynced) Unwrap() vfs.FS { return u.FS }

func (u unsynced) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return notSynced(name)(u.FS.Create(name, category))
}

func (u unsynced) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return notSynced(newname)(u.FS.ReuseForWrite(oldname, newname, category))
}

func notSynced(name string) func(vfs.File, error) (vfs.File, error) {
	return func(f vfs.File, err error) (vfs.File, error) {
		if err != nil || !strings.HasSuffix(name, ".log") {
			return f, err
		}
		return unsyncedFile{f}, nil
	}
}

type unsyncedFile struct{ vfs.File }

func (unsyncedFile) Sync() error                { return nil }
func (unsyncedFile) SyncData() error            { return nil }
func (unsyncedFile) SyncTo(int64) (bool, error) { return true, nil }

func edit(fs vfs.FS, change func(*engine, *pebble.Batch) error) (err error) {
	db, err := pebble.Open("store", &pebble.Options{FS: fs, Merger: counterMerger(), Logger: pebbleLogger{}, FormatMajorVersion: format})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	b := db.NewBatch()
	if err := change(&engine{db: db}, b); err != nil {
		return errors.Join(err, b.Close())
	}
	return b.Commit(pebble.Sync)
}
