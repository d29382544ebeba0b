package workers

import (
	"cmp"
	"container/heap"
	"slices"
	"sync"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// stopGrace is how long a remote worker may keep running a job that it must stop.
const stopGrace = 10 * time.Second

// A Registry has the workers that this process knows. The zero value is empty and ready. It
// is safe for concurrent use, and its methods do not block.
//
// It keeps counters, so that the calls of every request cost the same for any number of
// workers.
type Registry struct {
	mu        sync.Mutex
	endpoints map[string]*endpoint
	local     map[*Worker]struct{}
	suspects  map[*Worker]struct{} // workers that have listed a job that they must stop
	checks    []queue.Instant      // when Unresponsive can tell more, soonest first
	expiry    expiry               // remote workers that do not poll
	watch     func(k Key, here bool)

	server string // the id of this server; empty: it shares nothing
	lease  time.Duration
	gone   []Key // workers whose rows must be removed
}

// Watch sets the function that is told of each worker that has joined (here), which it does when it
// asks for a job or has one, and of each that was removed afterwards. f must not block and must not
// call the registry. Call it before the registry is used.
func (r *Registry) Watch(f func(k Key, here bool)) { r.watch = f }

func (r *Registry) changed(k Key, here bool) {
	if r.watch != nil {
		r.watch(k, here)
	}
}

// A Worker is a worker of an endpoint, in the registry that created it. A Worker that has
// left the registry keeps its leases and is not counted. Its methods are safe for concurrent
// use.
type Worker struct {
	registry *Registry
	record   record
}

// Key returns the identity of the worker.
func (w *Worker) Key() Key { return w.record.name() }

// An endpoint has the workers of one endpoint.
type endpoint struct {
	workers map[queue.WorkerID]*Worker
	busy    int // number of workers that have a job
}

// Join returns a remote worker and adds it if it is unknown; joined reports that it was
// added. A worker that does not poll stays until aliveUntil, or until a later instant of an
// earlier call.
func (r *Registry) Join(endpoint string, id queue.WorkerID, now, aliveUntil queue.Instant) (w *Worker, joined bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, joined = r.join(Key{endpoint, id}, now)
	w.record.heard(aliveUntil)
	r.schedule(w)
	return w, joined
}

// JoinLocal adds a worker of this process, which stays until Leave. It returns nil if the
// endpoint has a local worker with this id. A remote worker with this id is removed, so that
// nothing that was reported for it applies to the local one.
func (r *Registry) JoinLocal(endpoint string, id queue.WorkerID, now queue.Instant) *Worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := Key{endpoint, id}
	if old := r.find(k); old != nil {
		if old.record.isLocal() {
			return nil
		}
		r.remove(old)
	}
	w, _ := r.join(k, now)
	w.record.makeLocal()
	r.asks(w)
	if r.local == nil {
		r.local = map[*Worker]struct{}{}
	}
	r.local[w] = struct{}{}
	r.schedule(w)
	return w
}

func (r *Registry) join(k Key, now queue.Instant) (w *Worker, joined bool) {
	e := r.endpoints[k.Endpoint]
	if e == nil {
		e = &endpoint{workers: map[queue.WorkerID]*Worker{}}
		if r.endpoints == nil {
			r.endpoints = map[string]*endpoint{}
		}
		r.endpoints[k.Endpoint] = e
	}
	if w = e.workers[k.ID]; w != nil {
		return w, false
	}
	w = &Worker{registry: r, record: newRecord(k, now)}
	if r.server != "" {
		w.record.shared = &shared{}
	}
	w.record.enter(&e.busy)
	e.workers[k.ID] = w
	return w, true
}

// asks records that w asks for a job, or has one.
func (r *Registry) asks(w *Worker) (first bool) {
	if first = w.record.ask(); first && w.record.isRegistered() {
		r.changed(w.Key(), true)
	}
	return first
}

// Leave removes w from the registry. Functions given to OnStop are no longer called.
func (w *Worker) Leave() {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	w.registry.forget(w)
}

// forget removes w here and at the other servers.
func (r *Registry) forget(w *Worker) {
	if r.server != "" && w.record.isRegistered() {
		r.gone = append(r.gone, w.Key())
	}
	r.remove(w)
}

func (r *Registry) remove(w *Worker) {
	if !w.record.isRegistered() {
		return
	}
	w.record.exit()
	e := r.endpoints[w.Key().Endpoint]
	if delete(e.workers, w.Key().ID); len(e.workers) == 0 {
		delete(r.endpoints, w.Key().Endpoint)
	}
	delete(r.local, w)
	delete(r.suspects, w)
	r.schedule(w)
	if w.record.hasAsked() {
		r.changed(w.Key(), false)
	}
}

