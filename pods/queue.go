package pods

import (
	"container/heap"
	"sync"
	"time"
)

// loop is the work that the service has with its pods: which are to be looked at, now
// and later, and which are being looked at. A pod is in one pair of hands at a time.
type loop struct {
	slots chan struct{} // one for each call at once
	wake  chan struct{} // there is something to do
	wg    sync.WaitGroup

	opened  bool // the first look at everything was taken
	sources []*source

	mu      sync.Mutex
	items   map[string]*item // to be looked at
	ready   []string         // of them, those in nobody's hands, in order
	busy    map[string]bool
	held    map[string]*item // known from a look that failed
	alarms  alarms
	alarm   map[string]time.Time // earliest alarm of a pod
	stopped map[string]stopped
	waiting map[string]bool // pods without a place
	freed   bool            // compute may have become free since they were tried
	gap     bool            // hints of the store were lost
}

// An item is what is known of a pod that is to be looked at.
type item struct {
	id     string
	states []State
	source *source // which runtime lists a container of this id
	absent *Seen   // its container was not in a list taken when the pod was seen like this
}

// stopped is when a host took the stop of a run.
type stopped struct {
	run uint64
	at  time.Time
}

func (l *loop) init(calls int) {
	l.slots = make(chan struct{}, calls)
	l.wake = make(chan struct{}, 1)
	l.items = make(map[string]*item)
	l.busy = make(map[string]bool)
	l.held = make(map[string]*item)
	l.alarm = make(map[string]time.Time)
	l.stopped = make(map[string]stopped)
	l.waiting = make(map[string]bool)
}

func (l *loop) ring() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// push asks for a look at a pod; add, if any, says what is known.
func (l *loop) push(id string, add func(*item)) {
	l.mu.Lock()
	it := l.items[id]
	if it == nil {
		it = &item{id: id}
		l.items[id] = it
		if !l.busy[id] {
			l.ready = append(l.ready, id)
		}
	}
	if add != nil {
		add(it)
	}
	l.mu.Unlock()
	l.ring()
}

// pop takes a pod in hand; done puts it back.
func (l *loop) pop() *item {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ready) == 0 {
		return nil
	}
	id := l.ready[0]
	l.ready = l.ready[1:]
	it := l.items[id]
	delete(l.items, id)
	l.busy[id] = true
	if old := l.held[id]; old != nil {
		delete(l.held, id)
		it.states = append(old.states, it.states...)
		if it.source == nil {
			it.source = old.source
		}
		if it.absent == nil {
			it.absent = old.absent
		}
	}
	return it
}

// hold keeps what is known of a pod that could not be looked at, for the next look.
func (l *loop) hold(it *item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[it.id] = it
}

func (l *loop) done(id string) {
	l.mu.Lock()
	delete(l.busy, id)
	_, again := l.items[id]
	if again {
		l.ready = append(l.ready, id)
	}
	l.mu.Unlock()
	if again {
		l.ring()
	}
}

// states takes what has been reported of a pod that is in hand since it was popped.
func (l *loop) states(id string) []State {
	l.mu.Lock()
	defer l.mu.Unlock()
	it := l.items[id]
	if it == nil {
		return nil
	}
	list := it.states
	it.states = nil
	return list
}

// at asks for a look at a pod once t is reached.
func (l *loop) at(id string, t time.Time) {
	l.mu.Lock()
	if old, ok := l.alarm[id]; !ok || t.Before(old) {
		l.alarm[id] = t
		heap.Push(&l.alarms, alarm{t, id})
	}
	l.mu.Unlock()
	l.ring() // for a Run that sleeps longer than that
}

// due pushes the pods whose alarm is due and says when the next one is.
func (l *loop) due(now time.Time) (next time.Time) {
	for {
		l.mu.Lock()
		if len(l.alarms) == 0 || l.alarms[0].at.After(now) {
			if len(l.alarms) > 0 {
				next = l.alarms[0].at
			}
			l.mu.Unlock()
			return next
		}
		a := heap.Pop(&l.alarms).(alarm)
		current := l.alarm[a.id].Equal(a.at)
		if current {
			delete(l.alarm, a.id)
		}
		l.mu.Unlock()
		switch {
		case current && a.id == waitingPods:
			l.free()
		case current:
			l.push(a.id, nil)
		}
	}
}

// wait adds a pod to those without a place, and free says that they may find one.
func (l *loop) wait(id string) {
	l.mu.Lock()
	l.waiting[id] = true
	l.mu.Unlock()
}

func (l *loop) free() {
	l.mu.Lock()
	some := len(l.waiting) > 0
	l.freed = l.freed || some
	l.mu.Unlock()
	if some {
		l.ring()
	}
}

// hopeful returns the pods without a place if something has become free.
func (l *loop) hopeful() (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.freed {
		for id := range l.waiting {
			ids = append(ids, id)
		}
	}
	l.freed = false
	return ids
}

func (l *loop) placed(id string) {
	l.mu.Lock()
	delete(l.waiting, id)
	l.mu.Unlock()
}

// stopAccepted remembers that the host took a stop of a run, and stopPending when.
func (l *loop) stopAccepted(id string, run uint64, now time.Time) {
	l.mu.Lock()
	l.stopped[id] = stopped{run, now}
	l.mu.Unlock()
}

func (l *loop) stopPending(id string, run uint64) (at time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.stopped[id]
	return s.at, ok && s.run == run
}

func (l *loop) stopOver(id string) {
	l.mu.Lock()
	delete(l.stopped, id)
	l.mu.Unlock()
}

// waitingPods in an alarm stands for all pods without a place.
const waitingPods = ""

type alarm struct {
	at time.Time
	id string
}

// alarms is a heap by instant.
type alarms []alarm

func (h alarms) Len() int           { return len(h) }
func (h alarms) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h alarms) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *alarms) Push(x any)        { *h = append(*h, x.(alarm)) }
func (h *alarms) Pop() any {
	old := *h
	a := old[len(old)-1]
	*h = old[:len(old)-1]
	return a
}

// forget drops what is remembered of a pod that is gone.
func (l *loop) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.stopped, id)
	delete(l.waiting, id)
	delete(l.alarm, id)
}
