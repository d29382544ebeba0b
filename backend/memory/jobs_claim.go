package memory

import (
	"context"
	"slices"

	"github.com/podyard/podyard/serverless/queue"
)

// Claim implements queue.JobQueue.
func (q *Jobs) Claim(_ context.Context, now queue.Instant, slots []queue.Slot, out []queue.Job) ([]queue.Job, error) {
	var evs []queue.Event
	q.mu.Lock()
	for i := range slots {
		out, evs = q.claim(now, &slots[i], out, evs)
	}
	q.mu.Unlock()
	q.notify(evs)
	return out, nil
}

// claim fills one slot.
func (q *Jobs) claim(now queue.Instant, s *queue.Slot, out []queue.Job, evs []queue.Event) ([]queue.Job, []queue.Event) {
	for n, bytes := 0, 0; !s.Full(n, bytes); {
		i := q.x.NextReady(now, s)
		if i == 0 {
			break
		}
		op := queue.Op{Kind: queue.OpClaim, Worker: s.Worker, Token: q.token + 1, Until: s.Until}
		var err error
		out = slices.Grow(out, 1)[:len(out)+1]
		j := &out[len(out)-1]                                             // move and fill set all of it
		if _, evs, err = q.move(now, i, &op, &j.State, evs); err != nil { // the job was past its ttl, and the move deleted it
			out = out[:len(out)-1]
			continue
		}
		q.token++
		q.fill(j, i)
		n, bytes = n+1, bytes+int(j.InBytes)
	}
	return out, evs
}
