package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The stages in which this program becomes a pod, as its last argument. The supervisor starts
// stageEnter, which joins the cgroups and becomes bubblewrap, which starts stageBecome, which gives
// up its rights and becomes the pod's program. Without bubblewrap stageEnter does all of it.
const (
	stageEnter  = "enter"
	stageBecome = "become"
)

// The descriptors of the stages.
const (
	planFD   = 3 // the plan, in a file without a name, because each stage reads it
	answerFD = 4
	selfFD   = 5 // this program, whose file bubblewrap may hide
)

func launchStage(name string) error {
	runtime.LockOSThread() // only this thread becomes the program
	if name != stageEnter && name != stageBecome {
		return errors.New("process: this is for the server to start a pod with")
	}
	if _, err := unix.FcntlInt(planFD, unix.F_GETFD, 0); err != nil {
		return fmt.Errorf("process: this is for the server to start a pod with: %w", err)
	}
	out := json.NewEncoder(os.NewFile(answerFD, "answer"))
	var p Plan
	err := json.NewDecoder(io.NewSectionReader(os.NewFile(planFD, "plan"), 0, 1<<62)).Decode(&p)
	if err == nil && name == stageEnter {
		err = p.enter()
	}
	if err == nil {
		err = p.become(out)
	}
	if err == nil {
		return nil // a probe
	}
	return errors.Join(fmt.Errorf("process: launch a pod: %w", err), out.Encode(answerFor(err)))
}

// enter does what is not possible inside bubblewrap, and becomes bubblewrap.
func (p *Plan) enter() error {
	for _, dir := range p.Cgroups {
		if err := writeCgroup(dir, "cgroup.procs", "0"); err != nil { // 0 is the writing process
			return err
		}
	}
	limits := map[int]uint64{unix.RLIMIT_CORE: 0}
	if p.FileSize > 0 {
		limits[unix.RLIMIT_FSIZE] = uint64(p.FileSize)
	}
	for resource, n := range limits {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return os.NewSyscallError("setrlimit", err)
		}
	}
	if len(p.Bwrap) == 0 {
		return nil
	}
	if p.Joins {
		if err := dieWithParent(); err != nil {
			return err
		}
	}
	if err := closeOnExec(selfFD + 1 + p.Keep); err != nil {
		return err
	}
	args := slices.Concat(p.Bwrap, []string{"--", "/proc/self/fd/" + strconv.Itoa(selfFD)}, p.Launch, []string{stageBecome})
	return &fs.PathError{Op: "exec", Path: args[0], Err: syscall.Exec(args[0], args, os.Environ())}
}

// become returns only with an error, but for a probe. It answers once before the program is
// started; after that the end of the answer says that the program runs.
func (p *Plan) become(out *json.Encoder) error {
	_, _ = unix.Setsid() // a group of its own, for signals; it may be one already
	// Without bubblewrap the pod's user may not get through the directories above, and inside it
	// only that user can use its directory.
	direct := len(p.Bwrap) == 0
	err := error(nil)
	if direct {
		err = os.Chdir(p.Dir)
	}
	if err == nil {
		if err := p.dropPrivileges(); err != nil {
			return err
		}
		if !direct {
			err = os.Chdir(p.Dir)
		}
	}
	if err != nil {
		return wrongDir(err)
	}
	if direct || p.Joins { // bubblewrap does the same
		if err := dieWithParent(); err != nil {
			return err
		}
	}
	if p.TTY {
		if err := takeTerminal(); err != nil {
			return err
		}
	}
	if p.Joins {
		if err := closeOnExec(planFD); err != nil { // the server's program is among them
			return err
		}
		return p.becomeCommand(out)
	}
	if p.Program == "" && !p.Probe {
		if p.Program, err = lookUp(p.Argv[0], p.Env, p.Dir); err != nil {
			return err
		}
	}
	if err := closeOnExec(planFD); err != nil {
		return err
	}
	if err := out.Encode(answer{OK: true}); err != nil || p.Probe {
		return err
	}
	return &fs.PathError{Op: "exec", Path: p.Argv[0], Err: syscall.Exec(p.Program, p.Argv, p.Env)}
}

// becomeCommand is the end of become for a command that nsenter waits for. Nsenter holds the answers
// open, so that their end says nothing: a program that does not start is told as a shell does.
func (p *Plan) becomeCommand(out *json.Encoder) error {
	if err := out.Encode(answer{OK: true}); err != nil {
		return err
	}
	program, err := lookUp(p.Argv[0], p.Env, p.Dir)
	if err == nil {
		err = syscall.Exec(program, p.Argv, p.Env)
	}
	cause, code := err, 126
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		cause = number
	}
	if errors.Is(err, fs.ErrNotExist) {
		code = 127
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", p.Argv[0], cause)
	os.Exit(code) //nolint:forbidigo // this process is the command that did not start
	return nil
}

// dieWithParent has this process killed when the thread that started it ends.
func dieWithParent() error {
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0))
}

// closeOnExec keeps the descriptors from first on from the next program, also those that the
// server has inherited.
func closeOnExec(first int) error {
	if unix.CloseRange(uint(first), ^uint(0), unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	entries, err := os.ReadDir("/proc/self/fd") // the kernel is older than 5.11
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= first {
			unix.CloseOnExec(fd)
		}
	}
	return err
}

// dropPrivileges gives up all privileges for good.
func (p *Plan) dropPrivileges() error {
	// Until the kernel knows no more of them, or forbids it.
	for c := uintptr(0); unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0) == nil; c++ {
	}
	if p.User != nil {
		if err := setUser(*p.User); err != nil {
			return err
		}
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&head, &none[0]); err != nil {
		return os.NewSyscallError("capset", err)
	}
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
}

