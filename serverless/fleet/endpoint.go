package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/telemetry"
	"github.com/podyard/podyard/serverless/workers"
)

// maxDecisions is the number of decisions that are kept for an endpoint.
const maxDecisions = 100

// endpointWorkers has the fleet's workers of one endpoint and the decisions about them. The
// mutex of the table guards it.
type endpointWorkers struct {
	endpoint  string
	led       bool   // this server decides for the endpoint
	listing   uint64 // the number of the last listing before it did
	unmanaged bool   // the fleet must have no workers of the endpoint
	version   int
	workers   map[queue.WorkerID]*worker
	shared    *shared
	backoff   Backoff
	left      bool  // a worker has ended by itself since endpoints that wait for room were last woken
	warned    int   // failures in a row that were logged
	told      Crash // the last one whose output was read; of an earlier row if Since differs
	spare     lowerBounds
	decisions []Decision // recent decisions, oldest first
	cold      []ColdStart
	lastEnd   string // why the last worker ended that ended by itself
	lastEndAt queue.Instant

	reconciled queue.Instant // time of the last reconcile
	next       queue.Instant // time of the next reconcile; 0: when something happens
}

// shared is the state that the workers of all endpoints share.
type shared struct {
	ledger     ledger
	impossible []surprise // to be logged
	freed      bool       // a worker has ended since endpoints that wait for room were last woken
	observed   bool       // somebody wants the events
	events     []telemetry.WorkerEvent
}

// A surprise is an event that the state of a worker does not allow.
type surprise struct {
	worker workers.Key
	state  State
	event  event
}

// byID returns the workers ordered by id, so that every run handles them in the same order.
func (q *endpointWorkers) byID() []*worker {
	return slices.SortedFunc(maps.Values(q.workers), func(a, b *worker) int { return cmp.Compare(a.id(), b.id()) })
}

// apply makes a transition of a worker; every transition passes here. It returns the effects
// that the caller must carry out.
func (q *endpointWorkers) apply(w *worker, e event, c cause, now queue.Instant) effect {
	from := w.current()
	do, ok := w.apply(e, now)
	if !ok {
		q.shared.impossible = append(q.shared.impossible, surprise{w.name(), from, e})
	}
	if w.leavesRoom(from) {
		q.shared.freed = true
		q.left = q.left || w.current() != Gone && w.current() != Ended
	}
	if q.led {
		q.shared.ledger.note(w, do, now)
	}
	if ok && q.led && q.shared.observed {
		q.shared.event(w, from, e, do, c, now)
	}
	if ok && q.led && w.hasJoined(from) {
		q.addColdStart(ColdStart{now, now.Sub(w.requested)})
	}
	if do&doBlame != 0 {
		q.lastEnd, q.lastEndAt = c.end, now
	}
	if do&doFail != 0 || do&doBlame != 0 && !w.isProven(now) {
		next := q.backoff.After(now, w.requestedAt(), e == evRefused, c.reason)
		changed := next != q.backoff
		if q.backoff = next; changed && e != evRefused {
			q.backoff.Crash.Unborn = w.isUnborn(e)
			q.warned = min(q.warned, q.backoff.Fails-1)
		}
	}
	return do
}

// wake schedules the next reconcile, at now or after the pause since the last one, and
// returns its time.
func (q *endpointWorkers) wake(now queue.Instant, pause time.Duration) queue.Instant {
	at := max(now, q.reconciled.Add(pause))
	q.next = queue.Sooner(q.next, at)
	return at
}

// follow records the current release of e.
func (q *endpointWorkers) follow(e *endpoints.Endpoint) {
	q.unmanaged = false
	if q.version != e.Version {
		q.version, q.backoff, q.warned = e.Version, Backoff{}, 0 // the new release may fix the failure
	}
	for _, w := range q.workers {
		w.belong(e)
	}
}

// observe applies what the registry knows to the workers. It returns the workers that the
// registry should drain.
func (q *endpointWorkers) observe(now queue.Instant, views map[queue.WorkerID]*workers.View, limit time.Duration) (forgot []workers.Key) {
	for _, w := range q.byID() {
		if w.isObserved() {
			if e, c, ok := w.see(views[w.id()], now, limit); ok && q.apply(w, e, c, now)&doDrain != 0 {
				forgot = append(forgot, w.name())
			}
		}
		if w.provesAfter(&q.backoff, now) {
			if q.backoff = q.backoff.admitted(); w.isProven(now) {
				q.backoff = Backoff{}
			}
			q.warned = min(q.warned, q.backoff.Fails)
		}
	}
	return forgot
}

// A jobsEnd is a worker whose jobs must be taken from it, the operation for it, and how the worker
// ended.
type jobsEnd struct {
	worker workers.Key
	kind   queue.OpKind
	why    string
}

// jobsEnd returns the workers that have ended and whose jobs must be taken from them.
func (q *endpointWorkers) jobsEnd() (list []jobsEnd) {
	for _, w := range q.byID() {
		if k, ok := w.jobsEnd(); ok {
			list = append(list, jobsEnd{w.name(), k, w.exitText()})
		}
	}
	return list
}

// reap removes workers of done, whose jobs were taken from them. It makes the fleet forget
// workers that ended by themselves, and forgets workers that the fleet does not have. It
// keeps the last failed worker for keepFailed, because its log says why it failed.
func (q *endpointWorkers) reap(now queue.Instant, done []jobsEnd) {
	last := q.lastFailed()
	for _, d := range done {
		w := q.workers[d.worker.ID]
		if w == nil {
			continue
		}
		switch s := w.current(); {
		case s == Gone:
			delete(q.workers, d.worker.ID)
		case s == Lost, s == Failed && (w != last || w.exitedAt().Add(keepFailed) <= now):
			q.apply(w, evReap, cause{}, now)
		}
	}
}

