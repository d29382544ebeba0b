package workers

import (
	"maps"
	"slices"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// A record is the state of one worker. Only this file uses its fields. The registry's mutex
// guards them.
type record struct {
	key      Key
	busy     *int // counter of busy workers of the endpoint; nil: not in the registry
	presence presence
	session  session
	leases   map[queue.JobID]*lease
	notices  map[queue.JobID]*notice
}

// A Key identifies a worker.
type Key struct {
	Endpoint string
	ID       queue.WorkerID
}

// presence is the state of a worker that matters to every server that gives it jobs. Servers
// that share a queue would share it.
type presence struct {
	aliveUntil queue.Instant // for a remote worker that does not poll
	idleSince  queue.Instant // when it last had a job, or joined
	served     bool          // has finished a job
	draining   bool          // gets no more jobs
	unhealthy  string        // why it reported itself unhealthy; empty: it did not
}

// session is the state of a worker that belongs to this process.
type session struct {
	local bool // runs in this process
	polls int  // calls in progress that wait for a job
	// changed is closed and replaced when a stop notice is added or a drain begins.
	changed chan struct{}
	expires int // index in the expiry heap; -1: not in it
}

// A lease is a job that a worker holds.
type lease struct {
	token  queue.Token
	since  queue.Instant
	listed bool   // a ping has listed the job
	stop   func() // stops the job, for a local worker; must not block
}

// A notice tells a remote worker to stop a job.
type notice struct {
	since     queue.Instant
	delivered bool
	listed    queue.Instant // last ping that still listed the job
}

func newRecord(k Key, now queue.Instant) record {
	return record{
		key: k, presence: presence{idleSince: now},
		session: session{changed: make(chan struct{}), expires: -1},
		leases:  map[queue.JobID]*lease{}, notices: map[queue.JobID]*notice{},
	}
}

func (w *record) name() Key { return w.key }

// enter makes the counter busy count w while w has a job.
func (w *record) enter(busy *int) {
	w.busy = busy
	w.count(len(w.leases) > 0, +1)
}

// exit undoes enter.
func (w *record) exit() {
	w.count(len(w.leases) > 0, -1)
	w.busy = nil
}

func (w *record) count(changed bool, by int) {
	if changed && w.busy != nil {
		*w.busy += by
	}
}

func (w *record) isRegistered() bool { return w.busy != nil }

// place returns the index in the expiry heap; -1: not in it.
func (w *record) place() int { return w.session.expires }

func (w *record) setPlace(i int) { w.session.expires = i }

func (w *record) makeLocal() { w.session.local = true }

func (w *record) isLocal() bool { return w.session.local }

// expires reports whether w is removed when it is not heard from.
func (w *record) expires() bool { return w.isRegistered() && !w.session.local && w.session.polls == 0 }

func (w *record) aliveUntil() queue.Instant { return w.presence.aliveUntil }

func (w *record) heard(aliveUntil queue.Instant) {
	w.presence.aliveUntil = max(w.presence.aliveUntil, aliveUntil)
}

func (w *record) startPoll() { w.session.polls++ }

func (w *record) endPoll() { w.session.polls-- }

// watch returns the channel that the next change closes, and whether w gets jobs.
func (w *record) watch() (changed <-chan struct{}, takes bool) {
	return w.session.changed, !w.presence.draining
}

func (w *record) notify() {
	close(w.session.changed)
	w.session.changed = make(chan struct{})
}

func (w *record) drain() {
	if !w.presence.draining {
		w.presence.draining = true
		w.notify()
	}
}

func (w *record) setUnhealthy(reason string) { w.presence.unhealthy = reason }

// hold records a lease and removes the stop notice of the job.
func (w *record) hold(id queue.JobID, l *lease) {
	w.count(len(w.leases) == 0, +1)
	w.leases[id] = l
	delete(w.notices, id)
}

// drop removes a lease, if there is one.
func (w *record) drop(id queue.JobID, now queue.Instant) {
	if w.leases[id] == nil {
		return
	}
	delete(w.leases, id)
	w.presence.idleSince = now
	w.count(len(w.leases) == 0, -1)
}

// onStop sets the function that stops a job of a local worker. It reports false when there is
// no lease.
func (w *record) onStop(id queue.JobID, stop func()) bool {
	l := w.leases[id]
	if l == nil {
		return false
	}
	l.stop = stop
	return true
}

// done records the end of a job. It ignores the end of an earlier lease, because w has the
// job again.
func (w *record) done(op *queue.Op, now queue.Instant, finished bool) {
	if l := w.leases[op.ID]; l != nil && op.Token != 0 && l.token != op.Token {
		return
	}
	w.drop(op.ID, now)
	delete(w.notices, op.ID)
	w.presence.served = w.presence.served || finished
}

// stop makes w stop a job that is not leased to it any more. It reports whether it added a
// notice.
func (w *record) stop(id queue.JobID, now queue.Instant) (noticed bool) {
	l := w.leases[id]
	w.drop(id, now)
	switch {
	case !w.session.local && w.notices[id] == nil:
		// There need not be a lease here: the job may have been claimed at another server, or
		// before this process started.
		w.notices[id] = &notice{since: now}
		w.notify()
		return true
	case l != nil && l.stop != nil:
		l.stop()
	}
	return false
}

// deliver returns the jobs to stop whose notice was not delivered yet, and marks the notices
// as delivered.
func (w *record) deliver() (ids []queue.JobID) {
	for id, n := range w.notices {
		if !n.delivered {
			n.delivered = true
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (w *record) hasLeases() bool { return len(w.leases) > 0 }

func (w *record) hasNotices() bool { return len(w.notices) > 0 }

// ignoresStop reports whether w keeps running a job that it must stop.
func (w *record) ignoresStop(now queue.Instant) bool {
	for _, n := range w.notices {
		if n.since.Add(stopGrace) <= now && n.listed >= n.since.Add(stopGrace/2) {
			return true
		}
	}
	return false
}

// nextCheck returns the first instant after now at which ignoresStop may become true; 0:
// none.
func (w *record) nextCheck(now queue.Instant) (next queue.Instant) {
	for _, n := range w.notices {
		if at := n.since.Add(stopGrace); at > now {
			next = queue.Sooner(next, at)
		}
	}
	return next
}

// renewals appends the operations that renew every lease of w.
func (w *record) renewals(ops []queue.Op, until queue.Instant) []queue.Op {
	for id, l := range w.leases {
		op := w.op(id, queue.OpRenew)
		op.Token, op.Adopt, op.Until = l.token, true, until
		ops = append(ops, op)
	}
	return ops
}

// leaseOps returns operations of one kind for every lease, ordered by job id.
func (w *record) leaseOps(k queue.OpKind) (ops []queue.Op) {
	for _, id := range slices.Sorted(maps.Keys(w.leases)) {
		op := w.op(id, k)
		op.Adopt = true
		ops = append(ops, op)
	}
	return ops
}

func (w *record) op(id queue.JobID, k queue.OpKind) queue.Op {
	return queue.Op{Ref: queue.Ref{Endpoint: w.key.Endpoint, ID: id}, Kind: k, Worker: w.key.ID}
}

// ping returns operations that renew the jobs in lists, and that release jobs that did not
// arrive. It removes notices of jobs that w has stopped. ignored reports whether lists has a
// job that w must stop.
func (w *record) ping(lists []queue.JobID, now, until queue.Instant, grace time.Duration) (ops []queue.Op, ignored bool) {
	listed := make(map[queue.JobID]bool, len(lists))
	for _, id := range lists {
		listed[id] = true
		if n := w.notices[id]; n != nil {
			n.listed, ignored = now, true
			continue
		}
		w.list(id, now)
		op := w.op(id, queue.OpRenew)
		op.Adopt, op.Until = true, until
		ops = append(ops, op)
	}
	for id, l := range w.leases {
		if !l.listed && l.since.Add(grace) < now && !listed[id] {
			w.drop(id, now)
			op := w.op(id, queue.OpRelease)
			op.Token = l.token
			ops = append(ops, op)
		}
	}
	for id, n := range w.notices {
		// The worker has stopped the job, or it never had the job and never asks what to stop.
		if (n.delivered || n.since.Add(grace) < now) && !listed[id] {
			delete(w.notices, id)
		}
	}
	return ops, ignored
}

// list records that a ping has listed a job.
func (w *record) list(id queue.JobID, now queue.Instant) {
	if w.leases[id] == nil {
		w.hold(id, &lease{since: now})
	}
	w.leases[id].listed = true
}

// A View is a snapshot of a worker.
type View struct {
	ID        queue.WorkerID
	Jobs      []queue.JobID // leased to it, ordered by id
	Requests  int           // in flight, for a worker of a load-balancing endpoint
	IdleSince queue.Instant // when it last had a job, or joined
	Polling   bool          // waits for a job
	Served    bool          // has finished a job
	Draining  bool          // gets no more jobs
	Unhealthy string        // why it reported itself unhealthy; empty: it did not
}

// Busy reports whether the worker has a job or a request.
func (v *View) Busy() bool { return len(v.Jobs) > 0 || v.Requests > 0 }

// Takes reports whether the worker may get jobs.
func (v *View) Takes() bool { return !v.Draining && v.Unhealthy == "" }

func (w *record) view() View {
	return View{
		ID: w.key.ID, Jobs: slices.Sorted(maps.Keys(w.leases)), Polling: w.session.polls > 0,
		IdleSince: w.presence.idleSince, Served: w.presence.served,
		Draining: w.presence.draining, Unhealthy: w.presence.unhealthy,
	}
}
