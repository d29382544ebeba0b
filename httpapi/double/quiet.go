package double

import (
	"context"
	"sync"
	"time"

	"github.com/podyard/podyard/serverless"
)

// A frozen clock stands between two instants while goroutines run: workers with a job,
// requests that are about to be answered, deliveries. Time must not move before they have
// come to rest, or what they do happens at the wrong instant. activity knows them all:
// it sees every call of the queue and every request.
//
// At rest is a worker that waits for a job, sleeps by the clock (Server.Sleep) or hangs; a
// request that is held for something that has not happened; nothing else. What comes to
// no rest for a while of wall time is given up on: it counts as resting until it moves.
type activity struct {
	queue serverless.JobQueue // without the wrapper
	takes func(*seat) bool    // of a hired one: whether it is not to end

	mu       sync.Mutex
	version  uint64 // grows with every change of the stores
	news     chan struct{}
	ready    map[string]uint64 // by endpoint: how often a job became ready
	seats    map[seatKey]*seat
	runs     map[runKey]*run
	dead     map[runKey]bool // what is reported of these is not heard
	requests map[*exchange]bool
	claiming int // claims under way: a job is then neither queued nor known to run
	posting  int // deliveries handed out and not recorded
	givenUp  int // of posting, those nobody waits for
	kicked   uint64
	pumped   uint64 // the kicks that the services have looked after
}

type seatKey struct {
	endpoint string
	worker   serverless.WorkerID
}

// A seat is a worker, in this process or remote.
type seat struct {
	seatKey
	local    bool
	hired    bool // in a container
	nth      int  // of the workers of an endpoint in this process, one after another
	capacity int
	running  int
	waits    bool      // its last claim found nothing: it waits for a job
	looked   uint64    // the ready count of the endpoint at the last claim that found nothing
	seen     time.Time // wall time of the last request of a remote one
	end      func()    // ends the life of a local one
}

type runKey struct {
	serverless.Ref
	worker serverless.WorkerID
}

// A run is a job that a worker has.
type run struct {
	runKey
	seat     *seat
	resting  bool
	slow     bool // requests do not wait for it any more
	lost     bool // the answer with the job never reached the remote worker
	dieAfter int  // chunks; -1: it does not
	chunks   int
}

func newActivity(q serverless.JobQueue) *activity {
	return &activity{
		queue: q, news: make(chan struct{}), ready: map[string]uint64{},
		seats: map[seatKey]*seat{}, runs: map[runKey]*run{}, dead: map[runKey]bool{}, requests: map[*exchange]bool{},
	}
}

// changed tells those who wait. It is called with the lock.
func (a *activity) changed() {
	close(a.news)
	a.news = make(chan struct{})
}

// bump notes a change of a store.
func (a *activity) bump() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	a.changed()
}

func (a *activity) at() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.version
}

// wait returns when everything is at rest, or what is not has not moved for limit of
// wall time.
func (a *activity) wait(ctx context.Context, now time.Time, limit time.Duration) error {
	var timer *time.Timer
	for {
		a.mu.Lock()
		busy, news := a.busy(ctx, now), a.news
		a.mu.Unlock()
		if !busy {
			return nil
		}
		if timer == nil {
			timer = time.NewTimer(limit)
			defer timer.Stop()
		} else {
			timer.Reset(limit)
		}
		select {
		case <-news:
		case <-timer.C:
			a.giveUp()
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// requestPatience is how long of wall time a request waits for what came before it.
const requestPatience = 100 * time.Millisecond

// before has a request wait for what the ones before it have begun in this process: one
// client that asks one thing after another gets the same answers every time. Where several
// ask at once there is no such order, and nobody waits.
func (a *activity) before(ctx context.Context) {
	var timer *time.Timer
	for {
		a.mu.Lock()
		busy, news := a.unsettled(ctx), a.news
		a.mu.Unlock()
		if !busy {
			return
		}
		if timer == nil {
			timer = time.NewTimer(requestPatience)
			defer timer.Stop()
		}
		select {
		case <-news:
		case <-timer.C:
			a.slowDown()
			return
		case <-ctx.Done():
			return
		}
	}
}

// unsettled reports whether something is under way that no request is asking for. It is
// called with the lock.
func (a *activity) unsettled(ctx context.Context) bool {
	for x := range a.requests {
		if !x.resting && x.worker == "" && x.ref.ID == "" && x.name() != "getPodLogs" && x.name() != "getWorkerLogs" {
			return false
		}
	}
	for _, r := range a.runs {
		if r.seat.local && !r.resting && !r.slow {
			return true
		}
	}
	for _, s := range a.seats {
		if s.local && s.running < s.capacity && (!s.waits || a.missed(ctx, s)) {
			return true
		}
	}
	return a.posting > a.givenUp || a.claiming > 0 || a.kicked != a.pumped
}

func (a *activity) slowDown() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.runs {
		r.slow = true
	}
}

// kick notes that the services are to look, and pump that they have looked after the
// kicks up to n.
func (a *activity) kick() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kicked++
}

func (a *activity) pump(n uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pumped = max(a.pumped, n)
	a.changed()
}

func (a *activity) kicks() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.kicked
}

