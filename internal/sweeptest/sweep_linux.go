package sweeptest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// sweeperEnv makes a test binary run as the sweeper of another process.
const sweeperEnv = "PODYARD_TEST_SWEEPER"

// running is the sweeper of this process.
var running struct {
	sync.Mutex
	in io.Writer // nil: there is none
}

// Main runs the tests of a package in a temporary directory of their own, TMPDIR. Another process,
// the sweeper, waits for the end of this one, also when that is by Ctrl-C or SIGKILL. Then it kills
// what has the directory on its command line or in its environment, and removes the directory. Pass
// the result of Main to os.Exit.
func Main(m interface{ Run() int }) int {
	if os.Getenv(sweeperEnv) != "" {
		return sweep(os.Stdin)
	}
	cmd, in, err := start()
	if err == nil {
		err = tempDir()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "what these tests leave stays when they are interrupted:", err)
	}
	code := m.Run()
	if in != nil {
		_ = in.Close()
		_ = cmd.Wait() // it has swept
	}
	return code
}

func start() (*exec.Cmd, io.WriteCloser, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), sweeperEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // signals from a terminal must not end it
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	running.Lock()
	defer running.Unlock()
	running.in = in
	return cmd, in, nil
}

// tempDir makes TMPDIR. Its name is short, because that of a socket has at most 108 bytes, and pods
// with users of their own pass through it.
func tempDir() error {
	dir, err := os.MkdirTemp("", "pt")
	if err != nil {
		return err
	}
	return errors.Join(os.Chmod(dir, 0o755), Register(dir), os.Setenv("TMPDIR", dir))
}

// Register has the sweeper do the same with another directory.
func Register(dir string) error {
	running.Lock()
	defer running.Unlock()
	if running.in == nil {
		return errors.New("no sweeper runs")
	}
	_, err := fmt.Fprintln(running.in, dir)
	return err
}

// sweep is the main function of a sweeper. It reads directories until the tests have ended.
func sweep(in io.Reader) int {
	var dirs []string
	for sc := bufio.NewScanner(in); sc.Scan(); {
		dirs = append(dirs, sc.Text())
	}
	for _, dir := range dirs {
		endProcesses(dir)
		unmount(dir)
		_ = os.RemoveAll(dir)
	}
	return 0
}

// endProcesses kills every process that has dir on its command line or in its environment,
// and their descendants. It kills children first, because the programs of containers do not
// have dir, but their parents do. It repeats this until no process is left.
func endProcesses(dir string) {
	for range 1500 { // half a minute
		left := Processes(dir)
		if len(left) == 0 {
			return
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Processes returns the processes with dir on their command line or in their environment, and their
// descendants, children before parents.
func Processes(dir string) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	parents := map[int]int{}
	ours := map[int]bool{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		if f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); len(f) > 1 && f[0] != "Z" {
			parents[pid], _ = strconv.Atoi(f[1])
		}
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		// Podman's name server has dir only in its environment.
		env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		ours[pid] = parents[pid] > 0 && (bytes.Contains(line, []byte(dir+"/")) || bytes.Contains(env, []byte("="+dir+"/")))
	}
	depth := map[int]int{}
	for pid := range parents {
		for p, n := pid, 0; p > 1 && n < 100; p, n = parents[p], n+1 {
			if ours[p] {
				depth[pid] = n + 1
				break
			}
		}
	}
	for pid := range depth {
		pids = append(pids, pid)
	}
	slices.SortFunc(pids, func(a, b int) int { return depth[b] - depth[a] })
	return pids
}

// unmount unmounts everything below dir, the latest mount first.
func unmount(dir string) {
	mounts, _ := os.ReadFile("/proc/mounts")
	lines := strings.Split(string(mounts), "\n")
	for _, line := range slices.Backward(lines) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
			_ = syscall.Unmount(f[1], syscall.MNT_DETACH)
		}
	}
}
