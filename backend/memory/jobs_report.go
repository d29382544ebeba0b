package memory

import (
	"context"

	"github.com/podyard/podyard/serverless/queue"
)

var (
	_ queue.Reporter = (*Jobs)(nil)
	_ queue.Measurer = (*Jobs)(nil)
)

// Report implements queue.Reporter.
func (q *Jobs) Report(f func([]queue.Moved)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.report = f
}

// reported returns the ref of a job that is about to move, if somebody wants to know. The
// caller holds mu.
func (q *Jobs) reported(i uint32) (ref queue.Ref) {
	if q.report != nil {
		ref = q.x.Ref(i)
	}
	return ref
}

// noteMoved appends a move, if somebody wants to know.
func (q *Jobs) noteMoved(moved []queue.Moved, ref queue.Ref, op *queue.Op, res *queue.Result) []queue.Moved {
	if q.report == nil || res.Effect == 0 {
		return moved
	}
	return append(moved, queue.Moved{Ref: ref, Kind: op.Kind, State: res.State, Effect: res.Effect})
}

func (q *Jobs) reportMoved(moved []queue.Moved) {
	if len(moved) > 0 {
		q.report(moved)
	}
}

// Load implements queue.Measurer.
func (q *Jobs) Load(context.Context) (l queue.Load, _ error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.Undrained, l.Deliveries = q.x.Undrained(), len(q.outbox.heap)
	for _, e := range q.outbox.heap {
		l.OldestDelivery = queue.Sooner(l.OldestDelivery, e.since)
	}
	return l, nil
}

// Priorities implements queue.Measurer.
func (q *Jobs) Priorities(_ context.Context, endpoint string) ([queue.MaxPriority + 2]int64, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.x.Priorities(endpoint), nil
}
