package supervise

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// The first process of a pod has ended, with its supervisor and its server. Days later the number of
// its group may be that of another program's.
func TestAGroupOfAnotherProgramIsNotEnded(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  string
		want bool
	}{
		{"a member with the pod in its environment", podVariable + "=mine", true},
		{"none with the pod in its environment", podVariable + "=another", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command("/bin/sh", "-c", "sleep 1000 & echo $!")
			cmd.SysProcAttr = newSession(nil)
			cmd.Env = append(os.Environ(), tt.env)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			member, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			defer syscall.Kill(member, syscall.SIGKILL)
			born := startTimeOf(os.Getpid())
			_ = cmd.Process.Signal(syscall.SIGKILL) // it may have ended
			_, _ = cmd.Process.Wait()

			x := NewProc("/pods/mine", 1)
			if got := x.owns(Status{PID: cmd.Process.Pid, Start: 1, StartTime: born}); got != tt.want {
				t.Errorf("the group of the member %d counts as that of the pod: %t, want %t", member, got, tt.want)
			}
		})
	}
}
