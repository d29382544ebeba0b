package docker

import (
	"context"
	"io"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/podyard/podyard/pods"
)

// podmanHealthCheck returns the health check that this package must run, because Podman's
// engine does not.
func (r *Runtime) podmanHealthCheck(ctx context.Context, image string) (check *container.HealthConfig, err error) {
	if !r.engine.podman {
		return nil, nil
	}
	err = r.retry(ctx, func() error {
		answer, err := r.inspectImage(ctx, image)
		if err == nil && answer.Config != nil && healthCommand(answer.Config.Healthcheck) != nil {
			check = answer.Config.Healthcheck
		}
		return err
	})
	return check, err
}

// healthy reports whether a running container is healthy. It starts the health check of
// this package if there is one.
func (p *pod) healthy(c *container.InspectResponse) bool {
	if p.rec.Check != nil {
		if at := parseTime(c.State.StartedAt); !at.Equal(p.checked) {
			p.checked = at
			check := p.rec.Check
			p.r.spawn(func(ctx context.Context) { p.check(ctx, check, at) })
		}
		return false
	}
	h := c.State.Health
	return h == nil || h.Status == "" || h.Status == container.NoHealthcheck || h.Status == container.Healthy
}

// healthCommand returns the command of a health check, or nil.
func healthCommand(h *container.HealthConfig) []string {
	if h == nil || len(h.Test) < 2 {
		return nil
	}
	switch h.Test[0] {
	case "CMD":
		return h.Test[1:]
	case "CMD-SHELL":
		return []string{"/bin/sh", "-c", h.Test[1]}
	}
	return nil
}

// check runs a health check until it succeeds once or its container ends.
func (p *pod) check(ctx context.Context, h *container.HealthConfig, started time.Time) {
	interval, limit := h.Interval, h.Timeout
	if interval <= 0 {
		interval = 30 * time.Second
	}
	if limit <= 0 {
		limit = 30 * time.Second
	}
	// The first check is early: most programs are ready within a moment.
	for wait := min(interval, 100*time.Millisecond); ; wait = min(2*wait, interval) {
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		if s, ok := p.currentState(); !ok || !s.Started.Equal(started) || s.Phase >= pods.PhaseExited {
			return
		}
		if p.execSucceeds(ctx, healthCommand(h), limit) {
			p.do(func(ctx context.Context) {
				if p.rec.State.Started.Equal(started) && !p.rec.Starting {
					p.rec.Healthy = true
					p.refresh(ctx)
				}
			})
			return
		}
	}
}

// execSucceeds runs a command in the container. It reports whether the exit code is 0.
func (p *pod) execSucceeds(ctx context.Context, argv []string, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	made, err := p.r.api.ExecCreate(ctx, p.name(), client.ExecCreateOptions{Cmd: argv, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return false
	}
	run, err := p.r.api.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return false
	}
	defer run.Close()
	defer context.AfterFunc(ctx, run.Close)()
	if _, err := io.Copy(io.Discard, run.Reader); err != nil {
		return false
	}
	end, err := p.r.api.ExecInspect(ctx, made.ID, client.ExecInspectOptions{})
	return err == nil && !end.Running && end.ExitCode == 0
}
