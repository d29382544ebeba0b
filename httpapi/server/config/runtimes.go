package config

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/podyard/podyard/backend/docker"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/backend/process"
	"github.com/podyard/podyard/backend/router"
	"github.com/podyard/podyard/pods"
)

// openRuntime opens what runs pods. Processes have a directory even when pods are simulated:
// its lock keeps a second server off the data directory, and processes that a server before
// this one left there are ended.
func (p *Parts) openRuntime(ctx context.Context) (pods.Runtime, error) {
	contained, err := p.engine(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := p.runtimeDir(ctx, contained)
	if err != nil {
		return nil, err
	}
	images := p.imagesOf(p.config)
	p.addImages(images)
	if p.podAddress, err = p.publishAt(); err != nil {
		return nil, err
	}
	rt, err := process.Open(dir, &process.Options{
		Images: images, GPUs: p.gpus.check(), Logger: p.log, Host: p.podAddress.String(),
		Trusted:   p.trusts,
		Isolation: p.isolation(p.config, dir),
	})
	if err != nil {
		return nil, p.own.wrong("Data", err)
	}
	p.processes, p.processDir = rt, dir
	p.Options.Runtimes = append(p.Options.Runtimes, rt)
	if p.own.Runtime == "sim" {
		return p.simulated(rt), removeAll(ctx, rt)
	}
	if !contained {
		return p.measured(rt), nil
	}
	containers, err := p.openContainers(ctx, dir)
	if err != nil {
		return nil, err
	}
	return p.measured(router.New(containers, router.Rule{Match: p.isCommand, Runtime: rt})), nil
}

// simulated is the runtime of a server whose pods exist in name only. Workers whose image is
// a command are processes all the same: a simulated worker takes no jobs.
func (p *Parts) simulated(processes *process.Runtime) pods.Runtime {
	return router.New(memory.NewRuntime(nil), router.Rule{
		Match:   func(s pods.Spec) bool { return p.isCommand(s) && podfleet.IsWorker(s.PodID) },
		Runtime: processes,
	})
}

// isCommand reports whether the image of a pod is a command of this host, or was one since
// the start: a process that runs stays one when a reload takes its image away.
func (p *Parts) isCommand(s pods.Spec) bool {
	return (*p.known.Load())[s.Image]
}

// addImages adds to the known images. It is not called twice at once.
func (p *Parts) addImages(images map[string]process.Image) {
	known := map[string]bool{}
	if before := p.known.Load(); before != nil {
		known = maps.Clone(*before)
	}
	for name := range images {
		known[name] = true
	}
	p.known.Store(&known)
}

// runtimeDir is where processes have their files: below the data directory, or in one that is
// removed at the end.
func (p *Parts) runtimeDir(ctx context.Context, contained bool) (string, error) {
	if p.own.Data == "" {
		dir, err := tempDir(ctx, contained, p.log)
		if err != nil {
			return "", p.own.wrong("Data", err)
		}
		p.last = append(p.last, func() error { return removeTempDir(context.WithoutCancel(ctx), dir) })
		return dir, nil
	}
	if err := os.MkdirAll(p.own.Data, 0o700); err != nil {
		return "", p.own.wrong("Data", err)
	}
	return filepath.Join(p.own.Data, "process"), nil
}

// imagesOf are those of a configuration and the program's own.
func (p *Parts) imagesOf(c *Config) map[string]process.Image {
	images := maps.Clone(p.own.Images)
	if images == nil {
		images = map[string]process.Image{}
	}
	for name, img := range c.Images {
		images[name] = process.Image{
			Command: img.Command, Dir: img.Dir, Env: img.Env,
			AllowEnv: img.AllowEnv, AllowArgs: img.AllowArgs, User: img.User, Users: img.Users,
		}
	}
	return images
}

// isolation is how processes whose files are in dir are kept apart; nil where they are not.
func (p *Parts) isolation(config *Config, dir string) *process.Isolation {
	c := &config.Processes
	if len(p.own.Launch) == 0 {
		return nil
	}
	hide := append(hostSockets(), filepath.Dir(dir)) // the data directory, or the place of all servers that keep nothing
	for _, path := range []string{config.file, p.own.TLSKey} {
		if path != "" {
			hide = append(hide, path)
		}
	}
	return &process.Isolation{
		Launch: p.own.Launch, Mode: c.Isolation, User: c.user(), Hide: hide, Processes: c.Limit, Cgroup: c.Cgroup,
	}
}

// user is the user of the host that processes run as. It is root only where the configuration says
// so: a newcomer who is root gets a user that owns nothing.
func (c *Processes) user() string {
	if c.User == "" && os.Geteuid() == 0 {
		return process.Nobody
	}
	return c.User
}

// hostSockets are where programs listen that would give a pod the whole host, or all that the user
// of the server has: engines, and the services of a user's session.
func hostSockets() []string {
	list := []string{"/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock", "/run/user"}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		list = append(list, dir)
	}
	if path, ok := strings.CutPrefix(docker.Address(), "unix://"); ok {
		list = append(list, path)
	}
	return list
}

// removeAll ends what an earlier server left.
func removeAll(ctx context.Context, rt *process.Runtime) error {
	left, err := rt.List(ctx)
	if err != nil {
		return err
	}
	for _, st := range left {
		if err := rt.Remove(ctx, st.PodID, time.Second); err != nil {
			return fmt.Errorf("config: %w", err)
		}
	}
	return nil
}
