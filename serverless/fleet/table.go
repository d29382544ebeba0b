package fleet

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/workers"
)

// Periods and pauses of the scaler.
const (
	resyncPeriod    = 10 * time.Second       // between two checks of all endpoints and of the fleet's list
	reconcilePeriod = time.Second            // between two checks of an endpoint with workers or queued jobs
	reconcilePause  = 100 * time.Millisecond // shortest time between two checks of one endpoint
	retryPause      = time.Second            // after a failed call
	roomPause       = 100 * time.Millisecond // between two endpoints that are offered the same room
)

// maxCalls is the most calls of the fleet in progress at once.
const maxCalls = 256

// never is an instant that never comes.
const never queue.Instant = math.MaxInt64

// A pace says how often endpoints are checked.
type pace struct{ deterministic bool }

// pause returns the shortest time between two checks of an endpoint.
func (p pace) pause() time.Duration {
	if p.deterministic {
		return 0 // everything happens at the instant of its cause
	}
	return reconcilePause
}

// after returns the instant of the next periodic check: after d, or never.
func (p pace) after(now queue.Instant, d time.Duration) queue.Instant {
	if p.deterministic {
		return never
	}
	return now.Add(d)
}

// A table is the memory of a scaler: the workers of each endpoint, what is due, and the calls
// in progress. Its methods hold its mutex over memory only.
type table struct {
	pace pace
	view func(workers.Key) (workers.View, bool) // Registry.View
	// leads reports whether this server still decides for an endpoint; nil: for all.
	leads func(endpoint string) bool

	mu        sync.Mutex
	endpoints map[string]*endpointWorkers
	changed   map[string]bool // endpoints that changed and are not in the map endpoints
	next      queue.Instant   // when the earliest action is due
	resyncAt  queue.Instant
	list      listing
	calls     int // calls of the fleet in progress
	shared    shared
}

// A listing is the state of the listings of the fleet.
type listing struct {
	known    bool // the fleet has answered once
	underWay bool
	at       queue.Instant // when to ask again
	count    uint64        // number of listings that were started
	done     uint64        // number of the last one that was answered
}

func newTable(p pace, metered, observed bool, view func(workers.Key) (workers.View, bool)) *table {
	t := &table{
		pace: p, view: view, endpoints: map[string]*endpointWorkers{}, changed: map[string]bool{}, next: 1,
		shared: shared{ledger: ledger{metered: metered}, observed: observed},
	}
	t.shared.ledger.changed() // workers of an earlier process may be gone
	return t
}

// of returns the workers of an endpoint, and creates the entry if there is none.
func (t *table) of(endpoint string) *endpointWorkers {
	q := t.endpoints[endpoint]
	if q == nil {
		q = &endpointWorkers{endpoint: endpoint, workers: map[queue.WorkerID]*worker{}, shared: &t.shared, led: t.leads == nil}
		t.endpoints[endpoint] = q
	}
	return q
}

func (t *table) find(k workers.Key) (*endpointWorkers, *worker) {
	q := t.endpoints[k.Endpoint]
	if q == nil {
		return nil, nil
	}
	return q, q.workers[k.ID]
}

// wakeSoon schedules a reconcile of q.
func (t *table) wakeSoon(q *endpointWorkers, now queue.Instant) {
	t.next = queue.Sooner(t.next, q.wake(now, t.pace.pause()))
}

// wake schedules a reconcile of an endpoint and returns its time; 0 for an unmanaged endpoint
// without workers.
func (t *table) wake(endpoint string, now queue.Instant) queue.Instant {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.endpoints[endpoint]
	at := now
	switch {
	case q == nil:
		t.changed[endpoint] = true
	case q.unmanaged && len(q.workers) == 0:
		return 0
	default:
		at = q.wake(now, t.pace.pause())
	}
	t.next = queue.Sooner(t.next, at)
	return at
}

// resync schedules a reconcile of all endpoints.
func (t *table) resync(now queue.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resyncAt, t.next = 0, now
}

// resyncFailed schedules a reconcile of all endpoints after a pause.
func (t *table) resyncFailed(now queue.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resyncAt = now.Add(retryPause)
}

// retry schedules a reconcile of an endpoint after a pause.
func (t *table) retry(endpoint string, now queue.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.of(endpoint)
	q.next = queue.Sooner(q.next, now.Add(retryPause))
}

// nextStep returns when something is due.
func (t *table) nextStep() queue.Instant {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.next
}

