package enginetest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// keeperEnv makes a test binary be the keeper of another process of it.
const keeperEnv = "PODYARD_ENGINE_KEEPER"

// Main runs the tests of a package, as a testing.M does, and ends the engines they started.
// Its result is for os.Exit.
func Main(m interface{ Run() int }) int {
	if os.Getenv(keeperEnv) != "" {
		return keep(os.Stdin)
	}
	code := m.Run()
	running.Lock()
	defer running.Unlock()
	for _, e := range running.engines {
		e.end()
	}
	if running.keeper != nil {
		running.keeper.end()
	}
	return code
}

// A keeper is the process that cleans up after this one. It is told what there is, and
// begins when its input ends: when this process closes it, or dies.
type keeper struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func startKeeper() (*keeper, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), keeperEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what ends a terminal's programs is not for it
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &keeper{cmd, in}, cmd.Start()
}

// keep tells of a directory ("dir") or a network interface ("link").
func (k *keeper) keep(what, name string) error {
	_, err := fmt.Fprintln(k.in, what, name)
	return err
}

// end returns when everything is gone.
func (k *keeper) end() {
	_ = k.in.Close()
	_ = k.cmd.Wait()
}

// keep is the life of a keeper.
func keep(in io.Reader) int {
	var dirs, links []string
	for sc := bufio.NewScanner(in); sc.Scan(); {
		switch what, name, _ := strings.Cut(sc.Text(), " "); what {
		case "dir":
			dirs = append(dirs, name)
		case "link":
			links = append(links, name)
		}
	}
	for _, dir := range dirs {
		links = append(links, networks(dir)...)
		endProcesses(dir)
		unmount(dir)
		_ = os.RemoveAll(dir)
	}
	for _, l := range links {
		_ = exec.Command("ip", "link", "del", l).Run()
	}
	return 0
}

// networks are the interfaces of networks of the engine in dir. Podman has them in files, and
// Docker has to be asked: one that ended in order has none.
func networks(dir string) (links []string) {
	files, _ := filepath.Glob(filepath.Join(dir, "networks", "*.json"))
	for _, f := range files {
		var n struct {
			Interface string `json:"network_interface"`
		}
		if data, err := os.ReadFile(f); err == nil && json.Unmarshal(data, &n) == nil && n.Interface != "" {
			links = append(links, n.Interface)
		}
	}
	said, err := (&Engine{dir: dir}).ask(http.MethodGet, "/networks", nil, http.StatusOK)
	var list []struct{ ID, Driver string }
	if err == nil && json.Unmarshal(said, &list) == nil {
		for _, n := range list {
			if n.Driver == "bridge" && len(n.ID) >= 12 { // of the default one there is no such interface
				links = append(links, "br-"+n.ID[:12])
			}
		}
	}
	return links
}

// endProcesses kills everything that has dir on its command line, and what these have
// started: first the programs of containers, whose shims have it. It goes on until there
// is nothing.
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
		ours[pid] = parents[pid] > 0 && bytes.Contains(line, []byte(dir+"/"))
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
