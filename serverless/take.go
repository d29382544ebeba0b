package serverless

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/podyard/podyard/problem"
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

// idleGrace is how old a lease must be for ReportIdle to end it. A worker may ask for several jobs at
// once, and what it says of itself was true when it sent the request.
const idleGrace = 500 * time.Millisecond

// ReportIdle records that a remote worker says that it has no job, when it asks for one. A job that it
// got before and has not reported has ended without a result, or it did not arrive. It is queued again
// and its delivery is counted; the third time it fails, and its error says so.
func (s *Service) ReportIdle(ctx context.Context, endpoint string, id WorkerID) error {
	w, now := s.touchWorker(endpoint, id), s.now()
	ops := w.Idle(now.Add(-idleGrace))
	if len(ops) == 0 {
		return nil
	}
	res := make([]queue.Result, len(ops))
	if err := s.queue.Apply(ctx, now, ops, res); err != nil {
		return fmt.Errorf("serverless: idle worker %q: %w", id, err)
	}
	for i := range ops {
		w.Done(&ops[i], now, false)
		s.noResult(&ops[i], &res[i])
	}
	return nil
}

// noResult logs that a worker has ended a job without a result.
func (s *Service) noResult(op *queue.Op, r *queue.Result) {
	if r.Err == nil {
		s.log.Warn("a worker ended a job without a result", "endpoint", op.Endpoint, "worker", op.Worker, "job", op.ID, "reason", op.Error)
	}
	s.armFor(r)
}

// take is Take for a worker of the registry. It keeps using w, even after a local worker has
// left the registry.
func (s *Service) take(ctx context.Context, w *workers.Worker, n int) ([]Job, error) {
	endpoint := w.Key().Endpoint
	if w.Ask() {
		s.scaler.Wake(endpoint)
	}
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
		s.awaitFree(ctx, endpoint)
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
		s.claimedReady(k.Endpoint)
	}
	if local && len(jobs) > 0 {
		s.arm(now.Add(lease / 3)) // to renew the leases
	}
	return jobs, nil
}

// leased records jobs that w has got.
func (s *Service) leased(w *workers.Worker, jobs []Job, now Instant) {
	w.Lease(jobs, now)
	if s.tails != nil && !w.IsLocal() {
		s.tails.took(w.Key(), jobs, now.Time())
	}
	for i := range jobs {
		s.arm(jobs[i].Due())
	}
}

// Ping keeps w registered for another lease and renews the leases of the jobs that it lists. What it
// does not list it no longer has, if w has listed a job of its own before: a job that no ping has
// listed a third of a lease after its claim has ended without a result, or it did not arrive, and is
// queued again as by ReportIdle; one that was listed is not renewed. A ping of a worker that never
// listed a job renews all its leases: such a worker is alive, and says nothing more.
//
// If a listed job is no longer leased to w, Ping returns ErrLeaseLost, and WaitStops returns the job,
// unless w never had it; the other jobs are renewed.
func (s *Service) Ping(ctx context.Context, endpoint string, id WorkerID, lists []JobID) error {
	w, now := s.touchWorker(endpoint, id), s.now()
	others, err := s.unknownLeases(ctx, w, now)
	if err != nil {
		return err
	}
	ops, ignored := w.Ping(lists, others, now, now.Add(s.lease), s.lease/3)
	res := make([]queue.Result, len(ops))
	if len(ops) > 0 {
		if err := s.queue.Apply(ctx, now, ops, res); err != nil {
			return fmt.Errorf("serverless: ping of %q: %w", id, err)
		}
	}
	for _, ref := range w.Pinged(ops, res, now) {
		s.stop(ref, id)
	}
	lost := ignored
	for i := range ops {
		lost = lost || ops[i].Adopt && res[i].Err != nil
		if ops[i].Kind == queue.OpNoResult {
			s.noResult(&ops[i], &res[i])
		}
	}
	if lost {
		return ErrLeaseLost
	}
	return nil
}

// unknownLeases returns the jobs that a worker may have got from another server, or before this
// process started, for a ping that renews all it has.
func (s *Service) unknownLeases(ctx context.Context, w *workers.Worker, now Instant) (list []JobID, err error) {
	if w.Proves() {
		return nil, nil
	}
	if s.crowd != nil {
		list, err = s.crowd.heldLately(ctx, now, w.Key())
	} else if w.Completes() {
		list, err = s.leasesOf(ctx, now, w.Key())
	}
	if err != nil {
		return nil, fmt.Errorf("serverless: jobs of %q: %w", w.Key().ID, err)
	}
	return list, nil
}

// leasesOf reads which jobs a worker has.
func (s *Service) leasesOf(ctx context.Context, now Instant, k workers.Key) (list []JobID, _ error) {
	for j, err := range s.queue.List(ctx, now, queue.ListQuery{Endpoint: k.Endpoint, Status: []Status{InProgress}}) {
		if err != nil {
			return nil, err
		}
		if j.Worker == k.ID {
			list = append(list, j.ID)
		}
	}
	return list, nil
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
	return s.endLeases(ctx, w, queue.OpWorkerLost, "it is not healthy: "+reason)
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
		if v.Takes() && !v.Starting {
			ids = append(ids, v.ID)
		}
	}
	return ids
}

