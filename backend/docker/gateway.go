package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/moby/moby/client"
)

// gatewayUser uses the network of pods outside of private ones while the Runtime is open. It is
// no plain name, so no pod has it.
const gatewayUser = "/"

// Gateway is an address of this machine that containers reach, those in private networks,
// too: for a server that they are to call. It is that of the network which pods without a
// private one are in. On Podman the address exists only while such a pod runs: who listens
// on it before has to say so to the system (IP_FREEBIND).
//
// An error says that there is none: the engine is on another machine, or has its networks
// where this one does not see them.
func (r *Runtime) Gateway(ctx context.Context) (netip.Addr, error) {
	name := "bridge"
	if r.engine.podman {
		name = "podman"
	}
	if r.engine.podman && r.engine.networks {
		name = r.defaultNetwork()
		if err := r.join(ctx, bridge{name: name}, gatewayUser); err != nil {
			return netip.Addr{}, fmt.Errorf("docker: gateway: %w", err)
		}
	}
	found, err := r.api.NetworkInspect(ctx, name, client.NetworkInspectOptions{})
	if err != nil {
		return netip.Addr{}, fmt.Errorf("docker: gateway: %w", err)
	}
	if at := found.Network.Options["com.docker.network.bridge.name"]; at != "" {
		return addressOf(at)
	}
	for _, c := range found.Network.IPAM.Config {
		if c.Gateway.Is4() && !r.engine.rootless {
			return c.Gateway, nil
		}
	}
	return netip.Addr{}, errors.New("docker: gateway: the network of containers is not one of this machine")
}

// addressOf is that of an interface of this machine.
func addressOf(bridge string) (netip.Addr, error) {
	at, err := net.InterfaceByName(bridge)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("docker: gateway: %s is not on this machine: %w", bridge, err)
	}
	all, err := at.Addrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("docker: gateway: %w", err)
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
			return p.Addr(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("docker: gateway: %s has no address", bridge)
}

// releaseGateway ends what Gateway began. It asks once: an engine that is away must not keep
// Close.
func (r *Runtime) releaseGateway(ctx context.Context) {
	if !r.networks.leave(r.defaultNetwork(), gatewayUser) {
		return
	}
	// What stays is removed by the next Open.
	_, _ = r.api.NetworkRemove(ctx, r.defaultNetwork(), client.NetworkRemoveOptions{})
}
