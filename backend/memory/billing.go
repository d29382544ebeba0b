package memory

import (
	"context"
	"sync"
	"time"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/billing"
)

// Billing is a billing.Store. It is safe for concurrent use.
type Billing struct {
	mu   sync.Mutex
	uses map[string]map[useName]pods.Usage // by owner
}

// useName identifies a use.
type useName struct {
	kind     pods.UsageKind
	id, part string
	from     int64
}

var _ billing.Store = (*Billing)(nil)

// NewBilling returns an empty store.
func NewBilling() *Billing { return &Billing{uses: make(map[string]map[useName]pods.Usage)} }

// Record implements billing.Store.
func (s *Billing) Record(_ context.Context, uses []pods.Usage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range uses {
		if s.uses[u.Owner] == nil {
			s.uses[u.Owner] = make(map[useName]pods.Usage)
		}
		s.uses[u.Owner][useName{u.Kind, u.ID, u.Part, u.From.UnixNano()}] = u
	}
	return nil
}

// Usage implements billing.Store.
func (s *Billing) Usage(_ context.Context, owner string, from, to time.Time) ([]pods.Usage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []pods.Usage
	for _, u := range s.uses[owner] {
		if u.From.Before(to) && u.To.After(from) {
			list = append(list, u)
		}
	}
	return list, nil
}

// Expire implements billing.Store.
func (s *Billing) Expire(_ context.Context, before time.Time, limit int) (removed int, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for owner, uses := range s.uses {
		for name, u := range uses {
			if removed == limit {
				return removed, nil
			}
			if !u.Open && u.To.Before(before) {
				delete(uses, name)
				removed++
			}
		}
		if len(uses) == 0 {
			delete(s.uses, owner)
		}
	}
	return removed, nil
}

// Open implements billing.Store.
func (s *Billing) Open(_ context.Context, kind pods.UsageKind) ([]pods.Usage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []pods.Usage
	for _, uses := range s.uses {
		for _, u := range uses {
			if u.Open && u.Kind == kind {
				list = append(list, u)
			}
		}
	}
	return list, nil
}
