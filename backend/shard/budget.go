package shard

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/podyard/podyard/internal/unwrap"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
)

const (
	// freshFor is how long the sum of a user counts who is far from every limit.
	freshFor = time.Second
	// maxHolders is how many users are remembered before those without a submit are forgotten.
	maxHolders = 1 << 12
)

// submitted are the budgets that a submit can go over.
var submitted = [...]budget.Budget{budget.Jobs, budget.QueuedJobs, budget.JobBytes, budget.Deliveries, budget.DeadLetters}

// budgets are the limits of users, and what users hold on all shards.
type budgets struct {
	set   atomic.Pointer[budget.Set]
	mu    sync.Mutex
	users map[string]*holder
}

// allTurns is more than there are submits at once.
const allTurns = 1 << 40

// A holder is a user who submits jobs. A submit that is far from every limit takes one of allTurns. One
// near a limit takes all of them, so that what it reads holds until its jobs are added.
type holder struct {
	turns *semaphore.Weighted
	used  int // submits under way; guarded by budgets.mu

	mu     sync.Mutex
	shards []budget.Usage // as each shard said last, and what this server has added since
	read   time.Time
}

var _ budget.Counter = (*Queue)(nil)

// Limit implements budget.Counter. Each shard holds the limits for its own jobs. What a user has on
// all shards is held by this server for submits: exactly for its own, and as it was a second
// ago for those of other servers. Reports of workers are refused by the limits of a shard alone.
func (q *Queue) Limit(set *budget.Set) {
	q.budgets.set.Store(set)
	for _, m := range q.members {
		if c, ok := unwrap.As[budget.Counter](m.Jobs); ok {
			c.Limit(set)
		}
	}
}

// Usage implements budget.Counter. A shard that does not answer, or does not count, counts nothing.
func (q *Queue) Usage(ctx context.Context, user string) (all budget.Usage, err error) {
	shards := make([]budget.Usage, len(q.members))
	err = q.usages(ctx, user, shards)
	return sum(shards), err
}

// Users implements budget.Counter, as Usage does.
func (q *Queue) Users(ctx context.Context) (all []string, err error) {
	lists := make([][]string, len(q.members))
	_, err = q.each(ctx, func(ctx context.Context, i int, m *member) (err error) {
		if c, ok := unwrap.As[budget.Counter](m.Jobs); ok {
			lists[i], err = c.Users(ctx)
		}
		return err
	})
	for _, list := range lists {
		all = append(all, list...)
	}
	slices.Sort(all)
	return slices.Compact(all), err
}

// usages sets what a user holds on each shard that answers.
func (q *Queue) usages(ctx context.Context, user string, shards []budget.Usage) error {
	_, err := q.each(ctx, func(ctx context.Context, i int, m *member) error {
		c, ok := unwrap.As[budget.Counter](m.Jobs)
		if !ok {
			return nil
		}
		u, err := c.Usage(ctx, user)
		if err == nil {
			shards[i] = u
		}
		return err
	})
	return err
}

func sum(shards []budget.Usage) (all budget.Usage) {
	for i := range shards {
		all.Add(&shards[i])
	}
	return all
}

// admit returns a *budget.Error if the owner of a job has no room for it on all shards together. The
// caller adds the jobs and calls done with whether they were added. One shard alone counts itself.
func (q *Queue) admit(ctx context.Context, parts []*part) (done func(added bool), err error) {
	set := q.budgets.set.Load()
	if set == nil || len(q.members) == 1 {
		return func(bool) {}, nil
	}
	asked := q.asked(set, parts)
	var ends []func(bool)
	done = func(added bool) {
		for _, end := range ends {
			end(added)
		}
	}
	for _, user := range slices.Sorted(maps.Keys(asked)) { // in one order, so that no two wait for each other
		end, err := q.admitUser(ctx, user, set.Of(user), asked[user])
		if err != nil {
			done(false)
			return nil, q.existing(ctx, parts, err)
		}
		ends = append(ends, end)
	}
	return done, nil
}

