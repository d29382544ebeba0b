package supervise

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Cgroups are the directories in which this host lets the Runtime make cgroups: one of version
// 2, and one of version 1 for each controller there.
type Cgroups struct {
	prefix string // prefix of the names of this Runtime's groups
	v2     string // empty: none
	pids   string // where the controller pids is; empty: nowhere
	memory string
}

// OpenCgroups finds and tries the directories, and says what is missing.
func OpenCgroups(configured, root string) (c Cgroups, missing []string) {
	sum := sha256.Sum256([]byte(root))
	c.prefix = "podyard." + hex.EncodeToString(sum[:6]) + "."
	places, err := cgroupPlaces()
	if configured != "" {
		places["2"], err = configured, nil
	}
	if err == nil {
		c.v2, err = places["2"], c.try(places["2"], "cgroup.kill")
	}
	if err != nil {
		c.v2 = ""
	}
	if c.pids, err = c.place("pids", places); err != nil {
		missing = append(missing, "a limit of processes ("+err.Error()+")")
	}
	if c.memory, err = c.place("memory", places); err != nil {
		missing = append(missing, "a limit of memory ("+err.Error()+")")
	}
	return c, missing
}

// try makes a group in dir, checks that it has a file, and removes it.
func (c *Cgroups) try(dir, file string) error {
	if dir == "" {
		return errors.New("there is no cgroup to make others in")
	}
	probe := filepath.Join(dir, c.prefix+"probe")
	if err := makeGroup(probe); err != nil {
		return err
	}
	_, err := os.Stat(filepath.Join(probe, file))
	return errors.Join(err, os.Remove(probe))
}

// makeGroup makes a cgroup whose limits programs can read.
func makeGroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // see above
		return err
	}
	return nil
}

// place returns the directory in which groups with a controller can be made.
func (c *Cgroups) place(controller string, places map[string]string) (dir string, err error) {
	if dir = places[controller]; dir != "" {
		err = c.try(dir, "cgroup.procs")
	} else if dir = c.v2; dir != "" {
		err = enable(dir, controller)
	} else {
		err = errors.New("there is no cgroup to make others in")
	}
	if err != nil {
		return "", err
	}
	return dir, nil
}

// enable gives the groups in dir, of version 2, a controller.
func enable(dir, controller string) error {
	if has, err := cgroupHas(dir, "cgroup.subtree_control", controller); has || err != nil {
		return err
	}
	if has, err := cgroupHas(dir, "cgroup.controllers", controller); !has || err != nil {
		return cmp.Or(err, fmt.Errorf("the cgroup %s does not have this controller", dir))
	}
	err := writeCgroup(dir, "cgroup.subtree_control", "+"+controller)
	if errors.Is(err, syscall.EBUSY) {
		return fmt.Errorf("the cgroup %s has processes of its own: one without is to be named", dir)
	}
	return err
}

// cgroupHas reports whether a list of controllers includes one.
func cgroupHas(dir, list, controller string) (bool, error) {
	data, err := os.ReadFile(filepath.Join(dir, list))
	return slices.Contains(strings.Fields(string(data)), controller), err
}

// cgroupPlaces returns the mounted cgroups of this process, by controller of version 1; that of
// version 2 has the key "2".
func cgroupPlaces() (map[string]string, error) {
	places := map[string]string{}
	paths, err := ownCgroups()
	if err != nil {
		return places, err
	}
	data, err := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(data)) {
		before, after, _ := strings.Cut(strings.TrimSpace(line), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if len(f) < 5 || len(g) < 3 {
			continue
		}
		root, point := f[3], f[4]
		switch g[0] {
		case "cgroup2":
			addPlace(places, "2", root, point, paths[""])
		case "cgroup":
			for controller := range strings.SplitSeq(g[2], ",") {
				if path, ours := paths[controller]; ours {
					addPlace(places, controller, root, point, path)
				}
			}
		}
	}
	return places, err
}

// ownCgroups returns the paths of the cgroups of this process, by controller of version 1; that
// of version 2 has an empty key.
func ownCgroups() (map[string]string, error) {
	paths := map[string]string{}
	data, err := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(data)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		for controller := range strings.SplitSeq(f[1], ",") {
			paths[controller] = f[2]
		}
	}
	return paths, err
}

// addPlace adds the directory of a cgroup if a mount shows it.
func addPlace(places map[string]string, key, root, point, path string) {
	rel, err := filepath.Rel(root, path)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return
	}
	dir := filepath.Join(point, rel)
	if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil {
		places[key] = dir
	}
}

// Make makes the group of one start of a pod and returns its directories.
func (c *Cgroups) Make(name string, processes int, memory int64) (dirs []string, err error) {
	for _, place := range []string{c.v2, c.pids, c.memory} {
		dir := filepath.Join(place, c.prefix+name)
		if place == "" || slices.Contains(dirs, dir) {
			continue
		}
		if err := makeGroup(dir); err != nil {
			return dirs, err
		}
		dirs = append(dirs, dir)
	}
	if c.pids != "" {
		err = writeCgroup(filepath.Join(c.pids, c.prefix+name), "pids.max", strconv.Itoa(processes))
	}
	if c.memory != "" && memory > 0 {
		err = errors.Join(err, limitMemory(filepath.Join(c.memory, c.prefix+name), memory))
	}
	return dirs, err
}

// limitMemory uses the names of both versions. Where the kernel counts swap, there is none
// beyond the limit.
func limitMemory(dir string, bytes int64) error {
	n := strconv.FormatInt(bytes, 10)
	err := writeCgroup(dir, "memory.max", n)
	if errors.Is(err, fs.ErrNotExist) {
		_ = writeCgroup(dir, "memory.swappiness", "0")
		return writeCgroup(dir, "memory.limit_in_bytes", n)
	}
	_ = writeCgroup(dir, "memory.swap.max", "0")
	return err
}

func writeCgroup(dir, name, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// killCgroups kills the processes in the groups of a start, and returns how many there were. A
// group that does not exist has none.
func killCgroups(dirs []string) (found int) {
	for _, dir := range dirs {
		data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil || len(bytes.TrimSpace(data)) == 0 {
			continue
		}
		if writeCgroup(dir, "cgroup.kill", "1") == nil {
			found += len(bytes.Fields(data))
			continue
		}
		for word := range bytes.FieldsSeq(data) {
			pid, err := strconv.Atoi(string(word))
			if err != nil {
				continue
			}
			found++
			_ = syscall.Kill(pid, syscall.SIGKILL) // it has ended
		}
	}
	return found
}

// RemoveCgroups removes empty groups.
func RemoveCgroups(dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Leftovers returns the groups of this Runtime except those in keep.
func (c *Cgroups) Leftovers(keep []string) (dirs []string) {
	for _, place := range []string{c.v2, c.pids, c.memory} {
		if place == "" {
			continue
		}
		entries, err := os.ReadDir(place)
		if err != nil {
			continue
		}
		for _, e := range entries {
			dir := filepath.Join(place, e.Name())
			if e.IsDir() && strings.HasPrefix(e.Name(), c.prefix) && !slices.Contains(keep, dir) && !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}
