package process

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/internal/podhost"
	"github.com/podyard/podyard/pods"
)

// start is the job of Ensure: it ends what runs, then makes and starts the container. The end
// of the old container is not reported, because the state is about s now.
func (p *pod) start(s pods.Spec) {
	p.stop(p.r.opts.Grace, "")
	if p.superseded(s) || p.r.pods.Closed() != nil {
		return
	}
	p.rec.State = pods.ContainerState{PodID: s.PodID, Gen: s.Gen, Run: s.Run, Phase: pods.PhasePulling}
	p.rec.VCPU, p.rec.Memory = s.VCPU, s.Memory
	if err := p.launch(s); err != nil {
		p.rec.Starting = false
		failed := p.rec.State
		failed.Phase, failed.Reason = pods.PhaseFailed, reason(err)
		if failed.Reason != err.Error() {
			p.r.opts.Logger.Warn("process: a pod cannot be started", "pod", p.id, "image", s.Image, "err", err)
		}
		p.publish(failed)
	}
}

// superseded reports whether another container than that of s was asked for.
func (p *pod) superseded(s pods.Spec) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.Gen != s.Gen || p.state.Run != s.Run
}

func (p *pod) launch(s pods.Spec) error {
	p.policy = p.r.policy.Load()
	if err := p.makeDir(); err != nil {
		return fmt.Errorf("its directory cannot be made: %w", err)
	}
	if err := p.wipe(s.Gen); err != nil {
		return fmt.Errorf("its disk cannot be made: %w", err)
	}
	image, err := p.policy.image(s)
	if err == nil {
		err = p.r.check(p.policy, s, image)
	}
	if err != nil {
		return err
	}
	mounts, err := p.r.root.mounts(p.id, s.Mounts)
	if err != nil {
		return fmt.Errorf("a mount cannot be made: %w", err)
	}
	prog := programSpec{argv: slices.Concat(image.Command, s.Args), dir: image.Dir, self: image.Self}
	if err := p.give(s.Owner, image, &prog, mounts); err != nil {
		return err
	}
	if err := p.r.holdNetwork(p.policy); err != nil {
		return fmt.Errorf("its network cannot be kept apart: %w", err)
	}
	had := p.rec.Ports
	p.rec.Ports, err = p.r.ports.Allocate(p.r.opts.Host, s.Ports, had)
	if err != nil {
		return err
	}
	ports := podhost.Mapping(p.r.opts.Host, s.Ports, p.rec.Ports)
	if err := p.recordStart(s, mounts); err != nil {
		return err
	}
	p.r.ports.Release(podhost.Replaced(had, p.rec.Ports))
	prog.mark, prog.env = p.rec.Mark, p.environ(s, image, mounts, ports)
	if err := p.spawn(prog, ports); err != nil {
		return errors.Join(err, removeCgroups(p.rec.Cgroups))
	}
	return nil
}

// check returns an error for a pod that may not run here.
func (r *Runtime) check(p *policy, s pods.Spec, image Image) error {
	if err := r.checkAdmitted(p, s); err != nil {
		return err
	}
	if len(image.Command)+len(s.Args) == 0 {
		return fmt.Errorf("image %q has no command of its own, and no args say what to run", s.Image)
	}
	if s.NetworkAlias != "" {
		return errors.New("processes join no private network: global networking needs an image that runs in a container")
	}
	return r.checkGPUs(s)
}

// recordStart records how to find the process, before it is started. After a crash in between,
// the next server finds it by its mark or in its cgroup.
func (p *pod) recordStart(s pods.Spec, mounts []string) (err error) {
	p.rec.Starts++
	p.rec.Mark, p.rec.PID, p.rec.StartTime, p.rec.Starting = rand.Text(), 0, "", true
	p.rec.Limits = p.policy.isolator.limits(s, []string{p.r.root.disk(p.id), p.r.root.scratch(p.id)}, mounts)
	p.rec.Cgroups, err = p.policy.isolator.group(p.id+"."+strconv.FormatUint(p.rec.Starts, 10), s.Memory)
	if err != nil {
		return err
	}
	if err := p.rec.write(p.r.root.record(p.id)); err != nil {
		return errors.Join(fmt.Errorf("its state cannot be written: %w", err), removeCgroups(p.rec.Cgroups))
	}
	return nil
}

