package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
)

// A WorkerView is the input of Decide about one worker.
type WorkerView struct {
	ID        queue.WorkerID
	State     State
	Stale     bool          // runs an older release
	IdleSince queue.Instant // if idle
	Started   queue.Instant
}

// A Demand is the work of an endpoint.
type Demand struct {
	Queued  int64 // queued jobs without low priority
	Low     int64 // queued jobs of low priority; no worker is started for them
	Running int64
	Oldest  queue.Instant // since when the oldest of Queued has waited; 0: none
	// Spare is the least number of idle workers at any moment of the last Workers.Idle. It
	// counts workers and not one worker's idle time, because jobs rotate: under a low load
	// each worker has a job now and then.
	Spare int
	// Spent is why the owner may have no workers until an instant (docs/decisions.md 56), a text for
	// users. Empty: the owner may.
	Spent      string
	SpentUntil queue.Instant
}

// A Decision is how many workers an endpoint should have, and what to do for it.
type Decision struct {
	At     queue.Instant
	Want   int              // workers that should take jobs; a back-off or the maximum may delay them
	Start  int              // how many to start now
	Stop   []queue.WorkerID // workers to stop now; they have no job
	Drain  []queue.WorkerID // workers to stop when they have finished their jobs
	Reason string           // text for users; constant while nothing changes
	Next   queue.Instant    // when to decide again if nothing happens before; 0: never
}

// claimPatience is how long a job may wait beside an idle worker before the worker counts as
// one that ignores jobs. Such a worker may have lost that very job, or may hang.
const claimPatience = 10 * time.Second

// Decide computes how many workers e should have (docs/interface.md 2.12). It is a pure
// function: it depends on its arguments only.
//
// The number of live workers grows to e.Workers.Min at once. It never exceeds e.Workers.Max,
// including stale workers and workers that are being stopped.
//
//   - QueueDelay: the first worker starts for the first job, because waiting would only add to the
//     delay. When the oldest job has waited for Scaling.Delay, there is a worker for each queued
//     job that the free workers do not take.
//   - RequestCount: a worker for every Scaling.Count jobs, queued or running. A running job has a
//     worker, so only queued jobs start workers.
//   - On a load-balancing endpoint requests are in flight instead of jobs. They go to workers at
//     once, so it is the number of those in flight that starts workers and keeps them.
//   - A worker that has been idle for Workers.Idle is stopped, unless it is about to take a job.
//     As many workers as were spare for that time are stopped too.
//   - Nothing is started for an endpoint that an operator has cordoned, and all is stopped for one
//     that is drained (docs/decisions.md 35), or whose owner may spend nothing more.
//   - A worker of an older release is stopped at once if it has no job, and otherwise after it.
func Decide(now queue.Instant, e *endpoints.Endpoint, d Demand, ws []WorkerView, b Backoff) Decision {
	p := newPlan(now, e, d, ws)
	if p.max == 0 {
		p.addReason("the endpoint is paused: its maximum is 0 workers")
		p.end(p.all(), "")
		return p.decision(0)
	}
	if e.Cordon == endpoints.Drained {
		p.addReason("an operator has drained the endpoint: its workers end, and none is started")
		p.end(p.all(), "")
		return p.decision(0)
	}
	if d.Spent != "" {
		p.addReason(d.Spent)
		p.end(p.all(), "")
		p.decideBy(d.SpentUntil)
		return p.decision(0)
	}
	p.end(p.stale, "workers of an older release are replaced")
	p.trim()
	p.expire()
	if e.Cordon == endpoints.Cordoned {
		p.addReason("an operator has cordoned the endpoint: no worker is started")
		return p.decision(p.live())
	}
	want, why := p.want()
	p.start(want, why, b)
	return p.decision(want)
}

