package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/podyard/podyard/backend/process"
	"github.com/podyard/podyard/pods"
)

// runtime is what runs pods. Processes have a directory even when pods are simulated: its
// lock keeps a second server off the data directory, and processes that a server before
// this one left there are ended.
func (v *server) runtime(ctx context.Context) (pods.Runtime, error) {
	contained, err := v.engine(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := v.runtimeDir(ctx, contained)
	if err != nil {
		return nil, err
	}
	images, err := v.images()
	if err != nil {
		return nil, err
	}
	rt, err := process.Open(dir, &process.Options{Images: images, GPUs: v.gpus.check(), Logger: v.log})
	if err != nil {
		return nil, fmt.Errorf("-data %q: %w", v.settings.data, err)
	}
	simulates := v.settings.runtime == "sim"
	v.closers = append(v.closers, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, podsTime)
		defer cancel()
		if simulates || !v.serving { // nobody would note how processes end
			return rt.Close(ctx)
		}
		return endPods(ctx, rt, v.stores.pods, images)
	})
	if simulates {
		return simulate(rt, images), removeAll(ctx, rt)
	}
	if !contained {
		return v.measured(parting{rt}), nil
	}
	both, err := v.contain(ctx, dir, rt, images)
	if err != nil {
		return nil, err
	}
	return v.measured(both), nil
}

// runtimeDir is where processes have their files: below the data directory, or in one
// that is removed at the end.
func (v *server) runtimeDir(ctx context.Context, contained bool) (string, error) {
	if v.settings.data == "" {
		dir, err := scratch(ctx, contained, v.log)
		if err != nil {
			return "", fmt.Errorf("-data \"\": %w", err)
		}
		v.closers = append(v.closers, func(context.Context) error { return os.RemoveAll(dir) })
		return dir, nil
	}
	if err := os.MkdirAll(v.settings.data, 0o700); err != nil {
		return "", fmt.Errorf("-data: %w", err)
	}
	return filepath.Join(v.settings.data, "process"), nil
}

// images are those of the configuration, and two that are this program.
func (v *server) images() (map[string]process.Image, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program for the images %s and %s: %w", webImage, helloImage, err)
	}
	images := map[string]process.Image{
		webImage:   {Command: []string{self, webCommand}},
		helloImage: {Command: []string{self, helloCommand}},
	}
	for name, img := range v.settings.Images {
		images[name] = process.Image(img)
	}
	return images, nil
}

// removeAll ends what an earlier server left.
func removeAll(ctx context.Context, rt *process.Runtime) error {
	left, err := rt.List(ctx)
	if err != nil {
		return err
	}
	for _, st := range left {
		if err := rt.Remove(ctx, st.PodID, time.Second); err != nil {
			return err
		}
	}
	return nil
}

// parting is a runtime that the service does not take for broken when it is closed: those
// who ask it then wait for their own end.
type parting struct{ *process.Runtime }

func (p parting) Watch(ctx context.Context, f func(pods.State)) error {
	return part(ctx, p.Runtime.Watch(ctx, f))
}

func (p parting) List(ctx context.Context) ([]pods.State, error) {
	list, err := p.Runtime.List(ctx)
	return list, part(ctx, err)
}

// Stop is done for a pod whose runtime is closed: Close has ended it.
func (p parting) Stop(ctx context.Context, podID string, grace time.Duration) error {
	return done(p.Runtime.Stop(ctx, podID, grace))
}

// Remove is as Stop. What is left on the disk the next server finds, and removes.
func (p parting) Remove(ctx context.Context, podID string, grace time.Duration) error {
	return done(p.Runtime.Remove(ctx, podID, grace))
}

func done(err error) error {
	if errors.Is(err, process.ErrClosed) {
		return nil
	}
	return err
}

func part(ctx context.Context, err error) error {
	if errors.Is(err, process.ErrClosed) {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// lastLines is how long who follows the log of a pod has to read of its end.
const lastLines = 250 * time.Millisecond

// endPods closes the runtime and returns when the service has noted how each pod ended,
// and a moment after. When ctx ends first, the runtime's own records tell the next server.
func endPods(ctx context.Context, rt *process.Runtime, store pods.Store, images map[string]process.Image) error {
	before := alive(ctx, store, images)
	if err := rt.Close(ctx); err != nil || !before {
		return err
	}
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for alive(ctx, store, images) {
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil
		}
	}
	look.Reset(lastLines)
	select {
	case <-look.C:
	case <-ctx.Done():
	}
	return nil
}

// alive reports whether a pod has a process, as far as the store can be asked.
func alive(ctx context.Context, store pods.Store, images map[string]process.Image) bool {
	for p, err := range store.List(ctx, pods.Filter{}) {
		if err != nil {
			return false
		}
		_, named := images[p.Want.Applied.Image]
		if named && (p.Seen.Phase == pods.Coming || p.Seen.Phase == pods.Up) {
			return true
		}
	}
	return false
}
