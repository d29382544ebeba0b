package fault

import (
	"context"
	"time"

	"github.com/podyard/podyard/pods"
)

// A Runtime is a pods.Runtime whose calls fail by a plan. pods.As finds the optional
// interfaces of the wrapped runtime.
type Runtime struct {
	rt pods.Runtime
	p  *Plan
}

var _ pods.Runtime = (*Runtime)(nil)

// Containers wraps a runtime.
func Containers(rt pods.Runtime, p *Plan) *Runtime { return &Runtime{rt, p} }

// Unwrap returns the wrapped runtime.
func (f *Runtime) Unwrap() pods.Runtime { return f.rt }

// Capabilities implements pods.Runtime. It does not fail.
func (f *Runtime) Capabilities() pods.Capabilities { return f.rt.Capabilities() }

// Ensure implements pods.Runtime.
func (f *Runtime) Ensure(ctx context.Context, s pods.Spec) error {
	return run(ctx, f.p, "runtime.Ensure", func() error { return f.rt.Ensure(ctx, s) })
}

// Stop implements pods.Runtime.
func (f *Runtime) Stop(ctx context.Context, podID string, grace time.Duration) error {
	return run(ctx, f.p, "runtime.Stop", func() error { return f.rt.Stop(ctx, podID, grace) })
}

// Remove implements pods.Runtime.
func (f *Runtime) Remove(ctx context.Context, podID string, grace time.Duration) error {
	return run(ctx, f.p, "runtime.Remove", func() error { return f.rt.Remove(ctx, podID, grace) })
}

// List implements pods.Runtime.
func (f *Runtime) List(ctx context.Context) ([]pods.ContainerState, error) {
	return do(ctx, f.p, "runtime.List", func() ([]pods.ContainerState, error) { return f.rt.List(ctx) })
}

// Watch implements pods.Runtime.
func (f *Runtime) Watch(ctx context.Context, fn func(pods.ContainerState)) error {
	return run(ctx, f.p, "runtime.Watch", func() error { return f.rt.Watch(ctx, fn) })
}