func (q *endpointWorkers) lastFailed() (last *worker) {
	for _, w := range q.byID() {
		if w.current() == Failed && (last == nil || w.exitedAt() > last.exitedAt()) {
			last = w
		}
	}
	return last
}

// views returns the workers as input of Decide.
func (q *endpointWorkers) views(known map[queue.WorkerID]*workers.View) []WorkerView {
	list := make([]WorkerView, 0, len(q.workers))
	for _, w := range q.byID() {
		list = append(list, w.view(known[w.id()], q.version))
	}
	return list
}

// decided creates the workers that d starts: fresh are their ids, with makes their specs.
// Workers that wait for capacity are started first. Throttled workers that are no longer
// wanted are removed.
func (q *endpointWorkers) decided(d Decision, fresh []queue.WorkerID, with func(queue.WorkerID) WorkerSpec) {
	if len(d.Stop) > 0 {
		q.spare = nil // the stopped workers were among the spare ones
	}
	waiting := d.Want - q.live() - d.Start
	for _, w := range q.byID() {
		switch {
		case w.current() != Throttled:
		case len(fresh) > 0:
			fresh = fresh[1:]
			q.apply(w, evAgain, cause{}, d.At)
			w.request(with(w.id()), d.At)
		case waiting > 0:
			waiting--
		default:
			delete(q.workers, w.id())
		}
	}
	for _, id := range fresh {
		q.workers[id] = newWorker(workers.Key{Endpoint: q.endpoint, ID: id}, with(id), d.At)
	}
	q.note(d)
}

// live returns the number of workers that run or will run.
func (q *endpointWorkers) live() (n int) {
	for _, w := range q.workers {
		if w.isLive() {
			n++
		}
	}
	return n
}

// waitsForRoom returns since when a worker of the endpoint has found no room; 0: none waits.
func (q *endpointWorkers) waitsForRoom() (since queue.Instant) {
	if q.backoff.NoCapacity {
		for _, w := range q.workers {
			since = queue.Sooner(since, w.refusedAt())
		}
	}
	return since
}

// letPass has an endpoint whose worker ended by itself wait until others, which found no room, were
// asked whether they take the place.
func (q *endpointWorkers) letPass(now queue.Instant, others int) {
	left := q.left
	if q.left = false; !left || others == 0 || q.waitsForRoom() != 0 {
		return
	}
	if until := now.Add(time.Duration(others) * roomPause); until > q.backoff.Until {
		q.backoff.Until = until
		if q.backoff.Fails == 0 {
			q.backoff.Reason = "other endpoints have waited longer for room"
		}
	}
}

// note keeps d if it differs from the last decision.
func (q *endpointWorkers) note(d Decision) {
	if n := len(q.decisions); n > 0 {
		last := q.decisions[n-1]
		if len(d.Stop)+len(d.Drain)+d.Start == 0 && d.Want == last.Want && d.Reason == last.Reason {
			return
		}
		if n == maxDecisions {
			q.decisions = append(q.decisions[:0], q.decisions[1:]...)
		}
	}
	q.decisions = append(q.decisions, d)
	if q.shared.observed {
		q.shared.decided(q.endpoint, &d)
	}
}

// due returns when a worker must be checked although nothing has happened to it; 0: never.
func (q *endpointWorkers) due(now queue.Instant, limit time.Duration) (next queue.Instant) {
	for _, w := range q.workers {
		if at := w.due(limit, q.backoff.Fails > 0); at > now {
			next = queue.Sooner(next, at)
		}
	}
	return next
}

// release stops all workers, because the fleet must have none of this endpoint. done are the
// workers whose jobs were taken from them. It reports whether some workers are gone already.
func (q *endpointWorkers) release(now queue.Instant, done []jobsEnd) (gone bool) {
	q.unmanaged, q.reconciled = true, now
	q.decisions, q.cold, q.backoff, q.warned, q.lastEnd = nil, nil, Backoff{}, 0, ""
	for _, d := range done {
		if w := q.workers[d.worker.ID]; w != nil && w.current() == Failed {
			q.apply(w, evReap, cause{}, now)
		}
	}
	for _, w := range q.byID() {
		q.apply(w, evKill, cause{}, now)
		gone = gone || w.current() == Gone
	}
	return gone
}

// explain returns what the scaler knows about why a job has waited since the given instant.
func (q *endpointWorkers) explain(since, now queue.Instant) (why []string) {
	if len(q.decisions) == 0 || q.reconciled < since {
		return []string{"the scaler is about to look at it"}
	}
	last := q.decisions[len(q.decisions)-1].Reason
	if q.isPaused(now) && strings.Contains(last, q.backoff.Reason) {
		return []string{fmt.Sprintf("workers of this endpoint fail: %s; next try in %v", q.backoff.Reason, q.backoff.Until.Sub(now).Round(time.Second))}
	}
	why = append(why, last)
	if q.lastEnd != "" && q.lastEndAt >= since && !strings.Contains(last, q.lastEnd) {
		why = append(why, "the last worker that ended by itself: "+q.lastEnd)
	}
	return why
}

// isPaused reports whether no worker is started because the last ones have failed.
func (q *endpointWorkers) isPaused(now queue.Instant) bool {
	return q.backoff.Crashes() > 0 && !q.backoff.NoCapacity && q.backoff.Until > now
}
