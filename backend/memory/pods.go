package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/go-memdb"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/ratelimit/budget"
)

// Pods is a pods.PodStore. It is safe for concurrent use.
type Pods struct {
	keyed
	counted
	db *memdb.MemDB

	mu       sync.Mutex
	watchers map[*podWatcher]bool
}

var _ pods.PodStore = (*Pods)(nil)

type podWatcher struct{ f func([]string) }

// NewPods returns an empty store.
func NewPods() *Pods {
	db, err := memdb.NewMemDB(podSchema())
	if err != nil {
		panic(fmt.Sprintf("memory: schema of pods: %v", err)) // a constant
	}
	return &Pods{counted: newCounted(), db: db, watchers: make(map[*podWatcher]bool)}
}

// Create implements pods.PodStore.
func (s *Pods) Create(ctx context.Context, p *pods.Pod) error {
	return s.done("create", s.create(ctx, p), p.ID)
}

// CreateKeyed implements pods.PodStore.
func (s *Pods) CreateKeyed(ctx context.Context, p *pods.Pod, r idempotency.Record) error {
	err := s.addKeyed(func() error { return s.create(ctx, p) }, r)
	return s.done("create", err, p.ID)
}

// CreateAll implements pods.PodStore.
func (s *Pods) CreateAll(ctx context.Context, list []*pods.Pod, r *idempotency.Record) error {
	var records []idempotency.Record
	if r != nil {
		records = append(records, *r)
	}
	ids := make([]string, len(list))
	for i, p := range list {
		ids[i] = p.ID
	}
	err := s.addKeyed(func() error { return s.create(ctx, list...) }, records...)
	return s.done("create", err, ids...)
}

func (s *Pods) create(ctx context.Context, list ...*pods.Pod) error {
	return s.write(ctx, func(txn *memdb.Txn) error {
		for _, p := range list {
			if err := podInsert(txn, p); err != nil {
				return err
			}
		}
		if err := podClaim(txn, nil, pods.ClaimsOf(list)); err != nil {
			return err
		}
		return s.tally.Move(budget.Holding{}, pods.HoldingOf(list))
	})
}

func podInsert(txn *memdb.Txn, p *pods.Pod) error {
	old, err := txn.First(podTable, "id", p.ID)
	if err != nil {
		return err
	}
	if old != nil {
		return pods.ErrExists
	}
	if err := txn.Insert(podOwnedTable, podOwnedOf(p)); err != nil {
		return err
	}
	return txn.Insert(podTable, p.Clone())
}

// Get implements pods.PodStore.
func (s *Pods) Get(ctx context.Context, id string) (*pods.Pod, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, err := podFirst(s.db.Txn(false), id)
	if err != nil {
		return nil, podError("get", id, err)
	}
	return p.Clone(), nil
}

func podFirst(txn *memdb.Txn, id string) (*pods.Pod, error) {
	v, err := txn.First(podTable, "id", id)
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, pods.ErrNotFound
	}
	return v.(*pods.Pod), nil
}

