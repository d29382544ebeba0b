package double

import (
	"context"
	"sync"
	"time"

	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
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
	queue serverless.JobQueue     // without the wrapper
	takes func(*workerState) bool // of a hired one: whether it is not to end

	mu           sync.Mutex
	version      uint64 // grows with every change of the stores
	changes      chan struct{}
	ready        map[string]uint64 // by endpoint: how often a job became ready
	workers      map[workerKey]*workerState
	runs         map[runKey]*run
	dead         map[runKey]bool // what is reported of these is not heard
	requests     map[*exchange]bool
	claiming     int // claims under way: a job is then neither queued nor known to run
	posting      int // deliveries handed out and not recorded
	givenUp      int // of posting, those nobody waits for
	wakes        uint64
	handledWakes uint64 // the kicks that the services have looked after
}

type workerKey struct {
	endpoint string
	worker   serverless.WorkerID
}

// A workerState is a worker, in this process or remote.
type workerState struct {
	workerKey
	local       bool
	inContainer bool // in a container
	generation  int  // of the workers of an endpoint in this process, one after another
	capacity    int
	running     int
	waits       bool      // its last claim found nothing: it waits for a job
	looked      uint64    // the ready count of the endpoint at the last claim that found nothing
	seen        time.Time // wall time of the last request of a remote one
	end         func()    // ends the life of a local one
}

type runKey struct {
	serverless.Ref
	worker serverless.WorkerID
}

// A run is a job that a worker has.
type run struct {
	runKey
	holder   *workerState
	resting  bool
	slow     bool // requests do not wait for it any more
	lost     bool // the answer with the job never reached the remote worker
	dieAfter int  // chunks; -1: it does not
	chunks   int
}

func newActivity(q serverless.JobQueue) *activity {
	return &activity{
		queue: q, changes: make(chan struct{}), ready: map[string]uint64{},
		workers: map[workerKey]*workerState{}, runs: map[runKey]*run{}, dead: map[runKey]bool{}, requests: map[*exchange]bool{},
	}
}

// changed tells those who wait. It is called with the lock.
func (a *activity) changed() {
	close(a.changes)
	a.changes = make(chan struct{})
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
		busy, news := a.busy(ctx, now), a.changes
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
		busy, news := a.unsettled(ctx), a.changes
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
		if r.holder.local && !r.resting && !r.slow {
			return true
		}
	}
	for _, s := range a.workers {
		if s.local && s.running < s.capacity && (!s.waits || a.mayHaveJob(ctx, s)) {
			return true
		}
	}
	return a.posting > a.givenUp || a.claiming > 0 || a.wakes != a.handledWakes
}

func (a *activity) slowDown() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.runs {
		r.slow = true
	}
}

// wake notes that the services are to look, and pump that they have looked after the
// kicks up to n.
func (a *activity) wake() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wakes++
}

func (a *activity) handledUpTo(n uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.handledWakes = max(a.handledWakes, n)
	a.changed()
}

func (a *activity) kicks() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wakes
}

// busy reports whether something is not at rest. It is called with the lock.
func (a *activity) busy(ctx context.Context, now time.Time) bool {
	if a.posting > a.givenUp || a.claiming > 0 {
		return true
	}
	for _, r := range a.runs {
		if r.holder.local && !r.resting {
			return true
		}
	}
	for _, s := range a.workers {
		if s.local && s.running < s.capacity && (!s.waits || a.mayHaveJob(ctx, s)) {
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

// mayHaveJob reports whether there may be a job that s has not looked at.
func (a *activity) mayHaveJob(ctx context.Context, s *workerState) bool {
	if s.looked >= a.ready[s.endpoint] {
		return false
	}
	if s.inContainer && !a.takes(s) {
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
		s := a.workers[workerKey{x.endpoint, x.worker}]
		return s == nil || a.mayHaveJob(ctx, s)
	case "runSync", "statusSync", "stream", "openai":
		if !x.waitsForJob || !x.until.IsZero() && !now.Before(x.until) {
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
	for _, s := range a.workers {
		s.looked, s.waits = a.ready[s.endpoint], true
	}
	for x := range a.requests {
		x.resting = true
	}
}

// events is what the queue tells.
func (a *activity) events(evs []queue.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	for i := range evs {
		switch e := &evs[i]; e.Kind {
		case queue.EventReady:
			a.ready[e.Endpoint]++
		case queue.EventDone, queue.EventChunk:
			for x := range a.requests {
				if x.ref == e.Ref {
					x.resting = x.waiting // what was given up on has something to do
				}
			}
		case queue.EventStop:
			r := a.runs[runKey{e.Ref, e.Worker}]
			if r == nil {
				continue
			}
			if r.resting = false; !r.holder.local {
				a.drop(r)
			}
		case queue.EventGap:
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
	if r.holder.running >= r.holder.capacity {
		r.holder.looked = 0 // it did not wait for a job: it has yet to look
	}
	r.holder.running--
	a.changed()
}

// addLocal adds a worker of this process.
func (a *activity) addLocal(l *localWorker, nth int, end func()) *workerState {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &workerState{workerKey: workerKey{l.endpoint, workerID(l.endpoint, nth)}, local: true, generation: nth, capacity: l.concurrency, end: end}
	a.workers[s.workerKey] = s
	return s
}

func (a *activity) removeWorker(s *workerState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.workers[s.workerKey] == s {
		delete(a.workers, s.workerKey)
	}
	a.version++
	a.changed()
}

// workerOf is the seat of a worker; one that is not known is remote.
func (a *activity) workerOf(k workerKey) *workerState {
	s := a.workers[k]
	if s == nil {
		s = &workerState{workerKey: k, capacity: 1 << 30}
		a.workers[k] = s
	}
	return s
}

// setResting says whether r is at rest.
func (a *activity) setResting(r *run, yes bool) {
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
		a.workerOf(workerKey{x.endpoint, x.worker}).seen = time.Now()
	}
}

func (a *activity) leave(x *exchange) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.requests, x)
	if x.worker != "" {
		a.workerOf(workerKey{x.endpoint, x.worker}).seen = time.Now()
	}
	a.changed()
}