// settle computes again when something is due, and returns it.
func (t *table) settle(now queue.Instant) queue.Instant {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next = t.pace.after(now, resyncPeriod)
	if !t.list.underWay {
		t.next = min(t.next, t.list.at)
	}
	if !t.list.known {
		return t.next // the answer to the listing calls Wake
	}
	t.next = queue.Sooner(min(t.next, t.resyncAt), t.shared.ledger.next)
	if len(t.changed) > 0 {
		t.next = now
	}
	for _, q := range t.endpoints {
		t.next = queue.Sooner(t.next, q.next)
	}
	return t.next
}

// offerRoom ends the pauses of endpoints that have found no room, after a worker of any endpoint
// has ended: in turn, the one that has waited longest first. An endpoint whose worker ended by
// itself comes after them. So the place of a worker that crashes again and again goes to somebody
// else in between.
func (t *table) offerRoom(now queue.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.shared.freed {
		return
	}
	t.shared.freed = false
	var waiting []*endpointWorkers
	for _, q := range t.endpoints {
		if q.waitsForRoom() != 0 {
			waiting = append(waiting, q)
		}
	}
	slices.SortFunc(waiting, func(a, b *endpointWorkers) int {
		return cmp.Or(cmp.Compare(a.waitsForRoom(), b.waitsForRoom()), cmp.Compare(a.endpoint, b.endpoint))
	})
	for i, q := range waiting {
		at := max(now.Add(time.Duration(i)*roomPause), q.backoff.At+1) // a try at the instant of the last refusal is the same try
		q.backoff.Until = min(q.backoff.Until, at)
		q.next = queue.Sooner(q.next, q.backoff.Until)
	}
	for _, q := range t.endpoints {
		q.letPass(now, len(waiting))
	}
}

// due returns the endpoints to reconcile. all reports that every endpoint is due. known is
// false before the first list of the fleet; nothing is due then.
func (t *table) due(now queue.Instant) (list []string, all, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.list.known {
		return nil, false, false
	}
	if all = t.resyncAt <= now; all {
		t.resyncAt = t.pace.after(now, resyncPeriod)
	}
	for endpoint := range t.changed {
		list = append(list, endpoint)
	}
	clear(t.changed)
	for endpoint, q := range t.endpoints {
		if all || q.next != 0 && q.next <= now {
			list = append(list, endpoint)
			q.next = 0 // later events set it again
		}
	}
	slices.Sort(list)
	return slices.Compact(list), all, true
}

// leftovers returns the endpoints that have workers and are not in managed. It forgets those
// without workers.
func (t *table) leftovers(managed map[string]bool) (list []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for endpoint, q := range t.endpoints {
		switch {
		case managed[endpoint]:
		case len(q.workers) > 0:
			list = append(list, endpoint)
		default:
			delete(t.endpoints, endpoint)
		}
	}
	slices.Sort(list)
	return list
}

// beginList starts a listing of the fleet, if one is due, and returns its number.
func (t *table) beginList(now queue.Instant) (n uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.list.underWay || t.list.at > now {
		return 0, false
	}
	t.list.underWay = true
	t.list.count++
	return t.list.count, true
}

// listFailed ends a listing that failed.
func (t *table) listFailed(now queue.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list.underWay, t.list.at, t.next = false, now.Add(retryPause), now
}

// listed handles the answer to listing number n. Unknown workers were started by an earlier
// process; adopt says whether they stay.
func (t *table) listed(now queue.Instant, n uint64, list []Instance, adopt bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list = listing{known: true, at: t.pace.after(now, resyncPeriod), count: t.list.count, done: n}
	t.next = now
	there := map[workers.Key]bool{}
	for _, r := range list {
		k := workers.Key{Endpoint: r.Endpoint, ID: r.ID}
		there[k] = true
		q := t.of(r.Endpoint)
		w := q.workers[r.ID]
		if w == nil {
			w = foundWorker(k, now, r.State == InstanceEnded)
			q.workers[r.ID] = w
			if !adopt {
				q.apply(w, evStop, cause{}, now)
			}
		}
		t.report(q, w, r, now)
	}
	for _, q := range t.endpoints {
		for _, w := range q.byID() {
			t.compare(q, w, there[w.name()], now, n)
		}
	}
}

// compare handles a worker that may be missing from listing n.
func (t *table) compare(q *endpointWorkers, w *worker, there bool, now queue.Instant, n uint64) {
	switch {
	case w.isStopped() && !w.knownBy(n):
		t.list.at = now
	case w.isStopped() && there:
		t.list.at = min(t.list.at, now.Add(retryPause))
	case w.isStopped():
		q.apply(w, evRemoved, cause{}, now)
		t.wakeSoon(q, now)
	case !there && w.isMissing(n):
		w.vanish()
		t.exit(q, w, now)
		t.wakeSoon(q, now)
	}
}

