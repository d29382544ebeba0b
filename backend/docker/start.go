package docker

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/podyard/podyard/pods"
)

// errHalted ends a start that nobody wants any more: the job that follows it decides.
var errHalted = errors.New("halted")

// attempts is how often another port is tried when one was taken under our hands.
const attempts = 5

// name is that of the container, and the same for all its generations: an engine does not
// let two have one name, so no pod ever has two containers.
func (p *pod) name() string { return "podyard-" + p.r.instance + "-" + p.id }

// inspect asks the engine for the container; nil when there is none.
func (p *pod) inspect(ctx context.Context) (c *container.InspectResponse, err error) {
	err = p.r.insist(ctx, func() error {
		c = nil
		got, err := p.r.api.ContainerInspect(ctx, p.name(), client.ContainerInspectOptions{})
		if errdefs.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		c = &got.Container
		return nil
	})
	if c != nil && (c.Config == nil || c.State == nil || c.Config.Labels[labelInstance] != p.r.instance) {
		return nil, fmt.Errorf("container %s is not of this server", p.name())
	}
	return c, err
}

// start is the job of Ensure.
func (p *pod) start(ctx context.Context, s pods.Spec, halted <-chan struct{}) {
	if p.superseded(s) {
		return
	}
	p.rec.State = pods.State{PodID: p.id, Gen: s.Gen, Run: s.Run, Phase: pods.Pulling}
	p.rec.Starting, p.rec.Void, p.rec.Asked, p.rec.Healthy = true, false, false, false
	p.rec.VCPU, p.rec.Memory, p.rec.Wants = s.VCPU, s.Memory, s.Ports
	p.save()
	err := p.launch(ctx, s, halted)
	switch {
	case err == nil, ctx.Err() != nil, errors.Is(err, errHalted):
		return // Starting is on record until it is known what became of it
	}
	p.r.nets.doubt(p.rec.Network)
	p.rec.Starting = false
	failed := p.rec.State
	failed.Phase, failed.Reason = pods.Failed, words(err)
	p.show(failed)
}

// launch leads to a container of s that was started.
func (p *pod) launch(ctx context.Context, s pods.Spec, halted <-chan struct{}) error {
	c, err := p.inspect(ctx)
	if err != nil {
		return err
	}
	if c, err = p.clear(ctx, c, s.Gen); err != nil {
		return err
	}
	p.calm()
	if isClosed(halted) {
		return errHalted
	}
	p.rec.Before = ""
	if c == nil {
		if err := p.fetch(ctx, s, halted); err != nil {
			return err
		}
		return p.create(ctx, s)
	}
	if err := p.r.engine.granted(c); err != nil {
		return err
	}
	n, err := p.enter(ctx, s)
	if err != nil {
		return err
	}
	if err := p.reattach(ctx, s, n, c); err != nil {
		return err
	}
	p.rec.Before = c.State.StartedAt
	p.save()
	return p.run(ctx)
}

// clear ends the container of an earlier run, and removes it unless it is of the
// generation.
func (p *pod) clear(ctx context.Context, c *container.InspectResponse, gen uint64) (*container.InspectResponse, error) {
	if c == nil {
		return nil, nil
	}
	if c.State.Running {
		if err := p.terminate(ctx, c, p.r.opts.Grace); err != nil {
			return nil, err
		}
	}
	if c.Config.Labels[labelGen] == strconv.FormatUint(gen, 10) {
		return c, nil
	}
	return nil, p.destroy(ctx)
}

// fetch has the image here, unless the start is halted.
func (p *pod) fetch(ctx context.Context, s pods.Spec, halted <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-halted:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := p.r.insist(ctx, func() error { return p.r.pull(ctx, s) })
	if isClosed(halted) {
		return errHalted
	}
	return err
}

// create makes the container and starts it.
func (p *pod) create(ctx context.Context, s pods.Spec) error {
	gpus, err := p.r.grant(s)
	if err != nil {
		return err
	}
	config, err := p.config(ctx, s)
	if err != nil {
		return err
	}
	n, err := p.enter(ctx, s)
	if err != nil {
		return err
	}
	n.attach(s, &config)
	for try := 1; ; try++ {
		if err := p.bind(s, &config); err != nil {
			return err
		}
		p.save()
		if err := p.make(ctx, s, gpus, config); err != nil {
			return err
		}
		err := p.run(ctx)
		if err == nil || !taken(err) || try == attempts {
			return err
		}
		if err := p.destroy(ctx); err != nil {
			return err
		}
		p.r.take.Release(p.rec.Ports)
		p.rec.Ports = nil
	}
}

// make creates the container. One that is there was made by a call that broke off.
func (p *pod) make(ctx context.Context, s pods.Spec, gpus grant, config client.ContainerCreateOptions) error {
	config = gpus.apply(config)
	err := p.r.insist(ctx, func() error {
		if len(gpus.names) > 0 {
			return p.r.createByLibpod(ctx, config, gpus.names)
		}
		_, err := p.r.api.ContainerCreate(ctx, config)
		return err
	})
	if err != nil && !errdefs.IsConflict(err) {
		return err
	}
	if err == nil && len(gpus.shows) == 0 {
		return nil
	}
	c, looking := p.inspect(ctx)
	switch {
	case looking != nil:
		return looking
	case c == nil || c.Config.Labels[labelGen] != strconv.FormatUint(s.Gen, 10):
		return errors.Join(err, errors.New("the engine has another container under its name"))
	}
	return p.r.engine.granted(c)
}

// run starts the container that is there, once: a start that broke off may have been
// made.
func (p *pod) run(ctx context.Context) error {
	tried := false
	err := p.r.insist(ctx, func() error {
		if tried {
			c, err := p.inspect(ctx)
			if err == nil && c != nil && p.started(c) {
				return nil
			}
		}
		tried = true
		_, err := p.r.api.ContainerStart(ctx, p.name(), client.ContainerStartOptions{})
		return err
	})
	if err != nil {
		return err
	}
	c, err := p.inspect(ctx)
	if err != nil {
		return err
	}
	if c == nil {
		return errors.New("its container was removed by somebody else")
	}
	if err := arrived(c); err != nil {
		return errors.Join(err, p.terminate(ctx, c, 0))
	}
	p.rec.Starting = false
	p.reflect(c)
	return nil
}

// started says whether the container was started since Before.
func (p *pod) started(c *container.InspectResponse) bool {
	return c.State.Running || c.State.Status != container.StateCreated && !moment(c.State.StartedAt).IsZero() && c.State.StartedAt != p.rec.Before
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