// List implements pods.PodStore. It yields the pods as they were when the iteration began.
func (s *Pods) List(ctx context.Context, f pods.Filter) iter.Seq2[*pods.Pod, error] {
	return func(yield func(*pods.Pod, error) bool) {
		list, err := s.list(f)
		if err != nil {
			yield(nil, fmt.Errorf("memory: list pods: %w", err))
			return
		}
		for _, p := range list {
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

// list returns the pods that f selects, in order. The caller must not change them.
func (s *Pods) list(f pods.Filter) (list []*pods.Pod, err error) {
	txn := s.db.Txn(false)
	table, prefix := podTable, ""
	if f.Owner != "" {
		table, prefix = podOwnedTable, podOwner(f.Owner)
	}
	it, err := txn.Get(table, "id_prefix", prefix)
	if err != nil {
		return nil, err
	}
	for v := it.Next(); v != nil; v = it.Next() {
		p, ok := v.(*pods.Pod)
		if !ok {
			if p, err = podFirst(txn, v.(*podOwned).id); err != nil {
				return nil, err
			}
		}
		if f.Host == "" || p.Placement.Host == f.Host {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *pods.Pod) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
	})
	return list, nil
}

// Update implements pods.PodStore. fn runs once, while no other pod can be changed.
func (s *Pods) Update(ctx context.Context, id string, fn func(*pods.Pod) error) (p *pods.Pod, err error) {
	err = s.write(ctx, func(txn *memdb.Txn) error {
		old, err := podFirst(txn, id)
		if err != nil {
			return err
		}
		p = old.Clone()
		if err := fn(p); err != nil {
			return err
		}
		if err := podClaim(txn, old.Placement.Claims, p.Placement.Claims); err != nil {
			return err
		}
		if err := s.tally.Move(old.Holding(), p.Holding()); err != nil {
			return err
		}
		return txn.Insert(podTable, p.Clone())
	})
	if err := s.done("update", err, id); err != nil {
		return nil, err
	}
	return p, nil
}

// Delete implements pods.PodStore. fn runs once.
func (s *Pods) Delete(ctx context.Context, id string, fn func(*pods.Pod) error) error {
	err := s.write(ctx, func(txn *memdb.Txn) error {
		old, err := podFirst(txn, id)
		if err != nil {
			return err
		}
		if fn != nil {
			if err := fn(old.Clone()); err != nil {
				return err
			}
		}
		if err := podClaim(txn, old.Placement.Claims, nil); err != nil {
			return err
		}
		if err := txn.Delete(podOwnedTable, podOwnedOf(old)); err != nil {
			return err
		}
		if err := s.tally.Move(old.Holding(), budget.Holding{}); err != nil {
			return err
		}
		return txn.Delete(podTable, old)
	})
	return s.done("delete", err, id)
}

// Claimed implements pods.PodStore.
func (s *Pods) Claimed(ctx context.Context, resource string) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	v, err := s.db.Txn(false).First(podClaimTable, "id", resource)
	if err != nil {
		return 0, fmt.Errorf("memory: look up claims of %q: %w", resource, err)
	}
	if v == nil {
		return 0, nil
	}
	return v.(*podClaimed).units, nil
}

// Watch implements pods.PodStore.
func (s *Pods) Watch(ctx context.Context, f func(ids []string)) error {
	w := &podWatcher{f}
	s.mu.Lock()
	s.watchers[w] = true
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	delete(s.watchers, w)
	s.mu.Unlock()
	return ctx.Err()
}

// write runs fn in a transaction that is kept only if fn returns nil.
func (s *Pods) write(ctx context.Context, fn func(*memdb.Txn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	txn := s.db.Txn(true)
	defer txn.Abort()
	if err := fn(txn); err != nil {
		return err
	}
	txn.Commit()
	return nil
}

// done notifies the watchers of a successful change, or returns its error.
func (s *Pods) done(what string, err error, ids ...string) error {
	if err != nil {
		return podError(what, ids[0], err)
	}
	s.notify(ids...)
	return nil
}

func (s *Pods) notify(ids ...string) {
	s.mu.Lock()
	list := make([]*podWatcher, 0, len(s.watchers))
	for w := range s.watchers {
		list = append(list, w)
	}
	s.mu.Unlock()
	for _, w := range list {
		w.f(slices.Clone(ids))
	}
}

// podError adds the operation and the pod to errors other than the sentinels.
func podError(what, id string, err error) error {
	if errors.Is(err, pods.ErrNotFound) || errors.Is(err, pods.ErrExists) || errors.Is(err, pods.ErrNoCapacity) || errors.Is(err, idempotency.ErrTaken) {
		return err
	}
	return fmt.Errorf("memory: %s pod %q: %w", what, id, err)
}

// podClaim replaces the claims old by the claims now in the sums. It returns ErrNoCapacity if
// a sum exceeds its limit; the caller then aborts the transaction.
func podClaim(txn *memdb.Txn, old, now []pods.Claim) error {
	if slices.Equal(old, now) {
		return nil
	}
	change := make(map[string]int64)
	for _, c := range old {
		change[c.Resource] -= c.Units
	}
	for _, c := range now {
		change[c.Resource] += c.Units
	}
	for resource, n := range change {
		if err := podClaimOne(txn, resource, n, now); err != nil {
			return err
		}
	}
	return nil
}

func podClaimOne(txn *memdb.Txn, resource string, n int64, now []pods.Claim) error {
	if n == 0 {
		return nil
	}
	v, err := txn.First(podClaimTable, "id", resource)
	if err != nil {
		return err
	}
	sum := &podClaimed{resource: resource, units: n}
	if v != nil {
		sum.units += v.(*podClaimed).units
	}
	for _, c := range now {
		if c.Resource == resource && n > 0 && sum.units > c.Limit {
			return pods.ErrNoCapacity
		}
	}
	if sum.units == 0 {
		return txn.Delete(podClaimTable, v)
	}
	return txn.Insert(podClaimTable, sum)
}
