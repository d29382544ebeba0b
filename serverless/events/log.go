package events

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// A Finder reads a job. queue.JobQueue has the method.
type Finder interface {
	Get(ctx context.Context, now queue.Instant, ref queue.Ref) (queue.Job, error)
}

// A Clock tells the time.
type Clock interface{ Now() time.Time }

// A Log has the feeds of endpoints. It is safe for concurrent use.
type Log struct {
	jobs  Finder
	clock Clock

	active atomic.Int64 // number of feeds: without any, hints cost nothing
	mu     sync.Mutex
	feeds  map[string]*feed
	last   int64 // Feed of the newest one

	pending []queue.Event
	work    chan struct{}
}

// A feed has the events of an endpoint.
type feed struct {
	id      int64
	next    uint64 // number of the next event
	list    []Event
	jobs    map[queue.JobID]seen
	readers int
	left    time.Time     // when the last reader left
	changed chan struct{} // closed at the next event
}

// seen is the last event of a job.
type seen struct {
	number uint64
	kind   Type
	run    uint32
	owner  string
}

// New returns a log of the jobs of a queue.
func New(jobs Finder, clock Clock) *Log {
	return &Log{jobs: jobs, clock: clock, feeds: map[string]*feed{}, work: make(chan struct{}, 1)}
}

// Hints gets events of the queue. It does not block. The jobs are read by Run.
func (l *Log) Hints(evs []queue.Event) {
	if l.active.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range evs {
		switch {
		case e.Kind == queue.EventGap:
			for _, f := range l.feeds {
				l.gap(f)
			}
		case e.Kind != queue.EventReady && e.Kind != queue.EventDone, e.ID == "", l.feeds[e.Endpoint] == nil:
		case len(l.pending) >= maxPending:
			l.gap(l.feeds[e.Endpoint])
		default:
			l.pending = append(l.pending, e)
		}
	}
	select {
	case l.work <- struct{}{}:
	default:
	}
}

// Worker adds an event of a worker. It does not block.
func (l *Log) Worker(endpoint string, id queue.WorkerID, kind Type) {
	if l.active.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.feeds[endpoint]; f != nil {
		l.put(f, Event{Type: kind, Worker: id})
	}
}

// Run reads the jobs that hints name, until ctx ends. Nothing is added without it.
func (l *Log) Run(ctx context.Context) {
	for {
		select {
		case <-l.work:
		case <-ctx.Done():
			return
		}
		l.mu.Lock()
		list := l.pending
		l.pending = nil
		l.mu.Unlock()
		for _, e := range list {
			l.resolve(ctx, e)
		}
	}
}

// resolve adds the event of a hint.
func (l *Log) resolve(ctx context.Context, e queue.Event) {
	j, err := l.jobs.Get(ctx, queue.At(l.clock.Now()), e.Ref)
	gone := errors.Is(err, queue.ErrNotFound)
	unknown := err != nil && !gone && !errors.Is(err, queue.ErrDamaged)
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.feeds[e.Endpoint]
	switch {
	case f == nil:
	case unknown:
		l.gap(f)
	case gone && e.Kind == queue.EventDone:
		if was, ok := f.jobs[e.ID]; ok && was.kind == Queued {
			l.add(f, Event{Type: Deleted, Job: e.ID, Owner: was.owner}, was.run)
		}
	case gone:
	case e.Kind == queue.EventReady:
		l.add(f, Event{Type: Queued, Job: e.ID, Owner: j.Owner}, j.Run)
	case j.Status.Terminal():
		l.add(f, Event{Type: typeOf(j.Status), Job: e.ID, Owner: j.Owner}, j.Run)
	}
}

// gap adds a Gap, unless one is the newest event. The caller holds mu.
func (l *Log) gap(f *feed) {
	if n := len(f.list); n == 0 || f.list[n-1].Type != Gap {
		l.add(f, Event{Type: Gap}, 0)
	}
}

// add adds an event, unless a hint was repeated: a job that a worker has lost is queued again,
// but was queued before. The caller holds mu.
func (l *Log) add(f *feed, e Event, run uint32) {
	if was, ok := f.jobs[e.Job]; ok && was.run == run && (was.kind == e.Type || e.Type == Queued) {
		return
	}
	if e.Job != "" {
		f.jobs[e.Job] = seen{f.next, e.Type, run, e.Owner}
	}
	l.put(f, e)
}

// put adds an event. The caller holds mu.
func (l *Log) put(f *feed, e Event) {
	e.ID, e.Time = ID{f.id, f.next}, l.clock.Now().UTC().Truncate(time.Millisecond)
	f.next++
	f.list = append(f.list, e)
	f.trim(e.Time)
	close(f.changed)
	f.changed = make(chan struct{})
	l.sweep(e.Time)
}

// trim drops what is too old or too much.
func (f *feed) trim(now time.Time) {
	n := max(0, len(f.list)-MaxKept)
	for n < len(f.list) && now.Sub(f.list[n].Time) >= Keep {
		n++
	}
	for _, e := range f.list[:n] {
		if f.jobs[e.Job].number == e.ID.Number {
			delete(f.jobs, e.Job)
		}
	}
	clear(f.list[:n])
	f.list = f.list[n:]
}

// sweep ends feeds that had no reader for a while. The caller holds mu.
func (l *Log) sweep(now time.Time) {
	for endpoint, f := range l.feeds {
		if f.readers == 0 && now.Sub(f.left) >= Keep {
			delete(l.feeds, endpoint)
			l.active.Add(-1)
		}
	}
}

// Open returns a reader of the events of an endpoint after an id; nil: of those to come. After
// events that are not kept any more it begins with a Gap. The caller closes it.
func (l *Log) Open(endpoint string, after *ID) *Reader {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	f := l.feeds[endpoint]
	if f == nil {
		l.last = max(l.last+1, now.UnixMilli())
		f = &feed{id: l.last, next: 1, jobs: map[queue.JobID]seen{}, changed: make(chan struct{})}
		l.feeds[endpoint] = f
		l.active.Add(1)
	}
	f.readers++
	f.trim(now)
	r := &Reader{log: l, feed: f, next: f.next}
	if after == nil {
		return r
	}
	if r.missed = after.Feed != f.id || after.Number >= f.next || after.Number+1 < f.first(); r.missed {
		r.next = f.first()
		return r
	}
	r.next = after.Number + 1
	return r
}

// first returns the number of the oldest event.
func (f *feed) first() uint64 { return f.next - uint64(len(f.list)) }

// A Reader reads the events of an endpoint. It is for one goroutine.
type Reader struct {
	log    *Log
	feed   *feed
	next   uint64
	missed bool // a Gap comes first
	closed bool
}

// Read returns the next events, and a channel that is closed when there are more. It returns
// ErrBehind for a reader that was too slow; then the reader continues with Open after the last
// event that it has read.
func (r *Reader) Read() (list []Event, more <-chan struct{}, err error) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	f := r.feed
	f.trim(r.log.clock.Now())
	if r.missed {
		r.missed = false
		r.next = f.first()
		list = append(list, Event{ID: ID{f.id, r.next - 1}, Type: Gap, Time: r.log.clock.Now().UTC()})
	}
	if r.next < f.first() {
		return nil, nil, ErrBehind
	}
	list = append(list, f.list[r.next-f.first():]...)
	r.next = f.next
	return list, f.changed, nil
}

// Close ends the reader.
func (r *Reader) Close() {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if !r.closed {
		r.closed = true
		r.feed.readers--
		r.feed.left = r.log.clock.Now()
	}
}
