package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
)

// A Lead says which server decides for an endpoint, where several could. Its methods are safe
// for concurrent use.
type Lead interface {
	// Lead reports whether this server decides for an endpoint, and takes that on if nobody does.
	// shown is what the others read. seen is what the one who decides shows, or who did before.
	Lead(ctx context.Context, endpoint string, shown []byte) (seen []byte, leads bool, err error)
	// Leads reports the same by what is known. It does not block.
	Leads(endpoint string) bool
	// Resign lets another server decide for an endpoint.
	Resign(ctx context.Context, endpoint string) error
}

const (
	// followPeriod is how often a server looks whether it has to decide for an endpoint.
	followPeriod = 5 * time.Second
	// shownDecisions is how many decisions the other servers read.
	shownDecisions = 20
)

// memory is what is kept of the decisions for an endpoint when another server takes over.
type memory struct {
	Decisions  []Decision
	Backoff    Backoff
	ColdStarts []ColdStart `json:",omitempty"`
}

// lead reports whether this server decides for e. An endpoint that needs no decision is nobody's.
func (s *Scaler) lead(ctx context.Context, now queue.Instant, e *endpoints.Endpoint) (bool, error) {
	if s.o.Lead == nil {
		return true, nil
	}
	needed, err := s.needsDecision(ctx, now, e)
	if err != nil || !needed {
		return false, err
	}
	if away, err := s.elsewhere(ctx, now, e); err != nil || away {
		return false, err
	}
	led, shown, err := s.table.shown(e.ID)
	if err != nil {
		return false, err
	}
	seen, leads, err := s.o.Lead.Lead(ctx, e.ID, shown)
	if err != nil || !leads {
		s.table.follow(e.ID, now)
		s.remember(e.ID, seen)
		return false, err
	}
	if !led {
		s.table.takeOver(e.ID, s.recall(e.ID))
	}
	return s.table.knowsWorkers(e.ID, now), nil
}

// elsewhere reports whether the workers of e can be started by other servers only. One of them has
// to decide for e then. This one goes on as long as it has workers of e.
func (s *Scaler) elsewhere(ctx context.Context, now queue.Instant, e *endpoints.Endpoint) (bool, error) {
	bound, ok := As[Bound](s.o.Fleet)
	if !ok || len(e.NetworkVolumes) == 0 || s.table.hasWorkers(e.ID) {
		return false, nil
	}
	away, err := bound.Elsewhere(ctx, e.NetworkVolumes)
	if err != nil || !away {
		return false, err
	}
	s.table.follow(e.ID, now)
	return true, s.o.Lead.Resign(ctx, e.ID)
}

// needsDecision reports whether an endpoint has workers, or could need one.
func (s *Scaler) needsDecision(ctx context.Context, now queue.Instant, e *endpoints.Endpoint) (bool, error) {
	if s.table.hasWorkers(e.ID) || e.Workers.Min > 0 || len(s.o.Registry.List(e.ID)) > 0 {
		return true, nil
	}
	rules := e.QueueSettings().Rules()
	st, err := s.o.Queue.Stats(ctx, now, e.ID, &rules)
	return st.Ready > 0, err
}

// remember keeps what the server that decides shows; Step only uses it.
func (s *Scaler) remember(endpoint string, seen []byte) {
	if s.seen == nil {
		s.seen = map[string][]byte{}
	}
	if len(seen) > 0 {
		s.seen[endpoint] = seen
	}
}

func (s *Scaler) recall(endpoint string) (m memory) {
	if err := json.Unmarshal(s.seen[endpoint], &m); err != nil {
		m = memory{}
	}
	delete(s.seen, endpoint)
	return m
}

// ReadDecisions returns the decisions in what a server shows by Lead.
func ReadDecisions(shown []byte) ([]Decision, error) {
	m, err := readMemory(shown)
	return m.Decisions, err
}

// ReadColdStarts returns the cold starts in what a server shows by Lead.
func ReadColdStarts(shown []byte) ([]ColdStart, error) {
	m, err := readMemory(shown)
	return m.ColdStarts, err
}

func readMemory(shown []byte) (m memory, err error) {
	if len(shown) == 0 {
		return m, nil
	}
	if err := json.Unmarshal(shown, &m); err != nil {
		return memory{}, fmt.Errorf("fleet: read what another server shows: %w", err)
	}
	return m, nil
}

// shown returns whether this server decides for an endpoint, and what it shows to the others.
func (t *table) shown(endpoint string) (led bool, b []byte, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := memory{}
	if q := t.endpoints[endpoint]; q != nil && q.led {
		list := q.decisions[max(0, len(q.decisions)-shownDecisions):]
		led, m = true, memory{slices.Clone(list), q.backoff, slices.Clone(q.cold)}
	}
	b, err = json.Marshal(m)
	return led, b, err
}

func (t *table) hasWorkers(endpoint string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.endpoints[endpoint]
	return q != nil && len(q.workers) > 0
}

// follow forgets the workers of an endpoint for which another server decides: the listing of the
// fleet has them when this one takes over.
func (t *table) follow(endpoint string, now queue.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.endpoints, endpoint)
	t.of(endpoint).next = t.pace.after(now, followPeriod)
}

// takeOver makes this server decide for an endpoint.
func (t *table) takeOver(endpoint string, m memory) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.of(endpoint)
	q.led, q.decisions, q.cold, q.listing = true, m.Decisions, m.ColdStarts, t.list.count
	if m.Backoff.Fails > q.backoff.Fails {
		q.backoff, q.told = m.Backoff, m.Backoff.Crash
	}
	t.list.at = 1 // long due: the workers that the other server has started
}

// knowsWorkers reports whether the fleet was listed since this server decides for an endpoint.
func (t *table) knowsWorkers(endpoint string, now queue.Instant) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.of(endpoint)
	if t.list.done > q.listing {
		return true
	}
	q.next = now.Add(t.pace.pause())
	return false
}
