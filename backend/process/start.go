package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/backend/process/internal/supervise"
	"github.com/podyard/podyard/internal/podhost"
	"github.com/podyard/podyard/pods"
)

// start is the job of Ensure: it ends what runs, then makes and starts the container. The end
// of the old container is not reported, because the state is about s now.
func (p *pod) start(s pods.Spec) {
	p.stop(podhost.Grace(&s, p.r.opts.Grace), "")
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
		err = p.r.check(s, image)
	}
	if err != nil {
		return err
	}
	mounts, err := p.r.root.mounts(p.id, s.Mounts)
	if err != nil {
		return fmt.Errorf("a mount cannot be made: %w", err)
	}
	own := append([]string{p.r.root.disk(p.id), p.r.root.scratch(p.id)}, mounts...)
	user := p.policy.users[image.User]
	if err := p.give(own, user); err != nil {
		return fmt.Errorf("a directory cannot be given to its user: %w", err)
	}
	had := p.rec.Ports
	p.rec.Ports, err = p.r.ports.Allocate(p.r.opts.Host, podhost.Publish(&s), s.Ports, had)
	if err != nil {
		return err
	}
	ports := podhost.Mapping(p.r.opts.Host, podhost.Publish(&s), s.Ports, p.rec.Ports)
	if err := p.recordStart(s, mounts); err != nil {
		return err
	}
	p.r.ports.Release(podhost.Replaced(had, p.rec.Ports))
	x, err := p.run(s, image, user, own, p.environ(s, image, user, mounts, ports))
	if err != nil {
		return errors.Join(fmt.Errorf("its command cannot be started: %w", err), supervise.EndCgroups(p.rec.Cgroups))
	}
	p.rec.Starting, p.rec.Running = false, true
	state := p.rec.State
	state.Phase, state.Started, state.Ports = pods.PhaseStarting, time.Now(), ports
	p.supervise(x, state)
	return nil
}

// run has the driver start the program of an image.
func (p *pod) run(s pods.Spec, image Image, user *supervise.Identity, own, env []string) (*proc, error) {
	n := supervise.Plan{
		Pod: p.r.root.pod(p.id), Start: p.rec.Starts, LogSize: p.r.opts.LogSize, Cgroups: p.rec.Cgroups,
		Argv: slices.Concat(image.Command, s.Entrypoint, s.Args), Env: env, Dir: image.Dir, User: user,
	}
	if n.Dir == "" {
		n.Dir = p.r.root.disk(p.id)
	}
	var err error
	switch {
	case !image.Self:
		n.Program, err = exec.LookPath(n.Argv[0])
	case supervise.SelfPath != "":
		n.Program = supervise.SelfPath
	default:
		n.Program, err = os.Executable()
	}
	if err == nil {
		err = p.policy.isolator.apply(&n, &s, own, p.r.devices(s))
	}
	if err != nil {
		return nil, err
	}
	started, err := p.r.driver.Start(n)
	if err != nil {
		return nil, err
	}
	x := newProc(started)
	x.limits = p.rec.Limits
	x.begun = &beginning{env: env, dir: n.Dir, user: user}
	return x, nil
}

// check returns an error for a pod that may not run here.
func (r *Runtime) check(s pods.Spec, image Image) error {
	if err := r.checkAdmitted(s, image); err != nil {
		return err
	}
	if len(image.Command)+len(s.Entrypoint)+len(s.Args) == 0 {
		return fmt.Errorf("image %q has no command of its own, and no args say what to run", s.Image)
	}
	if s.NetworkAlias != "" {
		return errors.New("processes join no private network: global networking needs an image that runs in a container")
	}
	return r.checkGPUs(s)
}

