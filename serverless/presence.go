package serverless

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/workers"
)

const (
	// presenceAge is the greatest age of what a server knows of the workers of others when it
	// gives out a job.
	presenceAge = time.Second
	// drainSettle is how long after a worker began to drain another server may still give it a
	// job that this one has not seen: until that server has read it, and this one has read the
	// jobs in progress.
	drainSettle = 2*presenceAge + 2*lookPeriod
	// askedFor is how long the jobs in progress of an endpoint are read again after somebody has
	// asked for them.
	askedFor = 15 * time.Second
)

// A crowd has the workers of all servers. It writes what this server knows of workers, and reads
// what the others do, into the registry.
type crowd struct {
	s     *Service
	rows  workers.Presence
	dirty atomic.Bool // something must be written soon

	sync sync.Mutex // held during a sync
	read Instant    // when the rows were read last; guarded by sync

	mu   sync.Mutex
	held map[string]*held // by endpoint
}

// held are the jobs in progress of an endpoint, which all servers gave out.
type held struct {
	asked Instant
	read  Instant // 0: not yet
	jobs  map[WorkerID][]JobID
	busy  map[WorkerID]Instant // when a worker was last seen with a job
}

// newCrowd returns nil where o has no Presence.
func (s *Service) newCrowd(o *Options) *crowd {
	if o.Presence == nil || o.Server == nil {
		return nil
	}
	s.registry.ShareWith(o.Server.ID(), s.lease)
	return &crowd{s: s, rows: o.Presence, held: map[string]*held{}}
}

// fresh makes what this server knows of workers at most presenceAge old.
func (c *crowd) fresh(ctx context.Context, now Instant) error {
	c.sync.Lock()
	defer c.sync.Unlock()
	if c.read <= now && now < c.read.Add(presenceAge) {
		return nil
	}
	return c.exchange(ctx, now)
}

// write makes the others know at once what has changed.
func (c *crowd) write(ctx context.Context, now Instant) error {
	c.sync.Lock()
	defer c.sync.Unlock()
	return c.exchange(ctx, now)
}

// exchange writes and reads rows. The caller holds sync.
func (c *crowd) exchange(ctx context.Context, now Instant) error {
	c.dirty.Store(false)
	rows, gone := c.s.registry.Unwritten(now)
	err := c.put(ctx, now, rows, gone)
	if err != nil {
		c.dirty.Store(true)
		return fmt.Errorf("serverless: write the workers: %w", err)
	}
	c.s.registry.Written(now, rows, gone)
	list, err := c.rows.List(ctx, now)
	if err != nil {
		return fmt.Errorf("serverless: read the workers: %w", err)
	}
	joined, check := c.s.registry.Merge(now, list)
	c.read = now
	for _, endpoint := range joined {
		c.s.scaler.Wake(endpoint)
	}
	if check != 0 {
		c.s.arm(check)
	}
	return nil
}

func (c *crowd) put(ctx context.Context, now Instant, rows []workers.Row, gone []workers.Key) error {
	if len(gone) > 0 {
		if err := c.rows.Remove(ctx, gone); err != nil {
			return err
		}
	}
	if len(rows) > 0 {
		return c.rows.Put(ctx, now, rows)
	}
	return nil
}

// look is what a look of the service does for workers.
func (c *crowd) look(ctx context.Context, now Instant) {
	if err := c.write(ctx, now); err != nil && ctx.Err() == nil {
		c.s.log.Error("the workers of other servers are not known", "err", err)
	}
	for _, endpoint := range c.asked(now) {
		if err := c.readHeld(ctx, now, endpoint); err != nil && ctx.Err() == nil {
			c.s.log.Error("the jobs in progress are not known", "endpoint", endpoint, "err", err)
		}
	}
}

// asked returns the endpoints whose jobs in progress are read, and forgets the others.
func (c *crowd) asked(now Instant) (list []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for endpoint, h := range c.held {
		if h.asked.Add(askedFor) < now {
			delete(c.held, endpoint)
			continue
		}
		list = append(list, endpoint)
	}
	return list
}

// readHeld reads the jobs in progress of an endpoint.
func (c *crowd) readHeld(ctx context.Context, now Instant, endpoint string) error {
	jobs := map[WorkerID][]JobID{}
	for j, err := range c.s.queue.List(ctx, now, queue.ListQuery{Endpoint: endpoint, Status: []Status{InProgress}}) {
		if err != nil {
			return err
		}
		jobs[j.Worker] = append(jobs[j.Worker], j.ID)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.ask(endpoint, 0)
	for w := range h.busy {
		if len(jobs[w]) == 0 && h.busy[w].Add(time.Hour) < now {
			delete(h.busy, w)
		}
	}
	for w := range jobs {
		h.busy[w] = now
	}
	h.jobs, h.read = jobs, now
	return nil
}

// ask returns the entry of an endpoint that somebody asks for. The caller holds mu.
func (c *crowd) ask(endpoint string, now Instant) *held {
	h := c.held[endpoint]
	if h == nil {
		h = &held{asked: now, busy: map[WorkerID]Instant{}}
		c.held[endpoint] = h
	}
	h.asked = max(h.asked, now)
	return h
}

// views replaces the jobs of workers by those that all servers gave out. A worker is busy if that
// is not known.
func (c *crowd) views(endpoint string, list []workers.View, now Instant) []workers.View {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.ask(endpoint, now)
	known := h.read != 0 && now < h.read.Add(3*lookPeriod)
	for i := range list {
		v := &list[i]
		v.Jobs = h.jobs[v.ID]
		v.Starting = v.Starting && len(v.Jobs) == 0
		v.IdleSince = max(v.IdleSince, h.busy[v.ID])
		v.Unsure = !known || v.Draining && (v.Drained == 0 || now < v.Drained.Add(drainSettle))
	}
	return list
}

// running returns how many workers of an endpoint have a job.
func (c *crowd) running(endpoint string, now Instant) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ask(endpoint, now).jobs)
}

// heldLately is heldBy as of up to some looks ago.
func (c *crowd) heldLately(ctx context.Context, now Instant, k workers.Key) ([]JobID, error) {
	c.mu.Lock()
	h := c.ask(k.Endpoint, now)
	known, list := h.read != 0 && now < h.read.Add(3*lookPeriod), h.jobs[k.ID]
	c.mu.Unlock()
	if known {
		return list, nil
	}
	return c.heldBy(ctx, now, k)
}

// heldBy returns the jobs that a worker has, wherever it got them.
func (c *crowd) heldBy(ctx context.Context, now Instant, k workers.Key) ([]JobID, error) {
	if err := c.readHeld(ctx, now, k.Endpoint); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ask(k.Endpoint, now).jobs[k.ID], nil
}

// workersChanged makes the others know soon that a worker drains.
func (s *Service) workersChanged() {
	if s.crowd != nil {
		s.crowd.dirty.Store(true)
		s.arm(s.now())
	}
}

// mayTake reports whether a worker may get a job, whatever server had it drain. It is always so
// where nothing is shared, because Take has looked.
func (s *Service) mayTake(ctx context.Context, w *workers.Worker, now Instant) (bool, error) {
	if s.crowd == nil {
		return true, nil
	}
	if err := s.crowd.fresh(ctx, now); err != nil {
		return false, err
	}
	_, takes := w.Changed()
	return takes, nil
}
