package docker

import (
	"context"
	"net/http"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/podyard/podyard/pods"
)

// repairIsolation has Podman keep networks apart again. Netavark with iptables takes away the rule for
// all of them when the last container of one ends, and puts it back when a network comes to
// have another container: here one that is made ready in the network of a pod that runs,
// and removed without having been started. That network still has its pod then, so the rule
// stays.
func (r *Runtime) repairIsolation(ctx context.Context) {
	done, err := r.networks.acquire(ctx)
	if err != nil {
		return
	}
	defer done()
	if !r.isolationBroken.CompareAndSwap(true, false) {
		return // another goroutine did it
	}
	network, image := r.runningNetwork(ctx)
	if network == "" {
		return // there are no networks to keep apart
	}
	r.removeRepairContainer(ctx) // one that was cut short may be there
	name := r.repairContainer()
	err = r.libpod(ctx, http.MethodPost, "/containers/create", map[string]any{
		"name": name, "image": image, "labels": map[string]string{labelInstance: r.instance},
		"netns": map[string]string{"nsmode": "bridge"}, "networks": map[string]any{network: struct{}{}},
	}, nil)
	if err == nil {
		err = r.libpod(ctx, http.MethodPost, "/containers/"+name+"/init", nil, nil)
		r.removeRepairContainer(ctx)
	}
	if err != nil && ctx.Err() == nil {
		r.opts.Logger.Error("docker: private networks may not be kept apart until the next pod starts", "err", err)
	}
}

// repairContainer is the name of the container that repairIsolation makes.
func (r *Runtime) repairContainer() string { return "podyard-" + r.instance + "-mend" }

// removeRepairContainer removes that container. While it is there its network cannot be
// removed.
func (r *Runtime) removeRepairContainer(ctx context.Context) {
	_, err := r.api.ContainerRemove(ctx, r.repairContainer(), client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err != nil && !errdefs.IsNotFound(err) {
		r.opts.Logger.Warn("docker: a container that was not started stays", "container", r.repairContainer(), "err", err)
	}
}

// runningNetwork finds a network of this Runtime with a container that runs, and the image of
// that container.
func (r *Runtime) runningNetwork(ctx context.Context) (network, image string) {
	for _, p := range r.pods.All() {
		p.mu.Lock()
		lives := p.state.Phase == pods.PhaseStarting || p.state.Phase == pods.PhaseHealthy
		p.mu.Unlock()
		if !lives {
			continue
		}
		c, err := p.inspect(ctx)
		if err == nil && c != nil && c.State.Running && r.bridgeIn(c) != "" {
			return r.bridgeIn(c), c.Image
		}
	}
	return "", ""
}

// noteIsolationBroken notes that a container of this Runtime has ended.
func (r *Runtime) noteIsolationBroken() {
	if r.engine.podman && r.engine.networks && r.isolationBroken.CompareAndSwap(false, true) {
		r.spawn(r.repairIsolation)
	}
}