// recordStart records how to find the process, before it is started.
func (p *pod) recordStart(s pods.Spec, mounts []string) (err error) {
	p.rec.Starts++
	p.rec.Starting, p.rec.Running, p.rec.Boot = true, false, podhost.BootID()
	p.rec.Limits = p.r.limits(s, p.policy.isolator.unit(), mounts)
	p.rec.Cgroups, err = p.policy.isolator.group(p.id+"."+strconv.FormatUint(p.rec.Starts, 10), s.Memory)
	if err != nil {
		return err
	}
	if err := p.rec.write(p.r.root.record(p.id)); err != nil {
		return errors.Join(fmt.Errorf("its state cannot be written: %w", err), supervise.RemoveCgroups(p.rec.Cgroups))
	}
	return nil
}

// limits returns the disk limits of a pod.
func (r *Runtime) limits(s pods.Spec, unit int64, mounts []string) (list []diskLimit) {
	if s.Disk > 0 {
		list = append(list, newDiskLimit("disk", []string{r.root.disk(s.PodID), r.root.scratch(s.PodID)}, s.Disk, unit))
	}
	for n, m := range s.Mounts {
		if m.VolumeID == "" && m.Size > 0 {
			list = append(list, newDiskLimit("persistent mount", mounts[n:n+1], m.Size, unit))
		}
	}
	return list
}

// makeDir makes the directory of the pod. Its user must be able to pass through it where there is
// no bubblewrap.
func (p *pod) makeDir() error {
	dir := p.r.root.pod(p.id)
	if err := os.MkdirAll(dir, 0o700); err != nil || !p.policy.passable() {
		return err
	}
	return os.Chmod(dir, 0o711)
}

// wipe empties the disk unless it is of this generation.
func (p *pod) wipe(gen uint64) error {
	if p.rec.Disk == nil || *p.rec.Disk != gen {
		for _, dir := range []string{p.r.root.disk(p.id), p.r.root.scratch(p.id)} {
			if err := p.r.trash.Put(dir); err != nil {
				return err
			}
		}
	}
	p.rec.Disk = &gen
	return p.r.root.disks(p.id)
}

// image returns the image that s names.
func (p *policy) image(s pods.Spec) (Image, error) {
	image, ok := p.images[s.Image]
	if !ok {
		return Image{}, p.unknown(s, func(Image) bool { return true })
	}
	return image, nil
}

// environ returns the whole environment. Of two values of one name the later one counts.
func (p *pod) environ(s pods.Spec, image Image, user *supervise.Identity, mounts []string, ports []pods.PortMapping) []string {
	root := p.r.root
	env := []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + root.disk(p.id),
		"TMPDIR=" + root.scratch(p.id),
		"USER=" + userName(user),
		"LOGNAME=" + userName(user),
	}
	if runtime.GOOS == "windows" {
		env = append(env, "TEMP="+root.scratch(p.id), "TMP="+root.scratch(p.id), "USERPROFILE="+root.disk(p.id))
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
	return lastOnes(env)
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

// supervise starts the goroutines for a running process: its end, its disk, its health.
func (p *pod) supervise(x *proc, s pods.ContainerState) {
	x.vcpu, x.memory = p.rec.VCPU, p.rec.Memory
	p.setProc(x)
	p.publish(s)
	p.r.start(func() {
		<-x.Ended
		p.do(func() { p.recordExit(x) })
	})
	p.r.start(func() { p.watchDisk(x) })
	if s.Phase == pods.PhaseStarting {
		p.r.start(func() {
			if p.r.healthy(x, s.Ports) {
				p.do(func() { p.markHealthy(x) })
			}
		})
	}
}

// reason returns the text of err for the pod's user, without paths of this host. The log has
// the paths.
func reason(err error) string { return withoutPaths(err.Error(), err) }

// withoutPaths removes from text the paths in err and in the errors that it wraps.
func withoutPaths(text string, err error) string {
	switch e := err.(type) { //nolint:errorlint // everything that is wrapped comes up
	case *fs.PathError:
		return strings.ReplaceAll(text, e.Path, "file")
	case *exec.Error:
		if strings.ContainsAny(e.Name, `/\`) { // a name without is what the configuration says
			text = strings.ReplaceAll(text, strconv.Quote(e.Name), "file")
		}
		return withoutPaths(text, e.Err)
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
