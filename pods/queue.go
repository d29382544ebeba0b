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

	synced  bool // the first look at everything was taken
	sources []*runtimeSource

	mu            sync.Mutex
	items         map[string]*workItem // to be looked at
	ready         []string             // of them, those in nobody's hands, in order
	busy          map[string]bool
	retained      map[string]*workItem // known from a look that failed
	timers        timerHeap
	nextTimer     map[string]time.Time // earliest alarm of a pod
	stopped       map[string]stopped
	waiting       map[string]bool // pods without a place
	capacityFreed bool            // compute may have become free since they were tried
	hintsLost     bool            // hints of the store were lost
}

// A workItem is what is known of a pod that is to be looked at.
type workItem struct {
	id        string
	states    []ContainerState
	source    *runtimeSource // which runtime lists a container of this id
	missingAt *ObservedState // its container was not in a list taken when the pod was seen like this
}

// stopped is when a host took the stop of a run.
type stopped struct {
	run uint64
	at  time.Time
}

func (l *loop) init(calls int) {
	l.slots = make(chan struct{}, calls)
	l.wake = make(chan struct{}, 1)
	l.items = make(map[string]*workItem)
	l.busy = make(map[string]bool)
	l.retained = make(map[string]*workItem)
	l.nextTimer = make(map[string]time.Time)
	l.stopped = make(map[string]stopped)
	l.waiting = make(map[string]bool)
}

func (l *loop) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// push asks for a look at a pod; add, if any, says what is known.
func (l *loop) push(id string, add func(*workItem)) {
	l.mu.Lock()
	it := l.items[id]
	if it == nil {
		it = &workItem{id: id}
		l.items[id] = it
		if !l.busy[id] {
			l.ready = append(l.ready, id)
		}
	}
	if add != nil {
		add(it)
	}
	l.mu.Unlock()
	l.signal()
}

// pop takes a pod in hand; done puts it back.
func (l *loop) pop() *workItem {
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
	if old := l.retained[id]; old != nil {
		delete(l.retained, id)
		it.states = append(old.states, it.states...)
		if it.source == nil {
			it.source = old.source
		}
		if it.missingAt == nil {
			it.missingAt = old.missingAt
		}
	}
	return it
}

// retain keeps what is known of a pod that could not be looked at, for the next look.
func (l *loop) retain(it *workItem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retained[it.id] = it
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
		l.signal()
	}
}

// takeStates takes what has been reported of a pod that is in hand since it was popped.
func (l *loop) takeStates(id string) []ContainerState {
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

// scheduleAt asks for a look at a pod once t is reached.
func (l *loop) scheduleAt(id string, t time.Time) {
	l.mu.Lock()
	if old, ok := l.nextTimer[id]; !ok || t.Before(old) {
		l.nextTimer[id] = t
		heap.Push(&l.timers, timer{t, id})
	}
	l.mu.Unlock()
	l.signal() // for a Run that sleeps longer than that
}

// enqueueDue pushes the pods whose alarm is due and says when the next one is.
func (l *loop) enqueueDue(now time.Time) (next time.Time) {
	for {
		l.mu.Lock()
		if len(l.timers) == 0 || l.timers[0].at.After(now) {
			if len(l.timers) > 0 {
				next = l.timers[0].at
			}
			l.mu.Unlock()
			return next
		}
		a := heap.Pop(&l.timers).(timer)
		current := l.nextTimer[a.id].Equal(a.at)
		if current {
			delete(l.nextTimer, a.id)
		}
		l.mu.Unlock()
		switch {
		case current && a.id == waitingPodsKey:
			l.noteCapacityFreed()
		case current:
			l.push(a.id, nil)
		}
	}
}

// addWaiting adds a pod to those without a place, and free says that they may find one.
func (l *loop) addWaiting(id string) {
	l.mu.Lock()
	l.waiting[id] = true
	l.mu.Unlock()
}

func (l *loop) noteCapacityFreed() {
	l.mu.Lock()
	some := len(l.waiting) > 0
	l.capacityFreed = l.capacityFreed || some
	l.mu.Unlock()
	if some {
		l.signal()
	}
}

// takeWaiting returns the pods without a place if something has become free.
func (l *loop) takeWaiting() (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.capacityFreed {
		for id := range l.waiting {
			ids = append(ids, id)
		}
	}
	l.capacityFreed = false
	return ids
}

func (l *loop) removeWaiting(id string) {
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

func (l *loop) clearStop(id string) {
	l.mu.Lock()
	delete(l.stopped, id)
	l.mu.Unlock()
}

// waitingPodsKey in an alarm stands for all pods without a place.
const waitingPodsKey = ""

type timer struct {
	at time.Time
	id string
}

// timerHeap is a heap by instant.
type timerHeap []timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timerHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *timerHeap) Push(x any)        { *h = append(*h, x.(timer)) }
func (h *timerHeap) Pop() any {
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
	delete(l.nextTimer, id)
}
