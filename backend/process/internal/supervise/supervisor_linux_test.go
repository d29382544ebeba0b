package supervise

import (
	"os"
	"os/exec"
	"testing"
)

// fullEnv names the directory of a pod for the test that runs on a full file system.
const fullEnv = "PODYARD_TEST_FULL"

func TestThePodsEndIsRecordedOnAFullDisk(t *testing.T) {
	pod := os.Getenv(fullEnv)
	if pod == "" {
		if os.Getuid() != 0 {
			t.Skip("a file system of its own takes root")
		}
		pod = t.TempDir()
		script := "mount -t tmpfs -o size=64k,nr_inodes=32 full \"$1\" || exit 77; exec \"$2\" -test.run \"$3\""
		cmd := exec.Command("unshare", "-m", "sh", "-c", script, "sh", pod, os.Args[0], "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), fullEnv+"="+pod)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() == 77 {
			t.Skipf("no file system can be mounted: %s", out)
		}
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	s, err := begin(Plan{
		Pod: pod, Start: 1, LogSize: 1 << 10, Dir: pod, Program: "/bin/sh",
		Argv: []string{"sh", "-c", "cat /dev/zero >fill 2>/dev/null; i=0; while true >more$i; do i=$((i+1)); done 2>/dev/null; exit 7"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.finish(); err != nil {
		t.Errorf("the end of the pod: %v", err)
	}
	if err := os.WriteFile(pod+"/probe", []byte("x"), 0o600); err == nil {
		t.Error("the disk is not full")
	}
	got, err := ReadStatus(pod)
	if err != nil || !got.Ended || got.Exit.Code != 7 {
		t.Errorf("on record is %+v, error %v; want the end with code 7", got, err)
	}
}