// A plan is a decision in progress.
type plan struct {
	now      queue.Instant
	demand   Demand
	scaling  endpoints.Scaling
	min, max int
	idleFor  time.Duration
	balances bool // the demand is requests in flight, which workers share

	starting  []WorkerView // newest first
	idle      []WorkerView // idle longest first
	busy      []WorkerView // newest first
	stale     []WorkerView // of older releases; not in the other lists
	processes int          // processes, including those that are being stopped

	out     Decision
	reasons []string
}

func newPlan(now queue.Instant, e *endpoints.Endpoint, d Demand, ws []WorkerView) *plan {
	p := &plan{
		now: now, demand: d, scaling: e.Scaling, max: e.Workers.Max,
		min:      min(e.Workers.Min, e.Workers.Max),
		idleFor:  cmp.Or(e.Workers.Idle, endpoints.DefaultIdle),
		balances: e.Balances(),
		out:      Decision{At: now},
	}
	for _, w := range ws {
		if w.State.HasProcess() {
			p.processes++
		}
		switch {
		case !w.State.TakesJobs():
		case w.Stale:
			p.stale = append(p.stale, w)
		case w.State == Idle:
			p.idle = append(p.idle, w)
		case w.State == Busy:
			p.busy = append(p.busy, w)
		default:
			p.starting = append(p.starting, w)
		}
	}
	slices.SortFunc(p.starting, newer)
	slices.SortFunc(p.busy, newer)
	slices.SortFunc(p.idle, func(a, b WorkerView) int {
		return cmp.Or(cmp.Compare(a.IdleSince, b.IdleSince), cmp.Compare(a.ID, b.ID))
	})
	return p
}

func newer(a, b WorkerView) int {
	return cmp.Or(cmp.Compare(b.Started, a.Started), cmp.Compare(a.ID, b.ID))
}

// live returns the number of workers that take jobs, now or soon.
func (p *plan) live() int { return len(p.starting) + len(p.idle) + len(p.busy) }

// all returns the workers that are not being stopped.
func (p *plan) all() []WorkerView { return slices.Concat(p.stale, p.starting, p.idle, p.busy) }

// end stops workers, those with a job after it.
func (p *plan) end(ws []WorkerView, why string) {
	for _, w := range ws {
		if w.State == Busy {
			p.out.Drain = append(p.out.Drain, w.ID)
		} else {
			p.out.Stop = append(p.out.Stop, w.ID)
		}
	}
	if len(ws) > 0 {
		p.addReason(why)
	}
}

// addReason adds a reason, once.
func (p *plan) addReason(why string) {
	if why != "" && !slices.Contains(p.reasons, why) {
		p.reasons = append(p.reasons, why)
	}
}

// decideBy makes the next decision happen at due or earlier.
func (p *plan) decideBy(due queue.Instant) {
	if due > p.now {
		p.out.Next = queue.Sooner(p.out.Next, due)
	}
}

// trim stops the workers above a lowered maximum: first starting workers, then idle ones,
// then busy ones.
func (p *plan) trim() {
	for _, list := range []*[]WorkerView{&p.starting, &p.idle, &p.busy} {
		n := min(p.live()-p.max, len(*list))
		if n > 0 {
			p.end((*list)[:n], "there are more workers than the maximum of "+workersText(p.max))
			*list = (*list)[n:]
		}
	}
}

// expire stops workers that have had no job for too long. It keeps as many as the queued jobs
// need.
func (p *plan) expire() {
	var keep, over []WorkerView
	takers, least := p.aboutToTake(), p.min
	if p.balances {
		least = max(least, min(p.perCount(), p.max))
	}
	for _, w := range p.idle {
		due := w.IdleSince.Add(p.idleFor)
		takes := !p.ignoresJobs(w)
		switch {
		case p.live()-len(over) <= least, takes && takers <= p.demand.Queued:
			keep = append(keep, w)
		case due > p.now && len(over) >= p.demand.Spare:
			keep = append(keep, w)
			p.decideBy(due)
		default:
			over = append(over, w)
			if takes {
				takers--
			}
		}
	}
	p.idle = keep
	p.end(over, fmt.Sprintf("workers that no job has needed for %v end", p.idleFor))
}

