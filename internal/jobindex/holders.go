package jobindex

import (
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
)

// A holder counts what a user has in a queue, on all endpoints.
type holder struct {
	name         string
	jobs, queued int64
	bytes        int64 // of jobs, dead letters and deliveries
	promised     int64 // bytes of moves that have begun
	deliveries   int64
	dead         int64
	buckets      int    // of keys with rates that are not full
	number       uint32 // in Index.holders
	uses         int    // owners of endpoints, deliveries and buckets that point to it
}

// holderOf returns the counts of a user, and notes that they are in use until drop.
func (x *Index) holderOf(name string) *holder {
	h := x.byName[name]
	if h == nil {
		h = &holder{name: name, number: uint32(len(x.holders))}
		if n := len(x.freeHolders); n > 0 {
			h.number = x.freeHolders[n-1]
			x.freeHolders = x.freeHolders[:n-1]
			x.holders[h.number] = h
		} else {
			x.holders = append(x.holders, h)
		}
		x.byName[name] = h
	}
	h.uses++
	return h
}

func (x *Index) drop(h *holder) {
	if h.uses--; h.uses > 0 {
		return
	}
	delete(x.byName, h.name)
	x.holders[h.number] = nil
	x.freeHolders = append(x.freeHolders, h.number)
}

func (r *record) bytes() int64 { return int64(r.inBytes) + int64(r.outBytes) + r.stream }

// Size sets the sizes of a job that was added, so that they count before Show.
func (x *Index) Size(i uint32, s *queue.State) {
	r := x.t.at(i)
	r.inBytes, r.outBytes = s.InBytes, s.OutBytes
	x.lines[r.line].holds.bytes += r.bytes()
}

// recount changes the counts of the owner when the state of a job changes.
func (x *Index) recount(r *record, s *queue.State) {
	h := x.lines[r.line].holds
	h.bytes += s.Bytes() - r.bytes()
	if r.status == queue.InQueue {
		h.queued--
	}
	if s.Status == queue.InQueue {
		h.queued++
	}
}

// uncount removes a job from the counts of its owner.
func (x *Index) uncount(r *record) {
	h := x.lines[r.line].holds
	h.jobs--
	h.bytes -= r.bytes()
	if r.status == queue.InQueue {
		h.queued--
	}
}

// Admit returns a *budget.Error if the owner of an added job is over a limit of l. j is the
// job, and jobs are all that are added together.
func (x *Index) Admit(i uint32, l *budget.Limits, j *queue.Job, jobs []queue.Job) error {
	h := x.lines[x.t.at(i).line].holds
	over := func(b budget.Budget, n int64) bool { limit := l.Of(b); return limit > 0 && n > limit }
	hook, dead := j.Flags&queue.HasWebhook != 0, j.DeadLetter > 0
	if !over(budget.Jobs, h.jobs) && !over(budget.QueuedJobs, h.queued) && !over(budget.JobBytes, h.bytes+h.promised) &&
		!(hook && over(budget.Deliveries, h.deliveries+1)) && !(dead && over(budget.DeadLetters, h.dead+1)) {
		return nil
	}
	var asked budget.Usage
	for k := range jobs {
		if jobs[k].Owner == j.Owner {
			asked[budget.Jobs]++
			asked[budget.QueuedJobs]++
			asked[budget.JobBytes] += jobs[k].Bytes()
		}
	}
	used := h.usage()
	used[budget.JobBytes] += h.promised
	for _, b := range [...]budget.Budget{budget.Jobs, budget.QueuedJobs, budget.JobBytes} {
		if err := l.Check(b, used[b]-asked[b], asked[b]); err != nil {
			return err
		}
	}
	if err := l.Check(budget.DeadLetters, h.dead, 1); dead && err != nil {
		return err
	}
	return l.Check(budget.Deliveries, h.deliveries, 1)
}

// Owner returns the user of a job.
func (x *Index) Owner(i uint32) string { return x.lines[x.t.at(i).line].key.owner.holds.name }

// Fits is State.Fits for a job.
func (x *Index) Fits(i uint32, l *budget.Limits, before, after *queue.State, e queue.Effect, op *queue.Op) error {
	h := x.lines[x.t.at(i).line].key.owner.holds
	return after.Fits(before, e, op, l, h.bytes+h.promised)
}

// Promise counts n more bytes of the owner of a job for Fits and Admit, or takes them back,
// while a move of the job is not committed.
func (x *Index) Promise(i uint32, n int64) {
	x.lines[x.t.at(i).line].key.owner.holds.promised += n
}

func (h *holder) usage() (u budget.Usage) {
	u[budget.Jobs], u[budget.QueuedJobs], u[budget.JobBytes] = h.jobs, h.queued, h.bytes
	u[budget.Deliveries], u[budget.DeadLetters] = h.deliveries, h.dead
	return u
}

// Usage returns what a user has.
func (x *Index) Usage(user string) (u budget.Usage) {
	if h := x.byName[user]; h != nil {
		u = h.usage()
	}
	return u
}

// Users returns all users who have something.
func (x *Index) Users() (list []string) {
	for name, h := range x.byName {
		if u := h.usage(); !u.Empty() {
			list = append(list, name)
		}
	}
	return list
}

// HoldDead counts a dead letter and its bytes; n is 1, or -1 when it goes.
func (x *Index) HoldDead(owner string, n, bytes int64) {
	h := x.holderOf(owner)
	h.dead += n
	h.bytes += n * bytes
	if n < 0 {
		x.drop(h) // for the one that goes
		x.drop(h)
	}
}

// HoldDelivery counts a webhook with so many bytes of payload, until ReleaseDelivery with the
// number that it returns.
func (x *Index) HoldDelivery(owner string, bytes int64) uint32 {
	h := x.holderOf(owner)
	h.deliveries++
	h.bytes += bytes
	return h.number
}

// ReleaseDelivery is the opposite of HoldDelivery.
func (x *Index) ReleaseDelivery(holder uint32, bytes int64) {
	h := x.holders[holder]
	h.deliveries--
	h.bytes -= bytes
	x.drop(h)
}

// EndpointsOf returns the endpoints on which a user has jobs.
func (x *Index) EndpointsOf(owner string) (list []string) {
	name, ok := x.names.find(owner)
	if !ok {
		return nil
	}
	for ep, l := range x.lists {
		if l != nil && l.order.owners[name] != nil {
			list = append(list, x.names.text(uint32(ep)))
		}
	}
	return list
}
