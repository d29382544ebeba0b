package disk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/billing"
)

// Billing is a billing.Store.
type Billing struct{ o owned[pods.Use] }

var _ billing.Store = (*Billing)(nil)

// Billing is the store of what was used.
func (s *Store) Billing() *Billing {
	return &Billing{owned[pods.Use]{
		s: s, kind: keyUse, of: func(e *engine) *table[pods.Use] { return &e.uses },
		clone: func(u pods.Use) pods.Use { return u },
		order: func(a, b pods.Use) int { return a.From.Compare(b.From) },
	}}
}

// Record implements billing.Store. Of several uses the first may be kept when a later one
// is not: the call is repeated then.
func (s *Billing) Record(ctx context.Context, uses []pods.Use) error {
	var errs []error
	for _, u := range uses {
		errs = append(errs, s.o.put(ctx, fmt.Sprintf("%s/%s/%d", u.Kind, u.ID, u.From.UnixNano()), u))
	}
	return errors.Join(errs...)
}

// Uses implements billing.Store.
func (s *Billing) Uses(_ context.Context, owner string, from, to time.Time) ([]pods.Use, error) {
	return s.o.list(func(u *pods.Use) bool { return u.Owner == owner && u.From.Before(to) && u.To.After(from) })
}
