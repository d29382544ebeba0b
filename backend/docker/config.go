package docker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/podyard/podyard/internal/podhost"
	"github.com/podyard/podyard/pods"
)

// noNewPrivileges is a security option of Docker and Podman.
const noNewPrivileges = "no-new-privileges"

// usernsAuto makes Podman give each container its own range of user ids.
const usernsAuto = "auto"

// gigabyte is the unit of Spec.Memory.
const gigabyte = 1 << 30

// config returns the container of s without its published ports and without its
// environment.
func (p *pod) config(ctx context.Context, s pods.Spec) (client.ContainerCreateOptions, error) {
	r := p.r
	host := &container.HostConfig{
		LogConfig: r.logConfig(), CapDrop: r.opts.CapDrop, ShmSize: r.shmSize(&s), SecurityOpt: r.securityOptions(),
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		Resources:     r.resources(s),
		Runtime:       r.opts.Runtime,
	}
	if r.opts.UserNamespaces && r.engine.podman {
		host.UsernsMode = usernsAuto // Docker has one setting for all containers
	}
	if r.opts.Init {
		host.Init = &r.opts.Init
	}
	if r.engine.diskLimit && s.Disk > 0 {
		host.StorageOpt = map[string]string{"size": strconv.Itoa(s.Disk) + "G"}
	}
	config := &container.Config{Image: s.Image, User: s.User, Entrypoint: s.Entrypoint, Cmd: s.Args, Labels: map[string]string{
		labelInstance: r.instance, labelPod: p.id,
		labelGen: strconv.FormatUint(s.Gen, 10), labelRun: strconv.FormatUint(s.Run, 10),
	}}
	if !r.engine.diskLimit && s.Disk > 0 {
		config.Labels[labelDisk] = strconv.Itoa(s.Disk)
	}
	if s.NetworkAlias != "" {
		config.Labels[labelAlias] = s.NetworkAlias
	}
	err := r.retry(ctx, func() (err error) {
		host.Mounts, err = r.volumes(ctx, s)
		return err
	})
	if err != nil {
		return client.ContainerCreateOptions{}, fmt.Errorf("its volumes cannot be made: %w", err)
	}
	if p.rec.Check, err = r.podmanHealthCheck(ctx, s.Image); err != nil {
		return client.ContainerCreateOptions{}, err
	}
	if r.engine.podman {
		config.Healthcheck = &container.HealthConfig{Test: []string{"NONE"}}
	}
	return client.ContainerCreateOptions{Name: p.name(), Config: config, HostConfig: host}, nil
}

// securityOptions are the differences from the engine's default.
func (r *Runtime) securityOptions() []string {
	var all []string
	if !r.opts.AllowNewPrivileges {
		all = append(all, noNewPrivileges)
	}
	if r.engine.seccomp == seccompOff {
		all = append(all, "seccomp=builtin")
	}
	return all
}

// allocatePorts allocates public ports and adds ports and environment to c.
func (p *pod) allocatePorts(s pods.Spec, c *client.ContainerCreateOptions) (err error) {
	p.rec.Ports, err = p.r.ports.Allocate(p.r.opts.Host.String(), p.rec.Publication, s.Ports, p.rec.Ports)
	if err != nil {
		return err
	}
	ports := podhost.Mapping(p.r.opts.Host.String(), p.rec.Publication, s.Ports, p.rec.Ports)
	c.Config.ExposedPorts, c.HostConfig.PortBindings, err = bindings(ports)
	config := *c.Config
	config.Env = slices.Concat(environ(s.Env), []string{"PODYARD_POD_ID=" + p.id}, portEnv(p.r.opts.Host.String(), ports))
	c.Config = &config
	return err
}

func environ(env map[string]string) []string {
	all := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		all = append(all, k+"="+env[k])
	}
	return all
}

// resources are the limits of a container. They never exceed what the host has, because the
// engine refuses more.
func (r *Runtime) resources(s pods.Spec) container.Resources {
	var res container.Resources
	if s.VCPU > 0 {
		res.CPUShares = int64(s.VCPU) * 1024
		cores := s.VCPU
		if r.engine.cores > 0 {
			cores = min(cores, r.engine.cores)
		}
		res.NanoCPUs = int64(cores) * 1e9
	}
	if s.Memory > 0 {
		res.Memory = int64(s.Memory) * gigabyte
		res.MemorySwap = res.Memory
	}
	res.PidsLimit, res.Ulimits = &r.opts.PidsLimit, r.ulimits()
	return res
}

// shmSize is the size of /dev/shm in bytes: what the pod asks for, what is configured, or half of its
// memory; 0 is the engine's default.
func (r *Runtime) shmSize(s *pods.Spec) int64 {
	switch {
	case s.ShmSize > 0:
		return int64(s.ShmSize) << 20
	case r.opts.ShmSize > 0:
		return r.opts.ShmSize
	}
	return int64(s.Memory) * gigabyte / 2
}

func (r *Runtime) ulimits() (list []*container.Ulimit) {
	for _, name := range slices.Sorted(maps.Keys(r.opts.Ulimits)) {
		n := r.opts.Ulimits[name]
		list = append(list, &container.Ulimit{Name: name, Soft: n, Hard: n})
	}
	return list
}

// logConfig names the log driver, because the engine's default may be a driver whose logs
// cannot be read.
func (r *Runtime) logConfig() container.LogConfig {
	if r.engine.podman {
		return container.LogConfig{Type: "k8s-file", Config: map[string]string{"max-size": strconv.FormatInt(r.opts.LogSize, 10)}}
	}
	return container.LogConfig{Type: "json-file", Config: map[string]string{
		"max-size": strconv.FormatInt(r.opts.LogSize/2, 10), "max-file": "2",
	}}
}
