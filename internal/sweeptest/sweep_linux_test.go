package sweeptest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		time.Sleep(time.Hour)
	}
	os.Exit(Main(m))
}

const (
	childEnv  = "PODYARD_TEST_CHILD"  // makes this program what tests have started
	victimEnv = "PODYARD_TEST_VICTIM" // and tests that are killed
)

func TestAKilledTestLeavesNothing(t *testing.T) {
	if os.Getenv(victimEnv) != "" {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), childEnv+"=1", "HOME="+filepath.Join(t.TempDir(), "home"))
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		fmt.Println(os.Getenv("TMPDIR"))
		time.Sleep(time.Hour)
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), victimEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan()
	dir := lines.Text()
	if len(Processes(dir)) != 1 {
		t.Errorf("%d processes have %q in their environment, want one", len(Processes(dir)), dir)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	for late := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(dir); err != nil && len(Processes(dir)) == 0 {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("%s is left, with processes %v", dir, Processes(dir))
		}
	}
}
