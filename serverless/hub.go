package serverless

import (
	"container/list"
	"slices"
	"sync"
)

// A hub passes the queue's hints on to those who wait: callers that watch a job, workers
// that wait for one, workers that must drop one. A hint may be lost, so whoever waits
// looks again after registering and before sleeping.
type hub struct {
	mu     sync.Mutex
	jobs   map[watchKey][]*watcher
	takers map[string]*list.List // of *taker, first come first
	stop   func(Ref, WorkerID)   // what a worker must drop; does not block
}

type watchKey struct {
	Ref
	kind EventKind
}

// A watcher waits for one kind of event of one job. Its channel holds one signal.
type watcher struct {
	key watchKey
	ch  chan struct{}
}

// A taker is a worker that waits for a job of an endpoint.
type taker struct {
	endpoint string
	worker   WorkerID
	ch       chan struct{}
	at       *list.Element // nil once it was woken or has left
}

func (h *hub) init(stop func(Ref, WorkerID)) {
	h.jobs = map[watchKey][]*watcher{}
	h.takers = map[string]*list.List{}
	h.stop = stop
}

func (h *hub) watch(ref Ref, kind EventKind) *watcher {
	w := &watcher{watchKey{ref, kind}, make(chan struct{}, 1)}
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

// queue puts a taker at the end of the line.
func (h *hub) queue(t *taker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.takers[t.endpoint]
	if l == nil {
		l = list.New()
		h.takers[t.endpoint] = l
	}
	t.at = l.PushBack(t)
}

// leave takes a taker out of the line. One that was woken in the meantime passes the
// wake on: the job may be another's.
func (h *hub) leave(t *taker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.takers[t.endpoint]
	if t.at == nil {
		h.wake(t.endpoint)
		return
	}
	l.Remove(t.at)
	t.at = nil
	if l.Len() == 0 {
		delete(h.takers, t.endpoint)
	}
}

// wakeNext is wake for those who do not hold the mutex.
func (h *hub) wakeNext(endpoint string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wake(endpoint)
}

// wake signals the first taker of an endpoint: one event, one worker.
func (h *hub) wake(endpoint string) {
	l := h.takers[endpoint]
	if l == nil {
		return
	}
	h.signal(l, l.Front())
}

// wakeOther wakes the first taker that is not of the same worker as t.
func (h *hub) wakeOther(t *taker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.takers[t.endpoint]
	if l == nil {
		return
	}
	for e := l.Front(); e != nil; e = e.Next() {
		if e.Value.(*taker).worker != t.worker {
			h.signal(l, e)
			return
		}
	}
}

// signal takes a taker out of its line and wakes it.
func (h *hub) signal(l *list.List, e *list.Element) {
	t := l.Remove(e).(*taker)
	t.at = nil
	if l.Len() == 0 {
		delete(h.takers, t.endpoint)
	}
	t.ch <- struct{}{}
}

// events is what the queue calls.
func (h *hub) events(evs []Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range evs {
		switch e := &evs[i]; e.Kind {
		case EventReady:
			h.wake(e.Endpoint)
		case EventDone, EventChunk:
			for _, w := range h.jobs[watchKey{e.Ref, e.Kind}] {
				signal(w.ch)
			}
		case EventStop:
			h.stop(e.Ref, e.Worker)
		case EventGap:
			h.gap()
		}
	}
}

// gap wakes everybody: each looks at what it waits for.
func (h *hub) gap() {
	for _, ws := range h.jobs {
		for _, w := range ws {
			signal(w.ch)
		}
	}
	for ep, l := range h.takers {
		for range l.Len() {
			h.wake(ep)
		}
	}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
