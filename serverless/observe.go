package serverless

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/podyard/podyard/internal/unwrap"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/telemetry"
)

// An observedQueue tells the observer of a Service what happens to the jobs of its queue, the Outcomes
// how they end, and the logs of jobs which are gone. A Service without all of them has none.
type observedQueue struct {
	JobQueue
	to       telemetry.Observer      // may be nil
	outcomes *outcomes               // may be nil
	logs     func(Ref, queue.Effect) // may be nil
	traces   traces
}

// observe returns q for a service with an observer, outcomes or logs of jobs, or q itself without all.
func observe(q JobQueue, to telemetry.Observer, ends *outcomes, logs func(Ref, queue.Effect)) JobQueue {
	if to == nil && ends == nil && logs == nil {
		return q
	}
	o := &observedQueue{JobQueue: q, to: to, outcomes: ends, logs: logs}
	if r, ok := unwrap.As[queue.Reporter](q); ok {
		r.Report(o.moved)
	}
	return o
}

// Unwrap returns the queue.
func (q *observedQueue) Unwrap() JobQueue { return q.JobQueue }

// Enqueue implements queue.JobQueue.
func (q *observedQueue) Enqueue(ctx context.Context, jobs []Job) error {
	if err := q.JobQueue.Enqueue(ctx, jobs); err != nil {
		return err
	}
	if q.to == nil {
		return nil
	}
	for i := range jobs {
		j := &jobs[i]
		q.to.Job(telemetry.JobEvent{Change: telemetry.JobSubmitted, Ref: &j.Ref, State: &j.State, Trace: &j.Trace, Bytes: len(j.Input)})
	}
	return nil
}

// Claim implements queue.JobQueue.
func (q *observedQueue) Claim(ctx context.Context, now Instant, slots []queue.Slot, out []Job) ([]Job, error) {
	n := len(out)
	out, err := q.JobQueue.Claim(ctx, now, slots, out)
	if q.to == nil {
		return out, err
	}
	for i := n; i < len(out); i++ {
		j := &out[i]
		if j.Trace.Parent != "" {
			q.traces.add(j.Ref, j.Trace)
		}
		q.to.Job(telemetry.JobEvent{Change: telemetry.JobClaimed, Ref: &j.Ref, State: &j.State, Trace: &j.Trace})
	}
	return out, err
}

// Apply implements queue.JobQueue.
func (q *observedQueue) Apply(ctx context.Context, now Instant, ops []queue.Op, res []queue.Result) error {
	if err := q.JobQueue.Apply(ctx, now, ops, res); err != nil {
		return err
	}
	for i := range ops {
		if res[i].Effect != 0 {
			q.event(&ops[i].Ref, ops[i].Kind, &res[i].State, res[i].Effect, len(ops[i].Payload))
		}
	}
	return nil
}

// moved gets the moves that no call here asks for.
func (q *observedQueue) moved(list []queue.Moved) {
	for i := range list {
		q.event(&list[i].Ref, list[i].Kind, &list[i].State, list[i].Effect, 0)
	}
}

// event reports a move, if it is of interest.
func (q *observedQueue) event(ref *Ref, kind queue.OpKind, after *queue.State, e queue.Effect, size int) {
	if q.outcomes != nil {
		q.outcomes.moved(*ref, after, e)
	}
	if q.logs != nil {
		q.logs(*ref, e)
	}
	if q.to == nil {
		return
	}
	x := telemetry.JobEvent{Bytes: size, Ref: ref, State: after, Trace: &q.traces.none}
	switch {
	case e&queue.Delete != 0 && e&queue.EvDone != 0:
		x.Change = telemetry.JobExpired
	case e&queue.Delete != 0:
		return
	case e&queue.AddChunk != 0:
		x.Change = telemetry.JobChunk
		q.to.Job(x)
		return
	case e&queue.EvDone != 0:
		x.Change = telemetry.JobEnded
	case e&queue.DropOutput != 0 && after.Status == InQueue:
		x.Change, x.Cause = telemetry.JobRequeued, causeOf(kind, e)
	default:
		return
	}
	if q.traces.n.Load() > 0 {
		x.Trace = q.traces.take(*ref)
	}
	q.to.Job(x)
}

// causeOf returns why a move has queued a job again.
func causeOf(kind queue.OpKind, e queue.Effect) telemetry.Cause {
	switch {
	case e&queue.PutAttempt != 0, kind == queue.OpRetry:
		return telemetry.Retry
	case kind == queue.OpFinish:
		return telemetry.Snoozed
	case kind == queue.OpRelease:
		return telemetry.Released
	case kind == queue.OpRecover:
		return telemetry.Restart
	}
	return telemetry.Lost
}

// maxTraces is the most jobs of which the trace context is kept while they run.
const maxTraces = 10_000

// traces keeps the trace contexts of the jobs that run: a queue does not return them at the
// end.
type traces struct {
	none Trace // of other jobs
	n    atomic.Int64
	mu   sync.Mutex
	of   map[Ref]Trace
}

func (t *traces) add(ref Ref, tr Trace) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[Ref]Trace{}
	}
	if len(t.of) < maxTraces {
		t.of[ref] = tr
	}
	t.n.Store(int64(len(t.of)))
}

// take forgets and returns the trace context of a job, which is not nil.
func (t *traces) take(ref Ref) *Trace {
	t.mu.Lock()
	defer t.mu.Unlock()
	tr, ok := t.of[ref]
	if !ok {
		return &t.none
	}
	delete(t.of, ref)
	t.n.Store(int64(len(t.of)))
	return &tr
}

