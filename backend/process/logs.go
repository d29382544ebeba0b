package process

import (
	"context"
	"iter"
	"time"

	"github.com/podyard/podyard/backend/process/internal/supervise"
	"github.com/podyard/podyard/pods"
)

// A follower looks for new lines at these intervals, the shorter one while there are some: the
// writer is another process, and no way to wait for it works on every system.
const (
	followBusyInterval = 5 * time.Millisecond
	followIdleInterval = 160 * time.Millisecond
)

// Logs implements pods.LogReader. The lines of all generations of the pod are kept, up to
// Options.LogSize. A reader that falls behind by more than that misses lines. Following also
// ends with Close.
func (r *Runtime) Logs(ctx context.Context, podID string, q pods.LogQuery) iter.Seq2[pods.LogLine, error] {
	return func(yield func(pods.LogLine, error) bool) {
		p := r.pods.Find(podID)
		if p == nil {
			return
		}
		c, err := supervise.Seek(r.root.log(podID), q)
		pause := followBusyInterval
		for err == nil {
			over := p.gone() // before the last look
			var got int
			if got, err = c.Read(yield); got < 0 {
				return
			}
			if got > 0 {
				pause = followBusyInterval
				if ctx.Err() != nil {
					return
				}
				continue
			}
			if over || !q.Follow || !wait(ctx, p, pause) {
				break
			}
			pause = min(2*pause, followIdleInterval)
		}
		if err != nil {
			yield(pods.LogLine{}, err)
		}
	}
}

// wait pauses a follower. It reports false when the follower is to end.
func wait(ctx context.Context, p *pod, pause time.Duration) bool {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.over:
	case <-p.r.closed:
	case <-ctx.Done():
		return false
	}
	return true
}
