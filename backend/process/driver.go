package process

import (
	"sync"
	"time"

	"github.com/podyard/podyard/backend/process/internal/supervise"
	"github.com/podyard/podyard/internal/podhost"
)

// A driver makes, finds and ends what runs of pods. The life of a pod (pod) is above it, and
// knows nothing of supervisors, bubblewrap and cgroups.
type driver interface {
	// Start starts a plan and returns when its program runs.
	Start(p supervise.Plan) (*supervise.Proc, error)
	// Inspect returns what runs of a start of an earlier server; nil if its supervisor has
	// ended.
	Inspect(pod string, start uint64) *supervise.Proc
	// Terminate asks a process to end.
	Terminate(x *supervise.Proc)
	// Kill ends a process. It returns when nothing of it is left, or with Proc.KillErr set.
	Kill(x *supervise.Proc)
	// Watch notes the end of a process that inspect has returned.
	Watch(x *supervise.Proc)
	// Remains ends what is left of a pod whose supervisor has ended, and returns how the pod
	// ended.
	Remains(x *supervise.Proc)
}

// A proc is one start of a pod.
type proc struct {
	*supervise.Proc

	begun   *beginning // nil: an earlier server started it
	limits  []diskLimit
	vcpu    int
	memory  int
	cpuLoad podhost.CPULoad // for samples

	mu              sync.Mutex
	killAt          time.Time     // when to kill it; zero: never
	deadlineChanged chan struct{} // has a value when killAt has changed

	stopRequested bool   // the server asked it to end; for jobs
	killed        bool   // it did not end within the grace of that; for jobs
	reason        string // text about the end; for jobs
	failure       string // why the server ended it without a call of Stop; for jobs
}

func newProc(x *supervise.Proc) *proc {
	return &proc{Proc: x, deadlineChanged: make(chan struct{}, 1)}
}

// shortenGrace shortens the time until x is killed to grace from now, if it is not shorter. The
// job that waits for the end of x is notified.
func (x *proc) shortenGrace(grace time.Duration) {
	t := time.Now().Add(grace)
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.killAt.IsZero() && x.killAt.Before(t) {
		return
	}
	x.killAt = t
	select {
	case x.deadlineChanged <- struct{}{}:
	default:
	}
}

func (x *proc) graceLeft() time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	return time.Until(x.killAt)
}

// exitGrace waits for the end of x until killAt, or until now is closed.
func (x *proc) exitGrace(now <-chan struct{}) {
	for d := x.graceLeft(); d > 0; d = x.graceLeft() {
		t := time.NewTimer(d)
		select {
		case <-x.Ended:
		case <-t.C:
		case <-now:
		case <-x.deadlineChanged:
			t.Stop()
			continue
		}
		t.Stop()
		return
	}
}
