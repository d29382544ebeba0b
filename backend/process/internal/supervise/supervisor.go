package supervise

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/podyard/podyard/internal/podhost"
)

// A Plan is one start of a pod, as its supervisor gets it: over a pipe, because every user can
// read args and environments.
type Plan struct {
	Pod     string `json:"pod"`     // the directory of the pod
	Start   uint64 `json:"start"`   // numbers the starts of the pod
	LogSize int64  `json:"logSize"` // see Options

	Program string    `json:"program"` // its path
	Argv    []string  `json:"argv"`
	Env     []string  `json:"env"`
	Dir     string    `json:"dir"`
	User    *Identity `json:"user"` // nil: the server's

	// For pods with Isolation on Linux.
	Launch   []string `json:"launch,omitempty"`   // see Isolation
	Cgroups  []string `json:"cgroups,omitempty"`  // directories of the cgroups that it joins
	Bwrap    []string `json:"bwrap,omitempty"`    // the command of bubblewrap up to the pod's; none without
	FileSize int64    `json:"fileSize,omitempty"` // the most bytes of one file; 0: no limit
	Probe    bool     `json:"probe,omitempty"`    // only find out whether all this can be done

	// For commands in a pod that runs.
	Joins bool `json:"joins,omitempty"` // Bwrap is nsenter
	Keep  int  `json:"keep,omitempty"`  // how many descriptors it gets, after those of the stages
	TTY   bool `json:"tty,omitempty"`   // its first descriptor is its terminal
}

// An Identity is the user and the group that a pod runs as.
type Identity struct {
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
	Name string `json:"-"`
}

// A Status is what a supervisor has on record of one start.
type Status struct {
	Start      uint64 `json:"start"`
	Supervisor int    `json:"supervisor"` // its process id
	PID        int    `json:"pid"`        // the first process of the pod, and its process group; 0: none yet
	StartTime  string `json:"born"`       // distinguishes it from a later one with the same PID
	Ended      bool   `json:"ended"`      // everything of the pod has ended
	Exit       Exit   `json:"exit"`       // of the first process
	Lost       int    `json:"lost"`       // lines of output that could not be stored
}

// An Exit is how a process ended.
type Exit struct {
	Code   int    `json:"code"`
	Reason string `json:"reason"`
	OOM    bool   `json:"oom"` // killed, as it seems for want of memory
}

// statusLimit is the most that is read of a record.
const statusLimit = 1 << 20

// ReadBounded returns no more of a file than a record can have.
func ReadBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, statusLimit))
}

// LogDir is where the log of a pod is, whose directory is pod.
func LogDir(pod string) string { return filepath.Join(pod, "log") }

// ReadStatus returns what the last supervisor of a pod has on record.
func ReadStatus(pod string) (s Status, err error) {
	data, err := ReadBounded(statusPath(pod))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(data, &s)
}

func statusPath(pod string) string { return filepath.Join(pod, "run.json") }

// lockPath is a file that the supervisor of a pod holds locked as long as it lives.
func lockPath(pod string) string { return filepath.Join(pod, "supervisor") }

// A supervisor is the parent of a pod's first process: it reads what the pod writes, ends
// everything of the pod with it, and records how it ended. It is a process of its own, which
// outlives the server, or a goroutine where the program has no Isolation.Launch.
type supervisor struct {
	plan   Plan
	status Status // as it began: commands read it while the pod runs
	exit   Exit   // set by finish
	lock   *os.File
	lines  *lines
	out    *os.File // our end of the pipe
	cmd    *exec.Cmd
	tree   tree
	oom    uint64 // the counter of kills for memory at the start
	wait   func() Exit
}

// begin starts the program of a plan. After an error nothing of it is left.
func begin(p Plan) (*supervisor, error) {
	s := &supervisor{plan: p, status: Status{Start: p.Start, Supervisor: os.Getpid()}, oom: oomCount()}
	var err error
	if s.lock, err = Lock(lockPath(p.Pod)); err != nil {
		return nil, err
	}
	err = s.save(s.status)
	if err == nil {
		s.lines, err = openLines(LogDir(p.Pod), p.LogSize)
	}
	if err == nil {
		err = s.run()
	}
	if err != nil {
		return nil, errors.Join(err, s.release())
	}
	return s, nil
}

// run starts the program with a pipe for its output. The pod cannot reopen, truncate or fill a
// pipe; it waits while nobody reads.
func (s *supervisor) run() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	s.out = r
	err = s.spawn(w)
	if err := errors.Join(err, w.Close()); err != nil {
		return errors.Join(err, r.Close())
	}
	s.status.StartTime = startTimeOf(s.status.PID)
	return s.save(s.status)
}

