package disk

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/podyard/podyard/pods"
)

// Pods is a pods.Store.
type Pods struct{ s *Store }

// A podTable is the pods with what is asked of all of them: their order and their claims.
type podTable struct {
	table[pods.Pod]
	order  map[group3]*order // by owner, by host, and all
	claims *ledger
}

// A group3 names an order: of an owner's pods, of a host's, or (the zero value) of all.
type group3 struct{ owner, host string }

// An order is pods by Created and then ID.
type order struct{ list []place }

type place struct {
	created time.Time
	id      string
}

func (a place) compare(b place) int {
	if c := a.created.Compare(b.created); c != 0 {
		return c
	}
	return strings.Compare(a.id, b.id)
}

func (t *podTable) load(e *engine, claims *ledger) error {
	t.order, t.claims = map[group3]*order{}, claims
	if err := t.table.load(e, keyPod, decodePod); err != nil {
		return err
	}
	for _, r := range t.rows {
		claims.load(r.v.Placement.Claims)
		t.arrange(nil, r.v)
	}
	return nil
}

// publish moves claims and places when a change has become durable.
func (t *podTable) publish(old, now *pods.Pod) {
	t.claims.publish(podClaims(old), podClaims(now))
	t.arrange(old, now)
}

func podClaims(p *pods.Pod) []pods.Claim {
	if p == nil {
		return nil
	}
	return p.Placement.Claims
}

// arrange moves a pod from its places to those that it now has.
func (t *podTable) arrange(old, now *pods.Pod) {
	was, is := groups(old), groups(now)
	for _, g := range was {
		if !slices.Contains(is, g) {
			t.leave(g, old)
		}
	}
	for _, g := range is {
		if !slices.Contains(was, g) {
			t.join(g, now)
		}
	}
}

func groups(p *pods.Pod) []group3 {
	if p == nil {
		return nil
	}
	g := []group3{{}}
	if p.Owner != "" {
		g = append(g, group3{owner: p.Owner})
	}
	if p.Placement.Host != "" {
		g = append(g, group3{host: p.Placement.Host})
	}
	return g
}

func (t *podTable) join(g group3, p *pods.Pod) {
	o := t.order[g]
	if o == nil {
		o = &order{}
		t.order[g] = o
	}
	at := place{p.Created, p.ID}
	i, _ := slices.BinarySearchFunc(o.list, at, place.compare)
	o.list = slices.Insert(o.list, i, at)
}

func (t *podTable) leave(g group3, p *pods.Pod) {
	o := t.order[g]
	i, ok := slices.BinarySearchFunc(o.list, place{p.Created, p.ID}, place.compare)
	if !ok {
		return
	}
	if o.list = slices.Delete(o.list, i, i+1); len(o.list) == 0 {
		delete(t.order, g)
	}
}

// list is the pods of a group, in order.
func (t *podTable) list(f pods.Filter) []*pods.Pod {
	g := group3{owner: f.Owner}
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

// change is table.change, for a pod.
func (s *Pods) change(ctx context.Context, what need, id string, fn func(t *podTable, old *pods.Pod) (*pods.Pod, error)) error {
	e, err := s.s.admit(ctx, what)
	if err != nil {
		return err
	}
	t := &e.pods
	err = t.change(ctx, e, id, func(old *pods.Pod) (c change[pods.Pod], err error) {
		c.key = textKey(keyPod, id)
		if c.v, err = fn(t, old); err != nil {
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
		s.s.podHub.tell([]string{id})
	}
	return err
}

// Create implements pods.Store.
func (s *Pods) Create(ctx context.Context, p *pods.Pod) error {
	return s.change(ctx, newWork, p.ID, func(_ *podTable, old *pods.Pod) (*pods.Pod, error) {
		if old != nil {
			return nil, pods.ErrExists
		}
		return p.Clone(), nil
	})
}

// Get implements pods.Store.
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
		return nil, pods.ErrNotFound
	}
	return p.Clone(), nil
}

// List implements pods.Store. It yields the pods of the instant at which it began.
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
	}
}

// Update implements pods.Store. fn runs once, while no other pod can be changed.
func (s *Pods) Update(ctx context.Context, id string, fn func(*pods.Pod) error) (*pods.Pod, error) {
	var p *pods.Pod
	err := s.change(ctx, underWay, id, func(_ *podTable, old *pods.Pod) (*pods.Pod, error) {
		if old == nil {
			return nil, pods.ErrNotFound
		}
		p = old.Clone()
		if err := fn(p); err != nil {
			return nil, err
		}
		return p.Clone(), nil
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Delete implements pods.Store.
func (s *Pods) Delete(ctx context.Context, id string) error {
	return s.change(ctx, deletions, id, func(_ *podTable, old *pods.Pod) (*pods.Pod, error) {
		if old == nil {
			return nil, pods.ErrNotFound
		}
		return nil, nil
	})
}

// Used implements pods.Store.
func (s *Pods) Used(ctx context.Context, resource string) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	e, err := s.s.engine()
	if err != nil {
		return 0, err
	}
	return e.pods.claims.used(resource), nil
}

// Watch implements pods.Store.
func (s *Pods) Watch(ctx context.Context, f func(ids []string)) error {
	return s.s.podHub.watch(ctx, f, func() {})
}
