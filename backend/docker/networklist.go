package docker

import (
	"context"
	"net/http"
	"net/netip"

	"github.com/moby/moby/client"
)

// An engineNetwork is a network of the engine.
type engineNetwork struct {
	id, name string
	labels   map[string]string
	blocks   []netip.Prefix
	gateway  netip.Addr // of the first block
}

// ours reports whether this Runtime created the network.
func (n *engineNetwork) ours(r *Runtime) bool { return n.labels[labelInstance] == r.instance }

// engineNetworks returns all networks of the engine. It does not use Podman's Docker API:
// in version 4, such a list makes Podman forget that a network is isolated.
func (r *Runtime) engineNetworks(ctx context.Context) ([]engineNetwork, error) {
	if r.engine.podman {
		return r.podmanNetworks(ctx)
	}
	list, err := r.api.NetworkList(ctx, client.NetworkListOptions{})
	if err != nil {
		return nil, err
	}
	var all []engineNetwork
	for _, n := range list.Items {
		found := engineNetwork{id: n.ID, name: n.Name, labels: n.Labels}
		for _, c := range n.IPAM.Config {
			found.add(c.Subnet, c.Gateway)
		}
		all = append(all, found)
	}
	return all, nil
}

func (r *Runtime) podmanNetworks(ctx context.Context) ([]engineNetwork, error) {
	var list []struct {
		ID      string            `json:"id"`
		Name    string            `json:"name"`
		Labels  map[string]string `json:"labels"`
		Subnets []struct {
			Subnet  netip.Prefix `json:"subnet"`
			Gateway netip.Addr   `json:"gateway"`
		} `json:"subnets"`
	}
	if err := r.libpod(ctx, http.MethodGet, "/networks/json", nil, &list); err != nil {
		return nil, err
	}
	var all []engineNetwork
	for _, n := range list {
		found := engineNetwork{id: n.ID, name: n.Name, labels: n.Labels}
		for _, s := range n.Subnets {
			found.add(s.Subnet, s.Gateway)
		}
		all = append(all, found)
	}
	return all, nil
}

func (n *engineNetwork) add(block netip.Prefix, gateway netip.Addr) {
	if !block.IsValid() {
		return
	}
	if len(n.blocks) == 0 {
		n.gateway = gateway
	}
	n.blocks = append(n.blocks, block.Masked())
}

// findNetwork returns the network with this name, or nil.
func (r *Runtime) findNetwork(ctx context.Context, name string) (*engineNetwork, error) {
	all, err := r.engineNetworks(ctx)
	for i := range all {
		if all[i].name == name {
			return &all[i], nil
		}
	}
	return nil, err
}
