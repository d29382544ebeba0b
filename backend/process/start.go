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

// start is the job of Ensure: it ends what runs, then makes and starts the container.
// The old container is ended without a word, for s is what is asked for now.
func (p *pod) start(s pods.Spec) {
	p.stop(p.r.opts.Grace, "")
	if p.superseded(s) || p.r.pods.Closed() != nil {
		return
	}
	p.rec.State = pods.State{PodID: s.PodID, Gen: s.Gen, Run: s.Run, Phase: pods.Pulling}
	p.rec.VCPU, p.rec.Memory = s.VCPU, s.Memory
	if err := p.launch(s); err != nil {
		p.rec.Starting = false
		failed := p.rec.State
		failed.Phase, failed.Reason = pods.Failed, reason(err)
		if failed.Reason != err.Error() {
			p.r.opts.Logger.Warn("process: a pod cannot be started", "pod", p.id, "image", s.Image, "error", err)
		}
		p.show(failed)
	}
}

// superseded says whether another container than that of s has been asked for.
func (p *pod) superseded(s pods.Spec) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.Gen != s.Gen || p.state.Run != s.Run
}

func (p *pod) launch(s pods.Spec) error {
	if err := os.MkdirAll(p.r.root.pod(p.id), 0o700); err != nil {
		return fmt.Errorf("its directory cannot be made: %w", err)
	}
	if err := p.wipe(s.Gen); err != nil {
		return fmt.Errorf("its disk cannot be made: %w", err)
	}
	image, err := p.r.image(s)
	if err != nil {
		return err
	}
	argv := append(slices.Clone(image.Command), s.Args...)
	if len(argv) == 0 {
		return fmt.Errorf("image %q has no command of its own, and no args say what to run", s.Image)
	}
	if err := p.r.arrived(s); err != nil {
		return err
	}
	if s.Network != "" {
		return errors.New("processes join no private network: global networking needs an image that runs in a container")
	}
	mounts, err := p.r.root.mounts(p.id, s.Mounts)
	if err != nil {
		return fmt.Errorf("a mount cannot be made: %w", err)
	}
	p.rec.Ports, err = p.r.take.Publish(p.r.opts.Host, s.Ports, p.rec.Ports)
	if err != nil {
		return err
	}
	ports := podhost.Mapping(p.r.opts.Host, s.Ports, p.rec.Ports)

	// The mark is on record before a process can bear it: if the server dies in between,
	// the next one finds the process by it.
	p.rec.Starts++
	p.rec.Mark, p.rec.PID, p.rec.Born, p.rec.Starting = rand.Text(), 0, "", true
	if err := p.rec.write(p.r.root.record(p.id)); err != nil {
		return fmt.Errorf("its state cannot be written: %w", err)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = image.Dir
	if cmd.Dir == "" {
		cmd.Dir = p.r.root.disk(p.id)
	}
	cmd.Env = p.environ(s, image, mounts, ports)
	cmd.SysProcAttr = ownSession()
	return p.spawn(cmd, ports)
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

// image is what s names.
func (r *Runtime) image(s pods.Spec) (Image, error) {
	image, ok := r.opts.Images[s.Image]
	if !ok {
		known := make([]string, 0, len(r.opts.Images))
		for name := range r.opts.Images {
			known = append(known, name)
		}
		slices.Sort(known)
		return Image{}, fmt.Errorf("image %q is not known here: pods of this host are processes, and its images are those of the configuration (%s); any other needs a host with a container engine",
			s.Image, strings.Join(known, ", "))
	}
	return image, nil
}

// environ is the whole environment; of two values of one name the later one counts.
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
	return append(env, markName+p.rec.Mark)
}

// spawn starts cmd and everything that looks after it.
func (p *pod) spawn(cmd *exec.Cmd, ports []pods.PortMapping) error {
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
	err = cmd.Start()
	if closing := out.Close(); closing != nil { // the process has its own
		p.r.opts.Logger.Error("process: raw output cannot be closed", "pod", p.id, "error", closing)
	}
	if err != nil {
		return errors.Join(notStarted(cmd, err), raw.Close(), os.Remove(raw.Name()))
	}
	x := newProc(cmd.Process.Pid, born(cmd.Process.Pid), p.rec.Mark)
	x.oom = oom
	p.rec.PID, p.rec.Born, p.rec.Starting = x.pid, x.born, false
	s := p.rec.State
	s.Phase, s.Started, s.Ports = pods.Coming, time.Now(), ports
	p.attend(x, raw, position{start: p.rec.Starts}, s, func() exit { return childExit(cmd) })
	return nil
}

// attend looks after a process that runs: its end, its output, its health.
func (p *pod) attend(x *proc, raw *os.File, from position, s pods.State, wait func() exit) {
	x.vcpu, x.memory = p.rec.VCPU, p.rec.Memory
	p.setProc(x)
	p.show(s)
	ended, drained := make(chan struct{}), make(chan struct{})
	p.r.start(func() {
		defer close(drained)
		t := tail{out: p.out, raw: raw, pos: from, log: p.r.opts.Logger}
		t.run(ended)
	})
	p.r.start(func() {
		x.exit = wait()
		close(x.exited)
		x.left = x.sweep()
		close(ended)
		<-drained
		close(x.gone)
		p.jobs.Do(func() { p.settle(x) })
	})
	if s.Phase == pods.Coming {
		p.r.start(func() {
			if p.r.healthy(x, s.Ports) {
				p.jobs.Do(func() { p.up(x) })
			}
		})
	}
}

// notStarted is why cmd did not start: the system names the command, also when it is the
// directory that is missing.
func notStarted(cmd *exec.Cmd, err error) error {
	if _, wrong := os.Stat(cmd.Dir); wrong != nil {
		return fmt.Errorf("its command cannot be started: its working directory cannot be used: %w", wrong)
	}
	return fmt.Errorf("its command cannot be started: %w", err)
}

// reason is err for the pod's user, without the paths of this host. Whoever runs the host
// reads them in its log.
func reason(err error) string { return withoutPaths(err.Error(), err) }

// withoutPaths takes from text the paths that err and what it wraps name.
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
