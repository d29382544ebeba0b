package serverless

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/workers"
)

// Take waits until there are jobs for w or ctx ends, and leases at most n jobs to it. It
// returns no job and no error when ctx has ended or the worker must take no more jobs.
// Waiting workers are served in the order of arrival; a new job wakes one of them.
//
// Take, Ping, Report and WaitStops are the worker protocol. In-process workers and the HTTP
// routes call the same methods.
func (s *Service) Take(ctx context.Context, endpoint string, w WorkerID, n int) ([]Job, error) {
	return s.take(ctx, s.touchWorker(endpoint, w), n)
}

// take is Take for a worker of the registry. It keeps using w, even after a local worker has
// left the registry.
func (s *Service) take(ctx context.Context, w *workers.Worker, n int) ([]Job, error) {
	endpoint := w.Key().Endpoint
	changed, takes := w.StartPoll()
	defer s.endTake(w)
	if !takes {
		s.pause(ctx) // the worker would ask again at once
		return nil, nil
	}
	if !s.intake.wait(ctx) || ctx.Err() != nil {
		return nil, nil // the caller is gone and must get no job
	}
	if jobs, err := s.claim(ctx, w, n); err != nil || len(jobs) > 0 {
		return jobs, unlessOver(ctx, err)
	}
	t := &taker{endpoint: endpoint, worker: w.Key().ID, ch: make(chan struct{}, 1)}
	for woken := false; ; {
		s.hub.queue(t)
		jobs, err := s.claim(ctx, w, n)
		if err != nil || len(jobs) > 0 {
			s.hub.leave(t)
			if err != nil && woken {
				s.hub.wakeNext(endpoint) // another worker can have the job
			} else if err == nil {
				s.passOn(endpoint)
			}
			return jobs, unlessOver(ctx, err)
		}
		if woken {
			s.wakeOtherWorker(ctx, t)
		}
		for woken = false; !woken; {
			select {
			case <-t.ch:
				if ctx.Err() != nil {
					s.hub.wakeNext(endpoint)
					return nil, nil
				}
				woken = true
			case <-changed:
				if changed, takes = w.Changed(); !takes {
					s.hub.leave(t)
					return nil, nil
				}
			case <-s.intake.ends():
				s.hub.leave(t)
				if !s.intake.wait(ctx) {
					return nil, nil
				}
				woken = true // to look again
			case <-ctx.Done():
				s.hub.leave(t)
				return nil, nil
			}
		}
	}
}

// unlessOver returns err, unless it is that ctx has ended: nobody waits for a job any more.
func unlessOver(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil && errors.Is(err, cause) {
		return nil
	}
	return err
}

// touchWorker returns a remote worker of the registry and extends its time there. It adds an
// unknown worker.
func (s *Service) touchWorker(endpoint string, id WorkerID) *workers.Worker {
	now := s.now()
	w, joined := s.registry.Join(endpoint, id, now, now.Add(s.lease))
	if joined {
		s.scaler.Wake(endpoint)
	}
	return w
}

// endTake ends a call of Take: the worker stays in the registry for another lease.
func (s *Service) endTake(w *workers.Worker) {
	until := s.now().Add(s.lease)
	w.EndPoll(until)
	s.arm(until)
}

// wakeOtherWorker wakes another worker if jobs are queued. It is for the case that t was
// woken for a job that its worker has lost before and may not have again.
func (s *Service) wakeOtherWorker(ctx context.Context, t *taker) {
	st, err := s.stats(ctx, t.endpoint)
	if err == nil && st.Ready > 0 {
		s.hub.wakeOther(t)
	}
}

// stop notifies a worker that it must stop a job.
func (s *Service) stop(ref Ref, w WorkerID) {
	if check := s.registry.Stop(ref, w, s.now()); check != 0 {
		s.arm(check)
	}
}

// stopCause returns the cause with which the context of a stopped job ends.
func (s *Service) stopCause(ctx context.Context, ref Ref) error {
	j, err := s.queue.Get(context.WithoutCancel(ctx), s.now(), ref)
	switch {
	case errors.Is(err, ErrNotFound):
		return ErrExpired
	case err == nil && j.Status == Cancelled:
		return ErrCancelled
	case err == nil && j.Status == TimedOut:
		return ErrExecutionTimeout
	}
	return ErrLeaseLost
}