// ignoresJobs reports whether an idle worker has left a job waiting that it could have taken.
func (p *plan) ignoresJobs(w WorkerView) bool {
	patience := max(p.scaling.Delay, claimPatience)
	return p.demand.Queued > 0 && p.demand.Oldest.Add(patience) <= p.now && w.IdleSince.Add(patience) <= p.now
}

// aboutToTake returns the number of workers that will take a job soon.
func (p *plan) aboutToTake() int64 {
	n := len(p.starting)
	for _, w := range p.idle {
		if !p.ignoresJobs(w) {
			n++
		}
	}
	return int64(n)
}

// untaken returns the number of queued jobs that no free worker will take.
func (p *plan) untaken() int64 { return max(0, p.demand.Queued-p.aboutToTake()) }

// want returns how many workers there should be, and the reason if that is more than there
// are.
func (p *plan) want() (n int, why string) {
	n, why = p.scalingTarget()
	if n < p.min {
		n, why = p.min, "the minimum is "+workersText(p.min)
	}
	if n <= p.max {
		return n, why
	}
	// At the maximum, a worker that ignores jobs must go before another can start.
	for len(p.idle) > 0 && n > p.max && p.ignoresJobs(p.idle[0]) {
		p.end(p.idle[:1], "an idle worker that takes no job is replaced")
		p.idle = p.idle[1:]
		n--
	}
	return p.max, why
}

// scalingTarget returns the number of workers for the endpoint's scaling type. It is never
// less than the current number: workers are stopped only when they are idle.
func (p *plan) scalingTarget() (n int, why string) {
	have, left := p.live(), p.untaken()
	switch {
	case p.balances:
		// A worker that has left requests waiting for long is not counted: it is not healthy.
		ignoring := len(p.starting) + len(p.idle) - int(p.aboutToTake())
		return max(have, min(p.perCount(), p.max)+ignoring), fmt.Sprintf("there is to be a worker for every %d requests in flight", max(p.scaling.Count, 1))
	case left == 0:
		return have, ""
	case p.scaling.Type == endpoints.RequestCount:
		// An idle worker that ignores jobs does not count.
		ignoring := int64(len(p.starting)+len(p.idle)) - p.aboutToTake()
		return int(min(max(int64(have), min(int64(p.perCount())+ignoring, int64(have)+left)), int64(p.max)+ignoring)),
			fmt.Sprintf("there is to be a worker for every %d queued or running jobs", max(p.scaling.Count, 1))
	}
	due := p.demand.Oldest.Add(p.scaling.Delay)
	switch {
	case due <= p.now:
		return int(min(int64(have)+left, int64(p.max)+int64(len(p.idle)))),
			fmt.Sprintf("a job has waited for %v: there is to be a worker for each that waits", p.scaling.Delay)
	case have == 0:
		p.decideBy(due)
		return 1, "the first worker starts for the first job"
	}
	p.decideBy(due)
	return have, ""
}

// perCount returns how many workers the scaling type RequestCount wants for the demand.
func (p *plan) perCount() int {
	per := int64(max(p.scaling.Count, 1))
	return int(min((p.demand.Queued+p.demand.Running+per-1)/per, endpoints.MaxWorkers))
}

// start starts the missing workers, as far as the maximum and the back-off allow.
func (p *plan) start(want int, why string, b Backoff) {
	n := min(want-p.live(), p.max-p.processes)
	switch {
	case want <= p.live():
		p.addReason(p.noChangeReason())
	case n <= 0:
		p.addReason("the maximum of " + workersText(p.max) + " is reached, those that are to end included")
	case p.now < b.Until:
		p.decideBy(b.Until)
		p.addReason(b.Reason)
	case b.Fails > 0 && len(p.starting) > 0:
		p.addReason(b.Reason + "; one worker is tried")
	case b.Fails > 0:
		p.out.Start = 1
		p.addReason(b.Reason + "; one worker is tried")
	default:
		p.out.Start = n
		p.addReason(why)
	}
}

