package serverless

import (
	"context"
	"io"
	"time"
)

// lookPeriod is the longest time after which a service over a shared queue looks by itself for
// what another server has done. Servers look at different moments.
const lookPeriod = time.Second

// refreshPeriod is how often the schedules and batches of other servers are read.
const refreshPeriod = 5 * time.Second

// batchesLease is the lease of the server that does what is due for batches.
const batchesLease = "batches"

// look does what the events of other servers would have caused, in case they were lost, and
// returns when to look again. It does nothing unless the queue is shared. Only Step uses it.
func (s *Service) look(ctx context.Context, now Instant) (next Instant) {
	if !s.shared {
		return 0
	}
	early := s.looked <= now && now < s.lookAt // Step is called more often
	if s.crowd != nil && (!early || s.crowd.dirty.Load()) {
		s.crowd.look(ctx, now)
	}
	if early {
		return s.lookAt
	}
	s.hub.look()
	period := lookPeriod
	if !s.deterministic {
		period -= s.jitter(lookPeriod / 4)
	}
	s.looked, s.lookAt = now, now.Add(period)
	return s.lookAt
}

// jitter returns a random part of d.
func (s *Service) jitter(d time.Duration) time.Duration {
	var b [1]byte
	if _, err := io.ReadFull(s.rand, b[:]); err != nil {
		return 0
	}
	return d * time.Duration(b[0]) / 256
}

// look wakes those that wait for something that may have happened: everybody who watches a job,
// and the first taker of each endpoint, because a taker that gets a job wakes the next.
func (h *hub) look() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wakeWatchers()
	for endpoint := range h.takers {
		h.wake(endpoint)
	}
}

// passOn wakes the next taker after one has got a job: one event of a shared queue may stand for
// several jobs.
func (s *Service) passOn(endpoint string) {
	if s.shared {
		s.hub.wakeNext(endpoint)
	}
}
