package enginetest

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/internal/sweeptest"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// victimEnv names the engine for a test process that will be killed.
const victimEnv = "PODYARD_ENGINE_VICTIM"

func TestAKilledTestProcessLeavesNothing(t *testing.T) {
	suite.SkipUnlessLong(t)
	if kind := os.Getenv(victimEnv); kind != "" {
		waitForTheEnd(t, Require(t, kind))
	}
	for _, kind := range Kinds {
		t.Run(kind, func(t *testing.T) {
			Require(t, kind) // or skip here, where the result is visible
			cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()[:strings.IndexByte(t.Name(), '/')]+"$")
			cmd.Env = append(os.Environ(), victimEnv+"="+kind)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.Stderr = t.Output()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var dir string
			for sc := bufio.NewScanner(out); dir == "" && sc.Scan(); {
				dir, _ = strings.CutPrefix(sc.Text(), "engine in ")
			}
			running := len(sweeptest.Processes(dir))
			if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if dir == "" || running < 3 { // engine, shim, program
				t.Fatalf("the engine was in %q with %d processes", dir, running)
			}
			look := time.NewTicker(20 * time.Millisecond)
			defer look.Stop()
			for late := time.After(time.Minute); ; {
				if _, err := os.Stat(dir); err != nil && len(sweeptest.Processes(dir)) == 0 {
					return
				}
				select {
				case <-look.C:
				case <-late:
					t.Fatalf("%s is left, with processes %v", dir, sweeptest.Processes(dir))
				}
			}
		})
	}
}

// waitForTheEnd runs a container, prints the engine's directory and waits.
func waitForTheEnd(t *testing.T, e *Engine) {
	img, err := Image("./testdata/sleeper")
	if err != nil {
		t.Fatal(err)
	}
	e.LoadImage(t, "podyard.test/sleeper:1", img)
	for _, call := range []struct {
		path, body string
		status     int
	}{
		{"/containers/create?name=sleeper", `{"Image":"podyard.test/sleeper:1"}`, http.StatusCreated},
		{"/containers/sleeper/start", "", http.StatusNoContent},
	} {
		if _, err := e.request(http.MethodPost, call.path, strings.NewReader(call.body), call.status); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println("engine in " + e.dir)
	time.Sleep(time.Hour)
}
