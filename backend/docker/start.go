package docker

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/podyard/podyard/internal/podhost"
	"github.com/podyard/podyard/pods"
)

// errStartCanceled ends a canceled start. The next job decides the state of the pod.
var errStartCanceled = errors.New("start canceled")

// attempts is how often a start is tried with new ports, because another program took a
// port after it was found free.
const attempts = 5

// name is the container's name, the same for all generations. An engine does not accept two
// containers with one name, so a pod never has two containers.
func (p *pod) name() string { return "podyard-" + p.r.instance + "-" + p.id }

// inspect returns the container, or nil if there is none.
func (p *pod) inspect(ctx context.Context) (c *container.InspectResponse, err error) {
	err = p.r.retry(ctx, func() error {
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
	p.rec.State = pods.ContainerState{PodID: p.id, Gen: s.Gen, Run: s.Run, Phase: pods.PhasePulling}
	p.rec.Starting, p.rec.StartCanceled, p.rec.StopRequested, p.rec.Healthy = true, false, false, false
	p.rec.VCPU, p.rec.Memory, p.rec.RequestedPorts, p.rec.Killed = s.VCPU, s.Memory, s.Ports, false
	p.rec.Boot, p.engineRun = podhost.BootID(), p.r.engineRuns.Load()
	p.save()
	err := p.launch(ctx, s, halted)
	switch {
	case err == nil, ctx.Err() != nil, errors.Is(err, errStartCanceled):
		return // Starting stays set in the record until it is known whether the container was started
	}
	p.r.networks.invalidate(p.rec.Network)
	p.rec.Starting = false
	failed := p.rec.State
	failed.Phase, failed.Reason = pods.PhaseFailed, errorText(err)
	p.publish(failed)
}

// launch creates the container of s if needed, and starts it.
func (p *pod) launch(ctx context.Context, s pods.Spec, halted <-chan struct{}) error {
	c, err := p.inspect(ctx)
	if err != nil {
		return err
	}
	if c, err = p.clearPrevious(ctx, c, &s); err != nil {
		return err
	}
	p.clearDeadline()
	if isClosed(halted) {
		return errStartCanceled
	}
	p.rec.PreviousStart = ""
	if c == nil {
		if s.Image, err = p.ensureImage(ctx, s, halted); err != nil {
			return err
		}
		return p.create(ctx, s)
	}
	if err := p.r.engine.checkCreatedGPUs(c); err != nil {
		return err
	}
	n, err := p.attachNetwork(ctx, s)
	if err != nil {
		return err
	}
	if err := p.reattachNetwork(ctx, s, n, c); err != nil {
		return err
	}
	p.rec.PreviousStart = c.State.StartedAt
	p.save()
	return p.startContainer(ctx)
}

// clearPrevious stops the container of an earlier run. It removes the container unless its
// generation is that of s.
func (p *pod) clearPrevious(ctx context.Context, c *container.InspectResponse, s *pods.Spec) (*container.InspectResponse, error) {
	if c == nil {
		return nil, nil
	}
	if c.State.Running {
		if err := p.terminate(ctx, c, podhost.Grace(s, defaultGrace)); err != nil {
			return nil, err
		}
	}
	if c.Config.Labels[labelGen] == strconv.FormatUint(s.Gen, 10) {
		return c, nil
	}
	return nil, p.removeContainer(ctx)
}

// tellPulling shows how far the pull of the image is.
func (p *pod) tellPulling(text string) {
	s := p.rec.State
	s.Reason = text
	p.publish(s)
}

// ensureImage makes the image available on the host and returns its name there. It fails if
// the start is canceled.
func (p *pod) ensureImage(ctx context.Context, s pods.Spec, halted <-chan struct{}) (name string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-halted:
			cancel()
		case <-ctx.Done():
		}
	}()
	err = p.r.retry(ctx, func() (err error) {
		name, err = p.r.obtainImage(ctx, s, p.tellPulling)
		return err
	})
	if isClosed(halted) {
		return "", errStartCanceled
	}
	return name, err
}

func (p *pod) create(ctx context.Context, s pods.Spec) error {
	gpus, err := p.r.gpuGrant(s)
	if err != nil {
		return err
	}
	config, err := p.config(ctx, s)
	if err != nil {
		return err
	}
	n, err := p.attachNetwork(ctx, s)
	if err != nil {
		return err
	}
	n.attach(s, &config)
	had := p.rec.Ports
	p.rec.Publication, p.rec.Host = podhost.Publish(&s), p.r.opts.Host.String()
	for try := 1; ; try++ {
		if err := p.allocatePorts(s, &config); err != nil {
			return err
		}
		p.save()
		p.r.ports.Release(podhost.Replaced(had, p.rec.Ports))
		if err := p.createContainer(ctx, s, gpus, config); err != nil {
			return err
		}
		err := p.startContainer(ctx)
		if err == nil || !isPortTaken(err) || try == attempts {
			return err
		}
		if err := p.removeContainer(ctx); err != nil {
			return err
		}
		had, p.rec.Ports = p.rec.Ports, nil // released when the record has others
	}
}

// createContainer creates the container. If it exists, an earlier call created it and lost
// its connection before the answer.
func (p *pod) createContainer(ctx context.Context, s pods.Spec, gpus gpuGrant, config client.ContainerCreateOptions) error {
	config = gpus.apply(config)
	err := p.r.retry(ctx, func() error {
		if len(gpus.names) > 0 || p.r.engine.podman && (p.r.opts.Runtime != "" || p.r.opts.UserNamespaces) {
			return p.r.createByLibpod(ctx, config, gpus.names)
		}
		_, err := p.r.api.ContainerCreate(ctx, config)
		return err
	})
	if err != nil && !errdefs.IsConflict(err) {
		return err
	}
	if err == nil && len(gpus.expected) == 0 {
		return nil
	}
	c, looking := p.inspect(ctx)
	switch {
	case looking != nil:
		return looking
	case c == nil || c.Config.Labels[labelGen] != strconv.FormatUint(s.Gen, 10):
		return errors.Join(err, errors.New("the engine has another container under its name"))
	}
	return p.r.engine.checkCreatedGPUs(c)
}

// startContainer starts the container, at most once: if a call loses its connection, the
// container may have started.
func (p *pod) startContainer(ctx context.Context) error {
	if err := p.r.retry(ctx, func() error { return p.r.holdRules(ctx) }); err != nil {
		return err
	}
	tried := false
	err := p.r.retry(ctx, func() error {
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
	if err := checkGPUs(c); err != nil {
		return errors.Join(err, p.terminate(ctx, c, 0))
	}
	p.rec.Starting = false
	p.updateFrom(c)
	return nil
}

// started reports whether the container was started since PreviousStart.
func (p *pod) started(c *container.InspectResponse) bool {
	return c.State.Running || c.State.Status != container.StateCreated && !parseTime(c.State.StartedAt).IsZero() && c.State.StartedAt != p.rec.PreviousStart
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