// schedule updates the place of w in the expiry heap.
func (r *Registry) schedule(w *Worker) {
	switch at := w.record.place(); {
	case w.record.expires() && at < 0:
		heap.Push(&r.expiry, w)
	case w.record.expires():
		heap.Fix(&r.expiry, at)
	case at >= 0:
		heap.Remove(&r.expiry, at)
	}
}

// track forgets that w is a suspect when it has no notices left.
func (r *Registry) track(w *Worker) {
	if !w.record.isRegistered() || !w.record.hasNotices() {
		delete(r.suspects, w)
	}
}

// checkAt has Expire return an instant while it is in the future.
func (r *Registry) checkAt(at queue.Instant) {
	if n := len(r.checks); n == 0 || r.checks[n-1] < at { // the clock may go back: then it is checked later
		r.checks = append(r.checks, at)
	}
}

// Find returns the worker, or nil.
func (r *Registry) Find(k Key) *Worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.find(k)
}

func (r *Registry) find(k Key) *Worker {
	if e := r.endpoints[k.Endpoint]; e != nil {
		return e.workers[k.ID]
	}
	return nil
}

// HasLocal reports whether a worker of this process, or of the program of another server, has the
// key.
func (r *Registry) HasLocal(k Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.find(k)
	return w != nil && (w.record.isLocal() || w.record.isLocalElsewhere())
}

// Drain makes a worker get no more jobs and ends its waits for jobs. It reports false for an
// unknown worker.
func (r *Registry) Drain(k Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.find(k)
	if w != nil {
		w.record.drain()
		w.record.flag()
	}
	return w != nil
}

// Remove removes a worker, if it is known.
func (r *Registry) Remove(k Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.find(k); w != nil {
		r.forget(w)
	}
}

// Running returns the number of workers of an endpoint that have a job.
func (r *Registry) Running(endpoint string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.endpoints[endpoint]; e != nil {
		return e.busy
	}
	return 0
}

// List returns the workers of an endpoint, ordered by id.
func (r *Registry) List(endpoint string) []View {
	list := r.views(endpoint)
	slices.SortFunc(list, func(a, b View) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

func (r *Registry) views(endpoint string) []View {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.endpoints[endpoint]
	if e == nil {
		return nil
	}
	list := make([]View, 0, len(e.workers))
	for _, w := range e.workers {
		list = append(list, w.record.view())
	}
	return list
}

// Count returns the number of workers of an endpoint.
func (r *Registry) Count(endpoint string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.endpoints[endpoint]; e != nil {
		return len(e.workers)
	}
	return 0
}

// Stop makes a worker stop a job that is no longer leased to it: a local worker at once, a
// remote worker by a notice. check is the instant at which Unresponsive can tell whether a
// remote worker obeyed; 0: nothing to check.
func (r *Registry) Stop(ref queue.Ref, id queue.WorkerID, now queue.Instant) (check queue.Instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.find(Key{ref.Endpoint, id})
	if w == nil || !w.record.isHeardHere(now) || !w.record.stop(ref.ID, now) {
		return 0
	}
	check = now.Add(stopGrace)
	r.checkAt(check)
	return check
}

// Unresponsive returns the remote workers that keep running a job that they must stop.
func (r *Registry) Unresponsive(now queue.Instant) (list []Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.suspects {
		if w.record.ignoresStop(now) {
			list = append(list, w.record.name())
		}
	}
	slices.SortFunc(list, func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Endpoint, b.Endpoint), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// HasLocalLeases reports whether a local worker has a job.
func (r *Registry) HasLocalLeases() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.local {
		if w.record.hasLeases() {
			return true
		}
	}
	return false
}

// View returns a snapshot of a worker. It reports false for an unknown worker.
func (r *Registry) View(k Key) (View, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.find(k)
	if w == nil {
		return View{}, false
	}
	return w.record.view(), true
}

// Renewals returns the operations that renew the leases of all local workers.
func (r *Registry) Renewals(until queue.Instant) (ops []queue.Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.local {
		ops = w.record.renewals(ops, until)
	}
	return ops
}

// Expire removes the remote workers whose time is over, and returns their endpoints. next is
// the instant of the next call; 0: nothing is scheduled.
func (r *Registry) Expire(now queue.Instant) (next queue.Instant, left []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.checks) > 0 && r.checks[0] <= now {
		r.checks = r.checks[1:]
	}
	if len(r.checks) > 0 {
		next = r.checks[0]
	}
	for len(r.expiry) > 0 {
		w := r.expiry[0]
		if at := w.record.aliveUntil(); at > now {
			return queue.Sooner(next, at), left
		}
		left = append(left, w.Key().Endpoint)
		r.remove(w)
	}
	return next, left
}

// IsLocal reports whether w runs in this process.
func (w *Worker) IsLocal() bool {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	return w.record.isLocal()
}

// Ask records that w asks for a job. It reports whether w never did before: then it has joined.
func (w *Worker) Ask() (first bool) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	return w.registry.asks(w)
}

