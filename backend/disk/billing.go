package disk

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/billing"
)

// Billing is a billing.Store.
type Billing struct{ o owned[pods.Usage] }

var _ billing.Store = (*Billing)(nil)

// Billing returns the store of usage records.
func (s *Store) Billing() *Billing {
	return &Billing{owned[pods.Usage]{
		s: s, kind: keyUse, of: func(e *engine) *table[pods.Usage] { return &e.uses },
		clone: func(u pods.Usage) pods.Usage { return u },
		order: func(a, b pods.Usage) int { return a.From.Compare(b.From) },
	}}
}

// Record implements billing.Store. All uses share a sync.
func (s *Billing) Record(ctx context.Context, uses []pods.Usage) error {
	errs := make([]error, len(uses))
	var puts sync.WaitGroup
	for i, u := range uses {
		what := underWay
		if !u.Open {
			what = deletions // a pod is deleted after its last use is recorded
		}
		puts.Go(func() { errs[i] = s.o.put(ctx, what, useName(&u), u) })
	}
	puts.Wait()
	return errors.Join(errs...)
}

func useName(u *pods.Usage) string {
	of := string(u.Kind) + "/" + u.ID
	if u.Part != "" {
		of += "/" + u.Part
	}
	return of + "/" + strconv.FormatInt(u.From.UnixNano(), 10)
}

// Usage implements billing.Store.
func (s *Billing) Usage(_ context.Context, owner string, from, to time.Time) ([]pods.Usage, error) {
	return s.o.list(func(u *pods.Usage) bool { return u.Owner == owner && u.From.Before(to) && u.To.After(from) })
}

// Expire implements billing.Store. All deletions share a sync.
func (s *Billing) Expire(ctx context.Context, before time.Time, limit int) (int, error) {
	e, err := s.o.s.admit(ctx, deletions)
	if err != nil {
		return 0, err
	}
	over := func(u *pods.Usage) bool { return !u.Open && u.To.Before(before) }
	n := 0
	list := e.uses.all(func(u *pods.Usage) bool {
		if n == limit || !over(u) {
			return false
		}
		n++
		return true
	})
	errs := make([]error, len(list))
	var ends sync.WaitGroup
	for i, u := range list {
		name := useName(u)
		ends.Go(func() {
			errs[i] = e.uses.change(ctx, e, name, func(old *pods.Usage) (change[pods.Usage], error) {
				if old == nil || !over(old) {
					return change[pods.Usage]{}, errKept
				}
				return change[pods.Usage]{key: textKey(keyUse, name)}, nil
			}, nil)
		})
	}
	ends.Wait()
	for i := range errs {
		if errors.Is(errs[i], errKept) { // it was changed or deleted meanwhile
			errs[i] = nil
		}
	}
	return len(list), errors.Join(errs...)
}

var errKept = errors.New("the usage is not over")

// Open implements billing.Store.
func (s *Billing) Open(_ context.Context, kind pods.UsageKind) ([]pods.Usage, error) {
	return s.o.list(func(u *pods.Usage) bool { return u.Open && u.Kind == kind })
}
