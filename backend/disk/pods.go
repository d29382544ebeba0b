package disk

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/ratelimit/budget"
)

// Pods is a pods.PodStore.
type Pods struct{ s *Store }

// A podTable contains the pods, their order and their claims.
type podTable struct {
	table[pods.Pod]
	order  map[orderKey]*podOrder // by owner, by host, and all
	claims *ledger
}

// An orderKey selects the pods of an owner, the pods of a host, or (the zero value) all pods.
type orderKey struct{ owner, host string }

// A podOrder is a list of pods ordered by Created and then ID.
type podOrder struct{ list []podPosition }

type podPosition struct {
	created time.Time
	id      string
}

func (a podPosition) compare(b podPosition) int {
	if c := a.created.Compare(b.created); c != 0 {
		return c
	}
	return strings.Compare(a.id, b.id)
}

func (t *podTable) load(e *engine, claims *ledger) error {
	t.order, t.claims = map[orderKey]*podOrder{}, claims
	if err := t.table.load(e, keyPod, decodePod); err != nil {
		return err
	}
	for _, r := range t.rows {
		claims.load(r.v.Placement.Claims)
		t.reorder(nil, r.v)
	}
	return nil
}

// publish updates the claims and the order after a change has become durable.
func (t *podTable) publish(old, now *pods.Pod) {
	t.claims.publish(podClaims(old), podClaims(now))
	t.reorder(old, now)
}

func podClaims(p *pods.Pod) []pods.Claim {
	if p == nil {
		return nil
	}
	return p.Placement.Claims
}

// reorder moves a pod from its old positions to its new ones.
func (t *podTable) reorder(old, now *pods.Pod) {
	was, is := orderKeys(old), orderKeys(now)
	for _, g := range was {
		if !slices.Contains(is, g) {
			t.remove(g, old)
		}
	}
	for _, g := range is {
		if !slices.Contains(was, g) {
			t.insert(g, now)
		}
	}
}

func orderKeys(p *pods.Pod) []orderKey {
	if p == nil {
		return nil
	}
	g := []orderKey{{}}
	if p.Owner != "" {
		g = append(g, orderKey{owner: p.Owner})
	}
	if p.Placement.Host != "" {
		g = append(g, orderKey{host: p.Placement.Host})
	}
	return g
}

func (t *podTable) insert(g orderKey, p *pods.Pod) {
	o := t.order[g]
	if o == nil {
		o = &podOrder{}
		t.order[g] = o
	}
	at := podPosition{p.Created, p.ID}
	i, _ := slices.BinarySearchFunc(o.list, at, podPosition.compare)
	o.list = slices.Insert(o.list, i, at)
}

func (t *podTable) remove(g orderKey, p *pods.Pod) {
	o := t.order[g]
	i, ok := slices.BinarySearchFunc(o.list, podPosition{p.Created, p.ID}, podPosition.compare)
	if !ok {
		return
	}
	if o.list = slices.Delete(o.list, i, i+1); len(o.list) == 0 {
		delete(t.order, g)
	}
}

// list returns the pods of a filter, in order.
func (t *podTable) list(f pods.Filter) []*pods.Pod {
	g := orderKey{owner: f.Owner}
	if f.Owner == "" {
		g.host = f.Host
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.order[g]
	if o == nil {
		return nil
	}
	list := make([]*pods.Pod, 0, len(o.list))
	for _, at := range o.list {
		p := t.rows[at.id].v
		if f.Host == "" || p.Placement.Host == f.Host {
			list = append(list, p)
		}
	}
	return list
}

// change is table.change for a pod. fn checks that there is room, if it needs some.
func (s *Pods) change(ctx context.Context, id string, fn func(e *engine, old *pods.Pod) (*pods.Pod, error)) error {
	e, err := s.s.admit(ctx, deletions)
	if err != nil {
		return err
	}
	return s.changeIn(ctx, e, nil, id, fn)
}

// changeIn is change in an engine, with the records of an Idempotency-Key.
func (s *Pods) changeIn(ctx context.Context, e *engine, w *keyedWrite, id string, fn func(e *engine, old *pods.Pod) (*pods.Pod, error)) error {
	t := &e.pods
	err := t.change(ctx, e, id, func(old *pods.Pod) (c change[pods.Pod], err error) {
		c.key, c.keyed = textKey(keyPod, id), w
		if c.v, err = fn(e, old); err != nil {
			return c, err
		}
		if c.v != nil {
			if c.value, err = encodePod(e.seals, c.key, c.v); err != nil {
				return c, err
			}
		}
		return c, t.claims.reserve(podClaims(old), podClaims(c.v))
	}, t.publish)
	if err == nil {
		s.s.podHub.Notify([]string{id})
	}
	return err
}

// Create implements pods.PodStore.
func (s *Pods) Create(ctx context.Context, p *pods.Pod) error {
	return s.create(ctx, p)
}

// CreateKeyed implements pods.PodStore.
func (s *Pods) CreateKeyed(ctx context.Context, p *pods.Pod, r idempotency.Record) error {
	return s.create(ctx, p, r)
}

func (s *Pods) create(ctx context.Context, p *pods.Pod, keys ...idempotency.Record) error {
	return s.s.create(ctx, keys, func(e *engine, w *keyedWrite) error {
		if err := e.mayCreate(p.Owner); err != nil {
			return err
		}
		return s.changeIn(ctx, e, w, p.ID, func(_ *engine, old *pods.Pod) (*pods.Pod, error) {
			if old != nil {
				return nil, pods.ErrExists
			}
			return p.Clone(), nil
		})
	})
}

// CreateAll implements pods.PodStore.
func (s *Pods) CreateAll(ctx context.Context, list []*pods.Pod, r *idempotency.Record) error {
	var keys []idempotency.Record
	if r != nil {
		keys = append(keys, *r)
	}
	err := s.s.create(ctx, keys, func(e *engine, w *keyedWrite) error {
		if err := e.mayCreate(pods.HoldingOf(list).User); err != nil {
			return err
		}
		return e.pods.addAll(e, w, list)
	})
	if err != nil {
		return err
	}
	ids := make([]string, len(list))
	for i, p := range list {
		ids[i] = p.ID
	}
	s.s.podHub.Notify(ids)
	return nil
}

// addAll adds pods in one commit.
func (t *podTable) addAll(e *engine, w *keyedWrite, list []*pods.Pod) error {
	changes := make([]change[pods.Pod], len(list))
	for i, p := range list {
		c := change[pods.Pod]{key: textKey(keyPod, p.ID), v: p.Clone()}
		var err error
		if c.value, err = encodePod(e.seals, c.key, c.v); err != nil {
			return err
		}
		changes[i] = c
	}
	busy := make(chan struct{})
	if err := t.reserveAll(list, busy); err != nil {
		return err
	}
	return e.commit(func(b *pebble.Batch) {
		w.write(b)
		for _, c := range changes {
			put(b, c.key, c.value)
		}
	}, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, c := range changes {
			r := t.rows[c.v.ID]
			r.v, r.busy = c.v, nil
			t.publish(nil, c.v)
		}
		close(busy)
	})
}

