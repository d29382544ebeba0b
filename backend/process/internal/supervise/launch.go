package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// LaunchVariable marks a process as a supervisor or a stage, so that a program without a call of
// LaunchPod is detected.
const LaunchVariable = "PODYARD_LAUNCH"

// superviseStage has this program be the supervisor of a pod.
const superviseStage = "supervise"

// LaunchPod makes this process the supervisor of a pod, or the pod itself. The main function of a
// program that was started with the arguments of Isolation.Launch calls it before anything else,
// and exits when it returns. Its error has been reported to the server already.
func LaunchPod() error {
	if stage := os.Args[len(os.Args)-1]; stage != superviseStage {
		return launchStage(stage)
	}
	runtime.LockOSThread() // the pod is killed when the thread that started it ends
	signals := make(chan os.Signal, 8)
	// Those that are not handled below must not end it. It ignores none, because the pod would
	// inherit that.
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	var p Plan
	if err := json.NewDecoder(os.Stdin).Decode(&p); err != nil {
		return fmt.Errorf("process: this is for the server to start a pod with: %w", err)
	}
	var s *supervisor
	err := becomeReaper()
	if err == nil {
		s, err = begin(p)
	}
	told := json.NewEncoder(os.Stdout).Encode(answerFor(err))
	_ = errors.Join(told, os.Stdin.Close(), os.Stdout.Close()) // the server may be gone
	if err != nil {
		return fmt.Errorf("process: start a pod: %w", err)
	}
	go s.obey(signals)
	if err := s.finish(); err != nil {
		return fmt.Errorf("process: end of a pod: %w", err)
	}
	return nil
}

// goneCheck is how often a supervisor looks whether its directory is there.
const goneCheck = 10 * time.Second

// obey does what the server asks for by signals. A pod whose directory was removed, after a server
// that was killed for example, is nobody's any more.
func (s *supervisor) obey(signals <-chan os.Signal) {
	for t := time.NewTicker(goneCheck); ; {
		select {
		case sig := <-signals:
			switch sig {
			case syscall.SIGTERM:
				s.terminate()
			case syscall.SIGQUIT:
				s.kill()
			}
		case <-t.C:
			if _, err := os.Stat(lockPath(s.plan.Pod)); errors.Is(err, os.ErrNotExist) {
				s.kill()
			}
		}
	}
}

// launcher returns the command that starts this program as a supervisor or a stage. Its
// environment has no variables of the server.
func launcher(launch []string, stage string) *exec.Cmd {
	path, err := SelfPath, error(nil)
	if path == "" {
		path, err = os.Executable()
	}
	return &exec.Cmd{
		Path: path, Err: err, Args: slices.Concat([]string{"podyard-launch"}, launch, []string{stage}),
		Env: []string{LaunchVariable + "=1"}, Dir: string(os.PathSeparator), SysProcAttr: newSession(nil),
	}
}
