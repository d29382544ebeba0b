package budget

import "sync/atomic"

// A Set has the limits of every user. It is safe for concurrent use. The zero value, and a nil
// Set, limit nobody.
type Set struct{ now atomic.Pointer[inForce] }

// Users are the limits of a Set.
type Users struct {
	Limits Limits            // of a user who is not in Named
	Named  map[string]Limits // by user, each complete
	Exempt []string          // users without limits, also where Named has them
}

type inForce struct {
	limits Limits
	named  map[string]*Limits // nil: exempt
}

// NewSet returns a Set with the limits of u.
func NewSet(u Users) *Set {
	s := &Set{}
	s.Replace(u)
	return s
}

// Replace replaces all limits. What a user has over a new limit stays; the user gets no more.
func (s *Set) Replace(u Users) {
	f := &inForce{limits: u.Limits, named: make(map[string]*Limits, len(u.Named)+len(u.Exempt))}
	for user, l := range u.Named {
		f.named[user] = &l
	}
	for _, user := range u.Exempt {
		f.named[user] = nil
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
