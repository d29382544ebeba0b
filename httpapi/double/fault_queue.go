package double

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// A jobQueue is the product's queue. It reports to activity, and makes workers die by a fault.
type jobQueue struct {
	serverless.JobQueue
	act    *activity
	faults *faults
	jobs   *jobLog
	now    func() serverless.Instant
	wake   func() // makes the services check for work

	deathMu sync.Mutex // held for one move at a time while workers may die
	onWatch func()     // called once events come
	once    sync.Once
}

// Unwrap returns the wrapped queue.
func (q *jobQueue) Unwrap() serverless.JobQueue { return q.JobQueue }

// Watch notifies the double before others, so that it expects what workers do about an event.
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
	q.jobs.add(jobs) // before events about them
	if err := q.JobQueue.Enqueue(ctx, jobs); err != nil {
		q.jobs.remove(jobs)
		return err
	}
	// After workers were notified: until its job is known, the request counts as busy.
	if x := exchangeOf(ctx); x != nil && len(jobs) > 0 {
		q.act.waitsFor(x, &jobs[0])
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
	// The worker read the clock when it began to look. The clock may have moved since, because
	// it does not wait for workers without a job.
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
	ops = q.failed(ops)
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

// failed returns ops with the failures that faults make of results.
func (q *jobQueue) failed(ops []queue.Op) []queue.Op {
	own := false
	for i := range ops {
		if ops[i].Kind != queue.OpFinish || ops[i].Status != serverless.Completed || q.faults.of(FaultJobFails, ops[i].Endpoint) == nil {
			continue
		}
		if !own { // the caller's stay as they are
			ops, own = slices.Clone(ops), true
		}
		ops[i].Status, ops[i].Payload, ops[i].Error = serverless.Failed, nil, "a fault of the test double"
	}
	return ops
}

// applyOne is Apply when a worker may be dead, or die at this operation.
func (q *jobQueue) applyOne(ctx context.Context, now serverless.Instant, ops []queue.Op, res []queue.Result) error {
	q.deathMu.Lock() // otherwise a concurrent renewal could give the job back to the dead worker
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

// die ends a worker like the end of its process: all its jobs are lost. A worker of this
// process is replaced by one with a new id.
func (q *jobQueue) die(ctx context.Context, op *queue.Op) error {
	lost, end := q.act.kill(runKey{op.Ref, op.Worker})
	err := q.lose(ctx, op.Worker, lost)
	if end != nil {
		end()
	}
	return err
}

// lose takes the jobs from a dead worker.
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

// posted notes deliveries that were leased (n > 0) or recorded (n < 0).
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

// waitsFor notes the job that a request has made. A request that shows its job to nobody before
// its end has set its timer before that.
func (a *activity) waitsFor(x *exchange, j *serverless.Job) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x.ref, x.waitsForJob = j.Ref, j.Unshown()
	a.changed()
}

// sawJob notes that a request has read the job it is held for. A waiting request sets its timer
// before it reads the job, so from now on the clock can end its wait.
func (a *activity) sawJob(x *exchange, ref serverless.Ref) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if x.ref == ref && !x.waitsForJob {
		x.waitsForJob = true
		a.changed()
	}
}

// readyCounts returns how often jobs of the endpoints had become ready before a claim.
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

// claimFailed notes that a claim found out nothing.
func (a *activity) claimFailed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.claiming--
	a.changed()
}

// claimed notes which workers got jobs, and which found none.
func (a *activity) claimed(slots []queue.Slot, ready []uint64, jobs []serverless.Job, x *exchange, dies func(endpoint string) int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.claiming--
	for i, s := range slots {
		state, n := a.workerOf(workerKey{s.Endpoint, s.Worker}), 0
		for j := range jobs {
			job := &jobs[j]
			if job.Endpoint != s.Endpoint || job.Worker != s.Worker {
				continue
			}
			r := &run{runKey: runKey{job.Ref, job.Worker}, holder: state, dieAfter: dies(job.Endpoint), lost: x != nil && x.losesAnswer()}
			if old := a.runs[r.runKey]; old != nil {
				state.running--
			}
			a.runs[r.runKey] = r
			state.running++
			n++
		}
		if n < s.N {
			state.looked = ready[i]
		}
		if state.local && !state.waits {
			a.version++ // the service now knows the worker
		}
		state.waits = n == 0
	}
	if len(jobs) > 0 {
		a.version++
	}
	a.changed()
}

// applied notes the effects of operations on the workers that made them.
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

// deathOf reports whether an operation is of a dead worker (lost), or the one at which it dies
// (die).
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

// kill marks the runs of a worker as dead and returns its jobs. A remote worker loses only the
// one job, because its process is not ended.
func (a *activity) kill(k runKey) (lost []serverless.Ref, end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.runs[k]
	if one == nil {
		return nil, nil
	}
	if one.holder.inContainer { // its container ends, and the scaler takes its jobs
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
	// From now on its successor, which gets the job, counts as busy.
	next := &workerState{workerKey: workerKey{k.Endpoint, workerID(k.Endpoint, one.holder.generation+1)}, local: true, generation: one.holder.generation + 1, capacity: one.holder.capacity}
	a.workers[next.workerKey] = next
	one.holder.capacity = 0
	sortRefs(lost)
	return lost, one.holder.end
}
