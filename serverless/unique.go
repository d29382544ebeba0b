package serverless

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/queue"
)

// UniqueOptions make a job the only one of its owner on its endpoint with a key (docs/decisions.md 60).
type UniqueOptions struct {
	Key     string            // 1 to queue.MaxKey characters
	While   queue.UniqueWhile // for how long the job holds the key
	Period  *time.Duration    // of queue.ForPeriod only: queue.MinPeriod to queue.MaxPeriod from the submission
	Replace bool              // with queue.WhileQueued: the job that holds the key gets this input; else it stays as it is
}

func (u *UniqueOptions) check(v *problem.Violations) {
	const at = "/queue/unique"
	if !v.Has(at+"/key") && (u.Key == "" || utf8.RuneCountInString(u.Key) > queue.MaxKey) {
		v.Add(problem.Invalid, at+"/key", "must have 1 to %d characters", queue.MaxKey)
	}
	if (u.While == queue.NotUnique || u.While > queue.ForPeriod) && !v.Has(at+"/while") {
		v.Add(problem.Invalid, at+"/while", "must be one of queued, active, period")
	}
	switch {
	case u.While != queue.ForPeriod && u.While != queue.NotUnique && u.Period != nil:
		v.Add(problem.Invalid, at+"/period", "must be absent: it is for while period")
	case u.While == queue.ForPeriod && u.Period == nil && !v.Has(at+"/period"):
		v.Add(problem.Invalid, at+"/period", "must be there with while period")
	}
	checkBounds(v, at+"/period", u.Period, queue.MinPeriod, queue.MaxPeriod)
	if u.Replace && u.While != queue.WhileQueued && u.While != queue.NotUnique {
		v.Add(problem.Invalid, at+"/onConflict", "must be keep: only a job that is unique while queued can be replaced")
	}
}

// apply makes a job unique. The result of one that is unique for a period is kept as long, so that it can be
// the answer.
func (u *UniqueOptions) apply(j *Job) {
	j.Unique = queue.Unique{Key: u.Key, While: u.While}
	if u.Period == nil {
		return
	}
	j.Unique.Period = u.Period.Truncate(time.Millisecond)
	j.Flags |= queue.KeepsResult
	j.Retain = max(j.Retain, j.Unique.Period)
}

// uniqueTries is how often a submit looks again because the job that held its key has just let it go.
const uniqueTries = 100

// enqueueUnique is enqueue for a job that may have a key that another one holds. It returns that one then,
// with the payloads of j if j replaces it, and with Existing set.
func (s *Service) enqueueUnique(ctx context.Context, j Job, u *UniqueOptions) (Job, error) {
	if u == nil {
		return s.enqueue(ctx, j)
	}
	for range uniqueTries {
		made, err := s.enqueue(ctx, j)
		taken := (*queue.TakenError)(nil)
		if !errors.As(err, &taken) {
			return made, err
		}
		there, err := s.holder(ctx, &j, taken.Ref, u.Replace)
		if err == nil {
			there.Existing = true
			return there, nil
		}
		// It has gone, or is no longer queued, so it may not hold the key any more.
		if !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrStatus) {
			return Job{}, err
		}
	}
	return Job{}, queue.ErrKeyTaken
}

// holder returns the job that holds the key of j, after it has got the payloads of j if j replaces it.
func (s *Service) holder(ctx context.Context, j *Job, ref Ref, replace bool) (Job, error) {
	if !replace {
		return s.findState(ctx, j.Owner, ref)
	}
	done, err := s.startWrite(ctx, ref.Endpoint, len(j.Input))
	if err != nil {
		return Job{}, err
	}
	defer done()
	with, res := *j, [1]queue.Result{}
	ops := [1]queue.Op{{Ref: ref, Kind: queue.OpReplace, Job: &with}}
	if err := s.queue.Apply(ctx, s.now(), ops[:], res[:]); err != nil {
		return Job{}, fmt.Errorf("serverless: replace job %q: %w", ref.ID, err)
	}
	return Job{Ref: ref, Owner: j.Owner, State: res[0].State}, res[0].Err
}
