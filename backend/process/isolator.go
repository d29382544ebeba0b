package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/podyard/podyard/backend/process/internal/supervise"
	"github.com/podyard/podyard/pods"
)

// An isolator applies Options.Isolation on this host. A nil one isolates nothing.
type isolator struct {
	opts   Isolation
	root   layout
	groups supervise.Cgroups
	bwrap  string   // the path of bubblewrap; empty: pods run without it
	lacks  []string // what this host does not have, with the reason
	// otherUsers means that some pods run as other users than the server.
	otherUsers bool
}

// newIsolator finds out what this host permits.
func newIsolator(o *Isolation, root layout, users []*supervise.Identity) (*isolator, error) {
	if o == nil {
		return nil, nil
	}
	if os.Getenv(supervise.LaunchVariable) != "" {
		return nil, errors.New("this program was started to launch a pod: its main function is to call LaunchPod before anything else")
	}
	i := &isolator{opts: o.withDefaults(), root: root}
	i.otherUsers = slices.ContainsFunc(users, func(id *supervise.Identity) bool { return id != nil })
	if err := i.opts.check(); err != nil {
		return nil, err
	}
	if err := i.probe(users); err != nil {
		return nil, err
	}
	var missing []string
	i.groups, missing = supervise.OpenCgroups(i.opts.Cgroup, string(root))
	i.lacks = append(i.lacks, missing...)
	return i, nil
}

// hidden returns the real paths of what pods do not see.
func (i *isolator) hidden() ([]string, error) {
	hide := []string{string(i.root)}
	if i.otherUsers {
		hide[0] = firstClosed(hide[0])
	}
	for _, path := range i.opts.Hide {
		found, err := realPath(path)
		if errors.Is(err, fs.ErrPermission) {
			continue // pods do not get there either
		}
		if err != nil {
			return nil, err
		}
		hide = append(hide, found)
	}
	return hide, nil
}

// realPath returns the absolute path without links, as far as it exists.
func realPath(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	found, err := filepath.EvalSymlinks(abs)
	if dir := filepath.Dir(abs); errors.Is(err, fs.ErrNotExist) && dir != abs {
		found, err = realPath(dir)
		found = filepath.Join(found, filepath.Base(abs))
	}
	return found, err
}

// firstClosed returns the first directory above path that not everybody may pass, or path. Other
// users cannot reach anything below that directory.
func firstClosed(path string) string {
	for dir := range ways(path) {
		if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o001 == 0 {
			return dir
		}
	}
	return path
}

// ways returns the directories above path, from the root on, and path.
func ways(path string) func(func(string) bool) {
	return func(yield func(string) bool) {
		var list []string
		for dir := path; ; dir = filepath.Dir(dir) {
			list = append(list, dir)
			if dir == filepath.Dir(dir) {
				break
			}
		}
		for _, dir := range slices.Backward(list) {
			if !yield(dir) {
				return
			}
		}
	}
}

// apply adds to a plan what the isolation needs. own are the directories of the pod.
func (i *isolator) apply(p *supervise.Plan, s *pods.Spec, own []string, devices []string) error {
	if i == nil {
		return nil
	}
	p.Launch = i.opts.Launch
	if s.Disk > 0 && len(s.Mounts) == 0 { // what has mounts may write larger files there
		p.FileSize = int64(s.Disk) * i.unit()
	}
	if i.bwrap == "" {
		return nil
	}
	hide, err := i.hidden() // a link may have another target than at the start
	if err != nil {
		return err
	}
	shm := int64(s.Memory) * i.unit() / 2
	if s.ShmSize > 0 {
		shm = int64(s.ShmSize) << 20
	}
	if shm == 0 {
		shm = defaultShm
	}
	if p.FileSize > 0 {
		p.FileSize = max(p.FileSize, shm)
	}
	p.Bwrap = bwrapArgs(i.bwrap, hide, own, devices, shm)
	return nil
}

// unit is the unit of Spec.Disk and Spec.Memory.
func (i *isolator) unit() int64 {
	if i == nil {
		return gigabyte
	}
	return i.opts.unit
}

// defaultShm is the size of /dev/shm of a pod without a limit of memory, as of containers.
const defaultShm = 64 << 20

// bwrapArgs is the command of bubblewrap up to the pod's.
func bwrapArgs(path string, hide, own, devices []string, shm int64) []string {
	args := []string{
		path, "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
		"--cap-drop", "ALL",
	}
	if os.Geteuid() == 0 { // to become the pod's user, who has none
		args = append(args, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
	}
	args = append(args, "--ro-bind", "/", "/", "--dev", "/dev",
		"--perms", "1777", "--size", fmt.Sprint(shm), "--tmpfs", "/dev/shm", "--proc", "/proc")
	for _, d := range devices {
		args = append(args, "--dev-bind", d, d)
	}
	covers := coversOf(hide)
	for _, c := range covers {
		args = append(args, c.args()...)
	}
	for _, dir := range own {
		for parent := range ways(filepath.Dir(dir)) { // bubblewrap closes what it makes to other users
			if slices.ContainsFunc(covers, func(c cover) bool { return len(c.shows) == 0 && parent != c.dir && below(parent, c.dir) }) {
				args = append(args, "--perms", "0755", "--dir", parent)
			}
		}
		args = append(args, "--bind", dir, dir)
	}
	for _, c := range covers {
		args = append(args, "--remount-ro", c.dir)
	}
	return args
}

// group makes the cgroups of one start of a pod, with a limit of memory.
func (i *isolator) group(name string, memory int) ([]string, error) {
	if i == nil {
		return nil, nil
	}
	dirs, err := i.groups.Make(name, i.opts.Processes, int64(memory)*i.unit())
	if err != nil {
		err = errors.Join(fmt.Errorf("its cgroup cannot be made: %w", err), supervise.RemoveCgroups(dirs))
	}
	return dirs, err
}

// inForce says how pods are isolated.
func (i *isolator) inForce() string {
	switch {
	case i == nil:
		return "none"
	case i.bwrap == "":
		return ModeNone
	}
	return "bubblewrap"
}

// Isolation says how pods are kept apart now: "bubblewrap" or "none".
func (r *Runtime) Isolation() string { return r.policy.Load().isolator.inForce() }

// logMissing logs what the host lacks, once.
func (r *Runtime) logMissing() {
	if i := r.policy.Load().isolator; i != nil && len(i.lacks) > 0 {
		r.opts.Logger.Warn("process: this host does not keep pods apart in every way", "missing", strings.Join(i.lacks, "; "))
	}
}
