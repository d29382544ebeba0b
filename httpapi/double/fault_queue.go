package double

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// A jobQueue is the product's jobQueue, watched, and with the workers that die of a fault.
type jobQueue struct {
	serverless.JobQueue
	act    *activity
	faults *faults
	jobs   *jobLog
	now    func() serverless.Instant
	wake   func() // has the services look

	deathMu sync.Mutex // held for one move at a time while workers may die
	onWatch func()     // called once events come
	once    sync.Once
}

// Unwrap gives the powers of the queue inside.
func (q *jobQueue) Unwrap() serverless.JobQueue { return q.JobQueue }

// Watch tells the double first: what a worker does about an event is then known to come.
func (q *jobQueue) Watch(ctx context.Context, f func([]queue.Event)) error {
	return q.JobQueue.Watch(ctx, func(evs []queue.Event) {
		q.act.events(evs)
		q.jobs.events(ctx, evs)
		f(evs)
		q.once.Do(q.onWatch)
		q.wake()
	})
}

func (q *jobQueue) Enqueue(ctx context.Context, jobs []serverless.Job) error {
	q.jobs.add(jobs) // before there are events of them
	if err := q.JobQueue.Enqueue(ctx, jobs); err != nil {
		q.jobs.remove(jobs)
		return err
	}
	// Not before workers have been told: as long as its job is not known the request counts
	// as busy.
	if x := exchangeOf(ctx); x != nil && len(jobs) > 0 {
		q.act.waitsFor(x, jobs[0].Ref)
	}
	return nil
}

func (q *jobQueue) Get(ctx context.Context, now serverless.Instant, ref serverless.Ref) (serverless.Job, error) {
	j, err := q.JobQueue.Get(ctx, now, ref)
	if x := exchangeOf(ctx); x != nil {
		q.act.sawJob(x, ref)
	}
	return j, err
}

func (q *jobQueue) Claim(ctx context.Context, now serverless.Instant, slots []queue.Slot, out []serverless.Job) ([]serverless.Job, error) {
	before := q.act.readyCounts(slots)
	// The worker read the clock when it began to look, which may be a while ago: the clock
	// does not wait for one that has nothing.
	now = max(now, q.now())
	n := len(out)
	out, err := q.JobQueue.Claim(ctx, now, slots, out)
	if err != nil {
		q.act.claimFailed()
		return out, err
	}
	q.act.claimed(slots, before, out[n:], exchangeOf(ctx), func(endpoint string) int {
		if f := q.faults.of(FaultWorkerDies, endpoint); f != nil {
			return f.Chunks
		}
		return -1
	})
	for i := range out[n:] {
		q.jobs.refresh(ctx, out[n+i].Ref)
	}
	return out, nil
}

func (q *jobQueue) Apply(ctx context.Context, now serverless.Instant, ops []queue.Op, res []queue.Result) error {
	if !q.act.someDie() {
		err := q.JobQueue.Apply(ctx, now, ops, res)
		q.act.applied(ops, res, err)
		return err
	}
	for i := range ops {
		if err := q.applyOne(ctx, now, ops[i:i+1], res[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// applyOne is Apply where a worker may be dead, or die of it.
func (q *jobQueue) applyOne(ctx context.Context, now serverless.Instant, ops []queue.Op, res []queue.Result) error {
	q.deathMu.Lock() // a renewal that was about to be made would bring the dead back
	defer q.deathMu.Unlock()
	lost, die := q.act.deathOf(&ops[0])
	if die {
		if err := q.die(ctx, &ops[0]); err != nil {
			return err
		}
	}
	if lost || die {
		res[0] = queue.Result{Err: serverless.ErrLeaseLost}
		return nil
	}
	err := q.JobQueue.Apply(ctx, now, ops, res)
	q.act.applied(ops, res, err)
	return err
}

// die ends a worker as if its process had: all its jobs are lost. One of this process is
// followed by another with a new id.
func (q *jobQueue) die(ctx context.Context, op *queue.Op) error {
	lost, end := q.act.kill(runKey{op.Ref, op.Worker})
	err := q.lose(ctx, op.Worker, lost)
	if end != nil {
		end()
	}
	return err
}

// lose takes jobs from a worker that is dead.
func (q *jobQueue) lose(ctx context.Context, w serverless.WorkerID, lost []serverless.Ref) error {
	ops := make([]queue.Op, len(lost))
	for i, ref := range lost {
		ops[i] = queue.Op{Ref: ref, Kind: queue.OpWorkerLost, Worker: w}
	}
	return q.JobQueue.Apply(ctx, q.now(), ops, make([]queue.Result, len(ops)))
}

func sortRefs(refs []serverless.Ref) {
	slices.SortFunc(refs, func(x, y serverless.Ref) int {
		return cmp.Or(cmp.Compare(x.Endpoint, y.Endpoint), cmp.Compare(x.ID, y.ID))
	})
}

func (q *jobQueue) Deliveries(ctx context.Context, now, until serverless.Instant, limit int) ([]serverless.Delivery, error) {
	ds, err := q.JobQueue.Deliveries(ctx, now, until, limit)
	q.act.posted(len(ds))
	return ds, err
}

func (q *jobQueue) Record(ctx context.Context, as []serverless.Attempt) error {
	err := q.JobQueue.Record(ctx, as)
	q.act.posted(-len(as))
	return err
}

// posted notes deliveries that were handed out, or recorded.
func (a *activity) posted(n int) {
	if n == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.posting += n
	a.givenUp = min(a.givenUp, a.posting)
	a.version++
	a.changed()
}

// waitsFor notes the job that a request has made.
func (a *activity) waitsFor(x *exchange, ref serverless.Ref) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x.ref = ref
}

// sawJob notes that a request has sawJob at the job it is held for. Who waits for a job sets
// a timer first and then looks: from now on the clock can bring the hold to its end.
func (a *activity) sawJob(x *exchange, ref serverless.Ref) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if x.ref == ref && !x.waitsForJob {
		x.waitsForJob = true
		a.changed()
	}
}

// readyCounts is how often jobs of the endpoints have become ready, before a claim.
func (a *activity) readyCounts(slots []queue.Slot) []uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.claiming++
	ready := make([]uint64, len(slots))
	for i, s := range slots {
		ready[i] = a.ready[s.Endpoint]
	}
	return ready
}

// claimFailed notes that nobody has looked.
func (a *activity) claimFailed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.claiming--
	a.changed()
}

