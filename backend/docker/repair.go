package docker

import (
	"context"
	"net/http"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/podyard/podyard/pods"
)

// repairIsolation makes Podman isolate networks again. Netavark with iptables has one
// isolation rule for all networks. It deletes the rule when the last container of a network
// ends, and adds the rule when a network gets another container. So repairIsolation
// initializes a container in a network whose pod runs, and removes it without a start. The
// network still has its pod then, so the rule stays.
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
		return // no network needs isolation
	}
	r.removeRepairContainer(ctx) // an interrupted repair may have left one
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

// repairContainer is the name of the container that repairIsolation creates.
func (r *Runtime) repairContainer() string { return "podyard-" + r.instance + "-mend" }

// removeRepairContainer removes that container. While it exists, its network cannot be
// removed.
func (r *Runtime) removeRepairContainer(ctx context.Context) {
	_, err := r.api.ContainerRemove(ctx, r.repairContainer(), client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err != nil && !errdefs.IsNotFound(err) {
		r.opts.Logger.Warn("docker: a container that was not started stays", "container", r.repairContainer(), "err", err)
	}
}

// runningNetwork returns a network of this Runtime with a running container, and the image
// of that container.
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

// noteIsolationBroken starts a repair after a container of this Runtime ended.
func (r *Runtime) noteIsolationBroken() {
	if r.engine.podman && r.engine.networks && r.isolationBroken.CompareAndSwap(false, true) {
		r.spawn(r.repairIsolation)
	}
}