// report records the fleet's report of a worker.
func (t *table) report(q *endpointWorkers, w *worker, r Instance, now queue.Instant) {
	metered := w.isMetered()
	if !w.report(r) {
		return
	}
	t.wakeSoon(q, now)
	if w.isMetered() != metered {
		t.shared.ledger.changed()
	}
	if r.State == InstanceEnded {
		t.exit(q, w, now)
	}
}

func (t *table) exit(q *endpointWorkers, w *worker, now queue.Instant) {
	var known *workers.View
	if v, ok := t.view(w.name()); ok {
		known = &v
	}
	e, c := w.exit(known, now)
	q.apply(w, e, c, now)
}

// heard handles a change of a worker that the fleet reports.
func (t *table) heard(r Instance, now queue.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q, w := t.find(workers.Key{Endpoint: r.Endpoint, ID: r.ID}); w != nil {
		t.report(q, w, r, now)
		return
	}
	t.list.at, t.next = now, now // an unknown worker: list the fleet
}

// lost schedules a listing at once, because reports of the fleet may have been missed.
func (t *table) lost() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list.at, t.next = 1, 1 // long due
}

// An observation says what to do about the workers of an endpoint before a decision.
type observation struct {
	ends    []jobsEnd
	forgot  []workers.Key // workers that the registry must drain
	failing *Backoff      // not nil: starts failed again
	failed  workers.Key   // the last worker that has failed; no ID: it is not known
}

// observe applies what the registry knows to the workers of e.
func (t *table) observe(now queue.Instant, e *endpoints.Endpoint, known map[queue.WorkerID]*workers.View) observation {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.of(e.ID)
	q.follow(e)
	o := observation{forgot: q.observe(now, known, initTimeout(e)), ends: q.jobsEnd()}
	if q.backoff.Fails > q.warned {
		b := q.backoff
		q.warned, o.failing = b.Fails, &b
		if w := q.lastFailed(); w != nil {
			o.failed = w.name()
		}
	}
	return o
}

// jobsEnded records that the jobs of workers were taken from them.
func (t *table) jobsEnded(now queue.Instant, endpoint string, done []jobsEnd) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of(endpoint).reap(now, done)
}

// situation returns the input of Decide, except the demand from the queue.
func (t *table) situation(now queue.Instant, e *endpoints.Endpoint, known map[queue.WorkerID]*workers.View) (ws []WorkerView, spare int, b Backoff) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.of(e.ID)
	ws = q.views(known)
	return ws, q.spareSince(now, ws, cmp.Or(e.Workers.Idle, endpoints.DefaultIdle)), q.backoff
}

// decided records a decision. fresh are the ids of the workers that it starts. with makes the
// spec of each; it runs under the mutex, so it must not block or call the table.
func (t *table) decided(e *endpoints.Endpoint, d Decision, fresh []queue.WorkerID, waiting bool, with func(queue.WorkerID) WorkerSpec) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.of(e.ID)
	q.decided(d, fresh, with)
	q.reconciled = d.At
	q.next = queue.Sooner(queue.Sooner(q.next, d.Next), q.due(d.At, initTimeout(e)))
	if len(q.workers) > 0 || waiting {
		q.next = queue.Sooner(q.next, t.pace.after(d.At, reconcilePeriod))
	}
}

// release stops all workers of an endpoint. done are the workers whose jobs were taken from
// them.
func (t *table) release(now queue.Instant, endpoint string, done []jobsEnd) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.of(endpoint)
	if q.release(now, done) {
		t.wakeSoon(q, now)
	}
	if len(q.workers) > 0 {
		q.next = queue.Sooner(q.next, t.pace.after(now, reconcilePeriod))
	}
}

// happen applies an event to a worker, if it is known.
func (t *table) happen(k workers.Key, e event, now queue.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q, w := t.find(k); w != nil {
		q.apply(w, e, cause{}, now)
		t.wakeSoon(q, now)
	}
}

// isLive reports whether a worker runs or will run.
func (t *table) isLive(k workers.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, w := t.find(k)
	return w != nil && w.isLive()
}

