package serverlesstest

import (
	"context"
	"math"
	"slices"

	"github.com/podyard/podyard/serverless/queue"
)

// A modelGroup is who takes turns: an owner, or a key of an owner in a priority.
type modelGroup struct {
	endpoint, owner, key string
	priority             int // -1: the owner
}

func ownerGroup(j *modelJob) modelGroup {
	return modelGroup{endpoint: j.Endpoint, owner: j.Owner, priority: -1}
}

func keyGroup(j *modelJob) modelGroup {
	return modelGroup{endpoint: j.Endpoint, owner: j.Owner, key: j.Key, priority: int(j.Priority)}
}

// Claim implements queue.JobQueue. It looks at every job of the endpoint for each claim.
func (m *Model) Claim(_ context.Context, now queue.Instant, slots []queue.Slot, out []queue.Job) ([]queue.Job, error) {
	for _, s := range slots {
		live, rules := m.live(s.Endpoint), rulesOf(s.Rules)
		m.settle(s.Endpoint, rules, now)
		for n, bytes := 0, 0; !s.Full(n, bytes); {
			running := useOf(live)[modelUser{}].running
			j, c := queue.Choose(&modelHeads{m: m, list: m.claimable(live, now, rules, s.Worker)}, &rules, running, now)
			if c == queue.ChooseNone {
				break
			}
			m.token++
			m.move(now, j, &queue.Op{Kind: queue.OpClaim, Worker: s.Worker, Token: m.token, Until: s.Until})
			m.claims++
			m.start(j, rules, now)
			served := queue.Turn{Seq: m.stats[s.Endpoint].LastSeq, Serial: m.claims}
			m.served[ownerGroup(j)], m.served[keyGroup(j)] = served, served
			out = append(out, j.Job)
			n, bytes = n+1, bytes+int(j.InBytes)
		}
	}
	return out, nil
}

// modelHeads implements queue.Heads over the jobs that a slot can get, so none of them is barred.
type modelHeads struct {
	m    *Model
	list []*modelJob // after Levels those of the owner whose turn is first
}

func (h *modelHeads) Levels() (levels uint16) {
	h.list = h.m.nextGroup(h.list, ownerGroup)
	for _, j := range h.list {
		levels |= 1 << j.Priority
	}
	return levels
}

func (h *modelHeads) Oldest(priority int) queue.Head[*modelJob] {
	j := oldest(h.level(priority))
	return queue.Head[*modelJob]{Job: j, Queued: j.Queued}
}

func (h *modelHeads) First(priority int) queue.Head[*modelJob] {
	j := oldest(h.m.nextGroup(h.level(priority), keyGroup))
	return queue.Head[*modelJob]{Job: j, Queued: j.Queued}
}

func (h *modelHeads) level(priority int) []*modelJob {
	return slices.DeleteFunc(slices.Clone(h.list), func(j *modelJob) bool { return int(j.Priority) != priority })
}

// forgetTurns is what opening a queue again may do.
func (m *Model) forgetTurns() { clear(m.served) }

func rulesOf(r *queue.Rules) queue.Rules {
	if r == nil {
		return queue.Rules{}
	}
	return *r
}

// A modelUse counts the jobs of an endpoint: in all, of an owner, or of a key.
type modelUse struct {
	running int
	ready   [2]int // all, and those without low priority
}

type modelUser struct {
	owner, key string
	what       int // 0: the endpoint, 1: an owner, 2: a key
}

func usersOf(j *modelJob) [3]modelUser {
	return [...]modelUser{{}, {owner: j.Owner, what: 1}, {owner: j.Owner, key: j.Key, what: 2}}
}

func isReady(j *modelJob) bool { return j.Status == queue.InQueue && !j.Delayed }

// live are the jobs of an endpoint that are ready or running.
func (m *Model) live(endpoint string) (list []*modelJob) {
	for _, j := range m.jobs {
		if j.Endpoint == endpoint && (isReady(j) || j.Status == queue.InProgress) {
			list = append(list, j)
		}
	}
	return list
}

// useOf counts live jobs.
func useOf(live []*modelJob) map[modelUser]*modelUse {
	use := map[modelUser]*modelUse{{}: {}}
	for _, j := range live {
		for _, u := range usersOf(j) {
			n := use[u]
			if n == nil {
				n = &modelUse{}
				use[u] = n
			}
			switch {
			case j.Status == queue.InProgress:
				n.running++
			case j.Flags&queue.LowPriority == 0:
				n.ready[0]++
				n.ready[1]++
			default:
				n.ready[0]++
			}
		}
	}
	return use
}