// claimed notes who has got what, and who has looked in vain.
func (a *activity) claimed(slots []queue.Slot, ready []uint64, jobs []serverless.Job, x *exchange, dies func(endpoint string) int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.claiming--
	for i, s := range slots {
		seat, n := a.workerOf(workerKey{s.Endpoint, s.Worker}), 0
		for j := range jobs {
			job := &jobs[j]
			if job.Endpoint != s.Endpoint || job.Worker != s.Worker {
				continue
			}
			r := &run{runKey: runKey{job.Ref, job.Worker}, holder: seat, dieAfter: dies(job.Endpoint), lost: x != nil && x.losesAnswer()}
			if old := a.runs[r.runKey]; old != nil {
				seat.running--
			}
			a.runs[r.runKey] = r
			seat.running++
			n++
		}
		if n < s.N {
			seat.looked = ready[i]
		}
		if seat.local && !seat.waits {
			a.version++ // the service has it among its workers by now
		}
		seat.waits = n == 0
	}
	if len(jobs) > 0 {
		a.version++
	}
	a.changed()
}

// applied notes what moves mean for those who made them.
func (a *activity) applied(ops []queue.Op, res []queue.Result, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range ops {
		op := &ops[i]
		if op.Kind == queue.OpRenew || err != nil {
			continue
		}
		if res[i].Err == nil || res[i].Effect != 0 {
			a.version++
		}
		r := a.runs[runKey{op.Ref, op.Worker}]
		if r == nil {
			continue
		}
		switch op.Kind {
		case queue.OpChunk:
			r.chunks++
		case queue.OpFinish, queue.OpRelease:
			a.drop(r)
		default:
		}
	}
	a.changed()
}

// someDie reports whether a worker is dead or will be.
func (a *activity) someDie() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.runs {
		if r.dieAfter >= 0 {
			return true
		}
	}
	return len(a.dead) > 0
}

// deathOf says whether a move is one of a dead worker, or the one it dies at.
func (a *activity) deathOf(op *queue.Op) (lost, die bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := runKey{op.Ref, op.Worker}
	r := a.runs[k]
	switch {
	case op.Kind == queue.OpWorkerLost:
		return false, false
	case a.dead[k]:
		if r != nil && (op.Kind == queue.OpFinish || op.Kind == queue.OpRelease) {
			a.drop(r)
		}
		return true, false
	case r == nil:
		return false, false
	}
	says := op.Kind == queue.OpChunk || op.Kind == queue.OpFinish || op.Kind == queue.OpProgress
	return false, says && r.dieAfter >= 0 && r.chunks >= r.dieAfter
}

// kill notes the runs of a worker as dead and says which jobs it had; of a remote worker
// only the one job is lost: its process is not ours to end.
func (a *activity) kill(k runKey) (lost []serverless.Ref, end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.runs[k]
	if one == nil {
		return nil, nil
	}
	if one.holder.inContainer { // its container ends, and the scaler takes its jobs from it
		a.dead[k] = true
		return nil, one.holder.end
	}
	if !one.holder.local {
		a.dead[k] = true
		return []serverless.Ref{k.Ref}, nil
	}
	for _, r := range a.runs {
		if r.holder == one.holder && !a.dead[r.runKey] {
			a.dead[r.runKey] = true
			lost = append(lost, r.Ref)
		}
	}
	// Its successor is waited for from now on: the job is for it.
	next := &workerState{workerKey: workerKey{k.Endpoint, workerID(k.Endpoint, one.holder.generation+1)}, local: true, generation: one.holder.generation + 1, capacity: one.holder.capacity}
	a.workers[next.workerKey] = next
	one.holder.capacity = 0
	sortRefs(lost)
	return lost, one.holder.end
}
