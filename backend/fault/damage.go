package fault

import (
	"context"
	"slices"

	"github.com/podyard/podyard/serverless"
)

// Damage has the input of a job be unreadable from now on, as that of a rotten disk is.
func (f *JobQueue) Damage(ref serverless.Ref) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.damaged == nil {
		f.damaged = map[serverless.Ref]bool{}
	}
	f.damaged[ref] = true
}

func (f *JobQueue) isDamaged(ref serverless.Ref) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.damaged[ref]
}

// hide leaves out what cannot be read of a job.
func (f *JobQueue) hide(j *serverless.Job) {
	if f.isDamaged(j.Ref) {
		j.Input = nil
	}
}

// claim hands back and ends what is damaged, and claims others in its place.
func (f *JobQueue) claim(ctx context.Context, now serverless.Instant, slots []serverless.Slot, out []serverless.Job) (_ []serverless.Job, err error) {
	for {
		had := len(out)
		if out, err = f.q.Claim(ctx, now, slots, out); err != nil {
			return out, err
		}
		if !slices.ContainsFunc(out[had:], func(j serverless.Job) bool { return f.isDamaged(j.Ref) }) {
			return out, nil
		}
		var ops []serverless.Op
		slots = slices.Clone(slots)
		for i := range slots {
			slots[i].N = 0
		}
		out = append(out[:had], slices.DeleteFunc(slices.Clone(out[had:]), func(j serverless.Job) bool {
			if !f.isDamaged(j.Ref) {
				return false
			}
			ops = append(ops,
				serverless.Op{Ref: j.Ref, Kind: serverless.OpRelease, Worker: j.Worker, Token: j.Token},
				serverless.Op{Ref: j.Ref, Kind: serverless.OpDamage})
			slots[slices.IndexFunc(slots, func(s serverless.Slot) bool { return s.Endpoint == j.Endpoint && s.Worker == j.Worker })].N++
			return true
		})...)
		if err := f.q.Apply(ctx, now, ops, make([]serverless.Result, len(ops))); err != nil {
			return out[:had], err
		}
	}
}

// get ends a queued job that is damaged.
func (f *JobQueue) get(ctx context.Context, now serverless.Instant, ref serverless.Ref) (serverless.Job, error) {
	j, err := f.q.Get(ctx, now, ref)
	if err == nil && j.Status == serverless.InQueue && f.isDamaged(ref) {
		op := serverless.Op{Ref: ref, Kind: serverless.OpDamage}
		if err := f.q.Apply(ctx, now, []serverless.Op{op}, make([]serverless.Result, 1)); err != nil {
			return serverless.Job{}, err
		}
		j, err = f.q.Get(ctx, now, ref)
	}
	f.hide(&j)
	return j, err
}
