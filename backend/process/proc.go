package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/podhost"
)

// markName begins the variable by which the processes of one start are recognised.
const markName = "PODYARD_MARK="

// A proc is one start of a pod: its first process and all that came of it.
type proc struct {
	pid       int
	startTime string // see record
	mark      string
	cgroups   []string    // directories of those that all of it is in, if any
	limits    []diskLimit // of its directories
	vcpu      int
	memory    int
	oom       uint64          // what the counter showed at the start
	cpuLoad   podhost.CPULoad // for samples

	descendants descendants // what is known of its descendants

	mu              sync.Mutex
	killAt          time.Time     // when it is to be killed; zero: it is not to end
	deadlineChanged chan struct{} // holds a token when killAt has changed

	stopRequested bool   // to end, by us; for jobs
	reason        string // what to say of the end; for jobs
	failure       string // why it was ended although nobody asked for that; for jobs

	exited  chan struct{} // closed when the first process has ended; exit is valid
	done    chan struct{} // closed when all have and the output is kept; left is valid
	exit    exit
	killErr error
}

// An exit is how a process ended.
type exit struct {
	code   int
	reason string
	killed bool // by SIGKILL
}

func newProc(pid int, born, mark string) *proc {
	return &proc{
		pid: pid, startTime: born, mark: mark,
		deadlineChanged: make(chan struct{}, 1), exited: make(chan struct{}), done: make(chan struct{}),
	}
}

func (x *proc) ended() bool {
	select {
	case <-x.exited:
		return true
	default:
		return false
	}
}

// shortenGrace shortens the time until x is killed to grace from now, if it is not shorter. The
// job that waits for the end of x notices.
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

// signal asks the process group to end.
func (x *proc) signal() {
	if !x.ended() {
		terminateGroup(x.pid)
	}
}

// kill ends the first process and its group; what is left then is for sweep.
func (x *proc) kill() {
	if !x.ended() {
		killGroup(x.pid)
	}
}

// sweepLimit is how long a killed process may take to go: one that waits for a device
// cannot be killed before the device answers.
const sweepLimit = 5 * time.Second

// endCgroups kills what is in the cgroups of x, and removes them.
func (x *proc) endCgroups() error {
	deadline := time.Now().Add(sweepLimit)
	for {
		found := killCgroups(x.cgroups)
		err := removeCgroups(x.cgroups)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes of its cgroup cannot be ended: %w", found, err)
		}
		time.Sleep(time.Millisecond)
	}
}

// sweep kills what belongs to x besides its first process, and returns when it is gone.
// It looks twice: a process may hide from one look between a fork and an exec.
func (x *proc) sweep() error {
	if err := x.endCgroups(); err != nil {
		return err
	}
	deadline := time.Now().Add(sweepLimit)
	for clean := 0; clean < 2; {
		found, err := x.killDescendants()
		if err != nil {
			return fmt.Errorf("its processes cannot be found: %w", err)
		}
		if found == 0 {
			clean++
			continue
		}
		clean = 0
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of its processes cannot be ended", found)
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// childExit waits for a child.
func childExit(cmd *exec.Cmd) exit {
	err := cmd.Wait()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return exit{code: -1, reason: "it ended: " + err.Error()}
	}
	return exitOf(cmd.ProcessState)
}

func exitOf(ps *os.ProcessState) exit {
	if n, ok := signalOf(ps); ok {
		return exit{code: 128 + n, reason: fmt.Sprintf("ended by signal %d", n), killed: n == 9}
	}
	code := ps.ExitCode()
	if code == 0 {
		return exit{}
	}
	return exit{code: code, reason: fmt.Sprintf("exited with code %d", code)}
}
