package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/servers"
)

// A pin says where an endpoint is. It is settled, held (To is set) or draining (From is set).
type pin struct {
	Shard    string        // that gets new jobs; of a hold, the one that is left
	Base     uint64        `json:",omitempty"` // is added to State.Seq of the shard
	To       string        `json:",omitempty"`
	From     string        `json:",omitempty"`
	FromBase uint64        `json:",omitempty"`
	Since    queue.Instant `json:",omitempty"` // of the hold or the drain
	// Totals of shards that have the endpoint no more, less what the shard had counted before.
	Completed, Failed, Retried int64 `json:",omitempty"`
}

func (p *pin) settled() bool { return p.To == "" && p.From == "" }

// An entry is a pin in memory.
type entry struct {
	pin
	version int64
	submits int // that are under way
}

// page is how many records are read at once.
const page = 1000

// A place is where the jobs of an endpoint are at the moment.
type place struct {
	sides []side // the shard that gets new jobs, and the one that is drained
	pin   pin
	stale bool // the control store did not answer for long
}

// A side is a shard that has jobs of an endpoint.
type side struct {
	*member
	base uint64
}

// fresh makes sure that the pins are at most one step behind. It reports false if they may not be.
func (q *Queue) fresh(ctx context.Context) bool {
	q.mu.Lock()
	ok := q.o.Clock.Now().Before(q.valid)
	q.mu.Unlock()
	return ok || q.sync(ctx) == nil
}

// sync reads the changes of pins, and shows the other servers what was read. A call that waited for
// another one that began later is done.
func (q *Queue) sync(ctx context.Context) error {
	ticket := q.syncs.Load()
	q.syncMu.Lock()
	defer q.syncMu.Unlock()
	if q.synced > ticket {
		return nil
	}
	number := q.syncs.Add(1)
	for {
		began := q.o.Clock.Now()
		if err := q.readChanges(ctx); err != nil {
			return fmt.Errorf("shard: the control store: %w", err)
		}
		l := servers.Lease{Name: nodePrefix + q.o.Server, Holder: q.o.Server, Until: began.Add(leaseTTL), Data: strconv.AppendInt(nil, q.acknowledged(), 10)}
		l, err := q.o.Control.Take(ctx, began, l)
		if err != nil {
			return fmt.Errorf("shard: the control store: %w", err)
		}
		if l.Holder != q.o.Server {
			return problem.Newf(problem.Conflict, "another server has the name %q", q.o.Server)
		}
		if l.Epoch == q.epoch {
			q.mu.Lock()
			q.valid = began.Add(leaseTTL - skew)
			q.mu.Unlock()
			q.synced = number
			return nil
		}
		q.epoch = l.Epoch // nobody has waited for this server until now: read again what was changed before
	}
}

func (q *Queue) readChanges(ctx context.Context) error {
	for {
		q.mu.Lock()
		after := q.seen
		q.mu.Unlock()
		list, err := q.o.Control.Changes(ctx, after, page)
		if err != nil {
			return err
		}
		if err := q.learn(list); err != nil {
			return err
		}
		if len(list) < page {
			return nil
		}
	}
}

func (q *Queue) learn(list []servers.Record) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range list {
		r := &list[i]
		if endpoint, ok := strings.CutPrefix(r.Key, pinPrefix); ok {
			var p pin
			if err := json.Unmarshal(r.Data, &p); err != nil {
				return fmt.Errorf("the pin of %q: %w", endpoint, err)
			}
			e := q.pins[endpoint]
			if e == nil {
				e = &entry{}
				q.pins[endpoint] = e
			}
			e.pin, e.version = p, r.Version
			if e.submits > 0 && p.To != "" {
				q.held[endpoint] = r.Version
			}
		}
		q.seen = r.Version
	}
	return nil
}

// acknowledged returns the version up to which this server follows the pins: no submit that began
// under an older pin is under way.
func (q *Queue) acknowledged() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	v := q.seen
	for endpoint, version := range q.held {
		if q.pins[endpoint].submits == 0 {
			delete(q.held, endpoint)
			continue
		}
		v = min(v, version-1)
	}
	return v
}

