package pods

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/podyard/podyard/problem"
)

// spec returns the desired container of p on h. An error of kind problem.NotFound means that
// its registry credential does not exist any more.
func (s *Service) spec(ctx context.Context, h *Host, p *Pod) (Spec, error) {
	c := p.Want.Applied.Clone()
	spec := Spec{
		PodID: p.ID, Owner: p.Owner, Gen: p.Want.Gen, Run: p.Want.Run,
		Image: c.Image, Disk: c.Disk,
		Devices: p.Placement.Devices, AlwaysPull: p.Want.Pull,
		ShmSize: c.Extras.ShmSize, User: c.Extras.User, ExposeHTTP: c.Extras.ExposeHTTP, Grace: c.Extras.specGrace(),
	}
	joins := (c.GlobalNetworking || p.Cluster != nil) && h.Runtime.Capabilities().PrivateNetworks
	more := s.clusterEnv(p, joins)
	if own := s.keyEnv(p, &c); own != nil {
		maps.Copy(own, more)
		more = own
	}
	spec.Env, spec.PlatformEnv = env(p, c, more)
	var err error
	if spec.Entrypoint, spec.Args, err = ParseCommand(c.Args); err != nil {
		return spec, fmt.Errorf("pods: args of %q: %w", p.ID, err)
	}
	for _, text := range c.Ports {
		port := parsePort(text)
		spec.Ports = append(spec.Ports, port)
	}
	if m := c.Mounts.Persistent; m != nil {
		spec.Mounts = append(spec.Mounts, Mount{Path: m.Path, Size: m.Size})
	}
	for _, m := range c.Mounts.Network {
		spec.Mounts = append(spec.Mounts, Mount{VolumeID: m.VolumeID, Path: m.Path})
	}
	if p.GPU != nil {
		spec.GPUType, spec.GPUs = p.GPU.ID, p.GPU.Count
		spec.VCPU, spec.Memory = p.Placement.Limits(h, p.GPU.Count)
	} else {
		spec.VCPU, spec.Memory = p.CPU.VCPU, p.CPU.Memory
	}
	if joins {
		spec.NetworkAlias = s.InternalDNS(p)
	}
	if c.Registry == "" {
		return spec, nil
	}
	spec.Credential, err = s.pullCredential(ctx, p.Owner, c.Registry)
	return spec, err
}

func (s *Service) pullCredential(ctx context.Context, owner, id string) (Credential, error) {
	if s.secrets == nil {
		return Credential{}, problem.New(problem.NotFound, "no credentials here")
	}
	registry, username, password, err := s.secrets.PullSecret(ctx, owner, id)
	if err != nil {
		return Credential{}, fmt.Errorf("pods: find registry credential %q: %w", id, err)
	}
	return Credential{Registry: registry, Username: username, Password: Secret(password)}, nil
}

// env returns the environment of the container: injected variables, the user's, which override
// them, and the platform's, which override both because programs in the container rely on them.
// more are others of the platform. fixed names those that are not the user's, sorted.
func env(p *Pod, c Config, more map[string]string) (all map[string]string, fixed []string) {
	platform := map[string]string{
		"RUNPOD_POD_ID":       p.ID,
		"RUNPOD_POD_HOSTNAME": p.ID,
		"RUNPOD_DC_ID":        p.Placement.DataCenter,
	}
	if p.GPU != nil {
		platform["RUNPOD_GPU_COUNT"] = strconv.Itoa(p.GPU.Count)
	} else {
		platform["RUNPOD_CPU_COUNT"] = strconv.Itoa(p.CPU.VCPU)
	}
	for _, m := range c.Mounts.Network {
		platform["RUNPOD_VOLUME_ID"] = m.VolumeID
	}
	maps.Copy(platform, more)
	for name, value := range p.Injected {
		if _, chosen := c.Env[name]; !chosen {
			platform[name] = value
		}
	}
	all = maps.Clone(c.Env)
	if all == nil {
		all = make(map[string]string, len(platform))
	}
	maps.Copy(all, platform)
	return all, slices.Sorted(maps.Keys(platform))
}
