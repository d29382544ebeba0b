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

// reaperEnv makes a test binary run as the reaper of another process.
const reaperEnv = "PODYARD_ENGINE_KEEPER"

// Main runs the tests of a package and then stops the engines that they started. Pass its
// result to os.Exit.
func Main(m interface{ Run() int }) int {
	if os.Getenv(reaperEnv) != "" {
		return reap(os.Stdin)
	}
	running.together = unshareNetwork()
	// Tests mostly wait for engines. A flag on the command line is parsed later and
	// overrides this value.
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

// A reaper is the process that cleans up after this one. It reads the directories of
// engines from its input. It starts to clean up at the end of its input, when this process
// closes it or dies.
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
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // signals from a terminal must not end it
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &reaper{cmd, in}, cmd.Start()
}

// register sends the directory of an engine to the reaper.
func (k *reaper) register(dir string) error {
	_, err := fmt.Fprintln(k.in, dir)
	return err
}

// close returns when the reaper has cleaned up.
func (k *reaper) close() {
	_ = k.in.Close()
	_ = k.cmd.Wait()
}

// reap is the main function of a reaper.
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

// endProcesses kills every process that has dir on its command line or in its environment,
// and their descendants. It kills children first, because the programs of containers do not
// have dir, but their parents do. It repeats this until no process is left.
func endProcesses(dir string) {
	for range 1500 { // half a minute
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

// processes returns the processes of the engine in dir, children before parents.
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