// maxWhy is how many bytes of the end of a worker the error of a job has. It is less than
// queue.SmallResult, so that no budget refuses it.
const maxWhy = 256

// endLeases ends all leases of a worker. k is OpWorkerLost for a worker that is gone, and
// OpRelease for a worker that is not at fault. why says how it ended.
func (s *Service) endLeases(ctx context.Context, w *workers.Worker, k queue.OpKind, why string) error {
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
	for i := range ops {
		ops[i].Error = strings.ToValidUTF8(why[:min(len(why), maxWhy)], "")
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
// It returns ErrLeaseLost or ErrNotFound for a repeated or late report, which is dropped. What can
// never be taken ends the attempt as FAILED: a result that is too large or for which the job's owner
// has no room, and a chunk for which the stream or the owner has none, because the result would not be
// whole without it. The error of the job says which limit it was (docs/decisions.md 34, 37). For the
// chunk Report returns ErrStreamFull or the *budget.Error, and the worker is told to stop; for an
// interim output it returns the *budget.Error, and the job goes on. While the store is away Report
// tries again for up to half a minute.
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
		return s.reportChunk(ctx, op)
	}
	done, err := s.startWrite(ctx, op.Endpoint, len(op.Payload))
	if err != nil {
		return err
	}
	defer done()
	if op.Token != 0 { // in this process: its worker repeats a report itself
		return s.applyReport(ctx, op)
	}
	return s.whileAway(ctx, op, func(op queue.Op) error { return s.applyReport(ctx, op) })
}

// RefuseReport ends the attempt of a job as FAILED with a reason, because its worker has reported
// with op what can never be taken: what is not JSON, or is too large. After a chunk the worker is told
// to stop. It returns nil if the worker had the job, and otherwise the errors of Report.
func (s *Service) RefuseReport(ctx context.Context, op queue.Op, reason string) error {
	runs := op.Kind != queue.OpFinish
	op.Kind, op.Status, op.Payload, op.Error = queue.OpFinish, Failed, nil, reason
	if !runs {
		return s.Report(ctx, op)
	}
	op.Adopt, op.Until = true, s.now().Add(s.lease)
	err := s.whileAway(ctx, op, func(op queue.Op) error {
		_, err := s.apply(ctx, op)
		return err
	})
	if err == nil {
		s.stop(op.Ref, op.Worker)
	}
	return err
}

// storeTries is how often a report is tried, a second apart, while the store is away. Stock workers
// repeat a report for five seconds, and then they go on without it. It is less than a lease, so that a
// worker of this process can still give its job back.
const storeTries = 25

// whileAway reports op with do until the store is there, at most storeTries times. A failed call may
// have had its effect. So the later ones have the token of the lease: they must not end another one
// that the same worker has got meanwhile. And if they say that the worker does not have the job,
// nobody knows which of the two it was: the error of the store is returned.
func (s *Service) whileAway(ctx context.Context, op queue.Op, do func(queue.Op) error) (away error) {
	token := op.Token
	if token == 0 {
		token = s.registry.Token(workers.Key{Endpoint: op.Endpoint, ID: op.Worker}, op.ID)
	}
	for range storeTries {
		err := do(op)
		switch {
		case problem.KindOf(err) == problem.Unavailable:
			if away = err; token == 0 || !s.pauseAnyway(ctx) {
				return away
			}
			op.Token = token
		case away != nil && (errors.Is(err, ErrLeaseLost) || errors.Is(err, ErrNotFound)):
			return away
		default:
			return err
		}
	}
	return away
}

// reportChunk adds a chunk. If it can never be taken, the job has failed.
func (s *Service) reportChunk(ctx context.Context, op queue.Op) error {
	err := s.whileAway(ctx, op, func(op queue.Op) error { return s.addChunk(ctx, op) })
	switch {
	case isFull(err):
		if failed := s.failFull(ctx, op, err); failed != nil {
			return failed
		}
		s.stop(op.Ref, op.Worker)
	case errors.Is(err, ErrStreamFull):
		why := fmt.Sprintf("a chunk was not taken: %s; the limit is %d bytes (%d MB)", ErrStreamFull.Detail, queue.MaxStream, queue.MaxStream>>20)
		if failed := s.RefuseReport(ctx, op, why); failed != nil {
			return failed
		}
	}
	return err
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

// notJSON says why b is not JSON.
func notJSON(b []byte) string {
	if len(b) == 0 {
		return "it is empty"
	}
	var v json.RawMessage
	return json.Unmarshal(b, &v).Error()
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

// WaitStops waits until w must stop jobs, and returns their ids, each once. A job that no ping had listed
// may have been on its way to w: when a ping lists it, its id is returned once more. It returns no id when
// ctx ends or the worker must take no more jobs.
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
