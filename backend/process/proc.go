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

// A proc is one start of a pod: its first process and all its descendants.
type proc struct {
	pid       int
	startTime string // see record
	mark      string
	cgroups   []string    // directories of its cgroups, if any
	limits    []diskLimit // of its directories
	vcpu      int
	memory    int
	oom       uint64          // the counter of kills for memory at the start
	cpuLoad   podhost.CPULoad // for samples

	descendants descendants // known descendants

	mu              sync.Mutex
	killAt          time.Time     // when to kill it; zero: never
	deadlineChanged chan struct{} // has a value when killAt has changed

	stopRequested bool   // the server asked it to end; for jobs
	reason        string // text about the end; for jobs
	failure       string // why the server ended it without a call of Stop; for jobs

	exited  chan struct{} // closed when the first process has ended; exit is valid
	done    chan struct{} // closed when all have ended and the output is stored; left is valid
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

// signal asks the process group to end.
func (x *proc) signal() {
	if !x.ended() {
		terminateGroup(x.pid)
	}
}

// kill ends the first process and its group; sweep ends the rest.
func (x *proc) kill() {
	if !x.ended() {
		killGroup(x.pid)
	}
}

// sweepLimit is how long a killed process may take to end. A process that waits for a device
// ends only when the device answers.
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

// sweep kills the descendants of x, and returns when they are gone. It scans twice, because one
// scan may miss a process between fork and exec.
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