// asked returns what jobs ask of each owner with limits, on each shard. Webhooks and dead letters
// come later, if at all: one place is enough for a submit.
func (q *Queue) asked(set *budget.Set, parts []*part) map[string][]budget.Usage {
	all := map[string][]budget.Usage{}
	for _, p := range parts {
		at := slices.Index(q.members, p.to)
		for i := range p.jobs {
			j := &p.jobs[i]
			if set.Of(j.Owner) == nil {
				continue
			}
			if all[j.Owner] == nil {
				all[j.Owner] = make([]budget.Usage, len(q.members))
			}
			u := &all[j.Owner][at]
			u.Add(&budget.Usage{budget.Jobs: 1, budget.QueuedJobs: 1, budget.JobBytes: j.Bytes()})
			if j.Flags&queue.HasWebhook != 0 {
				u[budget.Deliveries] = 1
			}
			if j.DeadLetter > 0 {
				u[budget.DeadLetters] = 1
			}
		}
	}
	return all
}

func (q *Queue) admitUser(ctx context.Context, user string, l *budget.Limits, asked []budget.Usage) (end func(added bool), err error) {
	h, total := q.budgets.holder(user, len(q.members)), sum(asked)
	take := func(turns int64) error {
		if err := h.turns.Acquire(ctx, turns); err != nil {
			q.budgets.leave(h)
			return err
		}
		end = func(added bool) { h.add(asked, added); h.turns.Release(turns); q.budgets.leave(h) }
		return nil
	}
	if err := take(1); err != nil {
		return nil, err
	}
	if h.far(l, &total, q.o.Clock.Now()) {
		return end, nil
	}
	h.turns.Release(1)
	if err := take(allTurns); err != nil {
		return nil, err
	}
	if err = q.reread(ctx, user, h); err == nil {
		err = h.check(l, &total)
	}
	if err != nil {
		end(false)
		return nil, err
	}
	return end, nil
}

func (b *budgets) holder(user string, shards int) *holder {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.users[user]
	if h == nil {
		if len(b.users) >= maxHolders {
			maps.DeleteFunc(b.users, func(_ string, h *holder) bool { return h.used == 0 })
		}
		h = &holder{turns: semaphore.NewWeighted(allTurns), shards: make([]budget.Usage, shards)}
		if b.users == nil {
			b.users = map[string]*holder{}
		}
		b.users[user] = h
	}
	h.used++
	return h
}

func (b *budgets) leave(h *holder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.used--
}

// far reports whether a user is known to have less than half of every limit.
func (h *holder) far(l *budget.Limits, asked *budget.Usage, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Sub(h.read) >= freshFor {
		return false
	}
	used := sum(h.shards)
	for _, b := range submitted {
		if limit := l.Of(b); limit > 0 && asked[b] > 0 && used[b]+asked[b] > limit/2 {
			return false
		}
	}
	return true
}

// reread asks all shards what a user holds. The caller must hold h.turn alone.
func (q *Queue) reread(ctx context.Context, user string, h *holder) error {
	shards := slices.Clone(h.shards) // one that does not answer counts as it did
	if err := q.usages(ctx, user, shards); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shards, h.read = shards, q.o.Clock.Now()
	return nil
}

func (h *holder) check(l *budget.Limits, asked *budget.Usage) error {
	used := sum(h.shards)
	for _, b := range submitted {
		if err := l.Check(b, used[b], asked[b]); err != nil {
			return err
		}
	}
	return nil
}

// add counts what was asked, if it was added.
func (h *holder) add(asked []budget.Usage, added bool) {
	if !added {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range asked {
		h.shards[i].Add(&asked[i])
	}
}

// existing returns the error of jobs that are there already, rather than full: a submit that is
// repeated is not refused because its first one took the last place.
func (q *Queue) existing(ctx context.Context, parts []*part, full error) error {
	var e *budget.Error
	if !errors.As(full, &e) {
		return full
	}
	if err := q.checkFree(ctx, parts); err != nil {
		return err
	}
	return full
}
