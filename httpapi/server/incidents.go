package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/incidents"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/servers"
)

// Bounds of the looks for what is wrong.
const (
	lookEvery   = 3 * time.Second
	lookFor     = 2 * time.Second // for the stores to answer
	sampleJobs  = 100             // of a slow queue, to see whose they are
	maxSamples  = 5               // queues of which jobs are looked at
	samplesFrom = 1000            // jobs that wait
	silentFor   = servers.DefaultLease / 2
	minJump     = 5 * time.Second
	rememberFor = time.Hour // that a server has died
)

// A watcher looks for what is wrong. Only its loop uses it, except last.
type watcher struct {
	*Server

	keeper incidents.Keeper
	wall   time.Time // of the last look, by the clock of the services
	steady time.Time // of the last look, by a clock that nobody sets
	jumped time.Duration
	at     time.Time // of the jump
	seen   map[string]*otherServer
	kept   map[string]time.Time // by endpoint with queued jobs: the last look at which none could start
}

// An otherServer is a server of the same stores.
type otherServer struct {
	name, version, state string
	end                  time.Time // of the lease that was seen last
	lost                 time.Time // zero: it lives
}

// Incidents returns what is wrong, the most severe first. It is at most some seconds old while Run runs,
// and empty before.
func (s *Server) Incidents() []incidents.Incident {
	if list := s.incidents.Load(); list != nil {
		return *list
	}
	return nil
}