// place returns where an endpoint is. It has no sides if the endpoint has no pin and pins is false.
func (q *Queue) place(ctx context.Context, endpoint string, pins bool) (place, error) {
	current := q.fresh(ctx)
	pl, known, err := q.known(endpoint)
	if known && pl.pin.To == "" || err != nil {
		pl.stale = !current
		return pl, err
	}
	// Another server may have pinned it, or ended the hold.
	if err := q.sync(ctx); err != nil {
		if known {
			pl.stale = true
			return pl, nil
		}
		return place{}, err
	}
	if pl, known, err = q.known(endpoint); known || err != nil {
		return pl, err
	}
	if m := q.adopter(ctx, endpoint); m != nil {
		return q.pinTo(ctx, endpoint, m)
	}
	if !pins {
		return place{}, nil
	}
	return q.pinTo(ctx, endpoint, q.choose(endpoint))
}

// known returns where an endpoint is as far as this server knows.
func (q *Queue) known(endpoint string) (pl place, ok bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.pins[endpoint]
	if e == nil {
		return place{}, false, nil
	}
	pl.pin = e.pin
	for _, s := range []struct {
		name string
		base uint64
	}{{e.Shard, e.Base}, {e.From, e.FromBase}} {
		if s.name == "" {
			continue
		}
		m := q.byName[s.name]
		if m == nil {
			return place{}, true, problem.Newf(problem.Unavailable, "the endpoint %q is on the shard %q, which this server does not have", endpoint, s.name)
		}
		pl.sides = append(pl.sides, side{m, s.base})
	}
	return pl, true, nil
}

// adopter returns the shard that was the only queue before, if it has had jobs of the endpoint.
func (q *Queue) adopter(ctx context.Context, endpoint string) *member {
	m := q.byName[q.o.Adopt]
	if m == nil {
		return nil
	}
	s, err := m.Jobs.Stats(ctx, queue.At(q.o.Clock.Now()), endpoint, nil)
	if err := q.note(m, err); err == nil && s.LastSeq == 0 {
		return nil
	}
	return m // also if it does not answer: its jobs must be found later
}

// pinTo pins an endpoint that has no pin.
func (q *Queue) pinTo(ctx context.Context, endpoint string, m *member) (place, error) {
	err := q.put(ctx, endpoint, 0, pin{Shard: m.Name})
	if err != nil && !errors.Is(err, servers.ErrChanged) {
		return place{}, err
	}
	if err := q.sync(ctx); err != nil {
		return place{}, err
	}
	pl, _, err := q.known(endpoint)
	return pl, err
}

func (q *Queue) put(ctx context.Context, endpoint string, version int64, p pin) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	_, err = q.o.Control.Put(ctx, servers.Record{Key: pinPrefix + endpoint, Version: version, Data: data})
	return err
}

// beginSubmit returns where new jobs of an endpoint go. While it is held, it waits. end must be
// called when the submit has ended.
func (q *Queue) beginSubmit(ctx context.Context, endpoint string) (pl place, end func(), err error) {
	for limit := q.o.Clock.Now().Add(holdLimit); ; {
		if pl, err = q.place(ctx, endpoint, true); err != nil {
			return place{}, nil, err
		}
		if pl.stale {
			return place{}, nil, problem.New(problem.Unavailable, "the control store of the shards does not answer: no new jobs are taken")
		}
		if e := q.enter(endpoint, &pl.pin); e != nil {
			return pl, func() { q.leave(e) }, nil
		}
		if !q.o.Clock.Now().Before(limit) {
			return place{}, nil, problem.Newf(problem.Unavailable, "the endpoint %q is being moved to another shard: try again", endpoint)
		}
		clock.Sleep(ctx, q.o.Clock, q.o.Clock.Now().Add(20*time.Millisecond), nil)
		if err := ctx.Err(); err != nil {
			return place{}, nil, err
		}
	}
}

// enter counts a submit, unless the pin has changed or is held.
func (q *Queue) enter(endpoint string, seen *pin) *entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.pins[endpoint]
	if e.pin != *seen || e.To != "" {
		return nil
	}
	e.submits++
	return e
}

func (q *Queue) leave(e *entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e.submits--
}
