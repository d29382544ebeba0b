package serverless

import (
	"slices"
	"sync"

	"github.com/podyard/podyard/serverless/queue"
)

// A hub passes the events of the queue to those that wait: callers that watch a job, workers
// that wait for a job, workers that must stop a job. An event may be lost, so every waiter
// checks the queue after it registers and before it sleeps.
type hub struct {
	mu     sync.Mutex
	jobs   map[watchKey][]*watcher
	takers map[string]takerList // by endpoint; no empty ones
	stop   func(Ref, WorkerID)  // called when a worker must stop a job; must not block
	limits func(string) bool    // whether the end of a job of an endpoint may free another
}

type watchKey struct {
	Ref
	kind queue.EventKind
}

// A watcher waits for one kind of event of one job. Its channel buffers one signal.
type watcher struct {
	key watchKey
	ch  chan struct{}

	wants   bool    // the result of a report
	reports int     // of the end of the job that are under way
	result  *result // of one of them
}

// A taker is a worker that waits for a job of an endpoint.
type taker struct {
	endpoint string
	worker   WorkerID
	ch       chan struct{}

	waits        bool // false: it was woken or has left
	before, next *taker
}

// A takerList has the takers that wait, in order of arrival.
type takerList struct{ first, last *taker }

func (h *hub) init(stop func(Ref, WorkerID), limits func(string) bool) {
	h.limits = limits
	h.jobs = map[watchKey][]*watcher{}
	h.takers = map[string]takerList{}
	h.stop = stop
}

func (h *hub) watch(ref Ref, kind queue.EventKind) *watcher {
	w := &watcher{key: watchKey{ref, kind}, ch: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.jobs[w.key] = append(h.jobs[w.key], w)
	return w
}

func (h *hub) unwatch(w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ws := h.jobs[w.key]
	if i := slices.Index(ws, w); i >= 0 {
		ws = slices.Delete(ws, i, i+1)
	}
	if len(ws) == 0 {
		delete(h.jobs, w.key)
		return
	}
	h.jobs[w.key] = ws
}

// queue adds a taker at the end of the waiting list of its endpoint.
func (h *hub) queue(t *taker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.takers[t.endpoint]
	t.waits, t.before, t.next = true, l.last, nil
	if l.last == nil {
		l.first = t
	} else {
		l.last.next = t
	}
	l.last = t
	h.takers[t.endpoint] = l
}

// leave removes a taker from the waiting list. If the taker was woken meanwhile, leave wakes
// the next one, because the job is for any of them.
func (h *hub) leave(t *taker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !t.waits {
		h.wake(t.endpoint)
		return
	}
	h.remove(t)
}

// remove removes a taker that waits from its list. The caller holds mu.
func (h *hub) remove(t *taker) {
	l := h.takers[t.endpoint]
	if t.before == nil {
		l.first = t.next
	} else {
		t.before.next = t.next
	}
	if t.next == nil {
		l.last = t.before
	} else {
		t.next.before = t.before
	}
	t.waits, t.before, t.next = false, nil, nil
	if l.first == nil {
		delete(h.takers, t.endpoint)
		return
	}
	h.takers[t.endpoint] = l
}

// wakeNext is wake for callers without the mutex.
func (h *hub) wakeNext(endpoint string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wake(endpoint)
}

// wakeTakers wakes all takers of an endpoint.
func (h *hub) wakeTakers(endpoint string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.takers[endpoint].first != nil {
		h.wake(endpoint)
	}
}

// wakeSome wakes at most n takers of an endpoint, and reports whether others wait.
func (h *hub) wakeSome(endpoint string, n int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ; n > 0 && h.takers[endpoint].first != nil; n-- {
		h.wake(endpoint)
	}
	return h.takers[endpoint].first != nil
}

// wake signals the first taker of an endpoint: one event wakes one worker, and over a shared
// queue a worker that gets a job wakes the next. The caller holds mu.
func (h *hub) wake(endpoint string) {
	if t := h.takers[endpoint].first; t != nil {
		h.signal(t)
	}
}

// wakeOther wakes the first taker whose worker is not that of t.
func (h *hub) wakeOther(t *taker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for other := h.takers[t.endpoint].first; other != nil; other = other.next {
		if other.worker != t.worker {
			h.signal(other)
			return
		}
	}
}

// signal removes a taker from its list and wakes it.
func (h *hub) signal(t *taker) {
	h.remove(t)
	t.ch <- struct{}{}
}

// events handles events of the queue.
func (h *hub) events(evs []queue.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range evs {
		switch e := &evs[i]; e.Kind {
		case queue.EventReady:
			h.wake(e.Endpoint)
		case queue.EventDone, queue.EventChunk:
			for _, w := range h.jobs[watchKey{e.Ref, e.Kind}] {
				if w.reports == 0 {
					signal(w.ch)
				}
			}
			if e.Kind == queue.EventDone && h.limits(e.Endpoint) {
				h.wake(e.Endpoint)
			}
		case queue.EventStop:
			h.stop(e.Ref, e.Worker)
		case queue.EventGap:
			h.wakeAll()
		}
	}
}

// wakeAll wakes every waiter; each checks what it waits for.
func (h *hub) wakeAll() {
	h.wakeWatchers()
	for endpoint := range h.takers {
		for h.takers[endpoint].first != nil {
			h.wake(endpoint)
		}
	}
}

// wakeWatchers wakes everybody who watches a job.
func (h *hub) wakeWatchers() {
	for _, ws := range h.jobs {
		for _, w := range ws {
			signal(w.ch)
		}
	}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
