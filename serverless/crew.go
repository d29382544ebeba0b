package serverless

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// letGo is how long a remote worker may keep a job that it was told to stop; then it is
// replaced (decisions, row 28).
const letGo = 10 * time.Second

// A crew is the workers that this process knows: those it runs itself and those that
// came to it over the worker protocol.
type crew struct {
	mu      sync.Mutex
	members map[memberKey]*member
}

type memberKey struct {
	endpoint string
	id       WorkerID
}

// A member is one worker. Its fields are guarded by the crew's mutex.
type member struct {
	memberKey
	local     bool    // runs in this process: renewed by Step, lives until Serve returns
	slots     int     // how many jobs it runs at once; 0: it did not say
	taking    int     // calls of Take under way
	alive     Instant // until when it counts, unless local
	idleSince Instant // when it last had a job, or came
	served    bool    // it has finished a job
	leaving   bool    // it gets no more jobs
	sick      string  // what it said of its health, if it is bad

	held map[JobID]*hold
	told map[JobID]*telling
	// news is closed and replaced when there is something to tell a worker that waits:
	// jobs to stop, or that it is leaving.
	news chan struct{}
}

// A hold is a job that a member has.
type hold struct {
	token Token
	since Instant
	named bool   // a ping has listed it
	stop  func() // of a local worker; does not block
}

// A telling is a job that a remote member should stop.
type telling struct {
	at     Instant
	passed bool    // Stops has handed it out
	listed Instant // the last ping that still had it
}

// join makes w a member, or finds it; fresh says that it was none. It is alive until then
// unless it is local.
func (c *crew) join(endpoint string, w WorkerID, now, alive Instant) (m *member, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := memberKey{endpoint, w}
	m = c.members[k]
	if fresh = m == nil; fresh {
		m = &member{memberKey: k, idleSince: now, held: map[JobID]*hold{}, told: map[JobID]*telling{}, news: make(chan struct{})}
		if c.members == nil {
			c.members = map[memberKey]*member{}
		}
		c.members[k] = m
	}
	m.alive = max(m.alive, alive)
	return m, fresh
}

func (c *crew) isLocal(m *member) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return m.local
}

// find is the member, nil when it is not known.
func (c *crew) find(endpoint string, w WorkerID) *member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members[memberKey{endpoint, w}]
}

func (c *crew) leave(m *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.members[m.memberKey] == m {
		delete(c.members, m.memberKey)
	}
}

// localize makes m one that this process runs; it reports false when it is one.
func (c *crew) localize(m *member, slots int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.members[m.memberKey]; m.local || other != nil && other.local {
		return false
	}
	c.members[m.memberKey] = m // a sweep may have taken it out since it joined
	m.local, m.slots = true, slots
	return true
}

// enter begins a call of Take: until exit, the member is alive. What it returns is news.
func (c *crew) enter(m *member) (news <-chan struct{}, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.taking++
	return m.news, !m.leaving
}

// exit ends a call of Take: the member is alive until then, having been heard of now.
func (c *crew) exit(m *member, alive Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.taking--
	m.alive = max(m.alive, alive)
}

// news is closed when more may have changed: false for a worker that is leaving and gets
// nothing.
func (c *crew) news(m *member) (news <-chan struct{}, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return m.news, !m.leaving
}

// hold notes jobs that m was given; local says that Step renews them.
func (c *crew) hold(m *member, jobs []Job, now Instant) (local bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range jobs {
		m.held[jobs[i].ID] = &hold{token: jobs[i].Token, since: now}
		delete(m.told, jobs[i].ID)
	}
	return m.local
}

// attach says how to stop a job of a local member; it reports false when the job is no
// longer held. stop is called with the mutex held, and not once leave has returned.
func (c *crew) attach(m *member, id JobID, stop func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := m.held[id]
	if h == nil {
		return false
	}
	h.stop = stop
	return true
}

// done notes that m has reported the end of a job. That of an earlier lease ends nothing:
// m has got the job again.
func (c *crew) done(m *member, op *Op, now Instant, finished bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := m.held[op.ID]; h != nil && op.Token != 0 && h.token != op.Token {
		return
	}
	m.drop(op.ID, now)
	delete(m.told, op.ID)
	m.served = m.served || finished
}

// drop takes a job from m.
func (m *member) drop(id JobID, now Instant) {
	if _, ok := m.held[id]; ok {
		delete(m.held, id)
		m.idleSince = now
	}
}

// stop takes a job from the worker and has it stopped: a local one at once, another by
// Stops. It reports whether the worker is one that was told so.
func (c *crew) stop(ref Ref, w WorkerID, now Instant) (told bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.members[memberKey{ref.Endpoint, w}]
	if m == nil || m.held[ref.ID] == nil {
		return false
	}
	h := m.held[ref.ID]
	m.drop(ref.ID, now)
	if !m.local {
		m.told[ref.ID] = &telling{at: now}
		m.announce()
		return true
	}
	if h.stop != nil {
		h.stop()
	}
	return false
}

