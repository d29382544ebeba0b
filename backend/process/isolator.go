package process

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/podyard/podyard/internal/firewall"
	"github.com/podyard/podyard/pods"
)

// An isolator applies Options.Isolation on this host. A nil one isolates nothing.
type isolator struct {
	opts   Isolation
	groups cgroups
	lacks  lacks
	plan   plan // what all plans have in common
	// otherUsers means that pods run as other users than the server.
	otherUsers bool
}

func (i *isolator) missing() lacks {
	if i == nil {
		return nil
	}
	return i.lacks
}

// launchVariable marks a process as a launcher, so that a program without a call of LaunchPod
// is detected.
const launchVariable = "PODYARD_LAUNCH"

// newIsolator finds out what this host permits. otherUsers means that images name users.
func newIsolator(o *Isolation, root layout, otherUsers bool) (*isolator, error) {
	if o == nil {
		if otherUsers {
			return nil, errors.New("images run as users of their own with Isolation only")
		}
		return nil, nil
	}
	if os.Getenv(launchVariable) != "" {
		return nil, errors.New("this program was started to launch a pod: its main function is to call LaunchPod before anything else")
	}
	opts := o.withDefaults()
	if err := opts.check(); err != nil {
		return nil, err
	}
	i := &isolator{opts: opts, lacks: lacks{}, otherUsers: otherUsers || opts.UIDs.Count > 0}
	if !canIsolate {
		i.lacks[lacksAll] = "it needs Linux"
		if i.otherUsers {
			return nil, errors.New("users for pods need Linux")
		}
		return i, nil
	}
	if err := i.cover(root); err != nil {
		return nil, err
	}
	if err := i.probe(); err != nil {
		return nil, err
	}
	i.groups = openCgroups(&i.opts, string(root), i.lacks)
	if !i.groups.limitPIDs() && i.otherUsers {
		i.plan.Processes = i.opts.Processes // as a limit of the user
	}
	return i, i.checkUsers(root)
}

// cover collects the real paths of what is hidden, and sets the common part of all plans.
func (i *isolator) cover(root layout) error {
	place, err := filepath.EvalSymlinks(string(root))
	if err != nil {
		return err
	}
	hide := []string{place}
	if i.otherUsers {
		closed, err := firstClosed(place)
		if err != nil {
			return err
		}
		hide = append(hide, closed)
	}
	hide, err = i.hidden(hide)
	i.plan = plan{Hide: hide, Writable: i.opts.Writable}
	return err
}

// hidden appends the real paths of Isolation.Hide, as they are now, to hide.
func (i *isolator) hidden(hide []string) ([]string, error) {
	for _, path := range i.opts.Hide {
		found, err := realPath(path)
		if errors.Is(err, fs.ErrPermission) && !i.otherUsers {
			found, err = filepath.Abs(path) // pods have this user, which does not get there either
		}
		if err != nil {
			return nil, err
		}
		hide = append(hide, found)
	}
	return hide, nil
}

// realPath returns the absolute path without links. A path that does not exist stays as it is.
func realPath(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	found, err := filepath.EvalSymlinks(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return abs, nil
	}
	return found, err
}

// firstClosed returns the first directory above path that not everybody may pass, or path.
// Users of pods cannot reach anything below that directory.
func firstClosed(path string) (string, error) {
	for dir := range ways(path) {
		info, err := os.Stat(dir)
		if err != nil {
			return "", err
		}
		if info.Mode().Perm()&0o001 == 0 {
			return dir, nil
		}
	}
	return path, nil
}

// ways yields the directories above path, from the root on, and path.
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

// launchTime is how long a launcher may take. It takes some milliseconds.
const launchTime = time.Minute

