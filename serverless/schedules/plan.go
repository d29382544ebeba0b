package schedules

import (
	"container/heap"
	"sync"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// A plan knows which schedule is due when, and which ones wait for a job.
type plan struct {
	mu     sync.Mutex
	byTime agenda
	items  map[string]*item
	waits  map[queue.Ref]string // ids of schedules by the job whose end they wait for
	known  bool                 // the store was read
	read   time.Time            // when
	last   time.Time            // of the last Step
}

// An item is a schedule in the agenda.
type item struct {
	id string
	at time.Time
	n  int // index in the agenda
}

func (p *plan) init() { p.items, p.waits = map[string]*item{}, map[queue.Ref]string{} }

// stepped reports whether the clock was set back since the last call. All schedules must then
// be read again.
func (p *plan) stepped(now time.Time) bool {
	now = now.Round(0) // of the clock on the wall: the other reading of time.Now cannot be set back
	back := p.last.Sub(now) > Grace
	if p.last = now; back {
		p.known = false
	}
	return back
}

// set plans a schedule for an instant; the zero time takes it out. It reports whether the
// instant is now the first one.
func (p *plan) set(id string, at time.Time) (first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	it := p.items[id]
	switch {
	case at.IsZero() && it == nil:
		return false
	case at.IsZero():
		heap.Remove(&p.byTime, it.n)
		delete(p.items, id)
		return false
	case it == nil:
		it = &item{id: id, at: at}
		p.items[id] = it
		heap.Push(&p.byTime, it)
	default:
		it.at = at
		heap.Fix(&p.byTime, it.n)
	}
	return p.byTime[0] == it
}

// sooner is set for a schedule that was read from the store. It moves a known one to an earlier
// instant only: a change may have come meanwhile, and who is early reads the schedule again.
func (p *plan) sooner(id string, at time.Time) {
	p.mu.Lock()
	it := p.items[id]
	later := it != nil && (at.IsZero() || !at.Before(it.at))
	p.mu.Unlock()
	if !later {
		p.set(id, at)
	}
}

// add is set for a schedule after its step: a later change counts.
func (p *plan) add(id string, at time.Time) {
	p.mu.Lock()
	known := p.items[id] != nil
	p.mu.Unlock()
	if !known {
		p.set(id, at)
	}
}

// due takes out the schedules whose instant has come, in order.
func (p *plan) due(now time.Time) (ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.byTime) > 0 && !p.byTime[0].at.After(now) {
		it := heap.Pop(&p.byTime).(*item)
		delete(p.items, it.id)
		ids = append(ids, it.id)
	}
	return ids
}

// next returns the first instant; zero: none.
func (p *plan) next() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.byTime) == 0 {
		return time.Time{}
	}
	return p.byTime[0].at
}

// wait notes that a schedule waits for the end of a job.
func (p *plan) wait(ref queue.Ref, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits[ref] = id
}

// ended returns the schedules that wait for the jobs of these events.
func (p *plan) ended(evs []queue.Event) (ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waits) == 0 {
		return nil
	}
	for i := range evs {
		switch e := &evs[i]; e.Kind {
		case queue.EventDone:
			if id, ok := p.waits[e.Ref]; ok {
				delete(p.waits, e.Ref)
				ids = append(ids, id)
			}
		case queue.EventGap:
			for ref, id := range p.waits {
				delete(p.waits, ref)
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// An agenda is a heap of items, by instant and then by id.
type agenda []*item

// Len implements heap.Interface.
func (a agenda) Len() int { return len(a) }

// Less implements heap.Interface.
func (a agenda) Less(i, j int) bool {
	if c := a[i].at.Compare(a[j].at); c != 0 {
		return c < 0
	}
	return a[i].id < a[j].id
}

// Swap implements heap.Interface.
func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].n, a[j].n = i, j
}

// Push implements heap.Interface.
func (a *agenda) Push(x any) {
	it := x.(*item)
	it.n = len(*a)
	*a = append(*a, it)
}

// Pop implements heap.Interface.
func (a *agenda) Pop() any {
	old := *a
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*a = old[:len(old)-1]
	return it
}
