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
	shared   *shared // nil: this process is the only one
}

// A Key identifies a worker.
type Key struct {
	Endpoint string
	ID       queue.WorkerID
}

// presence is the state of a worker that matters to every server that gives it jobs. Servers
// that share a queue share it by Rows.
type presence struct {
	aliveUntil queue.Instant // for a remote worker that does not poll
	asked      bool          // has asked for a job, or had one: only then it has joined
	idleSince  queue.Instant // when it last had a job, or joined
	served     bool          // has finished a job
	draining   bool          // gets no more jobs
	unhealthy  string        // why it reported itself unhealthy; empty: it did not
}

// session is the state of a worker that belongs to this process.
type session struct {
	local    bool // runs in this process
	polls    int  // calls in progress that wait for a job
	pings    pings
	complete bool // its leases from before this process were read
	// changed is closed and replaced when a stop notice is added or a drain begins.
	changed chan struct{}
	expires int // index in the expiry heap; -1: not in it
}

// pings says what pings have listed.
type pings uint8

const (
	listOwn     pings = 1 << iota // a job that the worker had
	listForeign                   // a job that it never had, as workers do that share the file with their jobs
)

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
	early     bool          // no ping has listed the job: it may be on its way to the worker
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
	if w.shared != nil {
		w.shared.heardUntil = max(w.shared.heardUntil, aliveUntil)
	}
}

// ask records that w asks for a job, or has one. It reports whether it is the first time.
func (w *record) ask() (first bool) {
	first = !w.presence.asked
	w.presence.asked = true
	return first
}

func (w *record) hasAsked() bool { return w.presence.asked }

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
	case !w.session.local && w.notices[id] == nil && len(w.notices) < maxNotices:
		// There need not be a lease here: the job may have been claimed at another server, or
		// before this process started.
		w.notices[id] = &notice{since: now, early: l == nil || !l.listed}
		w.notify()
		return true
	case l != nil && l.stop != nil:
		l.stop()
	}
	return false
}

