package double

import (
	"context"
	"sync"
	"time"

	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// The clock stands still while goroutines run: workers with a job, requests that are about to
// be answered, deliveries. Time must not move before they are at rest, otherwise their work
// happens at the wrong instant. activity knows all of them: it sees every call of the queue and
// every request.
//
// At rest is a worker that waits for a job, sleeps by the clock (Server.Sleep) or hangs; a
// request that is held for something that has not happened; nothing else. What comes to no rest
// for a while of wall time is given up on: it counts as resting until it moves.
type activity struct {
	queue serverless.JobQueue     // not wrapped
	takes func(*workerState) bool // whether a worker in a container takes jobs
	// waiting is how many requests to a load-balancing endpoint wait for a worker.
	waiting func(endpoint string) int

	mu           sync.Mutex
	version      uint64 // grows with every change of the stores
	changes      chan struct{}
	ready        map[string]uint64 // how often a job became ready, by endpoint
	workers      map[workerKey]*workerState
	runs         map[runKey]*run
	dead         map[runKey]bool // reports about these runs are ignored
	requests     map[*exchange]bool
	claiming     int // claims in progress: their jobs are neither queued nor known to run
	tags         int // of requests to workers
	posting      int // deliveries that are leased and not recorded
	givenUp      int // of posting, those that count as at rest
	wakes        uint64
	handledWakes uint64 // the calls of wake that the services have processed
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
	generation  int  // number of the worker among those of the endpoint in this process
	capacity    int
	running     int
	waits       bool      // its last claim found no job
	looked      uint64    // the ready count of the endpoint at the last claim without a job
	seen        time.Time // wall time of the last request of a remote worker
	end         func()    // ends a local worker
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
	slow     bool // requests no longer wait for it
	lost     bool // the remote worker never got the answer with the job
	dieAfter int  // the worker dies after so many chunks; -1: it does not
	chunks   int
}

func newActivity(q serverless.JobQueue) *activity {
	return &activity{
		queue: q, changes: make(chan struct{}), ready: map[string]uint64{},
		workers: map[workerKey]*workerState{}, runs: map[runKey]*run{}, dead: map[runKey]bool{}, requests: map[*exchange]bool{},
	}
}

// changed notifies the waiting goroutines. The caller holds the lock.
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

// A patience is a limit of wall time, in parts: while this process stands still, one of them passes
// and not all.
type patience struct {
	limit time.Duration
	parts int // that have passed
	timer *time.Timer
}

const patienceParts = 10

// passes sends at the end of each part. The first one begins with the first call.
func (p *patience) passes() <-chan time.Time {
	if p.timer == nil {
		p.timer = time.NewTimer(p.limit / patienceParts)
	}
	return p.timer.C
}

// isOver notes that a part has passed, and reports whether it was the last one.
func (p *patience) isOver() bool {
	p.parts++
	p.timer.Reset(p.limit / patienceParts)
	return p.parts == patienceParts
}

func (p *patience) restart() {
	p.parts = 0
	if p.timer != nil {
		p.timer.Reset(p.limit / patienceParts)
	}
}

func (p *patience) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
}

// wait returns when everything is at rest, or has not changed for limit of wall time.
func (a *activity) wait(ctx context.Context, now time.Time, limit time.Duration) error {
	p := patience{limit: limit}
	defer p.stop()
	for {
		a.mu.Lock()
		busy, changes := a.busy(ctx, now), a.changes
		a.mu.Unlock()
		if !busy {
			return nil
		}
		select {
		case <-changes:
			p.restart()
		case <-p.passes():
			if !p.isOver() {
				continue
			}
			a.giveUp()
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// requestPatience is how long, in wall time, a request waits for earlier ones.
const requestPatience = 100 * time.Millisecond

// before makes a request wait for the work that earlier requests have started in this process.
// So a client that makes one request after another gets the same answers every time. Concurrent
// requests have no order and do not wait.
func (a *activity) before(ctx context.Context) {
	p := patience{limit: requestPatience}
	defer p.stop()
	for {
		a.mu.Lock()
		busy, changes := a.unsettled(ctx), a.changes
		a.mu.Unlock()
		if !busy {
			return
		}
		select {
		case <-changes:
		case <-p.passes():
			if !p.isOver() {
				continue
			}
			a.slowDown()
			return
		case <-ctx.Done():
			return
		}
	}
}

// unsettled reports whether there is work in progress that no request waits for. The caller
// holds the lock.
func (a *activity) unsettled(ctx context.Context) bool {
	for x := range a.requests {
		if x.tag != "" {
			if a.isBusy(x, time.Time{}) {
				return true
			}
		} else if !x.resting && x.worker == "" && x.ref.ID == "" && !x.follows() {
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

// wake notes that the services must check for work, and handledUpTo that they have processed
// the first n calls of wake.
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

// busy reports whether something is not at rest. The caller holds the lock.
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

// mayHaveJob reports whether there may be a job that s has not seen.
func (a *activity) mayHaveJob(ctx context.Context, s *workerState) bool {
	if s.looked >= a.ready[s.endpoint] {
		return false
	}
	if s.inContainer && !a.takes(s) {
		return false
	}
	st, err := a.queue.Stats(ctx, 0, s.endpoint, nil)
	return err == nil && st.Queued > 0
}

// active reports whether a request is about to continue.
func (a *activity) active(ctx context.Context, x *exchange, now time.Time) bool {
	if x.tag != "" {
		return a.isBusy(x, now)
	}
	switch x.name() {
	case "getPodLogs", "getWorkerLogs", "jobEvents", "jobStop":
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

// giveUp makes everything that is busy count as at rest until it changes.
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

// events takes the events of the queue.
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
					x.resting = x.waiting // it has work again
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

// drop removes a run. The caller holds the lock.
func (a *activity) drop(r *run) {
	if a.runs[r.runKey] != r {
		return
	}
	delete(a.runs, r.runKey)
	if r.holder.running >= r.holder.capacity {
		r.holder.looked = 0 // it has not looked for a job yet
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

// workerOf returns the state of a worker; an unknown worker is remote.
func (a *activity) workerOf(k workerKey) *workerState {
	s := a.workers[k]
	if s == nil {
		s = &workerState{workerKey: k, capacity: 1 << 30}
		a.workers[k] = s
	}
	return s
}

// setResting sets whether r is at rest.
func (a *activity) setResting(r *run, yes bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r.resting = yes
	a.version++ // the service now knows that the worker has the job, and must check again
	a.changed()
}

// enter is called at the beginning of a request, leave at its end.
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