// reserveAll makes the records of new pods busy, and reserves what the pods claim and hold.
func (t *podTable) reserveAll(list []*pods.Pod, busy chan struct{}) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range list {
		if t.rows[p.ID] != nil {
			return pods.ErrExists
		}
	}
	held := pods.HoldingOf(list)
	if err := t.tally.Move(budget.Holding{}, held); err != nil {
		return err
	}
	if err := t.claims.reserve(nil, pods.ClaimsOf(list)); err != nil {
		return errors.Join(err, t.tally.Move(held, budget.Holding{}))
	}
	for _, p := range list {
		t.rows[p.ID] = &row[pods.Pod]{busy: busy}
	}
	return nil
}

// FindKey implements pods.PodStore.
func (s *Pods) FindKey(_ context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return s.s.findKey(key)
}

// Get implements pods.PodStore.
func (s *Pods) Get(ctx context.Context, id string) (*pods.Pod, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e, err := s.s.engine()
	if err != nil {
		return nil, err
	}
	p := e.pods.get(id)
	if p == nil {
		return nil, e.missing(keyPod, pods.ErrNotFound)
	}
	return p.Clone(), nil
}

// List implements pods.PodStore. It yields the pods as they were when it began.
func (s *Pods) List(ctx context.Context, f pods.Filter) iter.Seq2[*pods.Pod, error] {
	return func(yield func(*pods.Pod, error) bool) {
		e, err := s.s.engine()
		if err != nil {
			yield(nil, err)
			return
		}
		for _, p := range e.pods.list(f) {
			if err := ctx.Err(); err != nil {
				yield(nil, err)
				return
			}
			if !yield(p.Clone(), nil) {
				return
			}
		}
		if err := e.missing(keyPod, nil); err != nil {
			yield(nil, err)
		}
	}
}

// Update implements pods.PodStore. fn runs once. No other pod can change while it runs. An update
// that ends a pod is never refused for lack of room, because it makes room.
func (s *Pods) Update(ctx context.Context, id string, fn func(*pods.Pod) error) (*pods.Pod, error) {
	var p *pods.Pod
	err := s.change(ctx, id, func(e *engine, old *pods.Pod) (*pods.Pod, error) {
		if old == nil {
			return nil, e.missing(keyPod, pods.ErrNotFound)
		}
		p = old.Clone()
		if err := fn(p); err != nil {
			return nil, err
		}
		if p.Want.Power == pods.PowerOn {
			if err := s.s.space.check(0, underWay); err != nil {
				return nil, err
			}
		}
		return p.Clone(), nil
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Delete implements pods.PodStore. fn runs once.
func (s *Pods) Delete(ctx context.Context, id string, fn func(*pods.Pod) error) error {
	return s.change(ctx, id, func(e *engine, old *pods.Pod) (*pods.Pod, error) {
		switch {
		case old == nil:
			return nil, e.missing(keyPod, pods.ErrNotFound)
		case fn != nil:
			return nil, fn(old.Clone())
		}
		return nil, nil
	})
}

// Claimed implements pods.PodStore.
func (s *Pods) Claimed(ctx context.Context, resource string) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	e, err := s.s.engine()
	if err != nil {
		return 0, err
	}
	return e.pods.claims.used(resource), e.pods.claims.whole()
}

// Watch implements pods.PodStore.
func (s *Pods) Watch(ctx context.Context, f func(ids []string)) error {
	return s.s.podHub.Watch(ctx, f, func() {})
}
