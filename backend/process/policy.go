package process

import (
	"fmt"
	"maps"
	"slices"

	"github.com/podyard/podyard/backend/process/internal/supervise"
)

// A policy has the images and the isolation. A start of a pod uses the same policy from its
// beginning to its end.
type policy struct {
	images   map[string]Image
	isolator *isolator                      // nil: nothing is isolated
	users    map[string]*supervise.Identity // by Image.User
}

// newPolicy makes a policy, and finds out what this host permits.
func (r *Runtime) newPolicy(images map[string]Image, isolation *Isolation) (*policy, error) {
	p := &policy{images: maps.Clone(images), users: map[string]*supervise.Identity{}}
	if err := checkImages(p.images); err != nil {
		return nil, err
	}
	byDefault := ""
	if isolation != nil {
		byDefault = isolation.User
	}
	var err error
	if p.users[""], err = lookUpUser(byDefault); err != nil {
		return nil, fmt.Errorf("user %q: %w", byDefault, err)
	}
	for name, image := range p.images {
		if image.User == "" {
			continue
		}
		if p.users[image.User], err = lookUpUser(image.User); err != nil {
			return nil, fmt.Errorf("image %q: user %q: %w", name, image.User, err)
		}
	}
	if p.isolator, err = newIsolator(isolation, r.root, slices.Collect(maps.Values(p.users))); err != nil {
		return nil, err
	}
	return p, r.openWay(p)
}

// openWay lets everybody pass through directories without listing them, where users of pods own
// directories below them.
func (r *Runtime) openWay(p *policy) error {
	if !p.passable() {
		return nil
	}
	if err := r.root.makePassable(); err != nil {
		return err
	}
	if closed := firstClosed(string(r.root)); closed != string(r.root) {
		r.opts.Logger.Warn("process: pods do not reach their own directories by name, because another user cannot pass a directory above: install bubblewrap, or keep the data elsewhere", "dir", closed)
	}
	return nil
}

// passable reports whether users of pods have to go through the directory of the Runtime to
// reach their own.
func (p *policy) passable() bool {
	for _, id := range p.users {
		if id != nil {
			return p.isolator == nil || p.isolator.bwrap == ""
		}
	}
	return false
}

// Reconfigure prepares other Options.Images and Options.Isolation and returns a function that
// applies them. Like Open it finds out what this host permits; an error changes nothing.
// Running processes are not changed. The next start of a pod uses the new settings, and fails
// if its image is gone.
func (r *Runtime) Reconfigure(images map[string]Image, isolation *Isolation) (apply func(), err error) {
	p, err := r.newPolicy(images, isolation)
	if err != nil {
		return nil, fmt.Errorf("process: reconfigure: %w", err)
	}
	return func() {
		r.policy.Store(p)
		r.logMissing()
	}, nil
}
