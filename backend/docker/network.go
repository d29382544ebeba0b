package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/podyard/podyard/internal/firewall"
	"github.com/podyard/podyard/pods"
)

// A bridge is the network of one owner. The zero value is the engine's default network. It
// is for engines that do not isolate networks of users.
type bridge struct{ name, owner string }

// bridgeOf returns the network for the container of s.
func (r *Runtime) bridgeOf(s pods.Spec) (bridge, error) {
	if r.engine.networks {
		sum := sha256.Sum256([]byte(s.Owner))
		return bridge{r.networkPrefix() + "owner-" + hex.EncodeToString(sum[:8]), s.Owner}, nil
	}
	if s.NetworkAlias != "" {
		return bridge{}, errNoNetworks
	}
	return bridge{}, nil
}

// networkPrefix is the prefix of the names of our networks.
func (r *Runtime) networkPrefix() string { return "podyard-" + r.instance + "-" }

// allInterfaces is the prefix of the names of the bridges of every Runtime on this machine.
const allInterfaces = "py"

// interfacePrefix is the prefix of the names of our bridges on this machine, which firewall
// rules use. An interface name has at most 15 bytes.
func (r *Runtime) interfacePrefix() string { return allInterfaces + firewall.Hash(r.instance, 5) }

func (r *Runtime) bridgeInterface(n bridge) string {
	return r.interfacePrefix() + firewall.Hash(n.owner, 8)
}

// bridgeIn returns the name of the network of this Runtime that the container is in, or "".
func (r *Runtime) bridgeIn(c *container.InspectResponse) string {
	if c.NetworkSettings != nil {
		for name := range c.NetworkSettings.Networks {
			if strings.HasPrefix(name, r.networkPrefix()) {
				return name
			}
		}
	}
	return ""
}

// attach sets n as the network of a new container, with the alias of s.
func (n bridge) attach(s pods.Spec, c *client.ContainerCreateOptions) {
	if n.name == "" {
		return
	}
	c.HostConfig.NetworkMode = container.NetworkMode(n.name)
	c.NetworkingConfig = &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{n.name: endpoint(s)}}
}

// reattachNetwork moves an existing container to n, and out of every other network. Docker
// stores a network in the container by id. Docker lets somebody remove a network whose
// containers are stopped; a new network with that name has another id. Containers of an
// older version of this package are in other networks.
func (p *pod) reattachNetwork(ctx context.Context, s pods.Spec, n bridge, c *container.InspectResponse) error {
	if n.name == "" || c.NetworkSettings == nil {
		return nil
	}
	there := c.NetworkSettings.Networks
	return p.r.retry(ctx, func() error {
		found, err := p.r.findNetwork(ctx, n.name)
		if err != nil {
			return err
		}
		at := there[n.name]
		if at == nil || !p.r.engine.podman && found != nil && at.NetworkID != found.id {
			_, err = p.r.api.NetworkConnect(ctx, n.name, client.NetworkConnectOptions{Container: p.name(), EndpointConfig: endpoint(s)})
		}
		for name := range there {
			if name != n.name && err == nil {
				_, err = p.r.api.NetworkDisconnect(ctx, name, client.NetworkDisconnectOptions{Container: p.name(), Force: true})
			}
		}
		return err
	})
}

// endpoint is the endpoint of the container of s in its network.
func endpoint(s pods.Spec) *network.EndpointSettings {
	at := &network.EndpointSettings{}
	if s.NetworkAlias != "" {
		at.Aliases = []string{s.NetworkAlias}
	}
	return at
}

// address returns the address of a container with a name in its owner's network, or "".
func (p *pod) address(c *container.InspectResponse) string {
	// Before labelAlias existed, every container in such a network had a name.
	named := c.Config.Labels[labelAlias] != "" || strings.HasPrefix(p.rec.Network, p.r.networkPrefix()+"user-")
	if !named || c.NetworkSettings == nil {
		return ""
	}
	at := c.NetworkSettings.Networks[p.rec.Network]
	if at == nil || !at.IPAddress.IsValid() {
		return ""
	}
	return at.IPAddress.String()
}

// attachNetwork records that the pod uses the network of s, and no other network of this
// Runtime. The network exists when attachNetwork returns.
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

// join records that a pod uses n. It creates n if n does not exist.
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

// leave records that a pod no longer uses a network, and removes a network without pods. A
// failed removal does not block the end of the pod: the next Open tries again.
func (r *Runtime) leave(ctx context.Context, name, podID string) {
	if name == "" {
		return
	}
	done, err := r.networks.acquire(ctx)
	if err != nil {
		return
	}
	defer done()
	if !r.networks.leave(name, podID) {
		return
	}
	r.dropBridge(ctx, name)
	if err := r.holdRulesLocked(ctx); err != nil && ctx.Err() == nil {
		r.opts.Logger.Warn("docker: the firewall rules of a network stay", "network", name, "err", err)
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

// makeBridge looks for n first, because an engine may accept two networks with one name.
func (r *Runtime) makeBridge(ctx context.Context, n bridge) error {
	found, err := r.findNetwork(ctx, n.name)
	if err != nil {
		return err
	}
	if found != nil {
		if !found.ours(r) || found.labels[labelOwner] != n.owner {
			return fmt.Errorf("network %s is not of this server, or of another user", n.name)
		}
		return nil
	}
	return r.createInFreeBlock(ctx, func(block netip.Prefix) error { return r.createBridge(ctx, n, block) })
}

// createBridge creates n with the addresses of block. The gateway has the first address.
func (r *Runtime) createBridge(ctx context.Context, n bridge, block netip.Prefix) error {
	labels := map[string]string{labelInstance: r.instance, labelOwner: n.owner}
	gateway := block.Addr().Next()
	if !r.engine.podman {
		_, err := r.api.NetworkCreate(ctx, n.name, client.NetworkCreateOptions{
			Driver: "bridge", Labels: labels,
			IPAM:    &network.IPAM{Config: []network.IPAMConfig{{Subnet: block, Gateway: gateway}}},
			Options: map[string]string{bridgeNameOption: r.bridgeInterface(n)},
		})
		return err
	}
	// Podman's Docker API cannot create an isolated network.
	return r.libpod(ctx, http.MethodPost, "/networks/create", map[string]any{
		"name": n.name, "driver": "bridge", "labels": labels, "network_interface": r.bridgeInterface(n),
		"subnets":     []map[string]any{{"subnet": block, "gateway": gateway}},
		"dns_enabled": true, "options": map[string]string{"isolate": "true"},
	}, nil)
}

// bridgeNameOption is the Docker option for the name of the bridge on this machine.
const bridgeNameOption = "com.docker.network.bridge.name"

// sweepBridges removes networks of this Runtime that no pod uses. An earlier server stopped
// before it removed them.
func (r *Runtime) sweepBridges(ctx context.Context) error {
	if r.engine.podman && r.engine.networks {
		r.removeRepairContainer(ctx) // left by a Close or crash during a repair
	}
	all, err := r.engineNetworks(ctx)
	if err != nil {
		return err
	}
	for _, n := range all {
		if n.ours(r) && !r.networks.used(n.name) {
			r.dropBridge(ctx, n.name)
		}
	}
	return nil
}

var errNoNetworks = errors.New("this engine has no private networks: on Podman, they take netavark")
