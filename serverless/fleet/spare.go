package fleet

import (
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// spareSince records how many workers have had no job since the last reconcile. It returns
// the least recorded number over the span before now.
func (q *endpointWorkers) spareSince(now queue.Instant, ws []WorkerView, span time.Duration) int {
	n := 0
	for _, w := range ws {
		if w.State == Idle && !w.Stale && w.IdleSince <= q.reconciled {
			n++
		}
	}
	q.spare.add(now, n)
	return q.spare.lowest(now, span)
}

// lowerBounds record the history of a number, for its minimum over a time span. Each bound
// says since when the number has not been below n. Both since and n ascend.
type lowerBounds []lowerBound

type lowerBound struct {
	since queue.Instant
	n     int
}

// add records that the number is n now.
func (l *lowerBounds) add(now queue.Instant, n int) {
	since := now
	for i := len(*l) - 1; i >= 0 && (*l)[i].n >= n; i-- {
		since = (*l)[i].since
		*l = (*l)[:i]
	}
	*l = append(*l, lowerBound{since, n})
}

// lowest returns the minimum of the number over the span before now. It returns 0 if the
// history is shorter than the span.
func (l lowerBounds) lowest(now queue.Instant, span time.Duration) int {
	n := 0
	for _, b := range l {
		if b.since.Add(span) > now {
			break
		}
		n = b.n
	}
	return n
}
