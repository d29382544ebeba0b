package serverless

import "time"

// spareSince notes how many workers have had no job since the last look, and says how
// many there were at the least over the span before now.
func (q *squad) spareSince(now Instant, ws []WorkerView, span time.Duration) int {
	n := 0
	for _, w := range ws {
		if w.Phase == WorkerIdle && !w.Stale && w.IdleSince <= q.looked {
			n++
		}
	}
	q.spare.add(now, n)
	return q.spare.lowest(now, span)
}

// lows are the lower bounds of a number that changes: since when it has not been below
// each. Bounds and instants ascend.
type lows []low

type low struct {
	since Instant
	n     int
}

// add takes note that the number is n now.
func (l *lows) add(now Instant, n int) {
	since := now
	for i := len(*l) - 1; i >= 0 && (*l)[i].n >= n; i-- {
		since = (*l)[i].since
		*l = (*l)[:i]
	}
	*l = append(*l, low{since, n})
}

// lowest is the least that the number was over the span before now; 0 when it has not been
// known for so long.
func (l lows) lowest(now Instant, span time.Duration) int {
	n := 0
	for _, b := range l {
		if b.since.Add(span) > now {
			break
		}
		n = b.n
	}
	return n
}