func setUser(id Identity) error {
	if err := unix.Setgroups(nil); err != nil {
		return os.NewSyscallError("setgroups", err)
	}
	if err := unix.Setresgid(int(id.GID), int(id.GID), int(id.GID)); err != nil {
		return os.NewSyscallError("setresgid", err)
	}
	return os.NewSyscallError("setresuid", unix.Setresuid(int(id.UID), int(id.UID), int(id.UID)))
}

// spawn starts the program of the plan, with w for its output.
func (s *supervisor) spawn(w *os.File) error {
	if s.plan.User != nil { // a program may open /dev/stdout
		if err := w.Chown(int(s.plan.User.UID), int(s.plan.User.GID)); err != nil {
			return err
		}
	}
	if len(s.plan.Launch) == 0 {
		return s.spawnDirectly(w)
	}
	cmd, err := startStage(&s.plan, outputTo(w))
	if err != nil {
		return err
	}
	s.cmd, s.wait, s.status.PID = cmd, s.reap, cmd.Process.Pid
	if len(s.plan.Bwrap) > 0 {
		s.status.PID = within(cmd.Process.Pid)
	}
	return nil
}

// within returns the program that bubblewrap, the process pid, has started: the oldest child of
// its child. It is pid if they have ended.
func within(pid int) int {
	all, err := tasks()
	if err != nil {
		return pid
	}
	for range 2 {
		children := slices.DeleteFunc(slices.Clone(all), func(t task) bool { return t.parent != pid })
		if len(children) > 0 {
			pid = slices.MinFunc(children, task.age).pid
		}
	}
	return pid
}

func outputTo(w *os.File) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) { cmd.Stdout, cmd.Stderr = w, w }
}

// launchTime is how long a stage, and a supervisor, may take. They take some milliseconds.
const launchTime = time.Minute

// startStage starts the first stage, and returns when the program runs. After an error nothing
// runs. The calling thread must live as long as the pod.
func startStage(p *Plan, set func(*exec.Cmd)) (*exec.Cmd, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("plan", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	in := os.NewFile(uintptr(fd), "plan")
	defer in.Close()
	if _, err := in.Write(data); err != nil {
		return nil, err
	}
	self, err := os.OpenFile(SelfPath, unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	defer self.Close()
	answers, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer answers.Close()
	cmd := launcher(p.Launch, stageEnter)
	cmd.ExtraFiles = []*os.File{in, theirs, self}
	set(cmd)
	if err := errors.Join(cmd.Start(), theirs.Close()); err != nil {
		return nil, err
	}
	if err := started(answers, p.Joins); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // its answer is all that matters
		return nil, err
	}
	return cmd, nil
}

var errNoAnswer = errors.New("bubblewrap did not start it: see its log")

// started reads the answers of the stages until the program runs. For a command that joins, the first one
// is all.
func started(answers *os.File, joins bool) error {
	if err := answers.SetReadDeadline(time.Now().Add(launchTime)); err != nil {
		return err
	}
	d := json.NewDecoder(io.LimitReader(answers, statusLimit))
	for ok := false; ; ok = true {
		var a answer
		err := d.Decode(&a)
		switch {
		case errors.Is(err, io.EOF) && ok:
			return nil
		case errors.Is(err, io.EOF):
			return errNoAnswer
		case err != nil:
			return err
		case !a.OK:
			return a.err()
		case joins:
			return nil
		}
	}
}

// reap waits for the end of the first process, and of all orphans meanwhile, whose parent this
// process is.
func (s *supervisor) reap() Exit {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return Exit{Code: -1, Reason: "it ended: " + err.Error()}
		case pid == s.cmd.Process.Pid && ws.Signaled():
			return signalled(int(ws.Signal()))
		case pid == s.cmd.Process.Pid:
			return exited(ws.ExitStatus())
		}
	}
}

// sweepPause is between two looks for processes that are left.
const sweepPause = 2 * time.Millisecond

// sweep kills what is left of the pod and returns when it is gone. All descendants of the pod are
// descendants of this process, however they hide, because it is their reaper.
func (s *supervisor) sweep() {
	killGroup(s.status.PID)
	if len(s.plan.Launch) == 0 {
		return
	}
	for {
		killCgroups(s.plan.Cgroups)
		all, err := tasks()
		if err == nil {
			for _, t := range descendants(all, os.Getpid()) {
				_ = syscall.Kill(t.pid, syscall.SIGKILL) // its number is in use until it is reaped here
			}
		}
		for pid := 1; pid > 0; {
			if pid, err = syscall.Wait4(-1, nil, syscall.WNOHANG, nil); errors.Is(err, syscall.ECHILD) {
				return
			}
		}
		time.Sleep(sweepPause)
	}
}

// becomeReaper makes this process the parent of the pod's orphans.
func becomeReaper() error {
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// Try runs the stages of a plan up to the program. Its error has what bubblewrap says.
func Try(p *Plan) error {
	runtime.LockOSThread() // which bubblewrap wants to live
	defer runtime.UnlockOSThread()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	said := make(chan []byte, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(r, 1<<10)) // it is only for the log
		said <- text
	}()
	cmd, err := startStage(p, outputTo(w))
	_ = w.Close() // nothing was written to it here
	if err == nil {
		err = cmd.Wait()
	}
	if text := strings.TrimSpace(string(<-said)); err != nil && text != "" {
		err = errors.New(text)
	}
	return err
}
