package accounts

import (
	"maps"
	"time"
)

// An index finds keys by their digests. It is never changed, only replaced.
type index struct {
	byDigest map[Digest]*entry
	byID     map[string]*entry

	// Of a shared store: the version it was read at, and the last look that found this version.
	version int64
	look    uint64
	looked  time.Time
}

// An entry is a key with what it stands for.
type entry struct {
	Key
	grant Grant
}

func newIndex(list []Key) *index {
	x := &index{byDigest: map[Digest]*entry{}, byID: map[string]*entry{}}
	for i := range list {
		x.add(&list[i])
	}
	return x
}

func (x *index) add(k *Key) {
	e := &entry{k.Clone(), Grant{k.ID, k.User, permissions(k.Scopes), k.Expires}}
	x.byID[k.ID] = e
	x.byDigest[k.Digest] = e
	if k.Old != (Digest{}) {
		x.byDigest[k.Old] = e
	}
}

// with is the index after old has become k; each may be nil.
func (x *index) with(old, k *Key) *index {
	next := &index{byDigest: maps.Clone(x.byDigest), byID: maps.Clone(x.byID)}
	if old != nil {
		delete(next.byID, old.ID)
		delete(next.byDigest, old.Digest)
		delete(next.byDigest, old.Old)
	}
	if k != nil {
		next.add(k)
	}
	return next
}

// count is how many keys a user has.
func (x *index) count(user string) (n int) {
	for _, e := range x.byID {
		if e.User == user {
			n++
		}
	}
	return n
}

// permits reports whether a user has a valid key with a permission.
func (x *index) permits(user string, p Permission, at time.Time) bool {
	for _, e := range x.byID {
		if e.User == user && e.valid(at) && allow(e.grant.Scopes, p) {
			return true
		}
	}
	return false
}

func (x *index) hasOperator(at time.Time) bool {
	for _, e := range x.byID {
		if e.operator() && e.valid(at) {
			return true
		}
	}
	return false
}
