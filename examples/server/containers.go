package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"sync"
	"time"

	"github.com/podyard/podyard/backend/docker"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/backend/process"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/volumes"
)

// answerTime is how long an engine may take to say that it is there.
const answerTime = 2 * time.Second

// engine says whether pods run in containers: with -runtime docker an engine must answer,
// with auto it may. It asks where DOCKER_HOST says, or at the default socket of Docker.
func (v *server) engine(ctx context.Context) (bool, error) {
	if v.settings.runtime != "docker" && v.settings.runtime != "auto" {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	err := docker.Answers(ctx, "")
	if err != nil && v.settings.runtime == "docker" {
		return false, fmt.Errorf("-runtime docker: no engine answers: %w", err)
	}
	return err == nil, nil
}

// contain is the runtime of a server with an engine: images that have a name here run as
// processes, all others as containers. Containers of a server that keeps nothing end with
// it; the others go on, and the next server finds them.
func (v *server) contain(ctx context.Context, dir string, processes *process.Runtime, named map[string]process.Image) (pods.Runtime, error) {
	keeps := v.settings.data != ""
	if keeps {
		dir = v.settings.data
	}
	rt, err := docker.Open(ctx, filepath.Join(dir, "docker"), &docker.Options{Logger: v.log})
	if err != nil {
		return nil, fmt.Errorf("-runtime %s: %w", v.settings.runtime, err)
	}
	v.closers = append(v.closers, func(ctx context.Context) error {
		if keeps {
			return rt.Close(ctx)
		}
		return errors.Join(rt.Purge(ctx), rt.Close(ctx))
	})
	if v.gateway, err = rt.Gateway(ctx); err != nil {
		v.log.Warn("workers in containers do not reach this server", "err", err)
	}
	return &router{isProcess: isNamed(named), processes: parting{processes}, containers: calling{staying{rt}, &v.workers, &v.inside}}, nil
}

// simulate is the runtime of a server whose pods exist in name only. Workers whose image
// has a name here are processes all the same: a simulated one comes for no jobs.
func simulate(processes *process.Runtime, named map[string]process.Image) pods.Runtime {
	has := isNamed(named)
	isProcess := func(s pods.Spec) bool { return has(s) && podfleet.IsWorker(s.PodID) }
	return &router{isProcess: isProcess, processes: parting{processes}, containers: simulated{memory.NewRuntime(nil)}}
}

// isNamed says of which pods the image is a command of this host.
func isNamed(images map[string]process.Image) func(pods.Spec) bool {
	return func(s pods.Spec) bool {
		_, ok := images[s.Image]
		return ok
	}
}

// simulated is a runtime whose volumes hold nothing.
type simulated struct{ *memory.Runtime }

func (simulated) RemoveVolume(context.Context, string) error { return nil }

// staying is to containers what parting is to processes. They go on when their runtime is
// closed: what was asked of one then is not done.
type staying struct{ *docker.Runtime }

func (s staying) Watch(ctx context.Context, f func(pods.State)) error {
	return s.part(ctx, s.Runtime.Watch(ctx, f))
}

func (s staying) List(ctx context.Context) ([]pods.State, error) {
	list, err := s.Runtime.List(ctx)
	return list, s.part(ctx, err)
}

func (s staying) part(ctx context.Context, err error) error {
	if errors.Is(err, docker.ErrClosed) {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// A router runs some pods as processes and all others as containers. Both sides are asked
// about every pod: the one that does not have it does nothing.
type router struct {
	isProcess             func(pods.Spec) bool
	processes, containers side
}

// A side is a runtime with all its powers.
type side interface {
	pods.Runtime
	pods.Logs
	pods.Sampler
	volumes.Storage
}

// Capabilities are those that either has; a disk is limited only where all are. A process
// that is to join a private network fails, and says why.
func (r *router) Capabilities() pods.Capabilities {
	p, c := r.processes.Capabilities(), r.containers.Capabilities()
	return pods.Capabilities{
		GPUs: p.GPUs || c.GPUs, Pull: p.Pull || c.Pull,
		Networks: p.Networks || c.Networks, DiskLimit: p.DiskLimit && c.DiskLimit,
	}
}

// CUDAVersion is that of the containers, if they have one without a driver: simulated ones.
func (r *router) CUDAVersion() string {
	if c, ok := r.containers.(pods.CUDAHost); ok {
		return c.CUDAVersion()
	}
	return ""
}

// Ensure takes a pod whose image changed sides from the other one, with what is in its
// local storage.
func (r *router) Ensure(ctx context.Context, s pods.Spec) error {
	to, from := r.containers, r.processes
	if r.isProcess(s) {
		to, from = from, to
	}
	if err := from.Remove(ctx, s.PodID, time.Second); err != nil {
		return err
	}
	return to.Ensure(ctx, s)
}

func (r *router) Stop(ctx context.Context, podID string, grace time.Duration) error {
	return errors.Join(r.processes.Stop(ctx, podID, grace), r.containers.Stop(ctx, podID, grace))
}

func (r *router) Remove(ctx context.Context, podID string, grace time.Duration) error {
	return errors.Join(r.processes.Remove(ctx, podID, grace), r.containers.Remove(ctx, podID, grace))
}

// List has a pod once: while it changes sides, as the newer one.
func (r *router) List(ctx context.Context) ([]pods.State, error) {
	one, err := r.processes.List(ctx)
	if err != nil {
		return nil, err
	}
	other, err := r.containers.List(ctx)
	if err != nil {
		return nil, err
	}
	at := map[string]int{}
	var all []pods.State
	for _, s := range append(one, other...) {
		i, twice := at[s.PodID]
		switch {
		case !twice:
			at[s.PodID] = len(all)
			all = append(all, s)
		case all[i].Gen < s.Gen:
			all[i] = s
		}
	}
	return all, nil
}

// Watch ends when one of the two does.
func (r *router) Watch(ctx context.Context, f func(pods.State)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex // one call at a time
	one := func(s pods.State) {
		mu.Lock()
		defer mu.Unlock()
		f(s)
	}
	ended := make(chan error, 2)
	go func() { ended <- r.processes.Watch(ctx, one) }()
	go func() { ended <- r.containers.Watch(ctx, one) }()
	err := <-ended
	cancel()
	<-ended //nolint:errcheck // its context ended
	return err
}

// Logs asks both: the one that does not know the pod has no lines, and ends at once.
func (r *router) Logs(ctx context.Context, podID string, q pods.LogQuery) iter.Seq2[pods.Line, error] {
	return func(yield func(pods.Line, error) bool) {
		for _, rt := range []side{r.processes, r.containers} {
			for line, err := range rt.Logs(ctx, podID, q) {
				if !yield(line, err) {
					return
				}
			}
		}
	}
}

func (r *router) Sample(ctx context.Context, podID string) (pods.Sample, bool) {
	if s, ok := r.processes.Sample(ctx, podID); ok {
		return s, true
	}
	return r.containers.Sample(ctx, podID)
}

// RemoveVolume removes what either has of a network volume.
func (r *router) RemoveVolume(ctx context.Context, id string) error {
	return errors.Join(r.processes.RemoveVolume(ctx, id), r.containers.RemoveVolume(ctx, id))
}
