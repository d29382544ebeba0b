package serverless

import (
	"context"
	"strconv"
	"time"
)

// attend brings together what the fleet and the crew know of an endpoint's workers: who
// has come, is unwell, has ended. The jobs of those that are gone are taken from them.
func (s *Service) attend(ctx context.Context, now Instant, e *Endpoint) ([]WorkerView, error) {
	f := &s.force
	crew := map[WorkerID]crewView{}
	for _, v := range s.crew.views(e.ID) {
		crew[v.ID] = v
	}
	f.mu.Lock()
	q := f.squad(e.ID)
	q.plain = false
	if q.version != e.Version {
		q.version, q.backoff = e.Version, Backoff{} // whatever was wrong may be right now
	}
	fails := q.backoff.Fails
	var left []bereft
	views := make([]WorkerView, 0, len(q.hands))
	for _, h := range q.byID() {
		v, here := crew[h.id]
		h.belong(e)
		switch {
		case h.ended && !h.lost && h.blame:
			left = append(left, bereft{h, OpLose})
		case h.gone, h.ended && !h.lost:
			left = append(left, bereft{h, OpRelease})
		}
		q.look(h, v, here, now, initTimeout(e))
		if !h.gone {
			views = append(views, h.view(v, here, e.Version))
		}
	}
	q.bury(now)
	b := q.backoff
	f.mu.Unlock()
	if b.Fails > fails { // the pauses keep this from being many lines
		s.log.Warn("workers do not start", "endpoint", e.ID, "fails", b.Fails, "reason", b.Reason)
	}
	for _, l := range left {
		if err := s.bereave(ctx, q, l.hand, l.kind); err != nil {
			return nil, err
		}
	}
	return views, nil
}

// A bereft worker is gone, and what it had is taken from it by ops of a kind.
type bereft struct {
	hand *hand
	kind OpKind
}

// look notes what has become of a worker and whether it is to go.
func (q *squad) look(h *hand, v crewView, here bool, now Instant, limit time.Duration) {
	if here {
		h.served = h.served || v.Served
		if h.met == 0 {
			h.met = now
		}
	}
	switch {
	case h.stop || h.noRoom || h.lost:
	case h.ended && !h.blame:
		h.end(killGrace)
	case h.ended:
		q.lastEnd, q.lastEndAt = h.seen.Exit, now
		q.judge(h, now, "a worker ended before it had done a job: "+h.seen.Exit)
	case here && v.Sick != "":
		q.lastEnd, q.lastEndAt = v.Sick, now
		q.judge(h, now, "a worker is not healthy: "+v.Sick)
		h.end(endGrace)
	case here && v.Leaving && len(v.Jobs) == 0:
		h.end(endGrace)
	case !here && h.met != 0:
		q.lastEnd, q.lastEndAt = "it was not heard of any more", now
		q.judge(h, now, "a worker was not heard of any more")
		h.end(killGrace)
	case !here && h.seen.State == FleetUp && h.initBy(limit) <= now:
		q.lastEnd, q.lastEndAt = "it never came for a job", now
		q.judge(h, now, "a worker ran for "+limit.String()+" and never came for a job")
		h.end(killGrace)
	}
	b := &q.backoff
	if b.Fails > 0 && h.ordered > b.At && !h.failed && (h.well(now) || b.NoRoom && h.accepted) {
		*b = Backoff{}
	}
}

// well reports whether the worker's start was a success.
func (h *hand) well(now Instant) bool {
	return h.served || h.met != 0 && h.met.Add(steady) <= now
}

// judge counts the end of a worker as a failure, unless its start was a success.
func (q *squad) judge(h *hand, now Instant, reason string) {
	if !h.well(now) {
		q.fail(h, now, false, reason)
	}
}

// bury has the fleet forget the workers that ended by themselves. The last one that had
// not done a job stays for a while: its log says why.
func (q *squad) bury(now Instant) {
	var last *hand
	for _, h := range q.byID() {
		if h.ended && !h.stop && h.failed && (last == nil || h.endedAt > last.endedAt) {
			last = h
		}
	}
	for _, h := range q.hands {
		if h.ended && (h != last || h.endedAt.Add(keepEnded) <= now) {
			h.end(killGrace)
		}
	}
}

// view is what Decide knows of h.
func (h *hand) view(v crewView, here bool, version int) WorkerView {
	w := WorkerView{ID: h.id, Started: h.ordered, Stale: h.seen.Release != version}
	switch {
	case h.ended || h.noRoom:
		w.Phase = WorkerEnded
	case h.stop || here && v.Leaving:
		w.Phase, w.Jobs = WorkerDraining, len(v.Jobs)
	case here && len(v.Jobs) > 0:
		w.Phase, w.Jobs = WorkerBusy, len(v.Jobs)
	case here:
		w.Phase, w.IdleSince = WorkerIdle, v.IdleSince
	}
	return w
}

// bereave takes the jobs of a worker that is gone away from it.
func (s *Service) bereave(ctx context.Context, q *squad, h *hand, kind OpKind) error {
	if m := s.crew.find(h.endpoint, h.id); m != nil {
		s.crew.dismiss(m)
		if err := s.takeAway(ctx, m, kind); err != nil {
			return err
		}
		s.crew.leave(m)
	}
	f := &s.force
	f.mu.Lock()
	defer f.mu.Unlock()
	h.lost = true
	if h.gone {
		delete(q.hands, h.id)
	}
	return nil
}

// initTimeout is how long a worker of e may run before it first comes for a job.
func initTimeout(e *Endpoint) time.Duration {
	if n, err := strconv.Atoi(e.Container.Env["RUNPOD_INIT_TIMEOUT"]); err == nil && n > 0 && n <= int(MaxTTL/time.Second) {
		return time.Duration(n) * time.Second
	}
	return startLimit
}
