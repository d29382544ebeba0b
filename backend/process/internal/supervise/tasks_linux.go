package supervise

import (
	"bytes"
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/podhost"
)

// SelfPath is the path of this program, valid also when its file was replaced or its directory
// is closed.
const SelfPath = "/proc/self/exe"

// A task is a process as /proc shows it.
type task struct {
	pid, parent int
	group       int
	state       byte
	threads     int
	start       uint64 // clock ticks since the boot
	ticks       uint64 // CPU time, with that of its ended children
	pages       uint64 // resident
}

// over reports whether t only waits to be reaped. A process whose first thread has ended looks like
// that too while others of its threads run.
func (t task) over() bool { return (t.state == 'Z' || t.state == 'X') && t.threads <= 1 }

// age orders tasks by age, the oldest first.
func (t task) age(other task) int {
	return cmp.Or(cmp.Compare(t.start, other.start), cmp.Compare(t.pid, other.pid))
}

func readTask(pid int) (task, bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return task{}, false
	}
	return parseStat(pid, data)
}

// parseStat reads a line of proc_pid_stat(5). The name of the program, in parentheses, may
// contain spaces and parentheses.
func parseStat(pid int, data []byte) (task, bool) {
	i := bytes.LastIndexByte(data, ')')
	if i < 0 {
		return task{}, false
	}
	f := strings.Fields(string(data[i+1:])) // f[0] is field 3
	if len(f) < 22 {
		return task{}, false
	}
	num := func(field int) uint64 {
		n, _ := strconv.ParseUint(f[field-3], 10, 64)
		return n
	}
	return task{
		pid: pid, parent: int(num(4)), group: int(num(5)), state: f[0][0], threads: int(num(20)), start: num(22),
		ticks: num(14) + num(15) + num(16) + num(17), pages: num(24),
	}, true
}

// tasks lists all processes. One that ends meanwhile may be missing.
func tasks() ([]task, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []task
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if t, ok := readTask(pid); ok {
				all = append(all, t)
			}
		}
	}
	return all, nil
}

// descendants returns the descendants of a process, without those that only wait to be reaped.
func descendants(all []task, pid int) (found []task) {
	children := map[int][]task{}
	for _, t := range all {
		children[t.parent] = append(children[t.parent], t)
	}
	for todo := []int{pid}; len(todo) > 0; todo = todo[1:] {
		for _, t := range children[todo[0]] {
			todo = append(todo, t.pid)
			if !t.over() {
				found = append(found, t)
			}
		}
	}
	return found
}

// startTimeOf returns a text that distinguishes the process from others with the same number;
// empty when there is no process, or one that only waits to be reaped. It includes the boot, because
// ticks and numbers start again then.
func startTimeOf(pid int) string {
	t, ok := readTask(pid)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if !ok || t.over() || err != nil {
		return ""
	}
	return string(bytes.TrimSpace(boot)) + "/" + strconv.FormatUint(t.start, 10)
}

// groupHas reports whether a process of a group has a variable in its environment.
func groupHas(group int, variable string) bool {
	all, _ := tasks() // none is found without a list
	return slices.ContainsFunc(all, func(t task) bool {
		if t.group != group {
			return false
		}
		env, _ := os.ReadFile("/proc/" + strconv.Itoa(t.pid) + "/environ") // it may have ended
		return slices.Contains(strings.Split(string(env), "\x00"), variable)
	})
}

// tick is the unit of CPU time in /proc: a hundredth of a second on every architecture
// that Go runs on.
const tick = 10 * time.Millisecond

// A Sampler shares one list of processes among samples of about the same time.
type Sampler struct {
	mu  sync.Mutex
	at  time.Time
	all []task
}

// Measure returns the CPU time and the resident memory of x, where shared pages count once for each
// process.
func (s *Sampler) Measure(x *Proc) (u podhost.CPUUsage, memory int64, ok bool) {
	at, all, err := s.list()
	if err != nil {
		return u, 0, false
	}
	u.At = at
	members := x.members(all)
	for _, t := range members {
		u.CPU += time.Duration(t.ticks) * tick
		memory += int64(t.pages) * int64(os.Getpagesize())
	}
	return u, memory, len(members) > 0
}

// sampleAge is how old the shared list of processes may be. Many pods are sampled at once, and
// the list is the costly part.
const sampleAge = 250 * time.Millisecond

// PIDs returns the process ids of x.
func (x *Proc) PIDs() (pids []int, err error) {
	all, err := tasks()
	for _, t := range x.members(all) {
		pids = append(pids, t.pid)
	}
	return pids, err
}

// members returns the processes of x.
func (x *Proc) members(all []task) []task {
	if x.inside == nil {
		return descendants(all, x.supervisor)
	}
	members := descendants(all, x.inside.status.PID)
	if t, ok := readTask(x.inside.status.PID); ok && !x.Over() {
		members = append(members, t)
	}
	return members
}

// list holds the lock while it reads, because concurrent callers need the same list.
func (s *Sampler) list() (time.Time, []task, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.at) > sampleAge {
		all, err := tasks()
		if err != nil {
			return s.at, nil, err
		}
		s.at, s.all = time.Now(), all
	}
	return s.at, s.all, nil
}

// oomCount is how often the kernel has killed a process of this machine for memory: a guess
// about one process, used only for a killed one.
func oomCount() uint64 {
	data, _ := os.ReadFile("/proc/vmstat") // 0 where it is not known
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "oom_kill" {
			n, _ := strconv.ParseUint(f[1], 10, 64) // the kernel writes numbers
			return n
		}
	}
	return 0
}