func (m *member) announce() {
	close(m.news)
	m.news = make(chan struct{})
}

// dismiss has m get no more jobs; its calls of Take that wait end.
func (c *crew) dismiss(m *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !m.leaving {
		m.leaving = true
		m.announce()
	}
}

// tell is the jobs that m should stop and was not told of yet; more is closed when there
// may be others.
func (c *crew) tell(m *member) (ids []JobID, more <-chan struct{}, leaving bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, t := range m.told {
		if !t.passed {
			t.passed = true
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, m.news, m.leaving
}

// stubborn is the members that go on with a job which they were told to stop.
func (c *crew) stubborn(now Instant) (ms []*member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		for _, t := range m.told {
			if t.at.Add(letGo) <= now && t.listed >= t.at.Add(letGo/2) {
				ms = append(ms, m)
				break
			}
		}
	}
	return ms
}

// renewals are the ops that keep what the local members hold.
func (c *crew) renewals(until Instant) (ops []Op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		if !m.local {
			continue
		}
		for id, h := range m.held {
			ops = append(ops, Op{Ref: Ref{m.endpoint, id}, Kind: OpRenew, Worker: m.id, Token: h.token, Adopt: true, Until: until})
		}
	}
	return ops
}

// holds are ops of one kind for everything that m holds: to hand it back, or to take it.
func (c *crew) holds(m *member, k OpKind) (ops []Op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(m.held)) {
		ops = append(ops, Op{Ref: Ref{m.endpoint, id}, Kind: k, Worker: m.id, Adopt: true})
	}
	return ops
}

// ping renews what a remote worker lists and hands back what it was given more than a
// grace ago and has not listed since: it never got that job. A job that it was told to
// stop is not renewed.
func (c *crew) ping(m *member, lists []JobID, now, until, grace Instant) (ops []Op, lost bool) {
	listed := make(map[JobID]bool, len(lists))
	for _, id := range lists {
		listed[id] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range lists {
		if t := m.told[id]; t != nil {
			t.listed, lost = now, true
			continue
		}
		h := m.held[id]
		if h == nil {
			h = &hold{since: now}
			m.held[id] = h
		}
		h.named = true
		ops = append(ops, Op{Ref: Ref{m.endpoint, id}, Kind: OpRenew, Worker: m.id, Adopt: true, Until: until})
	}
	for id, h := range m.held {
		if !h.named && h.since+grace < now && !listed[id] {
			m.drop(id, now)
			ops = append(ops, Op{Ref: Ref{m.endpoint, id}, Kind: OpRelease, Worker: m.id, Token: h.token})
		}
	}
	for id, t := range m.told {
		// It has stopped, or it never had the job and never asks what to stop.
		if (t.passed || t.at+grace < now) && !listed[id] {
			delete(m.told, id)
		}
	}
	return ops, lost
}

// sweep forgets remote members that have not been heard of, and says of which endpoints
// they were and when to look again.
func (c *crew) sweep(now Instant) (next Instant, left []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, m := range c.members {
		switch {
		case m.local || m.taking > 0:
		case m.alive <= now:
			delete(c.members, k)
			left = append(left, k.endpoint)
		default:
			next = sooner(next, m.alive)
		}
		for _, t := range m.told {
			if at := t.at.Add(letGo); at > now {
				next = sooner(next, at)
			}
		}
	}
	return next, left
}

func (c *crew) holdsLocally() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		if m.local && len(m.held) > 0 {
			return true
		}
	}
	return false
}

// A crewView is what is known of a member.
type crewView struct {
	ID        WorkerID
	Local     bool
	Jobs      []JobID
	Taking    bool
	IdleSince Instant
	Served    bool
	Leaving   bool
	Sick      string
}

// views are the members of an endpoint, by id.
func (c *crew) views(endpoint string) (vs []crewView) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, m := range c.members {
		if k.endpoint == endpoint {
			vs = append(vs, crewView{
				ID: m.id, Local: m.local, Jobs: slices.Sorted(maps.Keys(m.held)), Taking: m.taking > 0,
				IdleSince: m.idleSince, Served: m.served, Leaving: m.leaving, Sick: m.sick,
			})
		}
	}
	slices.SortFunc(vs, func(a, b crewView) int {
		switch {
		case a.ID < b.ID:
			return -1
		case a.ID > b.ID:
			return 1
		}
		return 0
	})
	return vs
}

// running is how many members of an endpoint have a job.
func (c *crew) running(endpoint string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, m := range c.members {
		if k.endpoint == endpoint && len(m.held) > 0 {
			n++
		}
	}
	return n
}
