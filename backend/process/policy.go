package process

import (
	"fmt"
	"maps"
)

// A policy has the images and the isolation. A start of a pod uses the same policy from its
// beginning to its end.
type policy struct {
	images   map[string]Image
	isolator *isolator // nil: nothing is isolated
	users    userRules
}

// newPolicy makes a policy, and finds out what this host permits.
func (r *Runtime) newPolicy(images map[string]Image, isolation *Isolation) (*policy, error) {
	p := &policy{images: maps.Clone(images)}
	if err := checkImages(p.images); err != nil {
		return nil, err
	}
	var numbers UIDRange
	if isolation != nil {
		numbers = isolation.UIDs
	}
	var err error
	if p.users, err = newUserRules(numbers, p.images); err != nil {
		return nil, err
	}
	if p.isolator, err = newIsolator(isolation, r.root, len(p.users.names) > 0); err != nil {
		return nil, err
	}
	r.openNetwork(p)
	p.users.confined = p.isolator.confines()
	if p.isolator.passable() {
		return p, r.root.makePassable()
	}
	return p, nil
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
		if err := r.holdNetwork(p); err != nil {
			r.opts.Logger.Error("process: firewall rules of pods are the old ones", "err", err)
		}
	}, nil
}