// stats returns the counts of an endpoint under its rules.
func (s *Service) stats(ctx context.Context, endpoint string) (Stats, error) {
	r, err := s.rulesOf(ctx, endpoint)
	if err != nil {
		return Stats{}, err
	}
	return s.queue.Stats(ctx, s.now(), endpoint, r)
}

// claimBytes is how many bytes of input the jobs of a claim have, about: the caller holds all of them
// in memory.
const claimBytes = 8 << 20

// claim leases at most n jobs that are ready to w and returns them.
func (s *Service) claim(ctx context.Context, w *workers.Worker, n int) ([]Job, error) {
	k, now := w.Key(), s.now()
	if takes, err := s.mayTake(ctx, w, now); err != nil || !takes {
		return nil, err
	}
	rules, err := s.rulesOf(ctx, k.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("serverless: take from %q: %w", k.Endpoint, err)
	}
	lease, local := s.lease, w.IsLocal()
	if local {
		lease = s.localLease
	}
	slots := [1]queue.Slot{{Endpoint: k.Endpoint, Worker: k.ID, N: n, Bytes: claimBytes, Until: now.Add(lease), Rules: rules}}
	jobs, err := s.queue.Claim(ctx, now, slots[:], nil)
	if err != nil {
		return nil, fmt.Errorf("serverless: take from %q: %w", k.Endpoint, err)
	}
	if len(jobs) > 0 {
		s.leased(w, jobs, now)
	}
	if local && len(jobs) > 0 {
		s.arm(now.Add(lease / 3)) // to renew the leases
	}
	return jobs, nil
}

// leased records jobs that w has got.
func (s *Service) leased(w *workers.Worker, jobs []Job, now Instant) {
	w.Lease(jobs, now)
	for i := range jobs {
		s.arm(jobs[i].Due())
	}
}

// Ping keeps w registered for another lease and renews the leases of exactly the jobs that it
// lists. A job that was leased to w more than a third of a lease ago and never listed did not
// arrive: Ping returns it to the queue without counting a delivery. If a listed job is no
// longer leased to w, Ping returns ErrLeaseLost, and WaitStops returns the job; the other
// jobs are renewed.
func (s *Service) Ping(ctx context.Context, endpoint string, w WorkerID, lists []JobID) error {
	now := s.now()
	ops, lost := s.touchWorker(endpoint, w).Ping(lists, now, now.Add(s.lease), s.lease/3)
	res := make([]queue.Result, len(ops))
	if len(ops) > 0 {
		if err := s.queue.Apply(ctx, now, ops, res); err != nil {
			return fmt.Errorf("serverless: ping of %q: %w", w, err)
		}
	}
	for i := range res {
		if res[i].Err != nil && ops[i].Kind == queue.OpRenew {
			s.stop(ops[i].Ref, w)
			lost = true
		}
	}
	if lost {
		return ErrLeaseLost
	}
	return nil
}

// ReportUnhealthy records that a worker is unhealthy and about to end. The worker gets no
// more jobs, and its jobs are given to other workers.
func (s *Service) ReportUnhealthy(ctx context.Context, endpoint string, id WorkerID, reason string) error {
	w := s.touchWorker(endpoint, id)
	w.Unhealthy(reason)
	s.log.Warn("worker is not healthy", "endpoint", endpoint, "worker", id, "reason", reason)
	if s.crowd != nil {
		if err := s.crowd.write(ctx, s.now()); err != nil {
			return err
		}
	}
	return s.endLeases(ctx, w, queue.OpWorkerLost)
}

// KnowsWorker reports whether a worker of an endpoint was heard of lately.
func (s *Service) KnowsWorker(endpoint string, id WorkerID) bool {
	return s.registry.Find(workers.Key{Endpoint: endpoint, ID: id}) != nil
}

// WorkerNames returns how many workers of an endpoint were heard of lately.
func (s *Service) WorkerNames(endpoint string) int { return s.registry.Count(endpoint) }

// DrainWorker has a worker get no more jobs: what it has it may finish.
func (s *Service) DrainWorker(endpoint string, id WorkerID) {
	s.registry.Drain(workers.Key{Endpoint: endpoint, ID: id})
	s.workersChanged()
}

// ReadyWorkers are the workers of an endpoint that take jobs, by id.
func (s *Service) ReadyWorkers(endpoint string) (ids []WorkerID) {
	for _, v := range s.registry.List(endpoint) {
		if v.Takes() {
			ids = append(ids, v.ID)
		}
	}
	return ids
}

