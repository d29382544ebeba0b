package process

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A task is a process as /proc shows it.
type task struct {
	pid, parent, session int
	state                byte
	start                uint64 // clock ticks since the boot
	ticks                uint64 // CPU time, with that of its ended children
	pages                uint64 // resident
	mark                 string
}

// dead reports whether a task has ended and only waits for its parent.
func (t task) dead() bool { return t.state == 'Z' || t.state == 'X' }

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
		pid: pid, parent: int(num(4)), session: int(num(6)), state: f[0][0], start: num(22),
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
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if t, ok := readTask(pid); ok {
			t.mark = readMark(pid)
			all = append(all, t)
		}
	}
	return all, nil
}

// readMark returns the mark in the environment of a process; empty also when the environment
// cannot be read.
func readMark(pid int) string {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return ""
	}
	for len(env) > 0 {
		word, rest, _ := bytes.Cut(env, []byte{0})
		if mark, ok := bytes.CutPrefix(word, []byte(markName)); ok {
			return string(mark)
		}
		env = rest
	}
	return ""
}

// members returns the living tasks of x: those with its mark, those in its session, earlier
// members, and descendants of them all.
func (x *proc) members(all []task) []task {
	in := map[int]bool{}
	seen := x.descendants.list()
	foreign := !thisBoot(x.startTime) // the number of the session may belong to another one now
	for _, t := range all {
		if t.pid == x.pid && taskStartTime(t) != x.startTime {
			foreign = true
		}
		in[t.pid] = slices.ContainsFunc(seen, func(s task) bool { return s.pid == t.pid && s.start == t.start })
	}
	for grown := true; grown; {
		grown = false
		for _, t := range all {
			ours := t.mark == x.mark && x.mark != "" || in[t.parent] ||
				t.session == x.pid && x.pid != 0 && !foreign
			if ours && !in[t.pid] && t.pid != os.Getpid() {
				in[t.pid], grown = true, true
			}
		}
	}
	var found []task
	for _, t := range all {
		if in[t.pid] && !t.dead() {
			found = append(found, t)
		}
	}
	return found
}

// recordDescendants stores the members while the first process lives. A process that is known
// only by its parent would be lost when the parent ends.
func (x *proc) recordDescendants() {
	all, err := tasks()
	if err != nil {
		return // sweep meets the same error and reports it
	}
	x.descendants.set(x.members(all))
}

// descendants are the members of a proc before its end.
type descendants struct {
	mu    sync.Mutex
	tasks []task
}

func (k *descendants) list() []task {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tasks
}

func (k *descendants) set(members []task) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tasks = members
}

// killDescendants kills all members and returns how many there were.
func (x *proc) killDescendants() (found int, err error) {
	all, err := tasks()
	if err != nil {
		return 0, err
	}
	members := x.members(all)
	for _, t := range members {
		killTask(t)
	}
	return len(members), nil
}

// killTask kills t, and never a later process with its number: it opens a handle first, and
// then compares the start time.
func killTask(t task) {
	p, err := os.FindProcess(t.pid)
	if err != nil {
		return
	}
	defer func() { _ = p.Release() }()
	if now, ok := readTask(t.pid); ok && now.start == t.start {
		_ = p.Kill() // it has ended, or is found in the next scan
	}
}

// startTimeOf returns a text that distinguishes the process from others with the same number;
// empty when there is no process.
func startTimeOf(pid int) string {
	if t, ok := readTask(pid); ok {
		return taskStartTime(t)
	}
	return ""
}

// taskStartTime includes the boot id, because ticks and numbers start again at each boot.
func taskStartTime(t task) string {
	boot := bootID()
	if boot == "" {
		return ""
	}
	return boot + "/" + strconv.FormatUint(t.start, 10)
}

// thisBoot reports whether a process may have been started since the last boot.
func thisBoot(born string) bool {
	boot, _, known := strings.Cut(born, "/")
	return !known || boot == bootID()
}

// bootID is empty where the system has none.
func bootID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(boot))
}

// alive reports whether the first process runs.
func (x *proc) alive() bool {
	t, ok := readTask(x.pid)
	return ok && !t.dead() && x.startTime != "" && taskStartTime(t) == x.startTime
}

// orphanPollInterval is how often a process of an earlier server is checked. Its end sends no
// signal to this server; a check reads one small file.
const orphanPollInterval = 50 * time.Millisecond

// orphanExit waits for the end of a process that is not our child.
func (x *proc) orphanExit() exit {
	t := time.NewTicker(orphanPollInterval)
	defer t.Stop()
	first, ok := readTask(x.pid)
	if !ok || !x.alive() {
		return unknownExit
	}
	for now := first; ok && now.start == first.start && !now.dead(); now, ok = readTask(x.pid) {
		<-t.C
	}
	return unknownExit
}

// punchFile frees the disk space of a part of a file. The length of the file stays.
func punchFile(f *os.File, offset, length int64) error {
	const keepSize, punchHole = 1, 2
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = conn.Control(func(fd uintptr) {
		inner = syscall.Fallocate(int(fd), keepSize|punchHole, offset, length)
	})
	return errors.Join(err, inner)
}