// A programSpec is what a pod runs.
type programSpec struct {
	argv []string
	env  []string
	dir  string
	self bool // this program, whatever argv says
	mark string
	user *identity // nil: the server's
	own  []string  // the directories of the pod
}

// command returns the command of prog without isolation.
func (prog *programSpec) command() *exec.Cmd {
	cmd := exec.Command(prog.argv[0], prog.argv[1:]...)
	if prog.self {
		cmd.Path, cmd.Err = selfPath, nil
		if selfPath == "" {
			cmd.Path, cmd.Err = os.Executable()
		}
	}
	cmd.Dir, cmd.Env = prog.dir, prog.env
	cmd.SysProcAttr = newSession()
	return cmd
}

// makeDir makes the directory of the pod. On hosts without mount namespaces the pod's user must
// be able to pass through it.
func (p *pod) makeDir() error {
	dir := p.r.root.pod(p.id)
	if err := os.MkdirAll(dir, 0o700); err != nil || !p.policy.isolator.passable() {
		return err
	}
	return os.Chmod(dir, 0o711)
}

// give makes the pod's user the owner of its directories, and sets both in prog. A volume that
// belongs to another user of the same owner already is not changed.
func (p *pod) give(owner string, image Image, prog *programSpec, mounts []string) error {
	prog.own = append([]string{p.r.root.disk(p.id), p.r.root.scratch(p.id)}, mounts...)
	if prog.dir == "" {
		prog.dir = p.r.root.disk(p.id)
	}
	return p.r.users.use(&p.policy.users, owner, image, func(id *identity) error {
		prog.user = id
		if id == nil {
			return nil
		}
		for _, dir := range prog.own {
			if err := p.r.giveDir(dir, *id); err != nil {
				return fmt.Errorf("a directory cannot be given to its user: %w", err)
			}
		}
		return nil
	})
}

func (r *Runtime) giveDir(dir string, id identity) error {
	if below(dir, r.root.at("volumes")) {
		info, err := os.Lstat(dir)
		if err != nil || ownerOf(info) != uint32(max(os.Getuid(), 0)) {
			return err
		}
	}
	return give(dir, id)
}

// wipe empties the disk unless it is of this generation.
func (p *pod) wipe(gen uint64) error {
	fresh := p.rec.Disk == nil || *p.rec.Disk != gen
	if err := p.r.root.disks(p.id, fresh); err != nil {
		return err
	}
	p.rec.Disk = &gen
	return nil
}

// image returns the image that s names.
func (p *policy) image(s pods.Spec) (Image, error) {
	image, ok := p.images[s.Image]
	if !ok {
		known := make([]string, 0, len(p.images))
		for name := range p.images {
			known = append(known, name)
		}
		slices.Sort(known)
		return Image{}, fmt.Errorf("image %q is not known here: pods of this host are processes, and its images are those of the configuration (%s); any other needs a host with a container engine",
			s.Image, strings.Join(known, ", "))
	}
	return image, nil
}

// environ returns the whole environment. Of two values of one name the later one counts.
func (p *pod) environ(s pods.Spec, image Image, mounts []string, ports []pods.PortMapping) []string {
	root := p.r.root
	env := []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + root.disk(p.id),
		"TMPDIR=" + root.scratch(p.id),
	}
	for _, m := range []map[string]string{image.Env, s.Env} {
		for k, v := range m {
			env = append(env, k+"="+v)
		}
	}
	env = append(env, "PODYARD_POD_ID="+p.id)
	for i, dir := range mounts {
		n := strconv.Itoa(i)
		env = append(env, "PODYARD_MOUNT_"+n+"="+dir, "PODYARD_MOUNT_"+n+"_PATH="+s.Mounts[i].Path)
	}
	env = append(env, p.r.gpuEnv(s)...)
	env = append(env, portEnv(p.r.opts.Host, ports)...)
	env = append(env, listenEnv(s.PortEnv, ports)...)
	return lastOnes(append(env, markName+p.rec.Mark))
}

// lastOnes drops all but the last value of each variable: programs differ in which one they
// take.
func lastOnes(env []string) []string {
	seen := map[string]bool{}
	kept := make([]string, 0, len(env))
	for _, v := range slices.Backward(env) {
		name, _, _ := strings.Cut(v, "=")
		if !seen[name] {
			seen[name] = true
			kept = append(kept, v)
		}
	}
	slices.Reverse(kept)
	return kept
}

