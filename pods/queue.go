package pods

import (
	"container/heap"
	"sync"
	"time"
)

// loop is the work queue of the service: which pods to process now and later, and which are
// being processed. No pod is processed twice at the same time.
type loop struct {
	slots chan struct{} // one for each call at once
	wake  chan struct{} // there is work
	wg    sync.WaitGroup

	synced  bool // everything was enqueued once
	sources []*runtimeSource

	mu            sync.Mutex
	items         map[string]*workItem // to be processed, or being processed
	ready         []string             // items ready to be processed, in order
	busy          map[string]bool
	retained      map[string]*workItem // items whose processing failed
	timers        timerHeap
	nextTimer     map[string]time.Time // earliest timer of a pod
	stopped       map[string]stopped
	idle          map[string]idleTime // running pods that may not idle and do
	waiting       map[string]bool     // pods without a host
	capacityFreed bool                // compute may have become free since they were tried
	hintsLost     bool                // hints of the store were lost
	gained        []string            // hosts that were leased since: everything is enqueued again
}

// A workItem is a pod to be processed, with what is known about it.
type workItem struct {
	id        string
	states    []ContainerState
	source    *runtimeSource // the runtime that lists a container of this id
	missingAt *ObservedState // the observed state when a list did not have its container; nil: no such list
}

// stopped is when a host accepted the stop of a run.
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
	l.idle = make(map[string]idleTime)
	l.waiting = make(map[string]bool)
}

func (l *loop) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// push enqueues a pod; add, if not nil, adds what is known about it.
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

// pop returns the next pod to be processed, or nil. done ends its processing.
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

// retain keeps what is known about a pod whose processing failed, for the next time.
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

// takeStates returns what has been reported about a pod since it was popped.
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

// scheduleAt enqueues a pod at t.
func (l *loop) scheduleAt(id string, t time.Time) {
	l.mu.Lock()
	if old, ok := l.nextTimer[id]; !ok || t.Before(old) {
		l.nextTimer[id] = t
		heap.Push(&l.timers, timer{t, id})
	}
	l.mu.Unlock()
	l.signal() // Run may be sleeping longer than that
}

// enqueueDue pushes the pods whose timer is due and returns when the next one is.
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

// addWaiting adds a pod to those that wait for a host. noteCapacityFreed makes the loop try
// them again.
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

// beginAgain makes the loop read everything again, for hosts that were leased.
func (l *loop) beginAgain(hosts []string) {
	l.mu.Lock()
	l.gained = append(l.gained, hosts...)
	l.mu.Unlock()
	l.signal()
}

func (l *loop) takeBegin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	some := len(l.gained) > 0
	l.gained = nil
	return some
}

// takeWaiting returns the pods that wait for a host if something has become free.
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

// stopAccepted notes that the host accepted the stop of a run, and stopPending returns when.
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

// waitingPodsKey in a timer stands for all pods that wait for a host.
const waitingPodsKey = ""

type timer struct {
	at time.Time
	id string
}

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

// forget removes what is kept about a deleted pod.
func (l *loop) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.stopped, id)
	delete(l.idle, id)
	delete(l.waiting, id)
	delete(l.nextTimer, id)
}
