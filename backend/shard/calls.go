package shard

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"

	"github.com/podyard/podyard/internal/unwrap"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/queue"
)

// Enqueue implements queue.JobQueue. Jobs on one shard are added all or none. For jobs on several
// shards it first looks whether each can be added; if one is refused nevertheless, it deletes those
// that were added. A call that is given up goes on without its caller, so that no move ends its hold
// before.
func (q *Queue) Enqueue(ctx context.Context, jobs []queue.Job) error {
	if len(jobs) == 0 {
		return nil
	}
	list, done := slices.Clone(jobs), make(chan error, 1)
	go func() { done <- q.enqueue(context.WithoutCancel(ctx), list) }()
	select {
	case err := <-done:
		if err == nil {
			for i := range jobs {
				jobs[i].State = list[i].State
			}
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (q *Queue) enqueue(ctx context.Context, jobs []queue.Job) error {
	var parts []*part
	seen := map[string]*part{}
	for i := range jobs {
		endpoint := jobs[i].Endpoint
		p := seen[endpoint]
		if p == nil {
			pl, end, err := q.beginSubmit(ctx, endpoint)
			if err != nil {
				return err
			}
			defer end()
			if err := q.checkDrained(ctx, &pl, endpoint, jobs); err != nil {
				return err
			}
			if p = partOf(&parts, pl.sides[0].member); p.bases == nil {
				p.bases = map[string]uint64{}
			}
			seen[endpoint], p.bases[endpoint] = p, pl.sides[0].base
		}
		p.jobs, p.at = append(p.jobs, jobs[i]), append(p.at, i)
	}
	if len(parts) > 1 {
		if err := q.checkFree(ctx, parts); err != nil {
			return err
		}
	}
	done, err := q.admit(ctx, parts)
	if err != nil {
		return err
	}
	added := false
	defer func() { done(added) }()
	for i, p := range parts {
		if err := q.note(p.to, p.to.Jobs.Enqueue(ctx, p.jobs)); err != nil {
			q.undo(ctx, parts[:i])
			return err
		}
		for k, at := range p.at {
			jobs[at].State = p.jobs[k].State
			p.to.out(&jobs[at].State, p.bases[jobs[at].Endpoint])
		}
	}
	added = true
	return nil
}

// A part is the jobs of an Enqueue that go to one shard.
type part struct {
	to    *member
	jobs  []queue.Job
	at    []int // where the jobs stand in the call
	bases map[string]uint64
}

func partOf(parts *[]*part, m *member) *part {
	for _, p := range *parts {
		if p.to == m {
			return p
		}
	}
	p := &part{to: m}
	*parts = append(*parts, p)
	return p
}

// checkFree returns the error of jobs that a shard would refuse, before another one has added some.
func (q *Queue) checkFree(ctx context.Context, parts []*part) error {
	for _, p := range parts {
		refs := map[queue.Ref]bool{}
		for i := range p.jobs {
			if refs[p.jobs[i].Ref] {
				return queue.ErrExists
			}
			refs[p.jobs[i].Ref] = true
			if err := p.jobs[i].Check(); err != nil {
				return err
			}
			if err := q.inUse(ctx, p.to, &p.jobs[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// undo deletes the jobs that were added before another shard failed.
func (q *Queue) undo(ctx context.Context, parts []*part) {
	for _, p := range parts {
		ops := make([]queue.Op, len(p.jobs))
		for i := range p.jobs {
			ops[i] = queue.Op{Ref: p.jobs[i].Ref, Kind: queue.OpDelete}
		}
		if err := p.to.Jobs.Apply(ctx, p.jobs[0].Submitted, ops, make([]queue.Result, len(ops))); err != nil {
			q.o.Logger.Warn("jobs that were added in part could not be deleted", "shard", p.to.Name, "count", len(ops), "err", err)
		}
	}
}

// baseOf returns what is added to State.Seq on a shard.
func (pl *place) baseOf(m *member) uint64 {
	for _, s := range pl.sides {
		if s.member == m {
			return s.base
		}
	}
	return 0
}

// checkDrained returns the error of new jobs whose ids or keys are in use on the shard that is
// drained.
func (q *Queue) checkDrained(ctx context.Context, pl *place, endpoint string, jobs []queue.Job) error {
	if len(pl.sides) == 1 {
		return nil
	}
	for i := range jobs {
		if jobs[i].Endpoint == endpoint {
			if err := q.inUse(ctx, pl.sides[1].member, &jobs[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// inUse returns an error if a shard has a job with the id or the key of j.
func (q *Queue) inUse(ctx context.Context, m *member, j *queue.Job) error {
	if _, err := m.Jobs.Get(ctx, j.Submitted, j.Ref); err == nil || errors.Is(err, queue.ErrDamaged) {
		return queue.ErrExists
	} else if !errors.Is(err, queue.ErrNotFound) {
		return q.note(m, err)
	}
	if j.Creation == nil {
		return nil
	}
	r, err := m.Jobs.FindKey(ctx, j.Creation.Key)
	switch {
	case err == nil && !r.Over(j.Creation.At):
		return idempotency.ErrTaken
	case err != nil && !errors.Is(err, idempotency.ErrNotFound):
		return q.note(m, err)
	}
	return nil
}

// Claim implements queue.JobQueue. If some of several shards fail, it returns the jobs of the others.
func (q *Queue) Claim(ctx context.Context, now queue.Instant, slots []queue.Slot, out []queue.Job) ([]queue.Job, error) {
	var first error
	served := 0
	for i := range slots {
		var err error
		n := len(out)
		if out, err = q.claim(ctx, now, &slots[i], out); err == nil || len(out) > n {
			served++
		} else if first == nil {
			first = err
		}
	}
	if served > 0 {
		first = nil
	}
	return out, first
}

func (q *Queue) claim(ctx context.Context, now queue.Instant, s *queue.Slot, out []queue.Job) ([]queue.Job, error) {
	pl, err := q.place(ctx, s.Endpoint, s.N > 0)
	if err != nil {
		return out, err
	}
	left := *s
	bytes := 0
	for i := len(pl.sides) - 1; i >= 0 && !s.Full(s.N-left.N, bytes); i-- { // the jobs that were there before a move first
		at := pl.sides[i]
		if i == 0 && len(pl.sides) > 1 {
			if left.Rules, err = q.lowered(ctx, now, s.Endpoint, pl.sides[1], s.Rules); err != nil {
				return out, err
			}
		}
		n := len(out)
		out, err = at.Jobs.Claim(ctx, now, []queue.Slot{left}, out)
		if err = q.note(at.member, err); err != nil {
			return out, err
		}
		for k := n; k < len(out); k++ {
			at.out(&out[k].State, at.base)
			bytes += int(out[k].InBytes)
		}
		left.N -= len(out) - n
		left.Bytes = max(s.Bytes-bytes, 0)
	}
	return out, nil
}

// maxUnfinished is how many jobs on the old shard are counted for the limits on the new one. As long as
// there are more, it gives no jobs under limits.
const maxUnfinished = 1000

// lowered returns the rules for the new shard, so that with what is unfinished on the old one no limit
// is exceeded. Under rates the new shard gives no jobs before the old one has none, because it does not have the
// buckets of the old one; then its buckets begin full.
func (q *Queue) lowered(ctx context.Context, now queue.Instant, endpoint string, old side, r *queue.Rules) (*queue.Rules, error) {
	if r == nil || r.Paused || !r.Limited() && !r.Rated() {
		return r, nil
	}
	users, keys, n := map[string]int{}, map[[2]string]int{}, 0
	unfinished := queue.ListQuery{Endpoint: endpoint, Status: []queue.Status{queue.InQueue, queue.InProgress}, Limit: maxUnfinished + 1}
	for j, err := range old.Jobs.List(ctx, now, unfinished) {
		if err != nil {
			return nil, q.note(old.member, err)
		}
		n++
		users[j.Owner]++
		if j.Key != "" {
			keys[[2]string{j.Owner, j.Key}]++
		}
	}
	low := *r
	low.Paused = n > maxUnfinished || n > 0 && r.Rated() || lowerKeys(&low, highest(keys)) || lower(&low.Total, n) || lower(&low.PerUser, highest(users)) || lower(&low.PerKey, highest(keys))
	return &low, nil
}

// lowerKeys lowers the limits of single keys by n.
func lowerKeys(r *queue.Rules, n int) (nothing bool) {
	if r.Keys == nil {
		return false
	}
	keys := maps.Clone(*r.Keys)
	for name, k := range keys {
		nothing = lower(&k.PerKey, n) || nothing
		keys[name] = k
	}
	r.Keys = &keys
	return nothing
}

// lower lowers a limit by n and reports whether nothing is left of it.
func lower(limit *int, n int) bool {
	if *limit == 0 {
		return false
	}
	*limit -= n
	return *limit <= 0
}

func highest[K comparable](counts map[K]int) (n int) {
	for _, c := range counts {
		n = max(n, c)
	}
	return n
}

// Apply implements queue.JobQueue. If some of several shards fail, the results of their ops have
// the error.
func (q *Queue) Apply(ctx context.Context, now queue.Instant, ops []queue.Op, res []queue.Result) error {
	rest := make([]int, len(ops))
	for i := range rest {
		rest[i] = i
	}
	var first error
	bad := 0
	for len(rest) > 0 {
		var mine, others []int
		endpoint := ops[rest[0]].Endpoint
		for _, i := range rest {
			if ops[i].Endpoint == endpoint {
				mine = append(mine, i)
			} else {
				others = append(others, i)
			}
		}
		if err := q.apply(ctx, now, endpoint, mine, ops, res); err != nil {
			for _, i := range mine {
				res[i] = queue.Result{Err: err}
			}
			first, bad = err, bad+len(mine)
		}
		rest = others
	}
	if bad == len(ops) {
		return first
	}
	return nil
}

// apply makes the ops of one endpoint: those of jobs that the shard of new jobs does not have on the
// one that is drained.
func (q *Queue) apply(ctx context.Context, now queue.Instant, endpoint string, which []int, ops []queue.Op, res []queue.Result) error {
	pl, err := q.place(ctx, endpoint, false)
	if err != nil {
		return err
	}
	for _, i := range which {
		res[i] = queue.Result{Err: pl.notFound()}
	}
	for _, at := range pl.sides {
		list, got := make([]queue.Op, len(which)), make([]queue.Result, len(which))
		for k, i := range which {
			list[k] = ops[i]
			list[k].Token = at.inner(ops[i].Token)
		}
		if err := q.note(at.member, at.Jobs.Apply(ctx, now, list, got)); err != nil {
			return err
		}
		var missing []int
		for k, i := range which {
			if errors.Is(got[k].Err, queue.ErrNotFound) {
				missing = append(missing, i)
				continue
			}
			at.out(&got[k].State, at.base)
			res[i] = got[k]
		}
		if which = missing; len(which) == 0 {
			break
		}
	}
	return nil
}

// notFound is the error of a job that no shard has.
func (pl *place) notFound() error {
	if pl.stale {
		return problem.New(problem.Unavailable, "the control store of the shards does not answer: the job may be on another shard")
	}
	return queue.ErrNotFound
}

// find calls f on the shards of an endpoint until one has the job.
func (q *Queue) find(ctx context.Context, endpoint string, f func(at side) error) error {
	pl, err := q.place(ctx, endpoint, false)
	if err != nil {
		return err
	}
	for _, at := range pl.sides {
		if err := q.note(at.member, f(at)); !errors.Is(err, queue.ErrNotFound) {
			return err
		}
	}
	return pl.notFound()
}

// Get implements queue.JobQueue.
func (q *Queue) Get(ctx context.Context, now queue.Instant, ref queue.Ref) (j queue.Job, err error) {
	err = q.find(ctx, ref.Endpoint, func(at side) (err error) {
		j, err = at.Jobs.Get(ctx, now, ref)
		at.out(&j.State, at.base)
		return err
	})
	return j, err
}

// Chunks implements queue.JobQueue.
func (q *Queue) Chunks(ctx context.Context, now queue.Instant, ref queue.Ref, maxBytes int) (list [][]byte, s queue.State, err error) {
	err = q.find(ctx, ref.Endpoint, func(at side) (err error) {
		list, s, err = at.Jobs.Chunks(ctx, now, ref, maxBytes)
		at.out(&s, at.base)
		return err
	})
	return list, s, err
}

// PastAttempts implements queue.JobQueue.
func (q *Queue) PastAttempts(ctx context.Context, now queue.Instant, ref queue.Ref) (list []queue.JobAttempt, err error) {
	err = q.find(ctx, ref.Endpoint, func(at side) (err error) {
		list, err = at.Jobs.PastAttempts(ctx, now, ref)
		return err
	})
	return list, err
}

// PastLeases implements queue.JobQueue.
func (q *Queue) PastLeases(ctx context.Context, now queue.Instant, ref queue.Ref) (list []queue.JobLease, err error) {
	err = q.find(ctx, ref.Endpoint, func(at side) (err error) {
		list, err = at.Jobs.PastLeases(ctx, now, ref)
		return err
	})
	return list, err
}

// DeadLetter implements queue.DeadLetters.
func (q *Queue) DeadLetter(ctx context.Context, now queue.Instant, ref queue.Ref) (d queue.DeadLetter, err error) {
	err = q.find(ctx, ref.Endpoint, func(at side) (err error) {
		d, err = at.Jobs.DeadLetter(ctx, now, ref)
		at.out(&d.State, at.base)
		return err
	})
	return d, err
}

// Purge implements queue.JobQueue: the shard that is drained first, whose Seq are lower.
func (q *Queue) Purge(ctx context.Context, now queue.Instant, p queue.PurgeQuery) (removed int, next uint64, err error) {
	pl, err := q.place(ctx, p.Endpoint, false)
	if err != nil || len(pl.sides) == 0 {
		return 0, 0, err
	}
	first := pl.sides[0].base
	if len(pl.sides) > 1 && p.After < first {
		old := p
		old.UpTo = min(p.UpTo, first)
		removed, next, err = q.purge(ctx, now, pl.sides[1], old)
		if err != nil || next != 0 || p.UpTo <= first {
			return removed, next, err
		}
		return removed, first, nil
	}
	if p.UpTo <= first && first > 0 {
		return 0, 0, nil
	}
	return q.purge(ctx, now, pl.sides[0], p)
}

func (q *Queue) purge(ctx context.Context, now queue.Instant, at side, p queue.PurgeQuery) (removed int, next uint64, err error) {
	p.After, p.UpTo = p.After-min(p.After, at.base), p.UpTo-min(p.UpTo, at.base)
	removed, next, err = at.Jobs.Purge(ctx, now, p)
	if next != 0 {
		next += at.base
	}
	return removed, next, q.note(at.member, err)
}

// List implements queue.JobQueue.
func (q *Queue) List(ctx context.Context, now queue.Instant, l queue.ListQuery) iter.Seq2[queue.Job, error] {
	return func(yield func(queue.Job, error) bool) {
		pl, err := q.place(ctx, l.Endpoint, false)
		if err != nil {
			yield(queue.Job{}, err)
			return
		}
		inner, all := l, l
		if len(pl.sides) == 1 { // the shard knows best how to leave jobs out
			all.Offset, all.Limit = 0, 0
		} else if inner.Offset = 0; l.Limit > 0 {
			inner.Limit += l.Offset
		}
		all.Limited(q.listOf(ctx, now, pl.sides, inner))(yield)
	}
}

// listOf lists the jobs of shards, one after another.
func (q *Queue) listOf(ctx context.Context, now queue.Instant, sides []side, l queue.ListQuery) iter.Seq2[queue.Job, error] {
	return func(yield func(queue.Job, error) bool) {
		for _, at := range sides {
			if l.Before > 0 && l.Before <= at.base {
				continue
			}
			inner := l
			inner.Before -= min(l.Before, at.base)
			for j, err := range at.Jobs.List(ctx, now, inner) {
				at.out(&j.State, at.base)
				if err != nil {
					err = q.note(at.member, err)
				}
				if !yield(j, err) || err != nil {
					return
				}
			}
		}
	}
}

// Count implements queue.Counter.
func (q *Queue) Count(ctx context.Context, now queue.Instant, l queue.ListQuery) (n int, err error) {
	l.Before, l.Offset, l.Limit = 0, 0, 0
	pl, err := q.place(ctx, l.Endpoint, false)
	if err != nil {
		return 0, err
	}
	for _, at := range pl.sides {
		c, err := count(ctx, now, at.Jobs, l)
		if err := q.note(at.member, err); err != nil {
			return 0, err
		}
		n += c
	}
	return n, nil
}

// Stats implements queue.JobQueue.
func (q *Queue) Stats(ctx context.Context, now queue.Instant, endpoint string, rules *queue.Rules) (sum queue.Stats, err error) {
	pl, err := q.place(ctx, endpoint, false)
	if err != nil {
		return queue.Stats{}, err
	}
	sum.Completed, sum.Failed, sum.Retried = pl.pin.Completed, pl.pin.Failed, pl.pin.Retried
	for i, at := range pl.sides {
		r := rules
		if i == 0 && len(pl.sides) > 1 {
			if r, err = q.lowered(ctx, now, endpoint, pl.sides[1], rules); err != nil {
				return queue.Stats{}, err
			}
		}
		s, err := at.Jobs.Stats(ctx, now, endpoint, r)
		if err := q.note(at.member, err); err != nil {
			return queue.Stats{}, err
		}
		if s.LastSeq != 0 {
			s.LastSeq += at.base
		}
		add(&sum, &s)
	}
	return sum, nil
}

// HeldBy implements queue.RateHolder. A shard that cannot tell holds nothing.
func (q *Queue) HeldBy(ctx context.Context, now queue.Instant, endpoint, owner, key string, rules *queue.Rules) (longest queue.Held, err error) {
	pl, err := q.place(ctx, endpoint, false)
	if err != nil {
		return longest, err
	}
	for _, at := range pl.sides {
		h, ok := unwrap.As[queue.RateHolder](at.Jobs)
		if !ok {
			continue
		}
		held, err := h.HeldBy(ctx, now, endpoint, owner, key, rules)
		if err := q.note(at.member, err); err != nil {
			return longest, err
		}
		if held.Until > longest.Until {
			longest = held
		}
	}
	return longest, nil
}

func add(sum, s *queue.Stats) {
	sum.Queued += s.Queued
	sum.QueuedLow += s.QueuedLow
	sum.Delayed += s.Delayed
	sum.Ready += s.Ready
	sum.ReadyLow += s.ReadyLow
	sum.Blocked += s.Blocked
	sum.Running += s.Running
	sum.Completed += s.Completed
	sum.Failed += s.Failed
	sum.Retried += s.Retried
	sum.Oldest = queue.Sooner(sum.Oldest, s.Oldest)
	sum.Free = queue.Sooner(sum.Free, s.Free)
	sum.LastSeq = max(sum.LastSeq, s.LastSeq)
}

// DeadLetters implements queue.DeadLetters.
func (q *Queue) DeadLetters(ctx context.Context, now queue.Instant, endpoint, owner string) iter.Seq2[queue.DeadLetter, error] {
	return func(yield func(queue.DeadLetter, error) bool) {
		pl, err := q.place(ctx, endpoint, false)
		if err != nil {
			yield(queue.DeadLetter{}, err)
			return
		}
		for _, at := range pl.sides {
			for d, err := range at.Jobs.DeadLetters(ctx, now, endpoint, owner) {
				at.out(&d.State, at.base)
				if err != nil {
					err = q.note(at.member, err)
				}
				if !yield(d, err) || err != nil {
					return
				}
			}
		}
	}
}

// DropDead implements queue.DeadLetters.
func (q *Queue) DropDead(ctx context.Context, refs []queue.Ref) error {
	lists := map[*member][]queue.Ref{}
	for _, ref := range refs {
		pl, err := q.place(ctx, ref.Endpoint, false)
		if err != nil {
			return err
		}
		for _, at := range pl.sides {
			lists[at.member] = append(lists[at.member], ref)
		}
	}
	for m, list := range lists {
		if err := q.note(m, m.Jobs.DropDead(ctx, list)); err != nil {
			return err
		}
	}
	return nil
}

// Attempts implements queue.Outbox.
func (q *Queue) Attempts(ctx context.Context, ref queue.Ref) (list []queue.Attempt, err error) {
	pl, err := q.place(ctx, ref.Endpoint, false)
	if err != nil {
		return nil, err
	}
	for _, at := range slices.Backward(pl.sides) {
		part, err := at.Jobs.Attempts(ctx, ref)
		if err := q.note(at.member, err); err != nil {
			return nil, err
		}
		for i := range part {
			part[i].Token = at.token(part[i].Token)
		}
		list = append(list, part...)
	}
	return list, nil
}
