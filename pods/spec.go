package pods

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	"github.com/podyard/podyard/problem"
)

// spec is the container that p wants on h. An error of kind problem.NotFound says that
// its registry credential is gone.
func (s *Service) spec(ctx context.Context, h *Host, p *Pod) (Spec, error) {
	c := p.Want.Applied.Clone()
	spec := Spec{
		PodID: p.ID, Owner: p.Owner, Gen: p.Want.Gen, Run: p.Want.Run,
		Image: c.Image, Env: s.env(p, c), Disk: c.Disk,
		Devices: p.Placement.Devices, Repull: p.Want.Pull,
	}
	var err error
	if spec.Args, err = SplitArgs(c.Args); err != nil {
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
	} else {
		spec.VCPU, spec.Memory = p.CPU.VCPU, p.CPU.Memory
	}
	if c.GlobalNetworking && h.Runtime.Capabilities().Networks {
		spec.Network = s.InternalDNS(p)
	}
	if c.Registry == "" {
		return spec, nil
	}
	spec.Pull, err = s.pull(ctx, p.Owner, c.Registry)
	return spec, err
}

func (s *Service) pull(ctx context.Context, owner, id string) (Credential, error) {
	if s.secrets == nil {
		return Credential{}, problem.New(problem.NotFound, "no credentials here")
	}
	registry, username, password, err := s.secrets.PullSecret(ctx, owner, id)
	if err != nil {
		return Credential{}, fmt.Errorf("pods: find registry credential %q: %w", id, err)
	}
	return Credential{Registry: registry, Username: username, Password: Secret(password)}, nil
}

// env is what the container finds in its environment: what was injected, the user's
// variables, which win over that, and the platform's, which win over both: programs in the
// container rely on them.
func (s *Service) env(p *Pod, c Config) map[string]string {
	env := maps.Clone(p.Injected)
	if env == nil {
		env = make(map[string]string)
	}
	maps.Copy(env, c.Env)
	env["RUNPOD_POD_ID"] = p.ID
	env["RUNPOD_POD_HOSTNAME"] = p.ID
	env["RUNPOD_DC_ID"] = p.Placement.DataCenter
	if p.GPU != nil {
		env["RUNPOD_GPU_COUNT"] = strconv.Itoa(p.GPU.Count)
	} else {
		env["RUNPOD_CPU_COUNT"] = strconv.Itoa(p.CPU.VCPU)
	}
	for _, m := range c.Mounts.Network {
		env["RUNPOD_VOLUME_ID"] = m.VolumeID
	}
	return env
}
