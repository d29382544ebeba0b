package budget

import (
	"maps"
	"sync/atomic"
)

// A Set has the limits of every user. It is safe for concurrent use. The zero value, and a nil
// Set, limit nobody.
type Set struct{ now atomic.Pointer[inForce] }

// Users are the limits of a Set.
type Users struct {
	Limits Limits            // of a user who is not in Named
	Named  map[string]Limits // by user, each complete
	Exempt []string          // users without limits, also where Named has them

	// Cost is what a user may spend who is not in NamedCost, which has each complete.
	Cost      Cost
	NamedCost map[string]Cost
}

type inForce struct {
	limits Limits
	named  map[string]*Limits // nil: exempt
	cost   Cost
	costs  map[string]Cost
}

// NewSet returns a Set with the limits of u.
func NewSet(u Users) *Set {
	s := &Set{}
	s.Replace(u)
	return s
}

// Replace replaces all limits. What a user has over a new limit stays; the user gets no more.
func (s *Set) Replace(u Users) {
	f := &inForce{limits: u.Limits, named: make(map[string]*Limits, len(u.Named)+len(u.Exempt)), cost: u.Cost, costs: map[string]Cost{}}
	for user, l := range u.Named {
		f.named[user] = &l
	}
	maps.Copy(f.costs, u.NamedCost)
	for _, user := range u.Exempt {
		f.named[user], f.costs[user] = nil, Cost{}
	}
	s.now.Store(f)
}

// Of returns the limits of a user, which must not be changed; nil is no limits. What has no
// owner has none. It does not allocate.
func (s *Set) Of(user string) *Limits {
	if s == nil || user == "" {
		return nil
	}
	f := s.now.Load()
	if f == nil {
		return nil
	}
	if l, ok := f.named[user]; ok {
		return l
	}
	return &f.limits
}

// Spends reports whether anybody has a limit of what they may spend.
func (s *Set) Spends() bool {
	if s == nil {
		return false
	}
	f := s.now.Load()
	if f == nil {
		return false
	}
	for _, c := range f.costs {
		if c != (Cost{}) {
			return true
		}
	}
	return f.cost != Cost{}
}

// Cost returns what a user may spend. What has no owner has no limit.
func (s *Set) Cost(user string) Cost {
	if s == nil || user == "" {
		return Cost{}
	}
	f := s.now.Load()
	if f == nil {
		return Cost{}
	}
	if c, ok := f.costs[user]; ok {
		return c
	}
	return f.cost
}