// repeat has a notice delivered once more that came to the worker before the job, perhaps: now a ping lists
// the job.
func (w *record) repeat(n *notice) {
	if n.early && n.delivered {
		n.delivered = false
		w.notify()
	}
	n.early = false
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

// maxNotices is the number of jobs that a worker can be asked to stop at once. Of others it
// knows by the answers to its reports.
const maxNotices = 2000

// ignoresStop reports whether w keeps running a job that it must stop.
func (w *record) ignoresStop(now queue.Instant) bool {
	for _, n := range w.notices {
		if n.since.Add(stopGrace) <= now && n.listed >= n.since.Add(stopGrace/2) {
			return true
		}
	}
	return false
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

// leaseOps returns operations of one kind for every lease and for others, ordered by job id.
func (w *record) leaseOps(k queue.OpKind, others []queue.JobID) (ops []queue.Op) {
	list := slices.AppendSeq(slices.Clone(others), maps.Keys(w.leases))
	slices.Sort(list)
	for _, id := range slices.Compact(list) {
		op := w.op(id, k)
		op.Adopt = true
		ops = append(ops, op)
	}
	return ops
}

func (w *record) op(id queue.JobID, k queue.OpKind) queue.Op {
	return queue.Op{Ref: queue.Ref{Endpoint: w.key.Endpoint, ID: id}, Kind: k, Worker: w.key.ID}
}

// proves reports whether a ping of w that does not list a job shows that w does not have it. Many
// workers list nothing in their life, because their pings have no way to know (docs/clients.md), and
// some list jobs of others instead of theirs.
func (w *record) proves() bool { return w.session.pings == listOwn }

// ping returns operations that renew the jobs in lists, and what follows for the other jobs of w. If
// the ping proves nothing, they are renewed too, and others, which w got from other servers. If it
// does, a job that no ping has listed in a time of grace has ended without a result, or it did not
// arrive. One that was listed before is not renewed any more. ping removes notices of jobs that w has
// stopped. ignored reports whether lists has a job that w must stop.
func (w *record) ping(lists, others []queue.JobID, now, until queue.Instant, grace time.Duration) (ops []queue.Op, ignored bool) {
	listed := make(map[queue.JobID]bool, len(lists))
	renew := func(id queue.JobID, adopt bool) {
		listed[id] = true
		op := w.op(id, queue.OpRenew)
		op.Adopt, op.Until = adopt, until
		ops = append(ops, op)
	}
	for _, id := range lists {
		if n := w.notices[id]; n != nil {
			listed[id], n.listed, ignored = true, now, true
			w.repeat(n)
			continue
		}
		if l := w.leases[id]; l != nil {
			l.listed = true
			w.session.pings |= listOwn
		}
		renew(id, true)
	}
	if !w.proves() {
		for _, id := range append(slices.Sorted(maps.Keys(w.leases)), others...) {
			if !listed[id] && w.notices[id] == nil {
				renew(id, false)
			}
		}
	}
	ops = append(ops, w.unlisted(listed, now.Add(-grace))...)
	for id, n := range w.notices {
		// The worker has stopped the job, or it never had the job and never asks what to stop. One that no
		// ping has listed may still arrive, also when it was deleted meanwhile.
		if (n.delivered && !n.early || n.since.Add(grace) < now) && !listed[id] {
			delete(w.notices, id)
		}
	}
	return ops, ignored
}

// unlisted returns operations that end the leases from before an instant that no ping has listed.
func (w *record) unlisted(listed map[queue.JobID]bool, before queue.Instant) (ops []queue.Op) {
	for _, id := range slices.Sorted(maps.Keys(w.leases)) {
		if l := w.leases[id]; !l.listed && !listed[id] && l.since < before {
			ops = append(ops, w.noResult(id, "it reported no result, and its pings do not list the job"))
		}
	}
	return ops
}

// idle returns operations that end the leases that began at an instant or before: w says that it has
// no job.
func (w *record) idle(before queue.Instant) (ops []queue.Op) {
	for _, id := range slices.Sorted(maps.Keys(w.leases)) {
		if w.leases[id].since <= before {
			ops = append(ops, w.noResult(id, "it asked for another job and had reported no result"))
		}
	}
	return ops
}

func (w *record) noResult(id queue.JobID, why string) queue.Op {
	op := w.op(id, queue.OpNoResult)
	op.Token, op.Error = w.leases[id].token, why
	return op
}

// renewed records that a ping has renewed a job, which may have been leased by another server or
// before this process started. If the job was to be stopped meanwhile, that is still so.
func (w *record) renewed(id queue.JobID, listed bool, now queue.Instant) {
	if w.leases[id] == nil && w.notices[id] == nil {
		w.hold(id, &lease{since: now})
	}
	if l := w.leases[id]; l != nil && listed {
		l.listed = true
		w.session.pings |= listOwn
	}
}

func (w *record) token(id queue.JobID) queue.Token {
	if l := w.leases[id]; l != nil {
		return l.token
	}
	return 0
}

// has reports whether w has a job, or must stop it.
func (w *record) has(id queue.JobID) bool { return w.leases[id] != nil || w.notices[id] != nil }

func (w *record) listsForeign() { w.session.pings |= listForeign }

// completes reports whether the leases of w from before this process must be read, which is once.
func (w *record) completes() (first bool) {
	first = !w.session.complete
	w.session.complete = true
	return first
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
	Drained   queue.Instant // when the other servers could first read that it drains; 0: not yet, or there are none
	Unsure    bool          // it may have a job of which this server does not know
	Starting  bool          // it was heard of, and has not asked for a job yet
}

// Busy reports whether the worker has, or may have, a job or a request.
func (v *View) Busy() bool { return len(v.Jobs) > 0 || v.Requests > 0 || v.Unsure }

// Takes reports whether the worker may get jobs.
func (v *View) Takes() bool { return !v.Draining && v.Unhealthy == "" }

func (w *record) view() View {
	v := View{
		ID: w.key.ID, Jobs: slices.Sorted(maps.Keys(w.leases)), Polling: w.session.polls > 0,
		IdleSince: w.presence.idleSince, Served: w.presence.served,
		Draining: w.presence.draining, Unhealthy: w.presence.unhealthy, Starting: !w.presence.asked,
	}
	if w.shared != nil {
		v.Polling, v.Drained = v.Polling || w.shared.polling, w.shared.drained
	}
	return v
}

// shared is the part of a record that only servers that share a queue use.
type shared struct {
	heardUntil queue.Instant                 // as aliveUntil, by this server alone
	polling    bool                          // waits for a job at another server
	local      bool                          // runs in the program of another server
	flagged    bool                          // this server has it drain, although only others may hear of it
	written    queue.Instant                 // when the row was written last; 0: never
	row        Row                           // as it was written
	drained    queue.Instant                 // View.Drained
	stopped    map[queue.JobID]queue.Instant // Since of the Stops of others that were taken in
}

// noticeLife is how long a notice is kept that was delivered here, if the pings of the worker go
// to other servers.
const noticeLife = 10 * time.Minute

// isHeardHere reports whether w uses this server, or there is no other.
func (w *record) isHeardHere(now queue.Instant) bool {
	return w.shared == nil || w.session.local || w.session.polls > 0 || w.shared.heardUntil > now
}

func (w *record) isLocalElsewhere() bool { return w.shared != nil && w.shared.local }

// flag makes w have a row, so that the other servers read that it drains.
func (w *record) flag() {
	if w.shared != nil {
		w.shared.flagged = true
	}
}

// wasWritten reports whether w has a row that is not over at now.
func (w *record) wasWritten(now queue.Instant) bool {
	return w.shared.written != 0 && w.shared.row.AliveUntil > now
}

func (w *record) rewrite() { w.shared.written = 0 }

// unwritten returns the row of w, and whether it must be written.
func (w *record) unwritten(now queue.Instant, lease time.Duration) (Row, bool) {
	until := w.shared.heardUntil
	if w.session.local || w.session.polls > 0 {
		until = max(until, now.Add(lease))
	}
	if w.shared.flagged && until <= now {
		until = w.presence.aliveUntil
	}
	if until <= now {
		return Row{}, false // only others hear of it
	}
	row := Row{
		Key: w.key, AliveUntil: until, IdleSince: w.presence.idleSince, Served: w.presence.served, Polling: w.session.polls > 0,
		Local: w.session.local, Draining: w.presence.draining, Unhealthy: w.presence.unhealthy,
	}
	maps.DeleteFunc(w.notices, func(_ queue.JobID, n *notice) bool { return n.delivered && n.since.Add(noticeLife) < now })
	maps.DeleteFunc(w.shared.stopped, func(_ queue.JobID, since queue.Instant) bool { return since.Add(2*noticeLife) < now })
	for _, id := range slices.Sorted(maps.Keys(w.notices)) {
		row.Stops = append(row.Stops, Stop{id, w.notices[id].since})
	}
	old := &w.shared.row
	changed := row.Draining != old.Draining || row.Unhealthy != old.Unhealthy || !slices.Equal(row.Stops, old.Stops)
	return row, changed || w.shared.written == 0 || w.shared.written.Add(lease/3) <= now
}

func (w *record) wrote(now queue.Instant, row Row) {
	if row.Draining && w.shared.drained == 0 {
		w.shared.drained = now
	}
	w.shared.written, w.shared.row = now, row
}

// merge takes in what another server knows. It reports whether there is a new job to stop.
func (w *record) merge(row *Row, now queue.Instant) (stops bool) {
	w.presence.aliveUntil = max(w.presence.aliveUntil, row.AliveUntil)
	w.presence.idleSince = max(w.presence.idleSince, row.IdleSince)
	w.presence.served = w.presence.served || row.Served
	w.shared.polling, w.shared.local = row.Polling, row.Local
	if row.Unhealthy != "" && w.presence.unhealthy == "" {
		w.setUnhealthy(row.Unhealthy)
	}
	if row.Draining {
		w.drain()
	}
	for _, s := range row.Stops {
		if l := w.leases[s.Job]; w.shared.stopped[s.Job] >= s.Since || l != nil && l.since > s.Since {
			continue // it is known, or the worker was given the job again
		}
		if w.shared.stopped == nil {
			w.shared.stopped = map[queue.JobID]queue.Instant{}
		}
		w.shared.stopped[s.Job] = s.Since
		if w.isHeardHere(now) {
			stops = w.stop(s.Job, now) || stops
		}
	}
	return stops
}
