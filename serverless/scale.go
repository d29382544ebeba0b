package serverless

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A WorkerPhase is what a worker is doing, as the scaler sees it.
type WorkerPhase uint8

// The phases of a worker.
const (
	WorkerInitializing WorkerPhase = iota // it was started and has not come for a job yet
	WorkerIdle                            // it has no job
	WorkerBusy                            // it has a job
	WorkerDraining                        // it is there, takes no more jobs and is to end
	WorkerEnded                           // nothing of it runs
)

// A WorkerView is what Decide knows of a worker.
type WorkerView struct {
	ID        WorkerID
	Phase     WorkerPhase
	Stale     bool    // made of an older release
	IdleSince Instant // of an idle one
	Started   Instant
	Jobs      int
}

// A Demand is what an endpoint has to do.
type Demand struct {
	Queued  int64 // without those of low priority
	Low     int64 // queued jobs of low priority: they run when a worker is there anyway
	Running int64
	Oldest  Instant // since when the oldest of Queued waits; 0: none does
	// Spare is how many workers were without a job at any moment of the last
	// Workers.Idle, whichever they were: jobs go round, so that each has one now and then.
	Spare int
}

// A Decision is how many workers an endpoint should have, and what follows.
type Decision struct {
	At     Instant
	Want   int        // workers that take jobs, were it not for a back-off or old ones that still end
	Start  int        // how many to start now
	Stop   []WorkerID // to end now; they have no job
	Drain  []WorkerID // to end when they have done the job they have
	Reason string     // for people; the same as long as nothing changes
	Next   Instant    // when to decide again, if nothing happens before; 0: never
}

// balk is how long an idle worker may leave a job waiting before it counts as one that
// does not take jobs: it may have lost that very job, or its loop may hang.
const balk = 10 * time.Second

// Decide says how many workers e should have (section 4.2, decisions 29). It is pure: what
// it does not know has no influence, and asking again changes nothing.
//
// The number of live workers never exceeds e.Workers.Max, old ones and those on their way
// out included, and grows to e.Workers.Min at once.
//
//   - QueueDelay: the first worker starts for the first job, because waiting would only
//     add to the delay. When the oldest job has waited for Scaling.Delay, there is a worker
//     for each job that those about to take one leave.
//   - RequestCount: a worker for every Scaling.Count jobs, queued or running. A job that
//     runs has a worker, so only queued ones start any.
//   - A worker that has been idle for Workers.Idle ends, unless a job is about to be its;
//     and as many as have been spare for so long.
//   - One of an older release ends at once when it has no job, and else after its job.
func Decide(now Instant, e *Endpoint, d Demand, ws []WorkerView, b Backoff) Decision {
	p := newPlan(now, e, d, ws)
	if p.max == 0 {
		p.because("the endpoint is paused: its maximum is 0 workers")
		p.end(p.all(), "")
		return p.decision(0)
	}
	p.end(p.stale, "workers of an older release are replaced")
	p.trim()
	p.expire()
	want, why := p.want()
	p.start(want, why, b)
	return p.decision(want)
}

// A plan is a decision in the making.
type plan struct {
	now      Instant
	d        Demand
	scaling  Scaling
	min, max int
	idleFor  time.Duration

	coming []WorkerView // initializing, newest first
	idle   []WorkerView // idle longest first
	busy   []WorkerView // newest first
	stale  []WorkerView // of any phase; not in the other lists
	there  int          // processes, those that are to end included

	out     Decision
	reasons []string
}

