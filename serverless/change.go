package serverless

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/queue"
)

// SetTTL sets the expiry of the job to d from now, but at most to MaxTTL after its
// submission, or to the expiry that it has if that is later. d must satisfy CheckTTL. Errors are those of CheckTTL and Get.
func (s *Service) SetTTL(ctx context.Context, owner string, ref Ref, d time.Duration) (Job, error) {
	if err := CheckTTL(d); err != nil {
		return Job{}, err
	}
	j, err := s.GetState(ctx, owner, ref)
	if err != nil {
		return Job{}, err
	}
	until := min(s.now().Add(d), max(j.Submitted.Add(MaxTTL), j.Expires))
	return s.change(ctx, owner, queue.Op{Ref: ref, Kind: queue.OpSetTTL, Until: until})
}

// Cancel ends a queued or running job and returns it. A job that had ended before keeps its
// status. A worker that runs the job is notified. Errors are those of Get.
func (s *Service) Cancel(ctx context.Context, owner string, ref Ref) (Job, error) {
	return s.change(ctx, owner, queue.Op{Ref: ref, Kind: queue.OpCancel})
}

// Retry queues a FAILED or TIMED_OUT job again, with the same id and input. Output, error,
// chunks, timings and delivery count start again; the ttl does not. It returns ErrStatus for
// a job in another status and ErrInputLost for a job whose input was damaged; other errors
// are those of Get.
func (s *Service) Retry(ctx context.Context, owner string, ref Ref) (Job, error) {
	j, err := s.change(ctx, owner, queue.Op{Ref: ref, Kind: queue.OpRetry})
	if errors.Is(err, ErrStatus) {
		err = refused("only a FAILED or TIMED_OUT job can be retried")
	}
	return j, err
}

// refused returns ErrStatus with another text for the user.
func refused(why string) error {
	return &problem.Error{Kind: ErrStatus.Kind, Detail: why, Err: ErrStatus}
}

// change applies an op of a user to a job of that user.
func (s *Service) change(ctx context.Context, owner string, op queue.Op) (Job, error) {
	j, damaged := s.find(ctx, owner, op.Ref)
	if damaged != nil && !errors.Is(damaged, ErrDamaged) {
		return Job{}, damaged
	}
	r, err := s.apply(ctx, op)
	if err != nil {
		return Job{}, err
	}
	read := j.State
	_, _ = read.Apply(s.now(), &op)
	switch {
	case r.Effect&queue.DropOutput != 0:
		j.Output, j.Error = nil, ""
	case read.Status != r.State.Status || read.Run != r.State.Run || read.Token != r.State.Token:
		// The job has moved since it was read, and has other payloads now.
		if j, err = s.payloads(ctx, owner, op.Ref, &r.State); err != nil {
			return Job{}, err
		}
	}
	if j.State = r.State; damaged != nil && j.ShowsOutput() {
		return Job{}, damaged // although the move was made
	}
	return j, nil
}

// payloads returns the job with the payloads of state st. If the job has moved on since, the
// result has no output.
func (s *Service) payloads(ctx context.Context, owner string, ref Ref, st *queue.State) (Job, error) {
	j, err := s.Get(ctx, owner, ref)
	if j.Status != st.Status || j.Run != st.Run || j.Token != st.Token {
		j.Output, j.Error = nil, ""
	}
	return j, err
}

// apply makes one move.
func (s *Service) apply(ctx context.Context, op queue.Op) (queue.Result, error) {
	ops, res := [1]queue.Op{op}, [1]queue.Result{}
	if err := s.queue.Apply(ctx, s.now(), ops[:], res[:]); err != nil {
		return queue.Result{}, fmt.Errorf("serverless: job %q: %w", op.ID, err)
	}
	s.armFor(&res[0])
	return res[0], res[0].Err
}

// addChunk is apply for an OpChunk, whose payload is an item. It splits an item that is too
// long. If the stream has no room for all pieces, it keeps the first ones.
func (s *Service) addChunk(ctx context.Context, op queue.Op) error {
	items := splitItem(op.Payload, maxItem)
	ops, res := make([]queue.Op, len(items)), make([]queue.Result, len(items))
	for i, b := range items {
		ops[i] = op
		ops[i].Payload = b
	}
	if err := s.queue.Apply(ctx, s.now(), ops, res); err != nil {
		return fmt.Errorf("serverless: job %q: %w", op.ID, err)
	}
	for i := range res {
		s.armFor(&res[i])
		if res[i].Err != nil {
			return res[i].Err
		}
	}
	return nil
}

// armFor makes Run call Step when the result of a move is due.
func (s *Service) armFor(r *queue.Result) {
	switch {
	case r.Effect&queue.PutOutbox != 0:
		s.arm(s.now())
	case r.Err == nil && r.Effect&queue.Delete == 0:
		s.arm(r.State.Due())
	}
}

// purgeStep is the most queued jobs that one call of the queue examines.
const purgeStep = 1000

// Purge cancels the queued jobs of owner, or of AllOwners, and returns their number. Running
// jobs and jobs that are submitted meanwhile stay. It returns ErrNoEndpoint for an unknown
// endpoint.
func (s *Service) Purge(ctx context.Context, owner, endpoint string) (removed int, err error) {
	if _, err := s.endpoints.Get(ctx, endpoint); err != nil {
		return 0, err
	}
	return s.purge(ctx, owner, endpoint)
}

// purge is Purge for an endpoint that may be deleted already.
func (s *Service) purge(ctx context.Context, owner, endpoint string) (removed int, err error) {
	st, err := s.stats(ctx, endpoint)
	if err != nil {
		return 0, fmt.Errorf("serverless: purge %q: %w", endpoint, err)
	}
	p := queue.PurgeQuery{Endpoint: endpoint, Owner: ownerFilter(owner), UpTo: st.LastSeq, Limit: purgeStep}
	for {
		n, next, err := s.queue.Purge(ctx, s.now(), p)
		removed += n
		if err != nil {
			return removed, fmt.Errorf("serverless: purge %q: %w", endpoint, err)
		}
		if next == 0 {
			s.arm(s.now()) // their webhooks
			return removed, nil
		}
		p.After = next
	}
}

// ownerFilter returns the owner of a query: empty for AllOwners.
func ownerFilter(owner string) string {
	if owner == AllOwners {
		return ""
	}
	return owner
}
