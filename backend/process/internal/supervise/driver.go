package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// A Proc is one start of a pod.
type Proc struct {
	// Cgroups are the directories of its cgroups.
	Cgroups []string
	// Old is what an earlier server without supervisors left of this start.
	Old Status
	// Ended is closed when everything of it has ended. Then Exit says how its first process has
	// ended, and KillErr what could not be ended.
	Ended   chan struct{}
	Exit    Exit
	KillErr error

	pod        string // its directory
	start      uint64
	supervisor int         // its process id
	child      *exec.Cmd   // the supervisor, if this server started it
	inside     *supervisor // instead of a process
}

// NewProc returns the process of a start of a pod, whose directory is pod.
func NewProc(pod string, start uint64) *Proc {
	return &Proc{pod: pod, start: start, Ended: make(chan struct{})}
}

// Over reports whether everything of it has ended.
func (x *Proc) Over() bool {
	select {
	case <-x.Ended:
		return true
	default:
		return false
	}
}

// A Driver starts, finds and ends what runs of pods, on this host.
type Driver struct {
	log *slog.Logger
	run func(f func()) // starts a goroutine
}

// NewDriver returns a Driver that starts its goroutines with run.
func NewDriver(log *slog.Logger, run func(f func())) *Driver { return &Driver{log, run} }

// Start implements the driver of package process.
func (d *Driver) Start(p Plan) (*Proc, error) {
	x := NewProc(p.Pod, p.Start)
	x.Cgroups = p.Cgroups
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
		d.Remains(x)
	})
	return x, nil
}

// supervisorTime is how long a supervisor may take to start a pod.
const supervisorTime = 2 * time.Minute

// spawn starts a supervisor with a plan, and returns when the pod's program runs.
func (x *Proc) spawn(p Plan) error {
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

// Inspect implements the driver of package process.
func (d *Driver) Inspect(pod string, start uint64) *Proc {
	x := NewProc(pod, start)
	for began := time.Now(); isLocked(lockPath(pod)); time.Sleep(lockPause) {
		if s, err := ReadStatus(pod); err == nil && s.Start == start && !s.Ended {
			x.supervisor = s.Supervisor
			return x
		}
		if time.Since(began) > adoptTime {
			break
		}
	}
	return nil
}

// Watch implements the driver of package process. The supervisor is not our child: its end sends no signal to this
// server; a look takes one lock.
func (d *Driver) Watch(x *Proc) {
	d.run(func() {
		t := time.NewTicker(orphanPollInterval)
		defer t.Stop()
		for isLocked(lockPath(x.pod)) {
			<-t.C
		}
		d.Remains(x)
	})
}

const orphanPollInterval = 50 * time.Millisecond

// Remains implements the driver of package process.
func (d *Driver) Remains(x *Proc) {
	s, err := ReadStatus(x.pod)
	if err == nil && s.Start == x.start && s.Ended {
		x.Exit = s.Exit
		if s.Lost > 0 {
			d.log.Error("process: output of a pod could not be kept", "pod", x.pod, "count", s.Lost)
		}
		d.end(x, EndCgroups(x.Cgroups))
		return
	}
	x.Exit = unknownExit
	for _, was := range []Status{x.Old, s} {
		if was.PID > 1 && was.Start == x.start && x.owns(was) {
			was.endGroup()
		}
	}
	d.end(x, EndCgroups(x.Cgroups))
}

// owns reports whether a process group is still that of x. A supervisor that this server has seen
// alive has ended just now. After an earlier server, days may have passed, and the number may be
// another program's.
func (x *Proc) owns(was Status) bool {
	return x.supervisor != 0 || was.lives() || groupHas(was.PID, podVariable+"="+filepath.Base(x.pod))
}

// podVariable names the pod in the environment of its processes.
const podVariable = "PODYARD_POD_ID"

// lives reports whether the first process of a start is there.
func (s *Status) lives() bool { return s.StartTime != "" && startTimeOf(s.PID) == s.StartTime }

// endGroup kills the group of the first process and waits for the end of that process, because what
// it holds, such as a GPU, is free only then. Nobody waits for it as for a child.
func (s *Status) endGroup() {
	killGroup(s.PID)
	for deadline := time.Now().Add(sweepLimit); s.lives() && time.Now().Before(deadline); {
		time.Sleep(lockPause)
	}
}

func (d *Driver) end(x *Proc, err error) {
	if x.inside != nil {
		x.Exit = x.inside.exit
	}
	x.KillErr = err
	close(x.Ended)
}

// unknownExit is the end of a pod whose supervisor was killed.
var unknownExit = Exit{Code: -1, Reason: "it was ended because the process that watched it had ended: its exit code is not known"}

// Terminate implements the driver of package process.
func (d *Driver) Terminate(x *Proc) {
	if x.inside != nil {
		x.inside.terminate()
		return
	}
	x.signal(syscall.SIGTERM)
}

// sweepLimit is how long a killed process may take to end. A process that waits for a device
// ends only when the device answers.
const sweepLimit = 5 * time.Second

// Kill implements the driver of package process.
func (d *Driver) Kill(x *Proc) {
	if x.inside != nil {
		x.inside.kill()
		<-x.Ended
		return
	}
	x.signal(syscall.SIGQUIT)
	late := time.AfterFunc(sweepLimit, func() { x.signal(syscall.SIGKILL) })
	<-x.Ended
	late.Stop()
}

// signal sends a signal to the supervisor, and never to a later process with its number: it opens
// a handle first.
func (x *Proc) signal(sig syscall.Signal) {
	if x.child != nil {
		_ = x.child.Process.Signal(sig) // it has ended
		return
	}
	p, err := os.FindProcess(x.supervisor)
	if err != nil {
		return
	}
	if isLocked(lockPath(x.pod)) && !x.Over() {
		_ = p.Signal(sig) // it has ended
	}
	_ = p.Release() // nothing is lost
}

// EndCgroups kills what is in cgroups, and removes them.
func EndCgroups(dirs []string) error {
	deadline := time.Now().Add(sweepLimit)
	for {
		found := killCgroups(dirs)
		err := RemoveCgroups(dirs)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes of its cgroup cannot be ended: %w", found, err)
		}
		time.Sleep(time.Millisecond)
	}
}