func newPlan(now Instant, e *Endpoint, d Demand, ws []WorkerView) *plan {
	p := &plan{
		now: now, d: d, scaling: e.Scaling, max: e.Workers.Max,
		min:     min(e.Workers.Min, e.Workers.Max),
		idleFor: cmp.Or(e.Workers.Idle, DefaultIdle),
		out:     Decision{At: now},
	}
	for _, w := range ws {
		if w.Phase != WorkerEnded {
			p.there++
		}
		switch {
		case w.Phase >= WorkerDraining:
		case w.Stale:
			p.stale = append(p.stale, w)
		case w.Phase == WorkerInitializing:
			p.coming = append(p.coming, w)
		case w.Phase == WorkerIdle:
			p.idle = append(p.idle, w)
		default:
			p.busy = append(p.busy, w)
		}
	}
	slices.SortFunc(p.coming, newer)
	slices.SortFunc(p.busy, newer)
	slices.SortFunc(p.idle, func(a, b WorkerView) int {
		return cmp.Or(cmp.Compare(a.IdleSince, b.IdleSince), cmp.Compare(a.ID, b.ID))
	})
	return p
}

func newer(a, b WorkerView) int {
	return cmp.Or(cmp.Compare(b.Started, a.Started), cmp.Compare(a.ID, b.ID))
}

// live is how many workers take jobs, now or soon.
func (p *plan) live() int { return len(p.coming) + len(p.idle) + len(p.busy) }

// all is every worker that is not on its way out.
func (p *plan) all() []WorkerView { return slices.Concat(p.stale, p.coming, p.idle, p.busy) }

// end has ws end, those with a job after it.
func (p *plan) end(ws []WorkerView, why string) {
	for _, w := range ws {
		if w.Phase == WorkerBusy {
			p.out.Drain = append(p.out.Drain, w.ID)
		} else {
			p.out.Stop = append(p.out.Stop, w.ID)
		}
	}
	if len(ws) > 0 {
		p.because(why)
	}
}

// because adds a reason, once.
func (p *plan) because(why string) {
	if why != "" && !slices.Contains(p.reasons, why) {
		p.reasons = append(p.reasons, why)
	}
}

// again has the next decision be made at the latest at due.
func (p *plan) again(due Instant) {
	if due > p.now {
		p.out.Next = sooner(p.out.Next, due)
	}
}

// trim ends what is over the maximum, which has been lowered: first what has done nothing
// yet, then what does nothing, and last what has a job.
func (p *plan) trim() {
	for _, list := range []*[]WorkerView{&p.coming, &p.idle, &p.busy} {
		n := min(p.live()-p.max, len(*list))
		if n > 0 {
			p.end((*list)[:n], "there are more workers than the maximum of "+workers(p.max))
			*list = (*list)[n:]
		}
	}
}

