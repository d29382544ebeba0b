package docker

import (
	"context"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/podyard/podyard/pods"
)

// stop is the job of Stop.
func (p *pod) stop(ctx context.Context, grace time.Duration) {
	c, err := p.inspect(ctx)
	if err != nil {
		p.logError(ctx, "cannot be stopped", err)
		return
	}
	if c != nil && c.State.Running {
		p.rec.StopRequested = true
		p.save()
		if err := p.terminate(ctx, c, grace); err != nil {
			p.logError(ctx, "cannot be stopped", err)
			return
		}
	}
	p.clearDeadline()
	if p.rec.Starting {
		p.rec.Starting, p.rec.StartCanceled = false, true
		p.clearInterrupted()
		s := p.rec.State
		s.Phase, s.Ports, s.IP, s.Stopped, s.Reason = pods.PhaseExited, nil, "", true, "it was stopped before it had started"
		p.publish(s)
		return
	}
	p.refresh(ctx)
}

// logError logs an error that no pod state shows.
func (p *pod) logError(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		p.r.opts.Logger.Error("docker: a pod "+what, "pod", p.id, "err", err)
	}
}

// terminate stops the container and returns when it no longer runs.
func (p *pod) terminate(ctx context.Context, c *container.InspectResponse, grace time.Duration) error {
	p.shortenGrace(grace)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.waitExit(ctx) }()
	if left, _ := p.graceLeft(); left > 0 {
		signal := c.Config.StopSignal
		if signal == "" {
			signal = "SIGTERM"
		}
		if err := p.signal(ctx, signal); err != nil {
			return err
		}
	}
	for {
		left, hastened := p.graceLeft()
		t := time.NewTimer(max(left, 0))
		select {
		case err := <-ended:
			t.Stop()
			return err
		case <-hastened:
			t.Stop()
			continue
		case <-t.C:
		}
		p.rec.Killed = p.rec.StopRequested
		if err := p.signal(ctx, "SIGKILL"); err != nil {
			return err
		}
		return <-ended
	}
}

// signal sends a signal. It returns nil for a container that has ended.
func (p *pod) signal(ctx context.Context, signal string) error {
	return p.r.retry(ctx, func() error {
		_, err := p.r.api.ContainerKill(ctx, p.name(), client.ContainerKillOptions{Signal: signal})
		if err == nil || errdefs.IsNotFound(err) || errdefs.IsConflict(err) {
			return nil
		}
		c, looking := p.inspect(ctx)
		if looking == nil && (c == nil || !c.State.Running) {
			return nil
		}
		return err
	})
}

func (p *pod) waitExit(ctx context.Context) error {
	return p.r.retry(ctx, func() error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		w := p.r.api.ContainerWait(ctx, p.name(), client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
		select {
		case <-w.Result:
			return nil
		case err := <-w.Error:
			if errdefs.IsNotFound(err) {
				return nil
			}
			return err
		}
	})
}

// removeContainer removes the container, and the volumes that its image created. Podman fails
// while the kernel still has a mount of a container that has just ended.
func (p *pod) removeContainer(ctx context.Context) error {
	wait := backoff.WithContext(backoff.WithMaxRetries(backoff.NewConstantBackOff(100*time.Millisecond), maxBusyTries), ctx)
	return backoff.Retry(func() error {
		err := p.r.retry(ctx, func() error {
			_, err := p.r.api.ContainerRemove(ctx, p.name(), client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
			if errdefs.IsNotFound(err) {
				return nil
			}
			return err
		})
		if err != nil && !strings.Contains(err.Error(), "device or resource busy") {
			return backoff.Permanent(err)
		}
		return err
	}, wait)
}

// maxBusyTries is how often the removal of a container that is busy is repeated.
const maxBusyTries = 20

// remove is the job of Remove. It deletes the record last: until then the next server knows
// what to remove.
func (p *pod) remove(ctx context.Context, grace time.Duration) error {
	if _, open := p.changes(); !open {
		return nil // an earlier call removed it; the id may belong to a new pod now
	}
	if err := p.removeAll(ctx, grace); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.removals--
		return err
	}
	p.r.ports.Release(p.rec.Ports)
	p.r.pods.Forget(p.id, p)
	p.closeWaiters()
	return nil
}

func (p *pod) removeAll(ctx context.Context, grace time.Duration) error {
	c, err := p.inspect(ctx)
	if err != nil {
		return err
	}
	if c != nil {
		if c.State.Running {
			if err := p.terminate(ctx, c, grace); err != nil {
				return err
			}
		}
		if err := p.removeContainer(ctx); err != nil {
			return err
		}
	}
	if err := p.r.retry(ctx, func() error { return p.r.dropVolumes(ctx, p.id) }); err != nil {
		return err
	}
	p.r.leave(ctx, p.rec.Network, p.id)
	return p.r.dir.forget(p.id)
}
