package serverless

import (
	"time"

	"github.com/podyard/podyard/ratelimit/budget"
)

const (
	// reserveFrom is how many outputs of the usual size must fit, so that a job runs without room for
	// its own. How large that will be is not known before.
	reserveFrom = 16
	// reserveFor is how long a running job keeps room for an output that it has not made. A job that
	// runs for hours must not take the room of others.
	reserveFor = time.Second
)

// stored are the outputs of one user that are being stored.
type stored struct {
	jobs  int64
	bytes int64
}

// holdOutput returns a hold for n bytes that a worker makes, of nothing if they are few.
func (l *loop) holdOutput(r *run, n int64) budget.Hold {
	if n <= smallPayload || l.s.outputs == nil {
		return budget.Hold{}
	}
	return l.s.outputs(r.job.Owner)
}

// expects returns the room for its output that a job needs before it runs. While large outputs of its
// user are being stored, and few more of them fit, the job is taken to make one of their size. The
// caller holds mu.
func (l *loop) expects(r *run) int64 {
	if l.s.outputs == nil {
		return 0
	}
	r.output = l.s.outputs(r.job.Owner)
	left := r.output.Left()
	if o := l.outputs[r.job.Owner]; o.jobs > 0 && left/reserveFrom < o.bytes/o.jobs {
		return o.bytes / o.jobs
	}
	if left == 0 {
		return 1
	}
	return 0
}

// endReserve gives back what a job has reserved, unless it makes its output before.
func (l *loop) endReserve(r *run) {
	r.stop = l.s.clock.AfterFunc(l.s.clock.Now().Add(reserveFor), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if r.made == 0 {
			r.output.Release()
		}
	})
}

// count counts an output of n bytes from its return to letGo.
func (l *loop) count(r *run, n int64) {
	if n <= smallPayload || l.s.outputs == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r.made = n
	r.output.Force(max(n-r.output.Size(), 0))
	o := l.outputs[r.job.Owner]
	o.jobs, o.bytes = o.jobs+1, o.bytes+n
	if l.outputs == nil {
		l.outputs = map[string]stored{}
	}
	l.outputs[r.job.Owner] = o
}

// uncount is for a job whose output is stored, or that has made none. The caller holds mu.
func (l *loop) uncount(r *run) {
	r.output.Release()
	if r.stop != nil {
		r.stop() // or it would keep the input
	}
	if r.made == 0 {
		return
	}
	o := l.outputs[r.job.Owner]
	if o.jobs, o.bytes = o.jobs-1, o.bytes-r.made; o.jobs == 0 {
		delete(l.outputs, r.job.Owner)
		return
	}
	l.outputs[r.job.Owner] = o
}
