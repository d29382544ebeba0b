package process

import (
	"fmt"
	"maps"
)

// A policy is what decides which images there are and how their processes are kept apart.
// Each start of a pod has one policy from its beginning to its end.
type policy struct {
	images   map[string]Image
	isolator *isolator // nil: nothing is isolated
	users    userRules
}

// newPolicy tries what this host permits.
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
	p.users.confined = p.isolator.confines()
	if p.isolator.passable() {
		return p, r.root.makePassable()
	}
	return p, nil
}

// Reconfigure prepares other Options.Images and Options.Isolation and returns a function that
// puts them into force. It tries what this host permits, as Open does, and an error changes
// nothing. Processes that run go on as they are; the next start of a pod has the new ones, and
// a pod whose image is gone then fails.
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