// spawnDirectly starts the program without a stage before it.
func (s *supervisor) spawnDirectly(w *os.File) error {
	p := &s.plan
	s.cmd = &exec.Cmd{Path: p.Program, Args: p.Argv}
	s.cmd.Dir, s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = p.Dir, p.Env, w, w
	s.cmd.SysProcAttr = newSession(p.User)
	if err := s.cmd.Start(); err != nil {
		if _, wrong := os.Stat(p.Dir); wrong != nil { // the system's error names the command also then
			return wrongDir(wrong)
		}
		return err
	}
	s.status.PID = s.cmd.Process.Pid
	var err error
	if s.tree, err = newTree(s.status.PID); err != nil {
		_ = s.cmd.Process.Kill()
		return errors.Join(err, s.cmd.Wait())
	}
	s.wait = func() Exit { return childExit(s.cmd) }
	return nil
}

var errWorkingDir = errors.New("its working directory cannot be used")

func wrongDir(err error) error { return fmt.Errorf("%w: %w", errWorkingDir, err) }

// outputGrace is how long the output of a pod is read after everything of it has ended: as long
// as the pipe is not empty. It passes only where a process has escaped, and holds the pipe.
const outputGrace = time.Second

// finish returns when everything of the pod has ended and its output is stored.
func (s *supervisor) finish() error {
	read := make(chan struct{})
	go func() {
		defer close(read)
		s.lines.copy(s.out)
	}()
	s.exit = s.wait()
	s.exit.OOM = s.exit.Code == 128+9 && oomCount() > s.oom
	s.sweep()
	s.tree.end()
	late := time.AfterFunc(outputGrace, func() { _ = s.out.Close() })
	<-read
	late.Stop()
	_ = s.out.Close() // it may be closed already
	ended := s.status
	ended.Exit, ended.Ended, ended.Lost = s.exit, true, s.lines.lost
	return errors.Join(s.save(ended), s.release())
}

// terminate asks the pod to end.
func (s *supervisor) terminate() { terminateGroup(s.status.PID) }

// kill ends the first process and its group; sweep ends the rest.
func (s *supervisor) kill() {
	killGroup(s.status.PID)
	if s.cmd.Process.Pid != s.status.PID {
		_ = s.cmd.Process.Kill() // bubblewrap, which takes everything in it along
	}
}

// statusSize is what a record has at least. It ends in blanks, so that a later record fits into the
// place of the first one.
const statusSize = 1 << 10

// save replaces the record. When the disk is full, which a pod may have done, the record is written
// over: that needs no room.
func (s *supervisor) save(st Status) error {
	data, err := json.Marshal(st)
	if err != nil {
		return err
	}
	data = append(data, bytes.Repeat([]byte{' '}, max(statusSize-len(data), 0))...)
	path := statusPath(s.plan.Pod)
	if err = podhost.ReplaceFile(path, data, st.Ended); err == nil {
		return nil
	}
	f, wrong := os.OpenFile(path, os.O_WRONLY, 0)
	if wrong != nil {
		return errors.Join(err, wrong)
	}
	_, wrong = f.WriteAt(data, 0)
	if wrong = errors.Join(wrong, f.Sync(), f.Close()); wrong != nil {
		return errors.Join(err, wrong)
	}
	return nil
}

func (s *supervisor) release() error {
	if s.lines != nil {
		s.lines.close()
	}
	return s.lock.Close()
}

// childExit waits for a child.
func childExit(cmd *exec.Cmd) Exit {
	err := cmd.Wait()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return Exit{Code: -1, Reason: "it ended: " + err.Error()}
	}
	if n, ok := signalOf(cmd.ProcessState); ok {
		return signalled(n)
	}
	return exited(cmd.ProcessState.ExitCode())
}

func signalled(n int) Exit {
	return Exit{Code: 128 + n, Reason: fmt.Sprintf("ended by signal %d", n)}
}

func exited(code int) Exit {
	if code == 0 {
		return Exit{}
	}
	return Exit{Code: code, Reason: fmt.Sprintf("exited with code %d", code)}
}

// An answer is what a supervisor tells the server of a start, and a stage its supervisor.
type answer struct {
	OK bool `json:"ok"` // all that comes before the program has worked
	// Of a failure: the operation, the file and the error number.
	Op    string `json:"op,omitempty"`
	Path  string `json:"path,omitempty"`
	Errno int    `json:"errno,omitempty"`
	Dir   bool   `json:"dir,omitempty"` // the file is the working directory
	Text  string `json:"text,omitempty"`
}

// answerFor is err as an answer.
func answerFor(err error) answer {
	if err == nil {
		return answer{OK: true}
	}
	a := answer{Text: err.Error(), Dir: errors.Is(err, errWorkingDir)}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		a.Op, a.Path = path.Op, path.Path
	} else if path, ok := errors.AsType[*exec.Error](err); ok {
		a.Op, a.Path, a.Text = "exec", path.Name, path.Err.Error()
	}
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		a.Errno = int(number)
	}
	return a
}

// err returns the failure as an error that has its path apart, so that it can be removed.
func (a answer) err() error {
	var cause error
	switch {
	case a.Errno != 0:
		cause = syscall.Errno(a.Errno)
	case a.Text != "":
		cause = errors.New(a.Text)
	default:
		return nil
	}
	if a.Op != "" {
		cause = &fs.PathError{Op: a.Op, Path: a.Path, Err: cause}
	}
	if a.Dir {
		return wrongDir(cause)
	}
	return cause
}