// expire ends workers that have been without a job for too long. The jobs that wait keep
// as many of them as they need.
func (p *plan) expire() {
	var keep, over []WorkerView
	takers := p.takers()
	for _, w := range p.idle {
		due := w.IdleSince.Add(p.idleFor)
		takes := !p.balks(w)
		switch {
		case p.live()-len(over) <= p.min, takes && takers <= p.d.Queued:
			keep = append(keep, w)
		case due > p.now && len(over) >= p.d.Spare:
			keep = append(keep, w)
			p.again(due)
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

// balks reports whether an idle worker leaves a job waiting that it could have taken.
func (p *plan) balks(w WorkerView) bool {
	patience := max(p.scaling.Delay, balk)
	return p.d.Queued > 0 && p.d.Oldest.Add(patience) <= p.now && w.IdleSince.Add(patience) <= p.now
}

// takers is how many workers are about to take a job.
func (p *plan) takers() int64 {
	n := len(p.coming)
	for _, w := range p.idle {
		if !p.balks(w) {
			n++
		}
	}
	return int64(n)
}

// left is how many queued jobs there are beyond those that are about to be taken.
func (p *plan) left() int64 { return max(0, p.d.Queued-p.takers()) }

// want is how many workers there should be, with the reason if it is more than there are.
func (p *plan) want() (n int, why string) {
	n, why = p.scaled()
	if n < p.min {
		n, why = p.min, "the minimum is "+workers(p.min)
	}
	if n <= p.max {
		return n, why
	}
	// There is no room for another one beside a worker that takes no job.
	for len(p.idle) > 0 && n > p.max && p.balks(p.idle[0]) {
		p.end(p.idle[:1], "an idle worker that takes no job is replaced")
		p.idle = p.idle[1:]
		n--
	}
	return p.max, why
}

// scaled is what the signal of the endpoint asks for, and not less than there are:
// workers end by being idle.
func (p *plan) scaled() (n int, why string) {
	have, left := p.live(), p.left()
	switch {
	case left == 0:
		return have, ""
	case p.scaling.Type == RequestCount:
		// One that balks is not counted for the jobs it does not take.
		balking := int64(len(p.coming)+len(p.idle)) - p.takers()
		per := int64(max(p.scaling.Count, 1))
		need := (p.d.Queued + p.d.Running + per - 1) / per
		return int(min(max(int64(have), min(need+balking, int64(have)+left)), int64(p.max)+balking)),
			fmt.Sprintf("there is to be a worker for every %d queued or running jobs", per)
	}
	due := p.d.Oldest.Add(p.scaling.Delay)
	switch {
	case due <= p.now:
		return int(min(int64(have)+left, int64(p.max)+int64(len(p.idle)))),
			fmt.Sprintf("a job has waited for %v: there is to be a worker for each that waits", p.scaling.Delay)
	case have == 0:
		p.again(due)
		return 1, "the first worker starts for the first job"
	}
	p.again(due)
	return have, ""
}

// start starts what is missing to want, as far as there is room and the last ones did
// not fail.
func (p *plan) start(want int, why string, b Backoff) {
	n := min(want-p.live(), p.max-p.there)
	switch {
	case want <= p.live():
		p.because(p.steady())
	case n <= 0:
		p.because("the maximum of " + workers(p.max) + " is reached, those that are to end included")
	case p.now < b.Until:
		p.again(b.Until)
		p.because(b.Reason)
	case b.Fails > 0 && len(p.coming) > 0:
		p.because(b.Reason + "; one worker is tried")
	case b.Fails > 0:
		p.out.Start = 1
		p.because(b.Reason + "; one worker is tried")
	default:
		p.out.Start = n
		p.because(why)
	}
}

// steady is the reason for no change.
func (p *plan) steady() string {
	switch {
	case p.left() > 0 && p.live() >= p.max:
		return "the maximum of " + workers(p.max) + " is reached"
	case p.left() > 0 && p.scaling.Type == RequestCount:
		return fmt.Sprintf("there is a worker for every %d queued or running jobs", max(p.scaling.Count, 1))
	case p.left() > 0:
		return fmt.Sprintf("more jobs wait than workers are free, and none has waited for %v", p.scaling.Delay)
	case p.d.Queued > 0:
		return "a free worker takes each job that waits"
	case p.d.Low > 0 && p.live() == 0:
		return "jobs of low priority start no worker"
	}
	return "no job waits"
}

func (p *plan) decision(want int) Decision {
	p.out.Want = want
	p.out.Reason = strings.Join(p.reasons, "; ")
	return p.out
}

// workers is n workers, for people.
func workers(n int) string {
	if n == 1 {
		return "1 worker"
	}
	return fmt.Sprintf("%d workers", n)
}

// A Backoff is the pause after workers that could not be started, or ended before they
// had done a job. The zero value is none.
type Backoff struct {
	Fails  int     // in a row
	At     Instant // of the last one that counted
	Until  Instant // no worker is started before
	NoRoom bool    // the last one found no capacity, rather than ended
	Reason string  // for people
}

// The pauses: the first, doubled each time up to the last.
const (
	firstPause = time.Second
	lastPause  = time.Minute
)

// After is b when a worker that was started at the given instant has failed at now. Those
// that were started before the last failure were part of the same attempt and make no
// longer pause.
func (b Backoff) After(now, started Instant, noRoom bool, reason string) Backoff {
	if b.Fails > 0 && started <= b.At {
		return b
	}
	pause := lastPause
	if b.Fails < 6 {
		pause = min(pause, firstPause<<b.Fails)
	}
	return Backoff{Fails: b.Fails + 1, At: now, Until: now.Add(pause), NoRoom: noRoom, Reason: reason}
}
