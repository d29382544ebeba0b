package process

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/pods"
)

// A process that a server was starting keeps the server's files until its exec, so that their
// lock outlives a killed server for a moment.
func TestALockIsWaitedForAMoment(t *testing.T) {
	dir := t.TempDir()
	if err := open(t, dir).Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(layout(dir).lock())
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	released := time.AfterFunc(50*time.Millisecond, func() { _ = f.Close() })
	defer released.Stop()
	open(t, dir)
}

func TestAFileOfTheSystemThatIsMissingIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "null")
	if err := missing(os.DevNull, path); err == nil || !strings.Contains(err.Error(), path+" is missing") {
		t.Errorf("the error of a system without %s is %v, want it to name the file", path, err)
	}
	if err := missing("/proc/self/exe", os.DevNull); err != nil {
		t.Errorf("the error of this system is %v, want none", err)
	}
}

func TestAStartThatAServerDiedOverCanBeStopped(t *testing.T) {
	dir := t.TempDir()
	rt := open(t, dir)
	ensure(t, rt, spec("a", program("run")))
	await(t, rt, "a", "health", phase(pods.PhaseHealthy))
	if err := rt.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	rec, err := readRecord(rt.root.record("a"))
	if err != nil {
		t.Fatal(err)
	}
	rec.State = pods.ContainerState{PodID: "a", Gen: rec.State.Gen, Run: 2, Phase: pods.PhasePulling}
	rec.Starting = true
	if err := rec.write(rt.root.record("a")); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir)
	if err := again.Stop(t.Context(), "a", 0); err != nil {
		t.Fatal(err)
	}
	if got := await(t, again, "a", "its end", phase(pods.PhaseExited)); got.Run != 2 || !got.Stopped {
		t.Errorf("pod is %+v, want run 2 stopped", got)
	}
}
