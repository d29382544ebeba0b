package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/podyard/podyard/backend/process/internal/supervise"
	"github.com/podyard/podyard/internal/podhost"
	"github.com/podyard/podyard/pods"
)

// ErrClosed is returned by calls after Close.
var ErrClosed = errors.New("process: runtime is closed")

// A Runtime runs pods as processes. It is safe for concurrent use.
type Runtime struct {
	opts   Options
	root   layout
	lock   *os.File
	hub    podhost.Hub
	ports  podhost.PortAllocator
	load   supervise.Sampler
	driver driver
	trash  supervise.Trash
	// policy is replaced as a whole by Reconfigure.
	policy atomic.Pointer[policy]
	work   sync.WaitGroup // all goroutines, see start
	// killNow is closed when Close must end without further grace.
	killNow chan struct{}
	closing chan struct{} // closed when Close begins
	closed  chan struct{} // closed when all pods have ended
	pods    podhost.Table[*pod]

	diskCheck time.Duration // how often disks are measured
}

var (
	_ pods.Runtime   = (*Runtime)(nil)
	_ pods.LogReader = (*Runtime)(nil)
	_ pods.Sampler   = (*Runtime)(nil)
	_ pods.Admitter  = (*Runtime)(nil)
)

// Open returns a Runtime with its files in dir, which it makes if it is not there. While the
// Runtime is open, a second Open of dir is an error, in this program or another. Pods that an
// earlier server left running are adopted, see the package documentation.
func Open(dir string, opts *Options) (*Runtime, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("process: open %q: %w", dir, err)
	}
	r := &Runtime{
		opts: opts.withDefaults(), root: layout(abs), diskCheck: diskCheck,
		killNow: make(chan struct{}), closing: make(chan struct{}), closed: make(chan struct{}),
	}
	err = r.root.make()
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs) // bubblewrap makes directories of this name
	}
	if err != nil {
		return nil, fmt.Errorf("process: open %q: %w", dir, err)
	}
	r.root = layout(abs)
	r.trash = supervise.NewTrash(r.root.trash())
	r.driver = supervise.NewDriver(r.opts.Logger, r.start)
	if r.lock, err = supervise.Lock(r.root.lock()); err != nil {
		return nil, fmt.Errorf("process: open %q: %w", dir, err)
	}
	// All records are read before anything is changed, so that an unreadable one is not lost.
	recs, err := r.readPods()
	var p *policy
	if err == nil {
		p, err = r.newPolicy(r.opts.Images, r.opts.Isolation)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("process: open %q: %w", dir, err), r.lock.Close())
	}
	r.policy.Store(p)
	r.logMissing()
	r.start(func() { r.trash.Empty(r.closing, r.opts.Logger) })
	r.endLeftovers(recs)
	for p, rec := range recs {
		p.resume(rec)
	}
	return r, nil
}

// endLeftovers ends the processes in cgroups that no record names, which a crashed server left.
func (r *Runtime) endLeftovers(recs map[*pod]record) {
	i := r.policy.Load().isolator
	if i == nil {
		return
	}
	var keep []string
	for _, rec := range recs {
		keep = append(keep, rec.Cgroups...)
	}
	left := i.groups.Leftovers(keep)
	r.start(func() {
		if err := supervise.EndCgroups(left); err != nil {
			r.opts.Logger.Error("process: cgroups of an earlier server cannot be removed", "err", err)
		}
	})
}

// readPods reads the records of the pods of an earlier server.
func (r *Runtime) readPods() (map[*pod]record, error) {
	ids, err := r.root.podIDs(&r.trash)
	if err != nil {
		return nil, err
	}
	recs := map[*pod]record{}
	for _, id := range ids {
		rec, err := readRecord(r.root.record(id))
		if err == nil && rec.State.PodID != id {
			err = fmt.Errorf("it is of pod %q", rec.State.PodID)
		}
		p := r.pods.Made(id, r.newPod)
		if err != nil {
			return nil, fmt.Errorf("pod %q: %s cannot be read: %w", id, r.root.record(id), err)
		}
		recs[p] = rec
	}
	return recs, nil
}

// Capabilities implements pods.Runtime: GPUs alone.
func (r *Runtime) Capabilities() pods.Capabilities { return pods.Capabilities{GPUs: true} }

// Ensure implements pods.Runtime. A pod with an image that is not in Options.Images fails.
func (r *Runtime) Ensure(_ context.Context, s pods.Spec) error {
	if !plainName(s.PodID) {
		return fmt.Errorf("process: ensure %q: pod id is not a plain name", s.PodID)
	}
	if err := r.pods.Ensure(s.PodID, r.newPod, func(p *pod) error { return p.ensure(s) }); err != nil {
		return fmt.Errorf("process: ensure %q: %w", s.PodID, err)
	}
	return nil
}

// Stop implements pods.Runtime.
func (r *Runtime) Stop(_ context.Context, podID string, grace time.Duration) error {
	_, err := r.pods.Call(podID, func(p *pod) {
		p.shortenGrace(grace)
		p.do(func() { p.stop(grace, "") })
	})
	if err != nil {
		return fmt.Errorf("process: stop %q: %w", podID, err)
	}
	return nil
}

// Remove implements pods.Runtime. If ctx ends first, it returns ctx's error and the removal
// goes on.
func (r *Runtime) Remove(ctx context.Context, podID string, grace time.Duration) error {
	done := make(chan error, 1)
	found, err := r.pods.Call(podID, func(p *pod) {
		p.shortenGrace(grace)
		p.queueRemoval(func() { done <- p.remove(grace) })
	})
	if found {
		select {
		case err = <-done:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		return fmt.Errorf("process: remove %q: %w", podID, err)
	}
	return nil
}

// start runs f in a goroutine that Close waits for.
func (r *Runtime) start(f func()) {
	r.work.Go(f)
}

// List implements pods.Runtime.
func (r *Runtime) List(context.Context) ([]pods.ContainerState, error) {
	if err := r.pods.Closed(); err != nil {
		return nil, fmt.Errorf("process: list: %w", err)
	}
	var states []pods.ContainerState
	for _, p := range r.pods.All() {
		if s, ok := p.currentState(); ok {
			states = append(states, s)
		}
	}
	return states, nil
}

// Watch implements pods.Runtime. It returns ErrClosed after Close, and an error when f is
// so slow that thousands of changes wait.
func (r *Runtime) Watch(ctx context.Context, f func(pods.ContainerState)) error {
	return fmt.Errorf("process: watch: %w", r.hub.Watch(ctx, f))
}

// Close ends all pods, each with Options.Grace or until ctx ends, and releases the directory.
// They have then exited with Stopped and the reason "server stopped"; watchers still see that,
// and the next Open lists it. No process and no goroutine is left. A second Close does nothing.
func (r *Runtime) Close(ctx context.Context) error {
	if !r.pods.Close(ErrClosed) {
		return nil
	}
	close(r.closing)
	defer context.AfterFunc(ctx, func() { close(r.killNow) })()
	for _, p := range r.pods.All() {
		p.shortenGrace(r.opts.Grace)
		p.do(func() { p.stop(r.opts.Grace, "server stopped") })
	}
	r.work.Wait()
	close(r.closed)
	r.hub.Close(ErrClosed)
	if err := r.lock.Close(); err != nil {
		return fmt.Errorf("process: close: %w", err)
	}
	return nil
}
