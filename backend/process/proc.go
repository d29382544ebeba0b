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
	pid    int
	born   string // see record
	mark   string
	vcpu   int
	memory int
	oom    uint64       // what the counter showed at the start
	busy   podhost.Load // for samples

	kin kin // what is known of its descendants

	mu       sync.Mutex
	endBy    time.Time     // when it is to be killed; zero: it is not to end
	hastened chan struct{} // holds a token when endBy has changed

	asked  bool   // to end, by us; for jobs
	reason string // what to say of the end; for jobs

	exited chan struct{} // closed when the first process has ended; exit is valid
	gone   chan struct{} // closed when all have and the output is kept; left is valid
	exit   exit
	left   error
}

// An exit is how a process ended.
type exit struct {
	code   int
	how    string
	killed bool // by SIGKILL
}

func newProc(pid int, born, mark string) *proc {
	return &proc{
		pid: pid, born: born, mark: mark,
		hastened: make(chan struct{}, 1), exited: make(chan struct{}), gone: make(chan struct{}),
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

// hasten shortens the time until x is killed to grace from now, if it is not shorter. The
// job that waits for the end of x notices.
func (x *proc) hasten(grace time.Duration) {
	t := time.Now().Add(grace)
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.endBy.IsZero() && x.endBy.Before(t) {
		return
	}
	x.endBy = t
	select {
	case x.hastened <- struct{}{}:
	default:
	}
}

func (x *proc) patience() time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	return time.Until(x.endBy)
}

// signal asks the process group to end.
func (x *proc) signal() {
	if !x.ended() {
		softKill(x.pid)
	}
}

// kill ends the first process and its group; what is left then is for sweep.
func (x *proc) kill() {
	if !x.ended() {
		hardKill(x.pid)
	}
}

// sweepLimit is how long a killed process may take to go: one that waits for a device
// cannot be killed before the device answers.
const sweepLimit = 5 * time.Second

// sweep kills what belongs to x besides its first process, and returns when it is gone.
// It looks twice: a process may hide from one look between a fork and an exec.
func (x *proc) sweep() error {
	deadline := time.Now().Add(sweepLimit)
	for clean := 0; clean < 2; {
		found, err := x.killRest()
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
		return exit{code: -1, how: "it ended: " + err.Error()}
	}
	return exitOf(cmd.ProcessState)
}

func exitOf(ps *os.ProcessState) exit {
	if n, ok := signalOf(ps); ok {
		return exit{code: 128 + n, how: fmt.Sprintf("ended by signal %d", n), killed: n == 9}
	}
	code := ps.ExitCode()
	if code == 0 {
		return exit{}
	}
	return exit{code: code, how: fmt.Sprintf("exited with code %d", code)}
}
