package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/podyard/podyard/pods"
)

// A bridge is a network of the engine that is ours: the private one of a user, or with no
// owner the one of pods that are in none. The zero value is the engine's own default.
type bridge struct{ name, owner string }

// bridgeOf is where the container of s is. Docker keeps its default network and those of users
// apart. Podman keeps only those apart that say so, and its default network does not: there
// pods that are in no private network have one of ours.
func (r *Runtime) bridgeOf(s pods.Spec) (bridge, error) {
	switch {
	case s.NetworkAlias != "" && !r.engine.networks:
		return bridge{}, errNoNetworks
	case s.NetworkAlias != "":
		sum := sha256.Sum256([]byte(s.Owner))
		return bridge{"podyard-" + r.instance + "-user-" + hex.EncodeToString(sum[:8]), s.Owner}, nil
	case r.engine.networks && r.engine.podman:
		return bridge{name: r.defaultNetwork()}, nil
	}
	return bridge{}, nil
}

// defaultNetwork is the name of the network of pods that are in no private one.
func (r *Runtime) defaultNetwork() string { return "podyard-" + r.instance + "-outside" }

// bridgeIn is the network of ours that a container is in, if it is in one.
func (r *Runtime) bridgeIn(c *container.InspectResponse) string {
	if c.NetworkSettings != nil {
		for name := range c.NetworkSettings.Networks {
			if strings.HasPrefix(name, "podyard-"+r.instance+"-") {
				return name
			}
		}
	}
	return ""
}

// attach has a container join n, under the name of s where n is private.
func (n bridge) attach(s pods.Spec, c *client.ContainerCreateOptions) {
	if n.name == "" {
		return
	}
	c.HostConfig.NetworkMode = container.NetworkMode(n.name)
	c.NetworkingConfig = &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{n.name: endpoint(s)}}
}

// reattachNetwork has a container that is there already be in n. An engine knows networks by ids:
// one that somebody removed, as Docker lets them when no container in it runs, is another
// one when it is made again. Podman does not let them.
func (p *pod) reattachNetwork(ctx context.Context, s pods.Spec, n bridge, c *container.InspectResponse) error {
	if n.name == "" || p.r.engine.podman {
		return nil
	}
	return p.r.retry(ctx, func() error {
		found, err := p.r.api.NetworkInspect(ctx, n.name, client.NetworkInspectOptions{})
		if err != nil {
			return err
		}
		if c.NetworkSettings != nil {
			if at := c.NetworkSettings.Networks[n.name]; at != nil && at.NetworkID == found.Network.ID {
				return nil
			}
		}
		_, err = p.r.api.NetworkConnect(ctx, n.name, client.NetworkConnectOptions{Container: p.name(), EndpointConfig: endpoint(s)})
		return err
	})
}

// endpoint is where the container of s is in its network.
func endpoint(s pods.Spec) *network.EndpointSettings {
	at := &network.EndpointSettings{}
	if s.NetworkAlias != "" {
		at.Aliases = []string{s.NetworkAlias}
	}
	return at
}

// address is that of a container in the private network that it is in, if it is in one.
func (p *pod) address(c *container.InspectResponse) string {
	if p.rec.Network == "" || p.rec.Network == p.r.defaultNetwork() || c.NetworkSettings == nil {
		return ""
	}
	at := c.NetworkSettings.Networks[p.rec.Network]
	if at == nil || !at.IPAddress.IsValid() {
		return ""
	}
	return at.IPAddress.String()
}

// attachNetwork has the pod use the network of s, which is there when enter returns, and no other
// one of ours.
func (p *pod) attachNetwork(ctx context.Context, s pods.Spec) (bridge, error) {
	n, err := p.r.bridgeOf(s)
	if err != nil {
		return n, err
	}
	if p.rec.Network != n.name {
		p.r.leave(ctx, p.rec.Network, p.id)
		p.rec.Network = n.name
	}
	if n.name == "" {
		return n, nil
	}
	if err := p.r.join(ctx, n, p.id); err != nil {
		return n, fmt.Errorf("its network cannot be made: %w", err)
	}
	return n, nil
}

// join makes n, unless it is there, and notes that a pod uses it.
func (r *Runtime) join(ctx context.Context, n bridge, podID string) error {
	if r.networks.join(n.name, podID, false) {
		return nil
	}
	done, err := r.networks.acquire(ctx)
	if err != nil {
		return err
	}
	defer done()
	if r.networks.join(n.name, podID, false) {
		return nil
	}
	if err := r.retry(ctx, func() error { return r.makeBridge(ctx, n) }); err != nil {
		return err
	}
	r.networks.join(n.name, podID, true)
	return nil
}

// leave notes that a pod does not use a network any more, and removes one that nobody uses.
// One that cannot be removed does not keep the pod: the next Open tries again.
func (r *Runtime) leave(ctx context.Context, name, podID string) {
	if name == "" {
		return
	}
	done, err := r.networks.acquire(ctx)
	if err != nil {
		return
	}
	defer done()
	if r.networks.leave(name, podID) {
		r.dropBridge(ctx, name)
	}
}

func (r *Runtime) dropBridge(ctx context.Context, name string) {
	err := r.retry(ctx, func() error {
		_, err := r.api.NetworkRemove(ctx, name, client.NetworkRemoveOptions{})
		return err
	})
	if err != nil && !errdefs.IsNotFound(err) && ctx.Err() == nil {
		r.opts.Logger.Warn("docker: a network stays", "network", name, "err", err)
	}
}

// makeBridge looks first: an engine may have two networks of one name.
func (r *Runtime) makeBridge(ctx context.Context, n bridge) error {
	found, err := r.api.NetworkInspect(ctx, n.name, client.NetworkInspectOptions{})
	labels := map[string]string{labelInstance: r.instance, labelOwner: n.owner}
	switch {
	case err == nil && (found.Network.Labels[labelInstance] != r.instance || found.Network.Labels[labelOwner] != n.owner):
		return fmt.Errorf("network %s is not of this server, or of another user", n.name)
	case err == nil || !errdefs.IsNotFound(err):
		return err
	case !r.engine.podman:
		_, err = r.api.NetworkCreate(ctx, n.name, client.NetworkCreateOptions{Driver: "bridge", Labels: labels})
		return err
	}
	// The Docker API of Podman cannot ask for a network that is kept apart.
	return r.libpod(ctx, http.MethodPost, "/networks/create", map[string]any{
		"name": n.name, "driver": "bridge", "labels": labels,
		"dns_enabled": n.owner != "", "options": map[string]string{"isolate": "true"},
	}, nil)
}

// sweepBridges removes networks of ours that no pod uses: the server before this one ended
// over that.
func (r *Runtime) sweepBridges(ctx context.Context) error {
	if r.engine.podman && r.engine.networks {
		r.removeRepairContainer(ctx) // Close or a crash may have cut a repair short
	}
	list, err := r.api.NetworkList(ctx, client.NetworkListOptions{Filters: r.instanceFilters()})
	if err != nil {
		return err
	}
	for _, n := range list.Items {
		if n.Labels[labelInstance] == r.instance && !r.networks.used(n.Name) {
			r.dropBridge(ctx, n.Name)
		}
	}
	return nil
}

var errNoNetworks = errors.New("this engine has no private networks: on Podman, they take netavark")
