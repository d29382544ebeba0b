package memory

import (
	"context"

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
	var res queue.Result
	for n := s.N; n > 0; {
		i := q.x.NextReady(now, s)
		if i == 0 {
			break
		}
		op := queue.Op{Kind: queue.OpClaim, Worker: s.Worker, Token: q.token + 1, Until: s.Until}
		if evs = q.move(now, i, &op, &res, evs); res.Err != nil { // the job was past its ttl, and the move deleted it
			continue
		}
		q.token++
		out = append(out, queue.Job{State: res.State})
		q.fill(&out[len(out)-1], i)
		n--
	}
	return out, evs
}