// observeAttempt reports an attempt to deliver a webhook.
func (s *Service) observeAttempt(d *Delivery, a *Attempt, took time.Duration) {
	if s.observer == nil || a.Postponed {
		return
	}
	failed := a.Err != "" || a.Status < 200 || a.Status >= 300
	s.observer.Webhook(telemetry.WebhookEvent{
		Ref: d.Job.Ref, Trace: d.Job.Trace, At: a.At, Took: took, Try: d.Tries + 1, Status: a.Status,
		Failed: failed, Dropped: failed && a.Next == 0,
	})
}

// observeLoop reports a round of a loop that was due at an instant; 0: it has no lag.
func (s *Service) observeLoop(loop string, due Instant, err error) {
	if s.observer == nil {
		return
	}
	e := telemetry.LoopEvent{Loop: loop, Err: err}
	if due != 0 {
		e.Lag = max(s.now().Sub(due), 0)
	}
	s.observer.Loop(e)
}

// Load returns what the queue keeps at this instant, and the number of queued jobs by
// priority. It reports false for a queue that does not count them.
func (s *Service) Load(ctx context.Context) (l queue.Load, ok bool, err error) {
	m, ok := unwrap.As[queue.Measurer](s.queue)
	if !ok {
		return l, false, nil
	}
	l, err = m.Load(ctx)
	return l, true, err
}

// An EndpointLoad is what metrics show of an endpoint.
type EndpointLoad struct {
	Endpoint *Endpoint
	Queued   [queue.MaxPriority + 2]int64 // as Priorities returns it
	Ready    int64                        // Ready, Delayed and Blocked are parts of the queued jobs, as Stats has them
	Delayed  int64
	Blocked  int64   // less Held
	Held     int64   // what Stats has as blocked, of an endpoint where a rate or a Hold keeps jobs from starting
	Running  int64   // jobs and requests
	Oldest   Instant // as Stats has it
	Workers  WorkerCounts
}

// Survey returns the loads of all endpoints. It asks a queue.Surveyor once, and another queue for
// each endpoint. An endpoint that cannot be read is left out.
func (s *Service) Survey(ctx context.Context) (list []EndpointLoad, err error) {
	var sums map[string]queue.Summary
	var all []*Endpoint
	var broken, failed error
	var both sync.WaitGroup // a database answers the two at the same time
	both.Go(func() { sums, failed = s.summaries(ctx) })
	for e, err := range s.endpoints.List(ctx) {
		if broken = err; err != nil {
			break
		}
		all = append(all, e)
	}
	if both.Wait(); failed != nil {
		return nil, failed
	}
	for _, e := range all {
		l := EndpointLoad{Endpoint: e}
		if sums == nil {
			err = s.measure(ctx, &l)
		} else {
			err = s.judge(ctx, &l, sums[e.ID])
		}
		if err != nil {
			continue
		}
		l.Running += int64(s.balancer.Demand(e.ID).Running)
		if s.registry.Count(e.ID) > 0 || len(s.scaler.Workers(e.ID)) > 0 {
			l.Workers = countWorkers(s.workerList(e.ID))
		}
		list = append(list, l)
	}
	return list, broken
}

// summaries returns nil for a queue that is no Surveyor.
func (s *Service) summaries(ctx context.Context) (map[string]queue.Summary, error) {
	m, ok := unwrap.As[queue.Surveyor](s.queue)
	if !ok {
		return nil, nil
	}
	sums, err := m.Survey(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	return sums, err
}

// measure asks the queue for one endpoint.
func (s *Service) measure(ctx context.Context, l *EndpointLoad) (err error) {
	st, err := s.stats(ctx, l.Endpoint.ID)
	if err != nil {
		return err
	}
	l.Running = st.Running
	l.count(&st)
	if st.Queued > 0 {
		l.Queued, err = s.Priorities(ctx, l.Endpoint.ID)
	}
	return err
}

func (l *EndpointLoad) count(st *Stats) {
	l.Ready, l.Delayed, l.Blocked, l.Oldest = st.Ready, st.Delayed, st.Blocked, st.Oldest
	if r := l.Endpoint.QueueSettings().Rules(); !r.Paused && (st.Free != 0 || !r.Limited()) {
		l.Blocked, l.Held = 0, l.Blocked
	}
}

// judge fills in what a summary says. Which jobs the limits and rates of a queue and holds of its keys
// block is asked only where there are some.
func (s *Service) judge(ctx context.Context, l *EndpointLoad, x queue.Summary) error {
	l.Queued, l.Running, l.Oldest, l.Delayed, l.Ready = x.Queued, x.Running, x.Oldest, x.Delayed, -x.Delayed
	for _, n := range x.Queued {
		l.Ready += n
	}
	l.Ready = max(l.Ready, 0) // the parts of a summary may be of different moments
	r := l.Endpoint.QueueSettings().Rules()
	switch {
	case l.Ready == 0:
	case r.Paused:
		l.Ready, l.Blocked, l.Oldest = 0, l.Ready, 0
	case r.Limited() || r.Rated() || x.Held:
		st, err := s.queue.Stats(ctx, s.now(), l.Endpoint.ID, &r)
		l.count(&st)
		return err
	}
	return nil
}

// Priorities returns the number of the queued jobs of an endpoint by priority, and last that of
// low priority. For a queue that does not count them all of a kind are at the default.
func (s *Service) Priorities(ctx context.Context, endpoint string) (n [queue.MaxPriority + 2]int64, err error) {
	if m, ok := unwrap.As[queue.Measurer](s.queue); ok {
		return m.Priorities(ctx, endpoint)
	}
	st, err := s.stats(ctx, endpoint)
	n[queue.DefaultPriority], n[queue.MaxPriority+1] = st.Queued-st.QueuedLow, st.QueuedLow
	return n, err
}
