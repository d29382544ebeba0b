package serverless

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// Wait returns the job when it has ended. It returns the job as it is when d has passed by
// the service's clock, or when ctx ends. Errors are those of Get, also if the job is deleted
// meanwhile.
func (s *Service) Wait(ctx context.Context, owner string, ref Ref, d time.Duration) (Job, error) {
	w := s.startWait(ref, d)
	defer w.end()
	return w.wait(ctx, owner, true)
}

// WaitState is Wait without the payloads, which are not read for it.
func (s *Service) WaitState(ctx context.Context, owner string, ref Ref, d time.Duration) (Job, error) {
	w := s.startWait(ref, d)
	w.get = s.GetState
	defer w.end()
	return w.wait(ctx, owner, true)
}

// A jobWait waits for the end of a job. Its time has begun. The caller must call end.
type jobWait struct {
	s    *Service
	ref  Ref
	done *watcher
	get  func(ctx context.Context, owner string, ref Ref) (Job, error)
	job  *Job        // nil: it is read when it has ended
	over atomic.Bool // the time is over; done is signalled after that
	stop func() bool // stops the timer
}

func (s *Service) startWait(ref Ref, d time.Duration) *jobWait {
	w := &jobWait{s: s, ref: ref, get: s.Get, done: s.hub.watch(ref, queue.EventDone)}
	w.stop = s.clock.AfterFunc(s.clock.Now().Add(d), func() { w.over.Store(true); signal(w.done.ch) })
	return w
}

func (w *jobWait) end() {
	w.stop()
	w.s.hub.unwatch(w.done)
}

// wait returns the job when it has ended, or when the time or ctx is over. look: it looks first
// whether the job has ended.
func (w *jobWait) wait(ctx context.Context, owner string, look bool) (Job, error) {
	for last := false; ; look = true {
		if j, ok := w.result(); ok {
			return j, nil
		}
		if look {
			j, err := w.get(context.WithoutCancel(ctx), owner, w.ref)
			if err != nil || last || j.Status.Terminal() {
				return j, err
			}
		}
		select {
		case <-w.done.ch:
			last = w.over.Load()
		case <-ctx.Done():
			last = true // the job may have changed since it was read
		}
	}
}