// watch looks for what is wrong until ctx ends.
func (s *Server) watch(ctx context.Context) error {
	w := &watcher{Server: s, seen: map[string]*otherServer{}, wall: s.clock.Now().Round(0), steady: time.Now()}
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		w.look(ctx)
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (w *watcher) look(ctx context.Context) {
	now := w.clock.Now()
	list := incidents.List(w.survey(ctx, now))
	if ctx.Err() != nil {
		return // what was not read is no news
	}
	list = w.keeper.Update(ctx, now, list, w.log)
	w.incidents.Store(&list)
}

// survey reads what is known. What cannot be read is left out: the store says elsewhere that it is away.
func (w *watcher) survey(ctx context.Context, now time.Time) *incidents.Survey {
	limited, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	x := &incidents.Survey{At: now, InDatabase: w.joined != nil}
	w.clockOf(x)
	w.storeOf(x)
	if w.certificate != nil {
		x.Certificate = w.certificate()
	}
	w.othersOf(limited, x)
	w.podsOf(limited, x)
	w.costsOf(x)
	w.jobsOf(limited, x)
	return x
}

// clockOf compares the clock with one that nobody sets.
func (w *watcher) clockOf(x *incidents.Survey) {
	if _, manual := w.clock.(*clock.Manual); manual {
		return
	}
	wall, steady := x.At.Round(0), time.Now()
	if by := wall.Sub(w.wall) - steady.Sub(w.steady); by.Abs() >= minJump {
		w.jumped, w.at = by, wall
	}
	w.wall, w.steady = wall, steady
	x.Jumped, x.JumpedAt = w.jumped, w.at
}

func (w *watcher) storeOf(x *incidents.Survey) {
	if w.stores.Ready != nil {
		if err := w.stores.Ready(); err != nil {
			x.Refuses = problem.Of(err).Detail
			x.Short = w.stores.Short != nil && w.stores.Short()
		}
	}
	if w.stores.Warning != nil {
		x.Warning = w.stores.Warning()
	}
}

// othersOf looks for servers that have died: one that leaves gives its lease back before it ends.
func (w *watcher) othersOf(ctx context.Context, x *incidents.Survey) {
	if w.joined == nil {
		return
	}
	list, err := w.joined.Others(ctx)
	if err != nil {
		return
	}
	here := map[string]bool{}
	for _, l := range list {
		here[l.Name] = true
		o := w.seen[l.Name]
		if o == nil {
			o = &otherServer{}
			w.seen[l.Name] = o
		}
		o.name, o.version, o.state = shown(l.Data)
		o.end = l.Until
		if o.lost = (time.Time{}); l.Until.Sub(x.At) < silentFor {
			o.lost = x.At
		}
	}
	w.addLost(x, here)
	var others []httpapi.OtherServer
	for _, id := range slices.Sorted(maps.Keys(w.seen)) {
		o := w.seen[id]
		state := o.state
		if !o.lost.IsZero() {
			state = "lost"
		}
		others = append(others, httpapi.OtherServer{Name: o.name, Version: o.version, State: state})
	}
	slices.SortStableFunc(others, func(a, b httpapi.OtherServer) int { return cmp.Compare(a.Name, b.Name) })
	w.others.Store(&others)
}

// showing is what a server shows to the others of the same stores: its name, version and state, a line each.
// An earlier version shows its name only.
func showing(name, version string, state endpoints.Cordon) []byte {
	return []byte(name + "\n" + version + "\n" + cmp.Or(string(state), "active"))
}

func shown(data []byte) (name, version, state string) {
	name, rest, _ := strings.Cut(string(data), "\n")
	version, state, _ = strings.Cut(rest, "\n")
	return name, version, cmp.Or(state, "active")
}

// addLost adds the servers that have died. One of the same name that lives has taken the place.
func (w *watcher) addLost(x *incidents.Survey, here map[string]bool) {
	alive := map[string]bool{}
	for id := range here {
		alive[w.seen[id].name] = w.seen[id].lost.IsZero() || alive[w.seen[id].name]
	}
	for id, o := range w.seen {
		if !here[id] && o.lost.IsZero() {
			if x.At.Before(o.end) { // it has left
				delete(w.seen, id)
				continue
			}
			o.lost = x.At
		}
		switch {
		case o.lost.IsZero():
		case alive[o.name] || x.At.Sub(o.lost) > rememberFor:
			delete(w.seen, id)
		default:
			x.Lost = append(x.Lost, incidents.LostServer{Name: o.name, Since: o.end})
		}
	}
}

// costsOf is about users who are near the end of a month's budget, or past it.
func (w *watcher) costsOf(x *incidents.Survey) {
	if w.services.Spending == nil {
		return
	}
	for _, u := range w.services.Spending.States() {
		detail := fmt.Sprintf("%.2f of %.2f USD of this month (UTC) are spent, at %.2f USD an hour now.", u.Spending.Month, u.PerMonth, u.Rate)
		x.Costs = append(x.Costs, incidents.Cost{Owner: u.User, Spent: u.Level == budget.CostSpent, Ends: u.Ends, Detail: detail})
	}
}

func (w *watcher) podsOf(ctx context.Context, x *incidents.Survey) {
	if w.services.Pods == nil {
		return
	}
	list, err := w.services.Pods.All(ctx)
	if err != nil {
		return
	}
	for _, p := range list {
		if p.Status() == pods.Errored {
			x.Failed = append(x.Failed, incidents.Pod{Name: p.Name, Owner: p.Owner, Reason: p.Seen.Reason})
		}
		if p.Placement.Host == "" && p.Want.Power == pods.PowerOn {
			x.PodsWaiting++
		}
	}
}

// hostsOf is called only where something waits for room, because it reads all claims.
func (w *watcher) hostsOf(ctx context.Context, x *incidents.Survey) {
	if w.services.Pods == nil {
		return
	}
	states, err := w.services.Pods.HostStates(ctx)
	if err != nil {
		return
	}
	for i := range states {
		x.Hosts = append(x.Hosts, hostOf(&states[i]))
	}
}

func hostOf(h *pods.HostState) incidents.Host {
	x := incidents.Host{ID: h.ID, Cordoned: h.Cordoned, Workers: map[string]int{}, Pods: map[string]int{}}
	for _, r := range h.Resources {
		if r.Limit > 0 && r.Units >= r.Limit {
			x.Full = append(x.Full, fmt.Sprintf("%s (%d of %d)", r.Resource, r.Units, r.Limit))
		}
	}
	for i := range h.Workers {
		x.Workers[h.Workers[i].Endpoint]++
	}
	for _, p := range h.Pods {
		if len(p.Placement.Claims) > 0 {
			x.Pods[p.Owner]++
		}
	}
	return x
}

func (w *watcher) jobsOf(ctx context.Context, x *incidents.Survey) {
	if w.services.Jobs == nil {
		return
	}
	loads, err := w.services.Jobs.Survey(ctx)
	if err != nil {
		return
	}
	waits, samples, spent := x.PodsWaiting > 0, 0, map[string]bool{}
	for _, c := range x.Costs {
		spent[c.Owner] = spent[c.Owner] || c.Spent
	}
	w.keep(x.At, loads)
	for i := range loads {
		e := w.endpointOf(ctx, &loads[i])
		e.Paused = e.Paused || spent[e.Owner] // its workers end: see pods/spending
		if waits = waits || e.Throttled > 0; e.Owner == "" && e.Ready >= samplesFrom && samples < maxSamples {
			samples++
			w.sample(ctx, x.At, &e)
		}
		x.Endpoints = append(x.Endpoints, e)
	}
	for _, r := range w.services.Jobs.Receivers() {
		x.Receivers = append(x.Receivers, incidents.Route{Host: r.Host, Owner: r.Owner, Failures: r.Failures, Since: r.Since.Time()})
	}
	if waits {
		w.hostsOf(ctx, x)
	}
}

// keep remembers when endpoints had jobs of which none could start: what a rate or a hold has just let go
// has not waited for a worker until then.
func (w *watcher) keep(now time.Time, loads []serverless.EndpointLoad) {
	last := w.kept
	w.kept = map[string]time.Time{}
	for i := range loads {
		l := &loads[i]
		at, ok := last[l.Endpoint.ID]
		if l.Oldest == 0 && l.Blocked+l.Held > 0 {
			at, ok = now, true
		}
		if ok && l.Ready+l.Blocked+l.Held > 0 {
			w.kept[l.Endpoint.ID] = at
		}
	}
}

func (w *watcher) endpointOf(ctx context.Context, l *serverless.EndpointLoad) incidents.Endpoint {
	ep := l.Endpoint
	e := incidents.Endpoint{
		ID: ep.ID, Name: ep.Name, Owner: ep.Owner, Running: l.Running,
		Paused:  ep.QueueSettings().Paused || ep.Workers.Max == 0 && ep.Container.Image != "" || ep.Cordon != endpoints.NotCordoned,
		Working: l.Workers.Idle + l.Workers.Running, Starting: l.Workers.Initializing, Throttled: l.Workers.Throttled,
	}
	if l.Oldest != 0 { // others are delayed, or limits, rates or holds of their owner keep them
		for _, n := range l.Queued[:len(l.Queued)-1] {
			e.Ready += n
		}
		e.Ready = min(e.Ready, l.Ready) // without those of low priority
		if e.Oldest = l.Oldest.Time(); e.Oldest.Before(w.kept[ep.ID]) {
			e.Oldest = w.kept[ep.ID] // before that nobody waited for a worker
		}
	}
	if e.Ready == 0 && l.Workers.Unhealthy == 0 && ep.Workers.Min == 0 {
		return e
	}
	if t, ok, err := w.services.Jobs.Trouble(ctx, ep.ID); err == nil && ok {
		e.Fails, e.Unborn, e.FailsSince, e.Why, e.Next = t.Fails, t.Unborn, t.Since.Time(), t.Reason, t.Next.Time()
	}
	return e
}

// sample looks at the newest jobs of a shared endpoint that wait, to see whose they are.
func (w *watcher) sample(ctx context.Context, now time.Time, e *incidents.Endpoint) {
	count, seen := map[string]int{}, 0
	q := queue.ListQuery{Endpoint: e.ID, Status: []queue.Status{queue.InQueue}, Limit: sampleJobs}
	for j, err := range w.stores.Jobs.List(ctx, queue.At(now), q) {
		if err != nil {
			return
		}
		count[j.Owner]++
		seen++
	}
	e.Users = map[string]bool{}
	for user, n := range count {
		if e.Users[user] = true; n > seen/2 {
			e.Most = user
		}
	}
}
