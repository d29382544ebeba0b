package fault

import (
	"context"
	"slices"

	"github.com/podyard/podyard/serverless/queue"
)

// Damage makes the input of a job unreadable from now on, as a corrupt disk does.
func (f *JobQueue) Damage(ref queue.Ref) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.damaged == nil {
		f.damaged = map[queue.Ref]bool{}
	}
	f.damaged[ref] = true
}

func (f *JobQueue) isDamaged(ref queue.Ref) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.damaged[ref]
}

// hideDamaged removes the unreadable input of a job.
func (f *JobQueue) hideDamaged(j *queue.Job) {
	if f.isDamaged(j.Ref) {
		j.Input = nil
	}
}

// claim releases and ends damaged jobs, and claims others in their place.
func (f *JobQueue) claim(ctx context.Context, now queue.Instant, slots []queue.Slot, out []queue.Job) (_ []queue.Job, err error) {
	for {
		had := len(out)
		if out, err = f.q.Claim(ctx, now, slots, out); err != nil {
			return out, err
		}
		if !slices.ContainsFunc(out[had:], func(j queue.Job) bool { return f.isDamaged(j.Ref) }) {
			return out, nil
		}
		var ops []queue.Op
		slots = slices.Clone(slots)
		for i := range slots {
			slots[i].N = 0
		}
		out = append(out[:had], slices.DeleteFunc(slices.Clone(out[had:]), func(j queue.Job) bool {
			if !f.isDamaged(j.Ref) {
				return false
			}
			ops = append(ops,
				queue.Op{Ref: j.Ref, Kind: queue.OpRelease, Worker: j.Worker, Token: j.Token},
				queue.Op{Ref: j.Ref, Kind: queue.OpDamage})
			slots[slices.IndexFunc(slots, func(s queue.Slot) bool { return s.Endpoint == j.Endpoint && s.Worker == j.Worker })].N++
			return true
		})...)
		if err := f.q.Apply(ctx, now, ops, make([]queue.Result, len(ops))); err != nil {
			return out[:had], err
		}
	}
}

// get returns a job. It ends a queued job that is damaged.
func (f *JobQueue) get(ctx context.Context, now queue.Instant, ref queue.Ref) (queue.Job, error) {
	j, err := f.q.Get(ctx, now, ref)
	if err == nil && j.Status == queue.InQueue && f.isDamaged(ref) {
		op := queue.Op{Ref: ref, Kind: queue.OpDamage}
		if err := f.q.Apply(ctx, now, []queue.Op{op}, make([]queue.Result, 1)); err != nil {
			return queue.Job{}, err
		}
		j, err = f.q.Get(ctx, now, ref)
	}
	f.hideDamaged(&j)
	return j, err
}