// endLeases ends all leases of a worker. k is OpWorkerLost for a worker that is gone, and
// OpRelease for a worker that is not at fault.
func (s *Service) endLeases(ctx context.Context, w *workers.Worker, k queue.OpKind) error {
	now := s.now()
	var others []JobID
	if s.crowd != nil {
		var err error
		if others, err = s.crowd.heldBy(ctx, now, w.Key()); err != nil {
			return fmt.Errorf("serverless: take jobs from %q: %w", w.Key().ID, err)
		}
	}
	ops := w.LeaseOps(k, others...)
	if len(ops) == 0 {
		return nil
	}
	res := make([]queue.Result, len(ops))
	if err := s.queue.Apply(ctx, now, ops, res); err != nil {
		return fmt.Errorf("serverless: take jobs from %q: %w", w.Key().ID, err)
	}
	for i := range ops {
		if k == queue.OpWorkerLost {
			s.stop(ops[i].Ref, w.Key().ID) // the worker may still run the job
		} else {
			w.Done(&ops[i], now, false)
		}
		s.armFor(&res[i])
	}
	return nil
}

// MaxOutput is the largest output of a job in bytes. A larger output fails the job.
const MaxOutput = 20 << 20

// Report applies what a worker reports of a job: OpFinish, OpChunk, OpProgress or OpRelease.
// The payload of a chunk is an item: a JSON object with the member output and other members
// for the readers of the stream (metrics). Report splits an item whose output is a string
// that is too long. With Token 0 the op concerns the lease that op.Worker holds or lost last.
//
// It returns ErrLeaseLost or ErrNotFound for a repeated or late report, which is dropped, and
// ErrStreamFull for a chunk that does not fit. A result or a chunk for which the job's owner has no
// room ends the job as FAILED, and its error says which budget is full (docs/decisions.md 37). For
// the chunk, and for an interim output, Report returns the *budget.Error.
func (s *Service) Report(ctx context.Context, op queue.Op) error {
	if op.Kind == queue.OpFinish && len(op.Payload) > MaxOutput {
		op.Status, op.Payload = Failed, nil
		op.Error = fmt.Sprintf("the result is larger than %d bytes (20 MB)", MaxOutput)
	}
	op.NoRetry = op.NoRetry || op.Kind == queue.OpFinish && op.Status == Failed && refusesRetry(op.Payload)
	if op.Token == 0 {
		op.Adopt = true
	}
	if op.Adopt {
		op.Until = max(op.Until, s.now().Add(s.lease)) // the worker is alive, so an adopted lease is a full one
	}
	if op.Kind == queue.OpChunk {
		err := s.addChunk(ctx, op)
		if isFull(err) { // without the chunk the result would not be whole
			if failed := s.failFull(ctx, op, err); failed != nil {
				return failed
			}
			s.stop(op.Ref, op.Worker)
		}
		return err
	}
	done, err := s.startWrite(ctx, op.Endpoint, len(op.Payload))
	if err != nil {
		return err
	}
	return s.applyReport(ctx, op, done)
}

func isFull(err error) bool {
	var full *budget.Error
	return errors.As(err, &full)
}

// failFull ends a job because its owner has no room for what its worker reports. It is not run
// again by itself, since the next result would be as large.
func (s *Service) failFull(ctx context.Context, op queue.Op, full error) error {
	op.Kind, op.Status, op.Payload, op.NoRetry = queue.OpFinish, Failed, nil, true
	op.Error = "the result was not kept: " + full.Error()
	_, err := s.apply(ctx, op)
	return err
}

// refusesRetry reports whether the output of a failure is an object whose member retry is false
// (docs/decisions.md 39).
func refusesRetry(output []byte) bool {
	if !bytes.Contains(output, []byte(`"retry"`)) {
		return false
	}
	var members map[string]json.RawMessage
	return json.Unmarshal(output, &members) == nil && string(members["retry"]) == "false"
}

// WaitStops waits until w must stop jobs, and returns their ids, each once. It returns no id
// when ctx ends or the worker must take no more jobs.
func (s *Service) WaitStops(ctx context.Context, endpoint string, id WorkerID) ([]JobID, error) {
	w := s.touchWorker(endpoint, id)
	for first := true; ; first = false {
		ids, changed, draining := w.StopNotices()
		if len(ids) > 0 {
			return ids, nil
		}
		if draining && !first {
			return nil, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil
		}
	}
}
