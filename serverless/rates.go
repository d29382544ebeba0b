package serverless

import (
	"context"
	"sync"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// freePause is the least time between two looks at what rates hold of an endpoint: many keys become free
// one after the other.
const freePause = 10 * time.Millisecond

// maxFreePause is the most that looks are apart while no worker claims a job that counts as ready: those that
// wait may be barred from it.
const maxFreePause = time.Second

// frees has the endpoints of which a rate holds jobs, and when one of those may start.
type frees struct {
	mu     sync.Mutex
	at     map[string]Instant
	pauses map[string]time.Duration // after workers were woken, until one claims a job; freePause if there is none
}

// add takes an instant, and reports whether it is the first one of the endpoint.
func (f *frees) add(endpoint string, at Instant) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.at[endpoint]; known != 0 && known <= at {
		return false
	}
	if f.at == nil {
		f.at = map[string]Instant{}
	}
	f.at[endpoint] = at
	return true
}

// pause returns how long to wait before the next look at jobs that are ready.
func (f *frees) pause(endpoint string) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(f.pauses[endpoint], freePause)
}

// woke doubles the pause of an endpoint, and returns what it was.
func (f *frees) woke(endpoint string) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	pause := max(f.pauses[endpoint], freePause)
	if f.pauses == nil {
		f.pauses = map[string]time.Duration{}
	}
	f.pauses[endpoint] = min(2*pause, maxFreePause)
	return pause
}

// reset has the pause of an endpoint be the shortest again, and reports whether it was not.
func (f *frees) reset(endpoint string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.pauses[endpoint]
	delete(f.pauses, endpoint)
	return ok
}

// due takes the endpoints out whose instant has come, and returns the next instant.
func (f *frees) due(now Instant) (list []string, next Instant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for endpoint, at := range f.at {
		if at > now {
			next = queue.Sooner(next, at)
			continue
		}
		delete(f.at, endpoint)
		list = append(list, endpoint)
	}
	return list, next
}

// freeAt has Step look when a job that a rate holds may start.
func (s *Service) freeAt(endpoint string, at Instant) {
	if at > 0 && s.frees.add(endpoint, at) {
		s.arm(at)
	}
}

// awaitFree is called when a worker that waits got no job: a rate or a worker may hold some.
func (s *Service) awaitFree(ctx context.Context, endpoint string) {
	r, err := s.rulesOf(ctx, endpoint)
	if err != nil || s.shared && !r.Rated() {
		return // the next claim tells an error; who waits for a key that another server has held looks once a second
	}
	now := s.now()
	switch st, err := s.stats(ctx, endpoint); {
	case err != nil:
		s.freeAt(endpoint, now.Add(time.Second))
	case st.Ready > 0 && (r.Rated() || st.Free > 0): // since the claim; else this worker may not have the job
		s.freeAt(endpoint, queue.Sooner(st.Free, now.Add(s.frees.pause(endpoint))))
	default:
		s.frees.reset(endpoint)
		s.freeAt(endpoint, st.Free)
	}
}

// claimedReady is called when a worker has claimed jobs. If workers were woken for what rates hold, those that
// wait can have what it has left.
func (s *Service) claimedReady(endpoint string) {
	if s.frees.reset(endpoint) && s.hub.wakeSome(endpoint, 0) {
		s.freeAt(endpoint, s.now().Add(freePause))
	}
}

// stepFrees wakes workers for the jobs that rates no longer hold.
func (s *Service) stepFrees(ctx context.Context, now Instant) Instant {
	list, _ := s.frees.due(now)
	for _, endpoint := range list {
		st, err := s.stats(ctx, endpoint)
		if err != nil {
			s.frees.add(endpoint, now.Add(time.Second))
			continue
		}
		s.scaler.Wake(endpoint)
		next := st.Free
		if st.Ready > 0 && s.hub.wakeSome(endpoint, 0) { // those woken now may use the room up: then Free is another
			next = queue.Sooner(next, now.Add(s.frees.woke(endpoint)))
		}
		if s.hub.wakeSome(endpoint, st.Ready) && next > 0 {
			s.frees.add(endpoint, max(next, now.Add(freePause)))
		}
	}
	_, next := s.frees.due(0)
	return next
}