// StartPoll begins a wait for a job. w does not expire until EndPoll. changed is closed when
// there is a new stop notice or takes may have changed. takes is false for a worker that gets
// no more jobs.
func (w *Worker) StartPoll() (changed <-chan struct{}, takes bool) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	w.record.startPoll()
	w.registry.schedule(w)
	return w.record.watch()
}

// EndPoll ends a wait for a job. w stays until aliveUntil.
func (w *Worker) EndPoll(aliveUntil queue.Instant) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	w.record.endPoll()
	w.record.heard(aliveUntil)
	w.registry.schedule(w)
}

// Changed returns the current results of StartPoll.
func (w *Worker) Changed() (changed <-chan struct{}, takes bool) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	return w.record.watch()
}

// Lease records the jobs that were leased to w.
func (w *Worker) Lease(jobs []queue.Job, now queue.Instant) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	w.registry.asks(w)
	for i := range jobs {
		w.record.hold(jobs[i].ID, &lease{token: jobs[i].Token, since: now})
	}
	w.registry.track(w)
}

// OnStop sets the function that stops a job of a local worker. It reports false when w does
// not hold the job any more. stop must not block and must not call the registry.
func (w *Worker) OnStop(id queue.JobID, stop func()) bool {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	return w.record.onStop(id, stop)
}

// Done records that w reported the end of a job with op. It ignores an op with the token of
// an earlier lease. finished says that the job has a result.
func (w *Worker) Done(op *queue.Op, now queue.Instant, finished bool) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	w.record.done(op, now, finished)
	w.registry.track(w)
}

// Ping records the jobs that a remote worker says it has. It returns operations that renew their
// leases until the given instant, and others for the jobs that it does not list: see Proves. others
// are jobs that w got from other servers or before this process started. ignored reports whether w
// lists a job that it must stop; such a job is not renewed. Call Pinged with what came of it.
func (w *Worker) Ping(lists, others []queue.JobID, now, until queue.Instant, grace time.Duration) (ops []queue.Op, ignored bool) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	ops, ignored = w.record.ping(lists, others, now, until, grace)
	if r := w.registry; ignored && w.record.isRegistered() {
		if r.suspects == nil {
			r.suspects = map[*Worker]struct{}{}
		}
		r.suspects[w] = struct{}{}
	}
	w.registry.track(w)
	return ops, ignored
}

// Pinged takes in the results of the operations of Ping, of which those of listed jobs adopt. It returns the listed jobs that w has lost
// and must stop. A job that w never had is not among them: w cannot stop it. From then on a ping of w
// proves nothing, because its list is not its own.
func (w *Worker) Pinged(ops []queue.Op, res []queue.Result, now queue.Instant) (lost []queue.Ref) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	for i := range ops {
		id, listed := ops[i].ID, ops[i].Adopt
		switch {
		case ops[i].Kind == queue.OpNoResult:
			w.record.drop(id, now)
		case res[i].Err == nil:
			w.registry.asks(w)
			w.record.renewed(id, listed, now)
		case w.record.has(id), listed && (res[i].State.Worker == w.Key().ID || res[i].State.Lost == w.Key().ID):
			lost = append(lost, ops[i].Ref)
		case listed:
			w.record.listsForeign()
		}
	}
	return lost
}

// Token returns the token of the lease of a job that a worker has; 0: it is not known.
func (r *Registry) Token(k Key, id queue.JobID) queue.Token {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.find(k); w != nil {
		return w.record.token(id)
	}
	return 0
}

// Proves reports whether a ping of w that does not list a job shows that w does not have it: if it has
// listed a job that it had, and none that it never had.
func (w *Worker) Proves() bool {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	return w.record.proves()
}

// Completes reports true once: then somebody must read which jobs w had before this process started.
func (w *Worker) Completes() bool {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	return w.record.completes()
}

// Idle returns operations that end the leases of w that began at the given instant or before, because
// w says that it has no job and it has reported none.
func (w *Worker) Idle(before queue.Instant) []queue.Op {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	return w.record.idle(before)
}

// StopNotices returns the jobs that w must stop, ordered by id, each job once, and once more when a ping
// lists it for the first time. changed is closed when there may be more. draining reports that w gets no more jobs.
func (w *Worker) StopNotices() (ids []queue.JobID, changed <-chan struct{}, draining bool) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	changed, takes := w.record.watch()
	return w.record.deliver(), changed, !takes
}

// Unhealthy records that w reported itself unhealthy, and drains it.
func (w *Worker) Unhealthy(reason string) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	w.record.setUnhealthy(reason)
	w.record.drain()
}

// LeaseOps returns operations of one kind for every job of w, ordered by job id, and for others
// that it got from other servers. k is OpWorkerLost for a worker that is gone, and OpRelease for
// a worker that is not at fault.
func (w *Worker) LeaseOps(k queue.OpKind, others ...queue.JobID) []queue.Op {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	return w.record.leaseOps(k, others)
}
