package enginetest

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// reaperEnv makes a test binary be the keeper of another process of it.
const reaperEnv = "PODYARD_ENGINE_KEEPER"

// Main runs the tests of a package, as a testing.M does, and ends the engines they started.
// Its result is for os.Exit.
func Main(m interface{ Run() int }) int {
	if os.Getenv(reaperEnv) != "" {
		return reap(os.Stdin)
	}
	running.together = unshareNetwork()
	// Tests wait for engines most of the time. A flag on the command line comes later, and counts.
	_ = flag.Set("test.parallel", "4")
	code := m.Run()
	running.Lock()
	defer running.Unlock()
	for _, e := range running.engines {
		e.stop()
	}
	if running.keeper != nil {
		running.keeper.close()
	}
	return code
}

// A reaper is the process that cleans up after this one. It is told what there is, and
// begins when its input ends: when this process closes it, or dies.
type reaper struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func startReaper() (*reaper, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), reaperEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what ends a terminal's programs is not for it
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &reaper{cmd, in}, cmd.Start()
}

// register tells of the directory of an engine.
func (k *reaper) register(dir string) error {
	_, err := fmt.Fprintln(k.in, dir)
	return err
}

// close returns when everything is gone.
func (k *reaper) close() {
	_ = k.in.Close()
	_ = k.cmd.Wait()
}

// reap is the life of a keeper.
func reap(in io.Reader) int {
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

// endProcesses kills everything that has dir on its command line or in its environment, and
// what these have started: first the programs of containers, whose shims have it. It goes on
// until there is nothing.
func endProcesses(dir string) {
	for range 100 {
		left := processes(dir)
		if len(left) == 0 {
			return
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// processes are those of the engine in dir, children before their parents.
func processes(dir string) (pids []int) {
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
		// Podman's name server has it in its environment only.
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

// unmount takes away what is mounted below dir, the latest first.
func unmount(dir string) {
	mounts, _ := os.ReadFile("/proc/mounts")
	lines := strings.Split(string(mounts), "\n")
	for _, line := range slices.Backward(lines) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
			_ = syscall.Unmount(f[1], syscall.MNT_DETACH)
		}
	}
}