// probe makes a launcher report what this host permits, and stores that in the plan.
func (i *isolator) probe() error {
	p := i.plan
	p.Probe = true
	if i.otherUsers {
		uid := max(i.opts.UIDs.First, 1)
		p.User = &identity{UID: uid, GID: uid}
	}
	cmd := i.launcher("")
	a, err := i.begin(cmd, p)
	if err == nil && !a.Probed {
		err = firstError(a.err(), errors.New("it does not know that it is one"))
	}
	if cmd.Process != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it has answered, or was killed
	}
	if err != nil {
		return fmt.Errorf("start this program with %q as a launcher of pods: %w", i.opts.Launch, err)
	}
	if why, not := a.Lacks[lacksUser]; not {
		return fmt.Errorf("pods cannot run as other users than the server: %s", why)
	}
	if a.Lacks == nil {
		a.Lacks = lacks{}
	}
	for _, name := range i.opts.without {
		a.Lacks[name] = "a test does without"
	}
	has := func(name string) bool { _, lacks := a.Lacks[name]; return !lacks }
	i.lacks = a.Lacks
	i.plan.Mounts, i.plan.HiddenPIDs = has(lacksMounts), has(lacksHiddenPIDs)
	i.plan.DropCaps = has(lacksCaps) && os.Geteuid() == 0
	if has(lacksLandlock) {
		i.plan.Landlock = a.Landlock
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// checkUsers returns an error for users that could not reach their own directories, or that are
// root.
func (i *isolator) checkUsers(root layout) error {
	if !i.otherUsers || i.plan.Mounts {
		return nil
	}
	closed, err := firstClosed(string(root))
	if err == nil && closed != string(root) {
		err = fmt.Errorf("%s is closed to users of pods, and %s is missing: %s", closed, lacksMounts, i.lacks[lacksMounts])
	}
	return err
}

// launcher returns the command that becomes a pod. Its environment has no variables of the
// server.
func (i *isolator) launcher(mark string) *exec.Cmd {
	cmd := exec.Command(selfPath, i.opts.Launch...)
	cmd.Args[0] = "podyard-launch"
	cmd.Env = []string{markName + mark, launchVariable + "=1"}
	cmd.SysProcAttr = newSession()
	return cmd
}

// begin starts a launcher and returns when it has become the program or has failed.
func (i *isolator) begin(cmd *exec.Cmd, p plan) (answer, error) {
	l, err := prepareLaunch(cmd)
	if err != nil {
		return answer{}, err
	}
	err = cmd.Start()
	l.started()
	if err != nil {
		l.abandon()
		return answer{}, err
	}
	return l.run(p)
}

// passable reports whether users of pods have to go through the directory of the Runtime to
// reach their own.
func (i *isolator) passable() bool { return i != nil && i.otherUsers && !i.plan.Mounts }

// confines reports whether a pod can write to its own directories only.
func (i *isolator) confines() bool { return i != nil && i.plan.Landlock > 0 }

// group makes the cgroups of one start of a pod, with a limit of memory.
func (i *isolator) group(name string, memory int) ([]string, error) {
	if i == nil {
		return nil, nil
	}
	dirs, err := i.groups.make(name, i.opts.Processes, int64(memory)*i.opts.unit)
	if err != nil {
		err = errors.Join(fmt.Errorf("its cgroup cannot be made: %w", err), removeCgroups(dirs))
	}
	return dirs, err
}

// limits returns the disk limits of a pod.
func (i *isolator) limits(s pods.Spec, disk []string, mounts []string) (list []diskLimit) {
	if i == nil {
		return nil
	}
	if s.Disk > 0 {
		list = append(list, diskLimit{"disk", disk, int64(s.Disk) * i.opts.unit})
	}
	for n, m := range s.Mounts {
		if m.VolumeID == "" && m.Size > 0 {
			list = append(list, diskLimit{"persistent mount", mounts[n : n+1], int64(m.Size) * i.opts.unit})
		}
	}
	return list
}

// diskCheck returns the least time between two measurements. Without Isolation it is still
// needed for pods that an earlier server isolated.
func (i *isolator) diskCheck() time.Duration {
	if i == nil {
		return defaultDiskCheck
	}
	return i.opts.diskCheck
}

// repair returns how often the firewall rules are checked. Reconfigure may ask for rules where
// there were none.
func (i *isolator) repair() time.Duration {
	if i == nil {
		return firewall.RepairInterval
	}
	return cmp.Or(i.opts.repair, firewall.RepairInterval)
}

// run starts prog isolated; cmd is prog without isolation. It returns when the program runs or
// has failed.
func (i *isolator) run(cmd *exec.Cmd, prog programSpec, groups []string) error {
	p := i.plan
	p.Argv, p.Env, p.Dir, p.User = prog.argv, prog.env, prog.dir, prog.user
	p.Own, p.Cgroups = prog.own, groups
	hide, err := i.hidden(slices.Clone(p.Hide)) // a link may have another target than at the start
	if err != nil {
		return err
	}
	p.Hide = hide
	if !prog.self {
		p.Program = cmd.Path
	}
	if cmd.Err != nil {
		return cmd.Err
	}
	stdout := cmd.Stdout
	*cmd = *i.launcher(prog.mark)
	cmd.Stdout, cmd.Stderr = stdout, stdout
	a, err := i.begin(cmd, p)
	if err == nil {
		err = a.err()
	}
	if err != nil && cmd.Process != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // its answer is all that matters
	}
	return err
}
