//go:build linux || darwin || freebsd

package supervise

import (
	"os"
	"os/exec"
	"testing"
)

func TestAProcessIsKnownByItsStart(t *testing.T) {
	me := startTimeOf(os.Getpid())
	if me == "" || me != startTimeOf(os.Getpid()) {
		t.Errorf("the start of this process is %q, then %q, want one text", me, startTimeOf(os.Getpid()))
	}
	if s := (Status{PID: os.Getpid(), StartTime: me}); !s.lives() {
		t.Error("this process is not found by its number and its start")
	}
	if s := (Status{PID: os.Getpid(), StartTime: startTimeOf(os.Getppid())}); s.lives() {
		t.Error("this process is taken for another one with its number")
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^$")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if got := startTimeOf(cmd.Process.Pid); got != "" {
		t.Errorf("the start of a process that has ended is %q, want none", got)
	}
}
