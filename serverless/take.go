package serverless

import (
	"context"
	"errors"
	"fmt"
)

// Take waits until there is work for w or ctx ends, and leases at most n jobs to it, for
// as long as a lease is. No job and no error means that ctx ended, or that the worker is
// to stop. Workers that wait are served first come first; a new job wakes one of them.
//
// In-process workers and the routes of the worker protocol call the same Take, Ping,
// Report and Stops.
func (s *Service) Take(ctx context.Context, endpoint string, w WorkerID, n int) ([]Job, error) {
	return s.take(ctx, s.meet(endpoint, w), n)
}

// take is Take for a member. One of this process stays the member that it is: it does not
// become another when it has been taken from the crew.
func (s *Service) take(ctx context.Context, m *member, n int) ([]Job, error) {
	endpoint := m.endpoint
	news, more := s.crew.enter(m)
	defer s.lastHeard(m)
	if !more {
		s.pause(ctx) // it asks again at once
		return nil, nil
	}
	if ctx.Err() != nil {
		return nil, nil // nobody is there to have a job
	}
	if jobs, err := s.claim(ctx, m, n); err != nil || len(jobs) > 0 {
		return jobs, err
	}
	t := &taker{endpoint: endpoint, worker: m.id, ch: make(chan struct{}, 1)}
	for woken := false; ; {
		s.hub.queue(t)
		jobs, err := s.claim(ctx, m, n)
		if err != nil || len(jobs) > 0 {
			s.hub.leave(t)
			if err != nil && woken {
				s.hub.wakeNext(endpoint) // the job is still there, for another
			}
			return jobs, err
		}
		if woken {
			s.passOn(ctx, t)
		}
		for woken = false; !woken; {
			select {
			case <-t.ch:
				if ctx.Err() != nil {
					s.hub.wakeNext(endpoint)
					return nil, nil
				}
				woken = true
			case <-news:
				if news, more = s.crew.news(m); !more {
					s.hub.leave(t)
					return nil, nil
				}
			case <-ctx.Done():
				s.hub.leave(t)
				return nil, nil
			}
		}
	}
}

// meet is the worker as a member, who has just been heard of.
func (s *Service) meet(endpoint string, w WorkerID) *member {
	now := s.now()
	m, fresh := s.crew.join(endpoint, w, now, now.Add(s.lease))
	if fresh {
		s.rouse(endpoint)
	}
	return m
}

// lastHeard ends a call of Take: the worker counts for another lease.
func (s *Service) lastHeard(m *member) {
	until := s.now().Add(s.lease)
	s.crew.exit(m, until)
	s.arm(until)
}

// passOn wakes another worker when one was woken for a job that it may not have: the one it
// lost.
func (s *Service) passOn(ctx context.Context, t *taker) {
	st, err := s.queue.Stats(ctx, s.now(), t.endpoint)
	if err == nil && st.Queued > 0 {
		s.hub.wakeOther(t)
	}
}

// stop has a worker drop a job that is no longer its own.
func (s *Service) stop(ref Ref, w WorkerID) {
	now := s.now()
	if s.crew.stop(ref, w, now) {
		s.arm(now.Add(letGo)) // to see whether it did
	}
}

// why finds the cause of a stop.
func (s *Service) why(ctx context.Context, ref Ref) error {
	j, err := s.queue.Get(context.WithoutCancel(ctx), s.now(), ref)
	switch {
	case errors.Is(err, ErrNotFound):
		return ErrExpired
	case err == nil && j.Status == Cancelled:
		return ErrCancelled
	case err == nil && j.Status == TimedOut:
		return ErrOverTime
	}
	return ErrLeaseLost
}

// claim leases what is ready to m.
func (s *Service) claim(ctx context.Context, m *member, n int) ([]Job, error) {
	now := s.now()
	lease := s.lease
	if s.crew.isLocal(m) {
		lease = s.local
	}
	slots := [1]Slot{{Endpoint: m.endpoint, Worker: m.id, N: n, Until: now.Add(lease)}}
	jobs, err := s.queue.Claim(ctx, now, slots[:], nil)
	if err != nil {
		return nil, fmt.Errorf("serverless: take from %q: %w", m.endpoint, err)
	}
	if len(jobs) == 0 {
		return nil, nil
	}
	if s.crew.hold(m, jobs, now) {
		s.arm(now.Add(lease / 3)) // to renew them
	}
	for i := range jobs {
		s.arm(jobs[i].Due())
	}
	return jobs, nil
}