// places is how many more jobs of u may run beside those that do.
func (u modelUser) places(r queue.Rules, running int) int {
	if limit := [...]int{r.Total, r.PerUser, r.KeyLimit(u.key)}[u.what]; limit > 0 {
		return max(limit-running, 0)
	}
	return math.MaxInt
}

// room is how many more jobs of u may run, by their number and by the rates.
func (m *Model) room(endpoint string, r queue.Rules, u modelUser, running int, now queue.Instant) int {
	n := u.places(r, running)
	if rate := rateOf(r, u); rate.Limit > 0 {
		n = min(n, m.buckets[modelBucket{endpoint, u}].Room(rate, now))
	}
	if m.holds[modelBucket{endpoint, u}].Ends(&r, now) > 0 {
		n = 0
	}
	return n
}

// claimable are the jobs that a worker can claim now. An empty worker stands for any.
func (m *Model) claimable(live []*modelJob, now queue.Instant, r queue.Rules, w queue.WorkerID) (list []*modelJob) {
	if r.Paused {
		return nil
	}
	limited := r.Limited() || r.Rated() || len(m.holds) > 0
	var use map[modelUser]*modelUse
	if limited {
		use = useOf(live)
	}
	for _, j := range live {
		if !isReady(j) || j.Gone(now) || w != "" && j.Barred() == w {
			continue
		}
		free := true
		for _, u := range usersOf(j) {
			free = free && (!limited || m.room(j.Endpoint, r, u, use[u].running, now) > 0)
		}
		if free {
			list = append(list, j)
		}
	}
	return list
}

// couldRun counts the jobs that could be claimed one after the other: 0 for all, 1 for those
// without low priority.
func (m *Model) couldRun(endpoint string, live []*modelJob, r queue.Rules, kind int, now queue.Instant) int {
	if r.Paused {
		return 0
	}
	use := useOf(live)
	owners, all := map[string]int{}, 0
	for u, n := range use {
		if u.what == 2 {
			owners[u.owner] += min(n.ready[kind], m.room(endpoint, r, u, n.running, now))
		}
	}
	for owner, n := range owners {
		u := modelUser{owner: owner, what: 1}
		all += min(n, m.room(endpoint, r, u, use[u].running, now))
	}
	return min(all, m.room(endpoint, r, modelUser{}, use[modelUser{}].running, now))
}

// nextGroup returns the jobs of the group whose turn is first.
func (m *Model) nextGroup(list []*modelJob, groupOf func(*modelJob) modelGroup) (next []*modelJob) {
	groups := map[modelGroup][]*modelJob{}
	for _, j := range list {
		groups[groupOf(j)] = append(groups[groupOf(j)], j)
	}
	var first queue.Turn
	for g, jobs := range groups {
		t := m.served[g].Next(oldest(jobs).Seq)
		if next == nil || t.Before(first) {
			next, first = jobs, t
		}
	}
	return next
}

// oldest returns the job with the lowest Seq.
func oldest(list []*modelJob) *modelJob {
	first := list[0]
	for _, j := range list {
		if j.Seq < first.Seq {
			first = j
		}
	}
	return first
}

// Stats implements queue.JobQueue.
func (m *Model) Stats(_ context.Context, now queue.Instant, endpoint string, rules *queue.Rules) (queue.Stats, error) {
	if m.stats[endpoint] == nil {
		return queue.Stats{}, nil
	}
	s, r := *m.stats[endpoint], rulesOf(rules)
	live := m.live(endpoint)
	m.settle(endpoint, r, now)
	all, normal := m.couldRun(endpoint, live, r, 0, now), m.couldRun(endpoint, live, r, 1, now)
	s.Free = m.free(live, r, now)
	s.Ready, s.ReadyLow = int64(all), int64(all-normal)
	s.Blocked = s.Queued - s.Delayed - s.Ready
	list := m.claimable(live, now, r, "")
	if s.Blocked == 0 {
		list = slices.DeleteFunc(list, func(j *modelJob) bool { return j.Flags&queue.LowPriority != 0 })
	}
	if normal > 0 && len(list) > 0 {
		s.Oldest = oldest(list).Queued
	}
	return s, nil
}