// spawn starts a program and the goroutines that supervise it.
func (p *pod) spawn(prog programSpec, ports []pods.PortMapping) error {
	cmd := prog.command()
	raw, err := openRaw(p.r.root.raw(p.id, p.rec.Starts))
	if err != nil {
		return fmt.Errorf("its output cannot be kept: %w", err)
	}
	out, err := os.OpenFile(raw.Name(), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return errors.Join(fmt.Errorf("its output cannot be kept: %w", err), raw.Close())
	}
	cmd.Stdout, cmd.Stderr = out, out
	oom := p.r.oom.count()
	err = p.begin(cmd, prog, raw)
	if closing := out.Close(); closing != nil { // the process has its own
		p.r.opts.Logger.Error("process: raw output cannot be closed", "pod", p.id, "err", closing)
	}
	if err != nil {
		return errors.Join(notStarted(prog.dir, err), raw.Close(), os.Remove(raw.Name()))
	}
	x := newProc(cmd.Process.Pid, startTimeOf(cmd.Process.Pid), p.rec.Mark)
	x.oom, x.cgroups, x.limits = oom, p.rec.Cgroups, p.rec.Limits
	p.rec.PID, p.rec.StartTime, p.rec.Starting = x.pid, x.startTime, false
	s := p.rec.State
	s.Phase, s.Started, s.Ports = pods.PhaseStarting, time.Now(), ports
	p.supervise(x, raw, position{start: p.rec.Starts}, s, func() exit { return childExit(cmd) })
	return nil
}

// begin starts cmd, isolated where that was asked for.
func (p *pod) begin(cmd *exec.Cmd, prog programSpec, raw *os.File) error {
	if prog.user != nil { // a program that opens /dev/stdout opens this file
		if err := raw.Chown(int(prog.user.UID), int(prog.user.GID)); err != nil {
			return err
		}
	}
	if p.policy.isolator == nil || !canIsolate {
		return cmd.Start()
	}
	return p.policy.isolator.run(cmd, prog, p.rec.Cgroups)
}

// supervise starts the goroutines for a running process: its end, its output, its health.
func (p *pod) supervise(x *proc, raw *os.File, from position, s pods.ContainerState, wait func() exit) {
	x.vcpu, x.memory = p.rec.VCPU, p.rec.Memory
	p.setProc(x)
	p.publish(s)
	ended, drained := make(chan struct{}), make(chan struct{})
	p.r.start(func() {
		defer close(drained)
		t := tail{out: p.out, raw: raw, pos: from, log: p.r.opts.Logger}
		t.run(ended)
	})
	p.r.start(func() {
		x.exit = wait()
		close(x.exited)
		x.killErr = x.sweep()
		close(ended)
		<-drained
		close(x.done)
		p.jobs.Do(func() { p.recordExit(x) })
	})
	p.r.start(func() { p.watchDisk(x) })
	if s.Phase == pods.PhaseStarting {
		p.r.start(func() {
			if p.r.healthy(x, s.Ports) {
				p.jobs.Do(func() { p.markHealthy(x) })
			}
		})
	}
}

// notStarted returns why cmd did not start. The system's error names the command also when the
// directory is missing.
func notStarted(dir string, err error) error {
	if _, wrong := os.Stat(dir); wrong != nil {
		return fmt.Errorf("its command cannot be started: its working directory cannot be used: %w", wrong)
	}
	return fmt.Errorf("its command cannot be started: %w", err)
}

// reason returns the text of err for the pod's user, without paths of this host. The log has
// the paths.
func reason(err error) string { return withoutPaths(err.Error(), err) }

// withoutPaths removes from text the paths in err and in the errors that it wraps.
func withoutPaths(text string, err error) string {
	switch e := err.(type) { //nolint:errorlint // everything that is wrapped comes up
	case *fs.PathError:
		return strings.ReplaceAll(text, e.Path, "file")
	case *os.LinkError:
		return strings.ReplaceAll(strings.ReplaceAll(text, e.Old, "file"), e.New, "file")
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			text = withoutPaths(text, err)
		}
	case interface{ Unwrap() error }:
		return withoutPaths(text, e.Unwrap())
	}
	return text
}
