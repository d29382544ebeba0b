package serverless

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
)

// UpdateQueue changes the settings of an endpoint's queue, whoever owns the endpoint
// (docs/decisions.md 40). They apply from the next claim on; other servers of the same stores
// follow within a second. The retry policy and the dead letters are those of jobs that are
// submitted later. Errors: ErrNoEndpoint, and all faults of r (422).
func (s *Service) UpdateQueue(ctx context.Context, id string, r endpoints.QueueUpdate) (*Endpoint, error) {
	e, err := s.eps.UpdateQueue(ctx, id, r)
	if err == nil {
		s.rulesChanged(e)
	}
	return e, err
}

// InitQueue is UpdateQueue for a program at its start: it changes nothing if the settings were
// ever set.
func (s *Service) InitQueue(ctx context.Context, id string, r endpoints.QueueUpdate) (*Endpoint, error) {
	e, err := s.eps.InitQueue(ctx, id, r)
	if err == nil {
		s.rulesChanged(e)
	}
	return e, err
}

// QueueStats returns the counts of an endpoint's jobs. Ready, Delayed and Blocked are those
// under its settings.
func (s *Service) QueueStats(ctx context.Context, e *Endpoint) (Stats, error) {
	r := e.QueueSettings().Rules()
	st, err := s.queue.Stats(ctx, s.now(), e.ID, &r)
	if err != nil {
		return st, fmt.Errorf("serverless: queue of %q: %w", e.ID, err)
	}
	return st, nil
}

// rulesChanged applies the settings of an endpoint that were changed: blocked jobs may be ready
// now.
func (s *Service) rulesChanged(e *Endpoint) {
	r := e.QueueSettings().Rules()
	s.rules.set(e.ID, &r, s.now())
	s.hub.wakeTakers(e.ID)
	s.Resync()
}

// rulesOf returns the rules of an endpoint, which are those of the settings a second ago or later. An
// endpoint that is gone has the defaults.
func (s *Service) rulesOf(ctx context.Context, endpoint string) (*queue.Rules, error) {
	now := s.now()
	known, changes := s.rules.get(endpoint, now)
	if known != nil {
		return known, nil
	}
	e, err := s.endpoints.Get(ctx, endpoint)
	if errors.Is(err, ErrNoEndpoint) {
		s.rules.forget(endpoint)
		e, err = &Endpoint{}, nil
	}
	if err != nil {
		return nil, err
	}
	r := e.QueueSettings().Rules()
	if e.ID != "" {
		s.rules.keep(endpoint, &r, now, changes)
	}
	return &r, nil
}

// rulesAge is how long rules that were read are used without reading them again.
const rulesAge = time.Second

// A ruleCache has the rules of the endpoints that workers ask for, because a claim must not
// read the endpoint each time.
type ruleCache struct {
	mu      sync.Mutex
	rules   map[string]cachedRules
	changes uint64 // rules that are read before a change are not kept after it
}

type cachedRules struct {
	*queue.Rules
	at Instant
}

func (c *ruleCache) get(endpoint string, now Instant) (r *queue.Rules, changes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.rules[endpoint]
	if !ok || now < known.at || now >= known.at.Add(rulesAge) {
		return nil, c.changes
	}
	return known.Rules, c.changes
}

func (c *ruleCache) keep(endpoint string, r *queue.Rules, now Instant, changes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if changes != c.changes {
		return
	}
	if c.rules == nil {
		c.rules = map[string]cachedRules{}
	}
	c.rules[endpoint] = cachedRules{r, now}
}

func (c *ruleCache) set(endpoint string, r *queue.Rules, now Instant) {
	c.mu.Lock()
	c.changes++
	changes := c.changes
	c.mu.Unlock()
	c.keep(endpoint, r, now, changes)
}

func (c *ruleCache) forget(endpoint string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.rules, endpoint)
}

// limits reports whether the last known rules limit the running jobs of an endpoint, so that
// the end of one may free another.
func (c *ruleCache) limits(endpoint string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.rules[endpoint].Rules
	return r != nil && r.Limited()
}