// Ping keeps w alive for a lease and renews exactly the jobs it lists. A job that it was
// given more than a third of a lease ago and never listed is handed back unharmed: it
// did not arrive. A job that is no longer w's shows in Stops, and the answer is ErrLeaseLost
// when one is listed; the others are renewed all the same.
func (s *Service) Ping(ctx context.Context, endpoint string, w WorkerID, lists []JobID) error {
	now := s.now()
	m := s.meet(endpoint, w)
	ops, lost := s.crew.ping(m, lists, now, now.Add(s.lease), Instant((s.lease / 3).Milliseconds()))
	res := make([]Result, len(ops))
	if len(ops) > 0 {
		if err := s.queue.Apply(ctx, now, ops, res); err != nil {
			return fmt.Errorf("serverless: ping of %q: %w", w, err)
		}
	}
	for i := range res {
		if res[i].Err != nil && ops[i].Kind == OpRenew {
			s.stop(ops[i].Ref, w)
			lost = true
		}
	}
	if lost {
		return ErrLeaseLost
	}
	return nil
}

// Sick is a worker's report that it is not healthy and about to end: it gets no more
// jobs, and those it has are given to others.
func (s *Service) Sick(ctx context.Context, endpoint string, w WorkerID, reason string) error {
	m := s.meet(endpoint, w)
	s.crew.mu.Lock()
	m.sick = reason
	s.crew.mu.Unlock()
	s.crew.dismiss(m)
	s.log.Warn("worker is not healthy", "endpoint", endpoint, "worker", w, "reason", reason)
	return s.takeAway(ctx, m, OpLose)
}

// Dismiss has w get no more jobs: what it has it may finish.
func (s *Service) Dismiss(endpoint string, w WorkerID) {
	if m := s.crew.find(endpoint, w); m != nil {
		s.crew.dismiss(m)
	}
}

// ReadyWorkers are the workers of an endpoint that take jobs, by id.
func (s *Service) ReadyWorkers(endpoint string) (ids []WorkerID) {
	for _, v := range s.crew.views(endpoint) {
		if v.Sick == "" && !v.Leaving {
			ids = append(ids, v.ID)
		}
	}
	return ids
}

// takeAway ends all leases of a member: OpLose for one that is gone, OpRelease for one
// that is not to blame.
func (s *Service) takeAway(ctx context.Context, m *member, k OpKind) error {
	ops := s.crew.holds(m, k)
	if len(ops) == 0 {
		return nil
	}
	now := s.now()
	res := make([]Result, len(ops))
	if err := s.queue.Apply(ctx, now, ops, res); err != nil {
		return fmt.Errorf("serverless: take jobs from %q: %w", m.id, err)
	}
	for i := range ops {
		if k == OpLose {
			s.stop(ops[i].Ref, m.id) // it may well go on
		} else {
			s.crew.done(m, &ops[i], now, false)
		}
		s.armFor(&res[i])
	}
	return nil
}

// MaxOutput is the largest result of a job in bytes; a larger one fails the job.
const MaxOutput = 20 << 20

// Report is what a worker says of a job it holds: OpFinish, OpChunk, OpProgress or
// OpRelease. The payload of a chunk is an item: a JSON object with the member output and
// what else readers of the stream get (metrics); a string that is too long for one item is
// split. With Token 0 it means the lease that op.Worker holds or was the last to
// lose. ErrLeaseLost and ErrNotFound answer a repeat or a latecomer, whose report is
// dropped; ErrStreamFull a chunk too many.
func (s *Service) Report(ctx context.Context, op Op) error {
	if op.Kind == OpFinish && len(op.Payload) > MaxOutput {
		op.Status, op.Payload = Failed, nil
		op.Error = fmt.Sprintf("the result is larger than %d bytes (20 MB)", MaxOutput)
	}
	if op.Token == 0 {
		op.Adopt = true
	}
	if op.Adopt {
		op.Until = max(op.Until, s.now().Add(s.lease)) // it is alive: what it takes up again lasts
	}
	if op.Kind == OpChunk {
		return s.addChunk(ctx, op)
	}
	_, err := s.apply(ctx, op)
	if op.Kind == OpFinish || op.Kind == OpRelease {
		if m := s.crew.find(op.Endpoint, op.Worker); m != nil {
			s.crew.done(m, &op, s.now(), op.Kind == OpFinish && err == nil)
		}
	}
	return err
}

// Stops waits until w should stop jobs, and returns their ids, each once; none when ctx
// ends or the worker is to stop.
func (s *Service) Stops(ctx context.Context, endpoint string, w WorkerID) ([]JobID, error) {
	m := s.meet(endpoint, w)
	for first := true; ; first = false {
		ids, more, leaving := s.crew.tell(m)
		if len(ids) > 0 {
			return ids, nil
		}
		if leaving && !first {
			return nil, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, nil
		}
	}
}
