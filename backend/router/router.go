// Package router runs the pods of one host on several runtimes: a rule says which pods a
// runtime gets, and one runtime gets the rest. A server with a container engine runs the
// images that are commands of its host as processes this way, and all others as containers.
//
// Every runtime is asked about every pod, because a pod may have been on another one
// before: a runtime that does not have the pod does nothing.
package router

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/problem"
)

// A Rule gives some pods to a runtime.
type Rule struct {
	// Match reports whether the pod is for Runtime. It depends on the Spec alone: a pod
	// whose Spec is the same stays where it is. It must be safe for concurrent use.
	Match   func(pods.Spec) bool
	Runtime pods.Runtime
}

// A Runtime is several runtimes as one. It is safe for concurrent use.
//
// It implements [pods.LogReader], [pods.Sampler], [pods.Admitter], [volumes.Storage] and
// [pods.CUDAVersioner] by the runtimes that implement them. It does not close the runtimes; the
// program that opened them does.
type Runtime struct {
	rules []Rule
	rest  pods.Runtime
	all   []pods.Runtime // those of rules, then rest
}

var (
	_ pods.Runtime       = (*Runtime)(nil)
	_ pods.LogReader     = (*Runtime)(nil)
	_ pods.Sampler       = (*Runtime)(nil)
	_ pods.CUDAVersioner = (*Runtime)(nil)
	_ pods.Admitter      = (*Runtime)(nil)
	_ volumes.Storage    = (*Runtime)(nil)
)

// New returns a runtime that asks the rules in their order; the first that matches decides.
// Pods that no rule matches are for rest.
func New(rest pods.Runtime, rules ...Rule) *Runtime {
	r := &Runtime{rules: rules, rest: rest}
	for _, rule := range rules {
		r.all = append(r.all, rule.Runtime)
	}
	r.all = append(r.all, rest)
	return r
}

// Capabilities implements pods.Runtime: what one of the runtimes can do. Only the limit of
// a disk is what all can do, because a user is promised it before the place is known.
func (r *Runtime) Capabilities() pods.Capabilities {
	c := pods.Capabilities{DiskLimit: true}
	for _, rt := range r.all {
		has := rt.Capabilities()
		c.GPUs = c.GPUs || has.GPUs
		c.Pull = c.Pull || has.Pull
		c.PrivateNetworks = c.PrivateNetworks || has.PrivateNetworks
		c.DiskLimit = c.DiskLimit && has.DiskLimit
	}
	return c
}

// Isolation is for pods.HostState: what the first runtime says that has such a method.
func (r *Runtime) Isolation() string {
	for _, rt := range r.all {
		if i, ok := pods.As[interface{ Isolation() string }](rt); ok {
			return i.Isolation()
		}
	}
	return ""
}

// CUDAVersion implements pods.CUDAVersioner: the version of the first runtime that knows one.
func (r *Runtime) CUDAVersion() string {
	for _, rt := range r.all {
		if c, ok := pods.As[pods.CUDAVersioner](rt); ok && c.CUDAVersion() != "" {
			return c.CUDAVersion()
		}
	}
	return ""
}

// Ensure implements pods.Runtime. A pod whose new Spec is for another runtime is removed
// from the old one, with what is in its local storage.
func (r *Runtime) Ensure(ctx context.Context, s pods.Spec) error {
	to := r.choose(s)
	for i, rt := range r.all {
		if i == to {
			continue
		}
		if err := rt.Remove(ctx, s.PodID, time.Second); err != nil {
			return err
		}
	}
	return r.all[to].Ensure(ctx, s)
}

// Admit implements pods.Admitter: the runtime that the pod is for judges it, if it does.
func (r *Runtime) Admit(s pods.Spec, faults *problem.Violations) {
	if a, ok := pods.As[pods.Admitter](r.all[r.choose(s)]); ok {
		a.Admit(s, faults)
	}
}

// choose is the index in all of the runtime for a pod.
func (r *Runtime) choose(s pods.Spec) int {
	for i, rule := range r.rules {
		if rule.Match(s) {
			return i
		}
	}
	return len(r.rules)
}

// each calls f for all runtimes and returns their errors together.
func (r *Runtime) each(f func(pods.Runtime) error) error {
	var errs []error
	for _, rt := range r.all {
		errs = append(errs, f(rt))
	}
	return errors.Join(errs...)
}

// Stop implements pods.Runtime.
func (r *Runtime) Stop(ctx context.Context, podID string, grace time.Duration) error {
	return r.each(func(rt pods.Runtime) error { return rt.Stop(ctx, podID, grace) })
}

// Remove implements pods.Runtime.
func (r *Runtime) Remove(ctx context.Context, podID string, grace time.Duration) error {
	return r.each(func(rt pods.Runtime) error { return rt.Remove(ctx, podID, grace) })
}

// List implements pods.Runtime. A pod that is moving from one runtime to another is listed
// once, with its newer generation.
func (r *Runtime) List(ctx context.Context) ([]pods.ContainerState, error) {
	at := map[string]int{}
	var all []pods.ContainerState
	for _, rt := range r.all {
		list, err := rt.List(ctx)
		if err != nil {
			return nil, err
		}
		for _, s := range list {
			i, twice := at[s.PodID]
			switch {
			case !twice:
				at[s.PodID] = len(all)
				all = append(all, s)
			case all[i].Gen < s.Gen:
				all[i] = s
			}
		}
	}
	return all, nil
}

// Watch implements pods.Runtime. It ends when the watch of one runtime does, with its
// error.
func (r *Runtime) Watch(ctx context.Context, f func(pods.ContainerState)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex // f takes one call at a time
	one := func(s pods.ContainerState) {
		mu.Lock()
		defer mu.Unlock()
		f(s)
	}
	var watches sync.WaitGroup
	for _, rt := range r.all {
		watches.Go(func() { cancel(rt.Watch(ctx, one)) })
	}
	watches.Wait()
	return context.Cause(ctx)
}

// Logs implements pods.LogReader. A runtime that does not know the pod has no lines, and the
// next one is asked.
func (r *Runtime) Logs(ctx context.Context, podID string, q pods.LogQuery) iter.Seq2[pods.LogLine, error] {
	return func(yield func(pods.LogLine, error) bool) {
		for _, rt := range r.all {
			logs, ok := pods.As[pods.LogReader](rt)
			if !ok {
				continue
			}
			for line, err := range logs.Logs(ctx, podID, q) {
				if !yield(line, err) {
					return
				}
			}
		}
	}
}

// Sample implements pods.Sampler: what the first runtime measures that knows the pod.
func (r *Runtime) Sample(ctx context.Context, podID string) (pods.Sample, bool) {
	for _, rt := range r.all {
		if m, has := pods.As[pods.Sampler](rt); has {
			if s, ok := m.Sample(ctx, podID); ok {
				return s, true
			}
		}
	}
	return pods.Sample{}, false
}

// RemoveVolume implements volumes.Storage: it removes what any runtime has of the volume.
func (r *Runtime) RemoveVolume(ctx context.Context, id string) error {
	return r.each(func(rt pods.Runtime) error {
		if s, ok := pods.As[volumes.Storage](rt); ok {
			return s.RemoveVolume(ctx, id)
		}
		return nil
	})
}