// beginCalls returns the calls of the fleet to make now, ordered by endpoint and worker. Each
// is in progress until endCall.
func (t *table) beginCalls(now queue.Instant) (orders []order) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, endpoint := range slices.Sorted(maps.Keys(t.endpoints)) {
		q := t.endpoints[endpoint]
		if !q.led || t.leads != nil && !t.leads(endpoint) {
			continue
		}
		for _, w := range q.byID() {
			o, ok, later := w.nextOrder(now)
			q.next = queue.Sooner(q.next, later)
			if !ok || t.calls == maxCalls {
				continue
			}
			t.calls++
			w.beginCall()
			if !o.stop {
				q.apply(w, evAsk, cause{}, now)
			}
			orders = append(orders, o)
		}
	}
	return orders
}

// endStart handles the fleet's answer to a start, an event with its cause. answered is false
// for a call that was cut off, which is repeated.
func (t *table) endStart(k workers.Key, e event, c cause, answered bool, now queue.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q, w := t.endCall(k, now)
	if w != nil && answered {
		q.apply(w, e, c, now)
	}
}

// endStop handles the fleet's answer to a stop.
func (t *table) endStop(k workers.Key, stopped bool, now queue.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, w := t.endCall(k, now)
	switch {
	case w == nil:
	case stopped:
		w.stopAccepted()
		t.list.at, t.next = now, now // check that it is gone
	default:
		w.retryAt(now.Add(retryPause))
	}
}

func (t *table) endCall(k workers.Key, now queue.Instant) (*endpointWorkers, *worker) {
	t.calls--
	q, w := t.find(k)
	if w != nil {
		w.endCall(t.list.count)
		t.wakeSoon(q, now)
	}
	return q, w
}

// statuses returns the workers of an endpoint, ordered by id.
func (t *table) statuses(endpoint string) (list []Status) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q := t.endpoints[endpoint]; q != nil {
		for _, w := range q.byID() {
			list = append(list, w.status(q.backoff))
		}
	}
	return list
}

// has reports whether the table has a worker, including an ended worker that is kept for its
// log.
func (t *table) has(k workers.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, w := t.find(k)
	return w != nil
}

func (t *table) decisions(endpoint string) []Decision {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.endpoints[endpoint]
	if q == nil {
		return nil
	}
	list := slices.Clone(q.decisions)
	for i := range list {
		list[i].Stop, list[i].Drain = slices.Clone(list[i].Stop), slices.Clone(list[i].Drain)
	}
	return list
}

func (t *table) coldStarts(endpoint string) []ColdStart {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q := t.endpoints[endpoint]; q != nil {
		return slices.Clone(q.cold)
	}
	return nil
}

// trouble returns why the workers of an endpoint fail, as far as their last output was read.
func (t *table) trouble(endpoint string) (x Trouble, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.endpoints[endpoint]
	if q == nil || q.told.Since != q.backoff.Crash.Since {
		return Trouble{}, false
	}
	return troubleOf(q.backoff, q.told)
}

// waitsForRoom reports whether workers of an endpoint have found no room.
func (t *table) waitsForRoom(endpoint string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.endpoints[endpoint]
	return q != nil && q.waitsForRoom() != 0
}

func (t *table) explain(endpoint string, since, now queue.Instant) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.endpoints[endpoint]
	switch {
	case !t.list.known:
		return []string{"the fleet has not said yet which workers it has"}
	case q == nil:
		return []string{"the scaler is about to look at it"}
	}
	return q.explain(since, now)
}

// beginMeter returns the uses to report to the meter now; ended is how many of them have
// ended. ok is false if no call is due. last makes a call due in any case.
func (t *table) beginMeter(now queue.Instant, last bool) (uses []WorkerUse, ended int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.list.known || !t.shared.ledger.isDue(now, last) {
		return nil, 0, false
	}
	ended = len(t.shared.ledger.ended)
	uses = slices.Clone(t.shared.ledger.ended)
	for _, q := range t.endpoints {
		if !q.led {
			continue // the server that decides reports them
		}
		for _, w := range q.workers {
			uses = w.appendUse(uses)
		}
	}
	t.shared.ledger.called, t.shared.ledger.next = now, 0
	if len(uses) > ended {
		t.shared.ledger.next = t.pace.after(now, meterPeriod)
	}
	return uses, ended, true
}

// endMeter records whether the meter has stored what was reported.
func (t *table) endMeter(ended int, kept bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !kept {
		t.shared.ledger.changed()
		return
	}
	t.shared.ledger.ended = t.shared.ledger.ended[ended:]
}

// surprises returns the surprises since the last call.
func (t *table) surprises() []surprise {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.shared.impossible
	t.shared.impossible = nil
	return list
}
