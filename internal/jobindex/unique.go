package jobindex

import "github.com/podyard/podyard/serverless/queue"

// A uniqueKey is the key of a unique job.
type uniqueKey struct{ endpoint, owner, key string }

// uniques are the jobs that took their keys last.
type uniques struct {
	jobs map[uniqueKey]uint32
	keys map[uint32]uniqueKey
}

// KeyHolder returns the job that took a key last, hidden or not, or 0.
func (x *Index) KeyHolder(endpoint, owner, key string) uint32 {
	if key == "" {
		return 0
	}
	return x.uniques.jobs[uniqueKey{endpoint, owner, key}]
}

// CheckKeys returns a *queue.TakenError if one of the jobs, which are added together, has a key that
// another one holds. The caller calls TakeKeys if it adds them.
func (x *Index) CheckKeys(jobs []queue.Job) error {
	var mine map[uniqueKey]queue.Ref
	for k := range jobs {
		j := &jobs[k]
		if j.Unique.Key == "" {
			continue
		}
		if mine == nil {
			mine = map[uniqueKey]queue.Ref{}
		}
		key := uniqueKey{j.Endpoint, j.Owner, j.Unique.Key}
		if ref, ok := mine[key]; ok {
			return &queue.TakenError{Ref: ref}
		}
		mine[key] = j.Ref
		if i := x.uniques.jobs[key]; i != 0 && x.holdsKey(i, j.Submitted) {
			return &queue.TakenError{Ref: x.Ref(i)}
		}
	}
	return nil
}

// holdsKey reports whether a job holds its key. One that is being added does.
func (x *Index) holdsKey(i uint32, now queue.Instant) bool {
	s := x.State(i)
	return x.Has(i, Hidden) || s.HoldsKey(now)
}

// TakeKeys gives jobs that were added the keys that they have.
func (x *Index) TakeKeys(added []uint32, jobs []queue.Job) {
	for k, i := range added {
		if key := jobs[k].Unique.Key; key != "" {
			x.takeKey(i, uniqueKey{jobs[k].Endpoint, jobs[k].Owner, key})
		}
	}
}

func (x *Index) takeKey(i uint32, key uniqueKey) {
	if x.uniques.jobs == nil {
		x.uniques.jobs, x.uniques.keys = map[uniqueKey]uint32{}, map[uint32]uniqueKey{}
	}
	x.uniques.jobs[key], x.uniques.keys[i] = i, key
}

// TakeKey carries out queue.TakeKey for a job that is there: it gives the job its key, or returns a
// *queue.TakenError.
func (x *Index) TakeKey(i uint32, now queue.Instant) error {
	key := x.keyOf(i)
	if holder := x.uniques.jobs[key]; holder != 0 && holder != i && x.holdsKey(holder, now) {
		return &queue.TakenError{Ref: x.Ref(holder)}
	}
	x.takeKey(i, key)
	return nil
}

func (x *Index) keyOf(i uint32) uniqueKey {
	ref, owner, _ := x.Identity(i)
	return uniqueKey{ref.Endpoint, owner, x.terms.at(x.t.at(i).terms).Unique.Key}
}

// loadKey gives a job that was loaded its key, unless one that was loaded before holds it.
func (x *Index) loadKey(i uint32, s *queue.State) {
	key := x.keyOf(i)
	holder := x.uniques.jobs[key]
	if holder == 0 {
		x.takeKey(i, key)
		return
	}
	h := x.State(holder)
	now := max(x.wheel.now, reached(s), reached(&h))
	if s.HoldsKey(now) || !h.HoldsKey(now) {
		x.takeKey(i, key)
	}
}

// reached is an instant that was over when a job came into its state. After a restart nobody has said yet
// what time it is.
func reached(s *queue.State) queue.Instant {
	if s.Delayed {
		return s.Submitted
	}
	return max(s.Submitted, s.Queued)
}

// dropKey forgets the key of a job that is removed.
func (x *Index) dropKey(i uint32) {
	key, ok := x.uniques.keys[i]
	if !ok {
		return
	}
	delete(x.uniques.keys, i)
	if x.uniques.jobs[key] == i {
		delete(x.uniques.jobs, key)
	}
}
