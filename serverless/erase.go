package serverless

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/podyard/podyard/internal/unwrap"
	"github.com/podyard/podyard/serverless/queue"
)

// eraseDelay is how long an erased job is still there: a worker that has it is told to stop.
const eraseDelay = time.Second

// EraseJobs cancels the jobs of owner on an endpoint and has all of them go within a second,
// with their results and dead letters. It returns how many there were. Webhooks that were not sent by then are
// not sent. It is safe to repeat.
func (s *Service) EraseJobs(ctx context.Context, owner, endpoint string) (int, error) {
	if _, err := s.purge(ctx, owner, endpoint); err != nil {
		return 0, err
	}
	var cancel, expire []queue.Op
	count := 0
	until := s.now().Add(eraseDelay)
	for j, err := range s.queue.List(ctx, s.now(), queue.ListQuery{Endpoint: endpoint, Owner: owner}) {
		if err != nil {
			return 0, fmt.Errorf("serverless: erase jobs of %q: %w", endpoint, err)
		}
		if !j.Status.Terminal() {
			cancel = append(cancel, queue.Op{Ref: j.Ref, Kind: queue.OpCancel})
		}
		if count++; j.Expires > until { // what an earlier call has due sooner stays so: clients that repeat must not put it off
			expire = append(expire, queue.Op{Ref: j.Ref, Kind: queue.OpSetTTL, Until: until})
		}
	}
	for _, ops := range [][]queue.Op{cancel, expire} {
		if err := s.applySteps(ctx, ops); err != nil {
			return 0, fmt.Errorf("serverless: erase jobs of %q: %w", endpoint, err)
		}
	}
	s.arm(until)
	if err := s.dropAllDead(ctx, owner, endpoint); err != nil {
		return 0, err
	}
	if s.logs != nil {
		if err := s.logs.Erase(ctx, owner, endpoint); err != nil {
			return 0, err
		}
	}
	return count, nil
}

// EndpointsOf returns the endpoints on which owner may have jobs or dead letters, sorted: those that
// are there, and deleted ones whose jobs are kept, as far as the queue knows them.
func (s *Service) EndpointsOf(ctx context.Context, owner string) (list []string, err error) {
	if q, ok := unwrap.As[queue.OwnerLister](s.queue); ok {
		if list, err = q.EndpointsOf(ctx, owner); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return nil, fmt.Errorf("serverless: jobs of a user: %w", err)
		}
	}
	for e, err := range s.AllEndpoints(ctx) {
		if err != nil {
			return nil, err
		}
		list = append(list, e.ID)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// applySteps applies operations whose jobs may be gone meanwhile.
func (s *Service) applySteps(ctx context.Context, ops []queue.Op) error {
	for from := 0; from < len(ops); from += purgeStep {
		part := ops[from:min(from+purgeStep, len(ops))]
		if err := s.queue.Apply(ctx, s.now(), part, make([]queue.Result, len(part))); err != nil {
			return err
		}
	}
	return nil
}
