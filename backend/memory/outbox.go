package memory

import (
	"container/heap"
	"context"

	"github.com/podyard/podyard/serverless/queue"
)

// attemptsKept is the number of attempts that the log of a job keeps.
const attemptsKept = 100

// An entry is a webhook that is not settled.
type entry struct {
	id    string
	job   queue.Job
	held  uint32 // of Index.HoldDelivery
	bytes int64
	tries int
	token queue.Token
	since queue.Instant // when it was added
	due   queue.Instant // next attempt, or end of the lease
	pos   int
}

// An entryKey identifies an entry. A DeliveryID is unique within its endpoint.
type entryKey struct{ endpoint, id string }

// An outbox has the entries, ordered by the instant at which they are due.
type outbox struct {
	entries map[entryKey]*entry
	heap    entryHeap
	token   queue.Token
}

func (q *Jobs) addDelivery(j queue.Job, now queue.Instant) {
	o := &q.outbox
	e := &entry{id: queue.DeliveryID(j.Ref, j.Run), job: j, since: now, due: now, bytes: j.Bytes()}
	k := entryKey{j.Endpoint, e.id}
	if o.entries[k] != nil {
		return
	}
	e.held = q.x.HoldDelivery(j.Owner, e.bytes)
	o.entries[k] = e
	heap.Push(&o.heap, e)
}

// dropInput removes the input from the entries of a job's earlier runs.
func (o *outbox) dropInput(ref queue.Ref, s *queue.State) {
	for run := range s.Run {
		e := o.entries[entryKey{ref.Endpoint, queue.DeliveryID(ref, run)}]
		if e != nil && e.job.Submitted == s.Submitted { // an earlier job with this id is not meant
			e.job.Input = nil
		}
	}
}

// Deliveries implements queue.Outbox.
func (q *Jobs) Deliveries(_ context.Context, now, until queue.Instant, limit int) (ds []queue.Delivery, _ error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	o := &q.outbox
	for len(ds) < limit && len(o.heap) > 0 && o.heap[0].due <= now {
		e := o.heap[0]
		o.token++
		e.token, e.due = o.token, until
		heap.Fix(&o.heap, 0)
		j := queue.Job{Ref: e.job.Ref, Owner: e.job.Owner, Key: e.job.Key, State: e.job.State, Webhook: e.job.Webhook}
		ds = append(ds, queue.Delivery{ID: e.id, Token: e.token, Tries: e.tries, Job: j})
	}
	return ds, nil
}

// LoadDelivery implements queue.Outbox.
func (q *Jobs) LoadDelivery(_ context.Context, d *queue.Delivery) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.outbox.entries[entryKey{d.Job.Endpoint, d.ID}]
	if e == nil || e.token != d.Token {
		return queue.ErrLeaseLost
	}
	d.Job = e.job
	return nil
}

// Record implements queue.Outbox.
func (q *Jobs) Record(_ context.Context, as []queue.Attempt) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	o := &q.outbox
	for i := range as {
		a := &as[i]
		e := o.entries[entryKey{a.Endpoint, a.DeliveryID}]
		if e == nil || e.token != a.Token {
			continue
		}
		if !a.Postponed {
			e.tries++
			q.logAttempt(a)
		}
		if a.Next == 0 {
			q.x.ReleaseDelivery(e.held, e.bytes)
			heap.Remove(&o.heap, e.pos)
			delete(o.entries, entryKey{a.Endpoint, a.DeliveryID})
			continue
		}
		e.token, e.due = 0, a.Next
		heap.Fix(&o.heap, e.pos)
	}
	return nil
}

func (q *Jobs) logAttempt(a *queue.Attempt) {
	i := q.x.Find(a.Ref)
	if i == 0 {
		return
	}
	x := q.extra(i)
	x.attempts = append(x.attempts, *a)
	if n := len(x.attempts); n > attemptsKept {
		x.attempts = append([]queue.Attempt(nil), x.attempts[n-attemptsKept:]...)
	}
}

// NextDelivery implements queue.Outbox.
func (q *Jobs) NextDelivery(context.Context) (queue.Instant, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.outbox.heap) == 0 {
		return 0, nil
	}
	return q.outbox.heap[0].due, nil
}

// Attempts implements queue.Outbox. It keeps the log of a job as long as the job.
func (q *Jobs) Attempts(_ context.Context, id queue.Ref) ([]queue.Attempt, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	x := q.extras[q.x.Find(id)]
	if x == nil {
		return nil, nil
	}
	return append([]queue.Attempt(nil), x.attempts...), nil
}

// entryHeap implements heap.Interface.
type entryHeap []*entry

func (h entryHeap) Len() int           { return len(h) }
func (h entryHeap) Less(i, j int) bool { return h[i].due < h[j].due }
func (h entryHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}

func (h *entryHeap) Push(x any) {
	e := x.(*entry)
	e.pos = len(*h)
	*h = append(*h, e)
}

func (h *entryHeap) Pop() any {
	old := *h
	n := len(old) - 1
	e := old[n]
	old[n] = nil
	*h = old[:n]
	return e
}
