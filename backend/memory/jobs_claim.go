package memory

import (
	"context"

	"github.com/podyard/podyard/serverless"
)

// Claim leases what is ready.
func (q *Jobs) Claim(_ context.Context, now serverless.Instant, slots []serverless.Slot, out []serverless.Job) ([]serverless.Job, error) {
	var evs []serverless.Event
	q.mu.Lock()
	for i := range slots {
		out, evs = q.claim(now, &slots[i], out, evs)
	}
	q.mu.Unlock()
	q.tell(evs)
	return out, nil
}

// claim fills one slot: first from what was put back, then from the line.
func (q *Jobs) claim(now serverless.Instant, s *serverless.Slot, out []serverless.Job, evs []serverless.Event) ([]serverless.Job, []serverless.Event) {
	var kept []uint32
	for n := s.N; n > 0; {
		i := q.x.NextReady(s.Endpoint)
		if i == 0 {
			break
		}
		if q.x.LostBy(i, s.Worker) {
			kept = append(kept, i)
			continue
		}
		op := serverless.Op{Kind: serverless.OpClaim, Worker: s.Worker, Token: q.token + 1, Until: s.Until}
		var res serverless.Result
		if res, evs = q.move(now, i, &op, evs); res.Err != nil { // past its ttl: it is deleted now
			continue
		}
		q.token++
		out = append(out, serverless.Job{})
		q.fill(&out[len(out)-1], i)
		n--
	}
	for _, i := range kept {
		q.x.PutBack(i)
	}
	return out, evs
}
