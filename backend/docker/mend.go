package docker

import (
	"context"
	"net/http"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// mend has Podman keep networks apart again. Netavark with iptables takes away the rule for
// all of them when the last container of one ends, and puts it back when a network comes to
// have another container: here one that is made ready in the network of a pod that runs,
// and removed without having been started. That network still has its pod then, so the rule
// stays.
func (r *Runtime) mend(ctx context.Context) {
	done, err := r.nets.turn(ctx)
	if err != nil {
		return
	}
	defer done()
	if !r.torn.CompareAndSwap(true, false) {
		return // another one did it
	}
	network, image := r.inhabited(ctx)
	if network == "" {
		return // nothing to be kept apart
	}
	name := "podyard-" + r.instance + "-mend"
	remove := func() {
		_, err := r.api.ContainerRemove(ctx, name, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if err != nil && !errdefs.IsNotFound(err) {
			r.opts.Logger.Warn("docker: a container that was not started stays", "name", name, "error", err)
		}
	}
	remove() // a server that died may have left one
	err = r.libpod(ctx, http.MethodPost, "/containers/create", map[string]any{
		"name": name, "image": image, "labels": map[string]string{labelInstance: r.instance},
		"netns": map[string]string{"nsmode": "bridge"}, "networks": map[string]any{network: struct{}{}},
	}, nil)
	if err == nil {
		err = r.libpod(ctx, http.MethodPost, "/containers/"+name+"/init", nil, nil)
		remove()
	}
	if err != nil && ctx.Err() == nil {
		r.opts.Logger.Error("docker: private networks may not be kept apart until the next pod starts", "error", err)
	}
}

// inhabited finds a private network with a container that runs, and the image of that.
func (r *Runtime) inhabited(ctx context.Context) (network, image string) {
	for _, p := range r.pods.All() {
		p.mu.Lock()
		lives := p.state.IP != ""
		p.mu.Unlock()
		if !lives {
			continue
		}
		c, err := p.inspect(ctx)
		if err == nil && c != nil && c.State.Running {
			return r.bridgeIn(c), c.Image
		}
	}
	return "", ""
}

// tear notes that a container of a network of ours has ended.
func (r *Runtime) tear() {
	if r.engine.podman && r.engine.networks && r.torn.CompareAndSwap(false, true) {
		r.spawn(r.mend)
	}
}
