package serverless

import (
	"context"
	"errors"

	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
)

// Get returns the job with its payloads. It returns ErrNotFound for an unknown job, for a job
// past its ttl or retention and for another user's job, ErrNoEndpoint for an unknown
// endpoint, and ErrDamaged if the output can no longer be read.
func (s *Service) Get(ctx context.Context, owner string, ref Ref) (Job, error) {
	j, err := s.find(ctx, owner, ref)
	if err != nil {
		return Job{}, err
	}
	return j, nil
}

// GetState is Get without the payloads, which are not read for it.
func (s *Service) GetState(ctx context.Context, owner string, ref Ref) (Job, error) {
	j, err := s.findState(ctx, owner, ref)
	if err != nil {
		return Job{}, err
	}
	return j, nil
}

// find is Get, but with ErrDamaged it also returns the job, without its output.
func (s *Service) find(ctx context.Context, owner string, ref Ref) (Job, error) {
	j, err := s.read(ctx, owner, ref)
	return s.owned(ctx, owner, ref, j, err)
}

// findState is find without the payloads, which need not be read for it.
func (s *Service) findState(ctx context.Context, owner string, ref Ref) (Job, error) {
	j, err := s.state(ctx, ref)
	return s.owned(ctx, owner, ref, j, err)
}

// state returns a job without its payloads.
func (s *Service) state(ctx context.Context, ref Ref) (Job, error) {
	for j, err := range s.queue.List(ctx, s.now(), queue.ListQuery{Endpoint: ref.Endpoint, IDs: []JobID{ref.ID}}) {
		return j, err
	}
	return Job{}, ErrNotFound
}

// owned is what a read of a job returns to a user.
func (s *Service) owned(ctx context.Context, owner string, ref Ref, j Job, err error) (Job, error) {
	if (err == nil || errors.Is(err, ErrDamaged)) && j.Owner != owner {
		err = ErrNotFound
	}
	if errors.Is(err, ErrNotFound) {
		if _, e := s.endpoints.Get(ctx, ref.Endpoint); e != nil {
			err = e
		}
	}
	return j, err
}

// largePayload is the size in bytes from which payloads take turns.
const largePayload = 256 << 10

// startWrite waits until a payload of n bytes may be stored. The caller calls done afterwards.
func (s *Service) startWrite(ctx context.Context, endpoint string, n int) (done func(), err error) {
	if n < largePayload {
		return func() {}, nil
	}
	return waitTurn(ctx, s.writes, endpoint)
}

// read reads a job when it is the turn of its reader.
func (s *Service) read(ctx context.Context, reader string, ref Ref) (Job, error) {
	release, err := s.mayRead(ctx, reader)
	if err != nil {
		return Job{}, err
	}
	defer release()
	return s.queue.Get(ctx, s.now(), ref)
}

// mayRead waits until reader may read another job with its payloads.
func (s *Service) mayRead(ctx context.Context, reader string) (release func(), err error) {
	return waitTurn(ctx, s.reads, reader)
}

// waitTurn waits until one more of somebody may go on. The caller calls done afterwards.
func waitTurn(ctx context.Context, all *budget.Pool, who string) (done func(), err error) {
	if all == nil {
		return func() {}, nil
	}
	turn := all.Hold(who)
	if err := turn.Grow(ctx, 1); err != nil {
		turn.Release()
		return nil, err
	}
	return turn.Release, nil
}

// JobOwner returns whose a job is. Errors are those of Get, without ErrDamaged.
func (s *Service) JobOwner(ctx context.Context, ref Ref) (string, error) {
	j, err := s.state(ctx, ref)
	return j.Owner, err
}
