package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/podyard/podyard/internal/podhost"
)

// A driver makes, finds and ends what runs of pods. The life of a pod (pod) is above it, and
// knows nothing of supervisors, bubblewrap and cgroups.
type driver interface {
	// start starts a plan and returns when its program runs.
	start(p plan) (*proc, error)
	// inspect returns what runs of a start of an earlier server; nil if its supervisor has
	// ended.
	inspect(pod string, start uint64) *proc
	// terminate asks a process to end.
	terminate(x *proc)
	// kill ends a process. It returns when nothing of it is left, or with proc.killErr set.
	kill(x *proc)
	// watch notes the end of a process that inspect has returned.
	watch(x *proc)
	// remains ends what is left of a pod whose supervisor has ended, and returns how the pod
	// ended.
	remains(x *proc)
}

// exitGrace waits for the end of x until killAt, or until now is closed.
func (x *proc) exitGrace(now <-chan struct{}) {
	for d := x.graceLeft(); d > 0; d = x.graceLeft() {
		t := time.NewTimer(d)
		select {
		case <-x.ended:
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

// A proc is one start of a pod.
type proc struct {
	pod        string // its directory
	start      uint64
	supervisor int         // its process id
	child      *exec.Cmd   // the supervisor, if this server started it
	inside     *supervisor // instead of a process
	old        status      // what an earlier server without supervisors left
	cgroups    []string
	limits     []diskLimit
	vcpu       int
	memory     int
	cpuLoad    podhost.CPULoad // for samples

	mu              sync.Mutex
	killAt          time.Time     // when to kill it; zero: never
	deadlineChanged chan struct{} // has a value when killAt has changed

	stopRequested bool   // the server asked it to end; for jobs
	reason        string // text about the end; for jobs
	failure       string // why the server ended it without a call of Stop; for jobs

	ended   chan struct{} // closed when everything of it has ended; exit and killErr are valid
	exit    exit
	killErr error // something of it could not be ended
}

func newProc(pod string, start uint64) *proc {
	return &proc{pod: pod, start: start, deadlineChanged: make(chan struct{}, 1), ended: make(chan struct{})}
}

func (x *proc) over() bool {
	select {
	case <-x.ended:
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

// supervise is the driver of this package.
type supervise struct {
	log *slog.Logger
	run func(f func()) // starts a goroutine
}

// start implements driver.
func (d *supervise) start(p plan) (*proc, error) {
	x := newProc(p.Pod, p.Start)
	x.cgroups = p.Cgroups
	if len(p.Launch) == 0 || !canSupervise {
		s, err := begin(p)
		if err != nil {
			return nil, err
		}
		x.inside = s
		d.run(func() { d.end(x, s.finish()) })
		return x, nil
	}
	if err := x.spawn(p); err != nil {
		return nil, err
	}
	d.run(func() {
		_ = x.child.Wait() // how the pod ended is on record
		d.remains(x)
	})
	return x, nil
}

// supervisorTime is how long a supervisor may take to start a pod.
const supervisorTime = 2 * time.Minute

// spawn starts a supervisor with a plan, and returns when the pod's program runs.
func (x *proc) spawn(p plan) error {
	cmd := launcher(p.Launch, superviseStage)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	late := time.AfterFunc(supervisorTime, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	var a answer
	err = errors.Join(json.NewEncoder(in).Encode(p), in.Close())
	if err == nil {
		err = json.NewDecoder(io.LimitReader(out, statusLimit)).Decode(&a)
	}
	if err == nil && !a.OK {
		err = a.err()
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // its answer is all that matters
		return err
	}
	x.child, x.supervisor = cmd, cmd.Process.Pid
	return nil
}

// adoptTime is how long a supervisor without a record may be about to write it.
const adoptTime = time.Second

// inspect implements driver.
func (d *supervise) inspect(pod string, start uint64) *proc {
	x := newProc(pod, start)
	for began := time.Now(); isLocked(lockPath(pod)); time.Sleep(lockPause) {
		if s, err := readStatus(pod); err == nil && s.Start == start && !s.Ended {
			x.supervisor = s.Supervisor
			return x
		}
		if time.Since(began) > adoptTime {
			break
		}
	}
	return nil
}

// watch implements driver. The supervisor is not our child: its end sends no signal to this
// server; a look takes one lock.
func (d *supervise) watch(x *proc) {
	d.run(func() {
		t := time.NewTicker(orphanPollInterval)
		defer t.Stop()
		for isLocked(lockPath(x.pod)) {
			<-t.C
		}
		d.remains(x)
	})
}

const orphanPollInterval = 50 * time.Millisecond

// remains implements driver.
func (d *supervise) remains(x *proc) {
	s, err := readStatus(x.pod)
	if err == nil && s.Start == x.start && s.Ended {
		x.exit = s.Exit
		if s.Lost > 0 {
			d.log.Error("process: output of a pod could not be kept", "pod", x.pod, "count", s.Lost)
		}
		d.end(x, endCgroups(x.cgroups))
		return
	}
	x.exit = unknownExit
	if x.old.remains() {
		killGroup(x.old.PID)
	}
	if err == nil && s.Start == x.start && s.remains() {
		killGroup(s.PID)
	}
	d.end(x, endCgroups(x.cgroups))
}

func (d *supervise) end(x *proc, err error) {
	if x.inside != nil {
		x.exit = x.inside.status.Exit
	}
	x.killErr = err
	close(x.ended)
}

// unknownExit is the end of a pod whose supervisor was killed.
var unknownExit = exit{Code: -1, Reason: "it was ended because the process that watched it had ended: its exit code is not known"}

// terminate implements driver.
func (d *supervise) terminate(x *proc) {
	if x.inside != nil {
		x.inside.terminate()
		return
	}
	x.signal(syscall.SIGTERM)
}

// sweepLimit is how long a killed process may take to end. A process that waits for a device
// ends only when the device answers.
const sweepLimit = 5 * time.Second

// kill implements driver.
func (d *supervise) kill(x *proc) {
	if x.inside != nil {
		x.inside.kill()
		<-x.ended
		return
	}
	x.signal(syscall.SIGQUIT)
	late := time.AfterFunc(sweepLimit, func() { x.signal(syscall.SIGKILL) })
	<-x.ended
	late.Stop()
}

// signal sends a signal to the supervisor, and never to a later process with its number: it opens
// a handle first.
func (x *proc) signal(sig syscall.Signal) {
	if x.child != nil {
		_ = x.child.Process.Signal(sig) // it has ended
		return
	}
	p, err := os.FindProcess(x.supervisor)
	if err != nil {
		return
	}
	if isLocked(lockPath(x.pod)) && !x.over() {
		_ = p.Signal(sig) // it has ended
	}
	_ = p.Release() // nothing is lost
}

// endCgroups kills what is in cgroups, and removes them.
func endCgroups(dirs []string) error {
	deadline := time.Now().Add(sweepLimit)
	for {
		found := killCgroups(dirs)
		err := removeCgroups(dirs)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes of its cgroup cannot be ended: %w", found, err)
		}
		time.Sleep(time.Millisecond)
	}
}
