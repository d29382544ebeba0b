package memory

import (
	"container/heap"
	"context"

	"github.com/podyard/podyard/serverless"
)

// attemptsKept is how many attempts the log of a job keeps.
const attemptsKept = 100

// An entry is one webhook that was not settled.
type entry struct {
	id    string
	job   serverless.Job
	tries int
	token serverless.Token
	due   serverless.Instant // next attempt, or end of the lease
	pos   int
}

// An entryKey names an entry: a DeliveryID is unique within its endpoint.
type entryKey struct{ endpoint, id string }

// outbox is the entries by the instant at which they are due.
type outbox struct {
	entries map[entryKey]*entry
	heap    entryHeap
	token   serverless.Token
}

func (o *outbox) add(j serverless.Job, now serverless.Instant) {
	e := &entry{id: serverless.DeliveryID(j.Ref, j.Run), job: j, due: now}
	k := entryKey{j.Endpoint, e.id}
	if o.entries[k] != nil {
		return
	}
	o.entries[k] = e
	heap.Push(&o.heap, e)
}

// void takes the input out of the entries of a job's earlier runs.
func (o *outbox) void(ref serverless.Ref, s *serverless.State) {
	for run := range s.Run {
		e := o.entries[entryKey{ref.Endpoint, serverless.DeliveryID(ref, run)}]
		if e != nil && e.job.Submitted == s.Submitted { // not another job that had this id
			e.job.Input = nil
		}
	}
}

// Deliveries leases what is due.
func (q *Jobs) Deliveries(_ context.Context, now, until serverless.Instant, limit int) (ds []serverless.Delivery, _ error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	o := &q.outbox
	for len(ds) < limit && len(o.heap) > 0 && o.heap[0].due <= now {
		e := o.heap[0]
		o.token++
		e.token, e.due = o.token, until
		heap.Fix(&o.heap, 0)
		ds = append(ds, serverless.Delivery{ID: e.id, Token: e.token, Tries: e.tries, Job: e.job})
	}
	return ds, nil
}

// Record settles entries or schedules them anew.
func (q *Jobs) Record(_ context.Context, as []serverless.Attempt) error {
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
			heap.Remove(&o.heap, e.pos)
			delete(o.entries, entryKey{a.Endpoint, a.DeliveryID})
			continue
		}
		e.token, e.due = 0, a.Next
		heap.Fix(&o.heap, e.pos)
	}
	return nil
}

func (q *Jobs) logAttempt(a *serverless.Attempt) {
	i := q.x.Find(a.Ref)
	if i == 0 {
		return
	}
	x := q.extra(i)
	x.attempts = append(x.attempts, *a)
	if n := len(x.attempts); n > attemptsKept {
		x.attempts = append([]serverless.Attempt(nil), x.attempts[n-attemptsKept:]...)
	}
}

// NextDelivery is when the first entry is due.
func (q *Jobs) NextDelivery(context.Context) (serverless.Instant, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.outbox.heap) == 0 {
		return 0, nil
	}
	return q.outbox.heap[0].due, nil
}

// Attempts is the log of a job, as long as the job is there.
func (q *Jobs) Attempts(_ context.Context, id serverless.Ref) ([]serverless.Attempt, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	x := q.extras[q.x.Find(id)]
	if x == nil {
		return nil, nil
	}
	return append([]serverless.Attempt(nil), x.attempts...), nil
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