// noChangeReason returns the reason why no worker is started.
func (p *plan) noChangeReason() string {
	switch {
	case p.balances && p.demand.Queued+p.demand.Running == 0:
		return "no request is in flight"
	case p.balances && p.live() >= p.max:
		return "the maximum of " + workersText(p.max) + " is reached"
	case p.balances:
		return fmt.Sprintf("there is a worker for every %d requests in flight", max(p.scaling.Count, 1))
	case p.untaken() > 0 && p.live() >= p.max:
		return "the maximum of " + workersText(p.max) + " is reached"
	case p.untaken() > 0 && p.scaling.Type == endpoints.RequestCount:
		return fmt.Sprintf("there is a worker for every %d queued or running jobs", max(p.scaling.Count, 1))
	case p.untaken() > 0:
		return fmt.Sprintf("more jobs wait than workers are free, and none has waited for %v", p.scaling.Delay)
	case p.demand.Queued > 0:
		return "a free worker takes each job that waits"
	case p.demand.Low > 0 && p.live() == 0:
		return "jobs of low priority start no worker"
	}
	return "no job waits"
}

func (p *plan) decision(want int) Decision {
	p.out.Want = want
	p.out.Reason = strings.Join(p.reasons, "; ")
	return p.out
}

// workersText returns n with its noun, for users.
func workersText(n int) string {
	if n == 1 {
		return "1 worker"
	}
	return fmt.Sprintf("%d workers", n)
}

// A Backoff is the pause after workers that could not be started, or that ended before they
// finished a job. The zero value is no pause.
type Backoff struct {
	Fails      int           // failures in a row
	At         queue.Instant // of the last failure that counted
	Until      queue.Instant // no worker is started before this instant
	NoCapacity bool          // the last failure was a lack of capacity
	Reason     string        // text for users
	Refused    int           // the last ones of Fails, if they were a lack of capacity
	Crash      Crash         // the last failure that was none
}

// A Crash is the last failure of workers that was no lack of capacity.
type Crash struct {
	Since  queue.Instant // of the first one in a row
	Reason string        // text for users
	Unborn bool          // no process ran: the image, or the command in it, is at fault
}

// The pause starts at minBackoff and doubles with each failure up to maxBackoff. Without room it is
// shorter: nothing was started, and nobody tells us when a pod leaves its place.
const (
	minBackoff     = time.Second
	maxBackoff     = 5 * time.Minute
	maxRoomBackoff = 10 * time.Second
)

// After returns the back-off after the failure at now of a worker that was requested at
// started. It returns b if started is before the last failure, because both failures belong
// to the same attempt. A lack of capacity between two crashes does not make the pause after the second
// one shorter, nor longer.
func (b Backoff) After(now, started queue.Instant, noCapacity bool, reason string) Backoff {
	if b.Fails > 0 && started <= b.At {
		return b
	}
	next := Backoff{Fails: b.Fails + 1, At: now, NoCapacity: noCapacity, Reason: reason, Crash: b.Crash}
	if noCapacity {
		next.Refused = b.Refused + 1
		next.Until = now.Add(min(doubled(b.Fails), maxRoomBackoff))
		return next
	}
	next.Fails -= b.Refused
	next.Crash = Crash{Since: cmp.Or(b.Crash.Since, now), Reason: reason}
	next.Until = now.Add(doubled(next.Fails - 1))
	return next
}

// doubled returns the pause after so many failures before the last one.
func doubled(fails int) time.Duration {
	if fails > 8 {
		return maxBackoff
	}
	return min(minBackoff<<fails, maxBackoff)
}

// Crashes returns how many failures in a row were no lack of capacity.
func (b Backoff) Crashes() int { return b.Fails - b.Refused }

// admitted returns b after a worker has found room: what is left are the crashes.
func (b Backoff) admitted() Backoff {
	if b.Crashes() == 0 {
		return Backoff{}
	}
	return Backoff{Fails: b.Crashes(), At: b.At, Until: b.At, Reason: b.Crash.Reason, Crash: b.Crash}
}
