package docker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"

	"github.com/moby/moby/client"
)

// Gateway returns an address of this machine that containers can reach, for a server that
// they call. With Docker it is the address of the default network. Podman's networks have
// an address only while a container runs in them. So with Podman, Gateway adds an address
// of Options.Subnet to the loopback interface. That needs root and the program ip. Close
// removes the address.
//
// It returns an error if there is no such address: the engine is on another machine, or
// this machine does not see its networks.
func (r *Runtime) Gateway(ctx context.Context) (netip.Addr, error) {
	addr, err := r.findGateway(ctx)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("docker: gateway: %w", err)
	}
	return addr, nil
}

// HostName is a name by which containers reach ports of this machine, also those that listen on
// loopback only. It is empty where they need [Runtime.Gateway]. Docker Desktop has such a name.
func (r *Runtime) HostName() string {
	if r.engine.desktop {
		return "host.docker.internal"
	}
	return ""
}

func (r *Runtime) findGateway(ctx context.Context) (netip.Addr, error) {
	addr, err := r.gatewayAddress(ctx)
	if err != nil || !r.engine.podman || !r.engine.networks {
		return addr, err
	}
	r.gatewayAdded.Store(true)
	return addr, changeAddress(ctx, "replace", addr)
}

// gatewayAddress returns the address without adding it.
func (r *Runtime) gatewayAddress(ctx context.Context) (netip.Addr, error) {
	if !r.engine.local() {
		return netip.Addr{}, errors.New("the network of containers is not one of this machine")
	}
	name := "bridge"
	if r.engine.podman && r.engine.networks {
		return r.ownGateway(), nil
	}
	if r.engine.podman {
		name = "podman"
	}
	found, err := r.api.NetworkInspect(ctx, name, client.NetworkInspectOptions{})
	if err != nil {
		return netip.Addr{}, err
	}
	if at := found.Network.Options[bridgeNameOption]; at != "" {
		return addressOf(at)
	}
	for _, c := range found.Network.IPAM.Config {
		if c.Gateway.Is4() {
			return c.Gateway, nil
		}
	}
	return netip.Addr{}, errors.New("the default network of the engine has no address")
}

// ownGateway returns an address of the first block of Options.Subnet. It follows from the
// instance name, so two servers with one subnet very likely have different addresses.
func (r *Runtime) ownGateway() netip.Addr {
	sum := sha256.Sum256([]byte(r.instance))
	const hosts = 1<<(32-blockBits) - 2
	return addrAt(r.opts.Subnet, 1+uint32(sum[0])%hosts)
}

// changeAddress changes an address of the loopback interface. what is "replace" (adds it)
// or "del".
func changeAddress(ctx context.Context, what string, addr netip.Addr) error {
	out, err := exec.CommandContext(ctx, "ip", "address", what, addr.String()+"/32", "dev", "lo").CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip address %s: %w: %s", what, err, bytes.TrimSpace(out))
	}
	return nil
}

// addressOf returns the first IPv4 address of an interface of this machine.
func addressOf(bridge string) (netip.Addr, error) {
	at, err := net.InterfaceByName(bridge)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%s is not on this machine: %w", bridge, err)
	}
	all, err := at.Addrs()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
			return p.Addr(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%s has no address", bridge)
}

// releaseGateway removes the address that Gateway added.
func (r *Runtime) releaseGateway(ctx context.Context) {
	if !r.gatewayAdded.Load() {
		return
	}
	if err := changeAddress(ctx, "del", r.ownGateway()); err != nil {
		r.opts.Logger.Warn("docker: the address of the gateway stays", "addr", r.ownGateway().String(), "err", err)
	}
}
