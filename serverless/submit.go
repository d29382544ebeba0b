package serverless

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/queue"
)

// Submit queues a job and returns it. It reports all faults of the request together (422),
// and returns ErrNoEndpoint for an unknown endpoint and for another user's. When Submit
// returns nil, the job is stored as durably as the queue can. A request that was made before
// with its key gets *idempotency.Repeated, which has the id of its job. A request that is unique
// (QueueOptions.Unique) may get a job that was there, with Existing set: its key is kept only if a job
// was made.
func (s *Service) Submit(ctx context.Context, owner, endpoint string, r Request) (Job, error) {
	if r.Idempotency != nil {
		return s.submitOnce(ctx, owner, endpoint, &r)
	}
	j, err := s.newJob(ctx, owner, endpoint, &r)
	if err != nil {
		return Job{}, err
	}
	return s.enqueueUnique(ctx, j, r.Queue.Unique)
}

// submitOnce is Submit for a request with a key.
func (s *Service) submitOnce(ctx context.Context, owner, endpoint string, r *Request) (Job, error) {
	return idempotency.Do(ctx, r.Idempotency, idempotency.Creation[Job]{
		Guard: &s.keys, Store: s.queue, Now: s.clock.Now(),
		Check: func() error { return r.check(s.now()) },
		Create: func(k *idempotency.Record) (Job, error) {
			j, err := s.newJob(ctx, owner, endpoint, r)
			if err != nil {
				return Job{}, err
			}
			k.ID, j.Creation = string(j.ID), k
			return s.enqueueUnique(ctx, j, r.Queue.Unique)
		},
	})
}

// newJob checks a request and returns its job.
func (s *Service) newJob(ctx context.Context, owner, endpoint string, r *Request) (Job, error) {
	ep := r.Endpoint
	if ep == nil {
		var err error
		if ep, err = s.eps.Visible(ctx, owner, endpoint); err != nil {
			return Job{}, err
		}
	}
	if err := r.check(s.now()); err != nil {
		return Job{}, err
	}
	id, err := s.newID(r.Sync)
	if err != nil {
		return Job{}, fmt.Errorf("serverless: make a job id: %w", err)
	}
	return r.job(ep, owner, id, s.now()), nil
}

func (s *Service) enqueue(ctx context.Context, j Job) (Job, error) {
	done, err := s.startWrite(ctx, j.Endpoint, len(j.Input))
	if err != nil {
		return Job{}, err
	}
	defer done()
	jobs := [1]Job{j}
	if err := s.queue.Enqueue(ctx, jobs[:]); err != nil {
		return Job{}, fmt.Errorf("serverless: submit to %q: %w", j.Endpoint, err)
	}
	s.arm(jobs[0].Due())
	jobs[0].Creation = nil
	return jobs[0], nil
}

// SubmitAndWait submits a job with Sync set, and then does what Wait does for r.Wait (default
// DefaultWait). The submit becomes durable with the end of the job, or before anybody sees the
// job: its caller, if r.Wait passes first, or a reader. If the queue loses the job before that,
// SubmitAndWait returns ErrForgotten. The job may have run.
func (s *Service) SubmitAndWait(ctx context.Context, owner, endpoint string, r Request) (Job, error) {
	r.Sync = true
	if r.Wait == 0 {
		r.Wait = DefaultWait
	}
	if r.Idempotency != nil || r.Queue.Unique != nil { // durable at once: a crash must not make the request twice
		j, err := s.Submit(ctx, owner, endpoint, r)
		if err != nil {
			return Job{}, err
		}
		if r.Queued != nil {
			r.Queued()
		}
		existing := j.Existing
		j, err = s.Wait(ctx, owner, j.Ref, r.Wait)
		j.Existing = existing
		return j, err
	}
	j, err := s.newJob(ctx, owner, endpoint, &r)
	if err != nil {
		return Job{}, err
	}
	j.Flags |= queue.DurableAtEnd
	w := s.startWait(j.Ref, r.Wait)
	defer w.end()
	w.keep(j)
	expires := j.Expires
	if _, err = s.enqueue(ctx, j); err != nil {
		return Job{}, err
	}
	if r.Queued != nil {
		r.Queued()
	}
	ended, err := w.wait(ctx, owner, false)
	if errors.Is(err, ErrNotFound) && s.now() < expires {
		err = ErrForgotten
	}
	return ended, err
}

// newID returns a UUID version 4 with the suffix of the region, and with the prefix "sync-"
// for runsync.
func (s *Service) newID(sync bool) (JobID, error) {
	var u [16]byte
	if _, err := io.ReadFull(s.rand, u[:]); err != nil {
		return "", err
	}
	return formatID(u, sync), nil
}

// formatID returns the id with these random bits.
func formatID(u [16]byte, sync bool) JobID {
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	b := make([]byte, 0, 44)
	if sync {
		b = append(b, "sync-"...)
	}
	for i, part := range [...][]byte{u[:4], u[4:6], u[6:8], u[8:10], u[10:]} {
		if i > 0 {
			b = append(b, '-')
		}
		b = hex.AppendEncode(b, part)
	}
	return JobID(append(b, "-u1"...))
}