// busy reports whether something is not at rest. It is called with the lock.
func (a *activity) busy(ctx context.Context, now time.Time) bool {
	if a.posting > a.givenUp || a.claiming > 0 {
		return true
	}
	for _, r := range a.runs {
		if r.seat.local && !r.resting {
			return true
		}
	}
	for _, s := range a.seats {
		if s.local && s.running < s.capacity && (!s.waits || a.missed(ctx, s)) {
			return true
		}
	}
	for x := range a.requests {
		if !x.resting && a.active(ctx, x, now) {
			return true
		}
	}
	return false
}

// missed reports whether there may be a job that s has not looked at.
func (a *activity) missed(ctx context.Context, s *seat) bool {
	if s.looked >= a.ready[s.endpoint] {
		return false
	}
	if s.hired && !a.takes(s) {
		return false
	}
	st, err := a.queue.Stats(ctx, 0, s.endpoint)
	return err == nil && st.Queued > 0
}

// active reports whether a request is about to go on.
func (a *activity) active(ctx context.Context, x *exchange, now time.Time) bool {
	switch x.name() {
	case "getPodLogs", "getWorkerLogs", "jobStop":
		return false
	case "jobTake", "jobTakeBatch":
		s := a.seats[seatKey{x.endpoint, x.worker}]
		return s == nil || a.missed(ctx, s)
	case "runSync", "statusSync", "stream", "openai":
		if !x.held || !x.until.IsZero() && !now.Before(x.until) {
			return true
		}
		j, err := a.queue.Get(ctx, serverless.At(now), x.ref)
		if err != nil || j.Status.Terminal() {
			return true
		}
		return x.name() != "runSync" && x.name() != "statusSync" && j.Chunks > j.Drained
	}
	return true
}

// giveUp lets everything that is busy count as at rest until it moves.
func (a *activity) giveUp() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.givenUp = a.posting
	a.version++
	for _, r := range a.runs {
		r.resting = true
	}
	for _, s := range a.seats {
		s.looked, s.waits = a.ready[s.endpoint], true
	}
	for x := range a.requests {
		x.resting = true
	}
}

// events is what the queue tells.
func (a *activity) events(evs []serverless.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	for i := range evs {
		switch e := &evs[i]; e.Kind {
		case serverless.EventReady:
			a.ready[e.Endpoint]++
		case serverless.EventDone, serverless.EventChunk:
			for x := range a.requests {
				if x.ref == e.Ref {
					x.resting = x.waiting // what was given up on has something to do
				}
			}
		case serverless.EventStop:
			r := a.runs[runKey{e.Ref, e.Worker}]
			if r == nil {
				continue
			}
			if r.resting = false; !r.seat.local {
				a.drop(r)
			}
		case serverless.EventGap:
		}
	}
	a.changed()
}

// drop forgets a run. It is called with the lock.
func (a *activity) drop(r *run) {
	if a.runs[r.runKey] != r {
		return
	}
	delete(a.runs, r.runKey)
	if r.seat.running >= r.seat.capacity {
		r.seat.looked = 0 // it did not wait for a job: it has yet to look
	}
	r.seat.running--
	a.changed()
}

// sit adds a worker of this process.
func (a *activity) sit(l *local, nth int, end func()) *seat {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &seat{seatKey: seatKey{l.endpoint, workerID(l.endpoint, nth)}, local: true, nth: nth, capacity: l.concurrency, end: end}
	a.seats[s.seatKey] = s
	return s
}

func (a *activity) rise(s *seat) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seats[s.seatKey] == s {
		delete(a.seats, s.seatKey)
	}
	a.version++
	a.changed()
}

// seatOf is the seat of a worker; one that is not known is remote.
func (a *activity) seatOf(k seatKey) *seat {
	s := a.seats[k]
	if s == nil {
		s = &seat{seatKey: k, capacity: 1 << 30}
		a.seats[k] = s
	}
	return s
}

// rest says whether r is at rest.
func (a *activity) rest(r *run, yes bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r.resting = yes
	a.version++ // by now the service knows that the worker has the job: it looks again
	a.changed()
}

// enter and leave frame a request.
func (a *activity) enter(x *exchange) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests[x] = true
	if x.worker != "" {
		a.seatOf(seatKey{x.endpoint, x.worker}).seen = time.Now()
	}
}

func (a *activity) leave(x *exchange) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.requests, x)
	if x.worker != "" {
		a.seatOf(seatKey{x.endpoint, x.worker}).seen = time.Now()
	}
	a.changed()
}
