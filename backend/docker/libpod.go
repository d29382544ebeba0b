package docker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
)

// A libpodContainer is the request of Podman's own API for a new container. It has the
// fields that config sets in the Docker API. Podman's Docker API has no CDI devices, and
// ignores the runtime.
type libpodContainer struct {
	Name           string                   `json:"name"`
	Image          string                   `json:"image"`
	Command        []string                 `json:"command,omitempty"`
	Env            map[string]string        `json:"env,omitempty"`
	Labels         map[string]string        `json:"labels,omitempty"`
	Log            libpodLog                `json:"log_configuration"`
	RestartPolicy  string                   `json:"restart_policy,omitempty"`
	Init           bool                     `json:"init,omitempty"`
	SharedMemory   *int64                   `json:"shm_size,omitempty"`
	StorageOpts    map[string]string        `json:"storage_opts,omitempty"`
	Volumes        []libpodVolume           `json:"volumes,omitempty"`
	Devices        []libpodDevice           `json:"devices,omitempty"`
	CapDrop        []string                 `json:"cap_drop,omitempty"`
	NoNewPrivilege bool                     `json:"no_new_privileges,omitempty"`
	Ports          []libpodPort             `json:"portmappings,omitempty"`
	Limits         libpodLimits             `json:"resource_limits"`
	Health         any                      `json:"healthconfig,omitempty"`
	NetNS          libpodNamespace          `json:"netns"`
	Runtime        string                   `json:"oci_runtime,omitempty"`
	UserNS         libpodNamespace          `json:"userns,omitzero"`
	IDMappings     libpodIDMappings         `json:"idmappings,omitzero"`
	Networks       map[string]libpodNetwork `json:"networks,omitempty"`
	OOMScore       int                      `json:"oom_score_adj"` // without it, Podman uses the low score of its monitor
}

type libpodLog struct {
	Driver  string            `json:"driver"`
	Size    int64             `json:"size,omitempty"`
	Options map[string]string `json:"options,omitempty"`
}

type libpodIDMappings struct{ AutoUserNs bool }

type libpodVolume struct {
	Name, Dest string
	Options    []string
}

type libpodDevice struct {
	Path string `json:"path"`
}

type libpodPort struct {
	HostIP    string `json:"host_ip"`
	Container uint16 `json:"container_port"`
	Host      uint16 `json:"host_port"`
	Protocol  string `json:"protocol"`
}

type libpodNamespace struct {
	Mode string `json:"nsmode"`
}

type libpodNetwork struct {
	Aliases []string `json:"aliases,omitempty"`
}

type libpodLimits struct {
	CPU struct {
		Shares uint64 `json:"shares,omitempty"`
		Quota  int64  `json:"quota,omitempty"`
		Period uint64 `json:"period,omitempty"`
	} `json:"cpu"`
	Memory struct {
		Limit int64 `json:"limit,omitempty"`
		Swap  int64 `json:"swap,omitempty"`
	} `json:"memory"`
	Pids struct {
		Limit int64 `json:"limit"`
	} `json:"pids"`
}

// toLibpod converts c for Podman's own API, with devices by their CDI names.
func toLibpod(c client.ContainerCreateOptions, devices []string) (libpodContainer, error) {
	host := c.HostConfig
	l := libpodContainer{
		Name: c.Name, Image: c.Config.Image, Command: c.Config.Cmd, Labels: c.Config.Labels,
		Env: map[string]string{}, Log: libpodLog{Driver: host.LogConfig.Type},
		RestartPolicy: string(host.RestartPolicy.Name), Init: host.Init != nil && *host.Init,
		StorageOpts: host.StorageOpt, CapDrop: host.CapDrop,
		NoNewPrivilege: slices.Contains(host.SecurityOpt, noNewPrivileges),
		NetNS:          libpodNamespace{Mode: "bridge"},
		Runtime:        host.Runtime, UserNS: libpodNamespace{Mode: string(host.UsernsMode)},
		IDMappings: libpodIDMappings{AutoUserNs: host.UsernsMode == usernsAuto},
	}
	for _, e := range c.Config.Env {
		k, v, _ := strings.Cut(e, "=")
		l.Env[k] = v
	}
	if host.ShmSize > 0 {
		l.SharedMemory = &host.ShmSize
	}
	if c.Config.Healthcheck != nil {
		l.Health = c.Config.Healthcheck
	}
	for _, d := range devices {
		l.Devices = append(l.Devices, libpodDevice{d})
	}
	l.setLimits(host)
	return l, errors.Join(l.setLogSize(host), l.setVolumes(host), l.setNetworks(c))
}

func (l *libpodContainer) setLogSize(host *container.HostConfig) (err error) {
	if l.Log.Size, err = strconv.ParseInt(host.LogConfig.Config["max-size"], 10, 64); err != nil {
		return fmt.Errorf("size of the log: %w", err)
	}
	return nil
}

func (l *libpodContainer) setVolumes(host *container.HostConfig) error {
	var options []string
	if host.UsernsMode == usernsAuto {
		options = []string{"U"} // Podman changes the owner of the files to the container's users
	}
	for _, m := range host.Mounts {
		if m.Type != mount.TypeVolume {
			return fmt.Errorf("a mount of type %s at %s", m.Type, m.Target)
		}
		l.Volumes = append(l.Volumes, libpodVolume{m.Source, m.Target, options})
	}
	return nil
}

// setNetworks sets the networks of the container and its published ports.
func (l *libpodContainer) setNetworks(c client.ContainerCreateOptions) error {
	for private, bound := range c.HostConfig.PortBindings {
		for _, b := range bound {
			public, err := strconv.ParseUint(b.HostPort, 10, 16)
			if err != nil {
				return fmt.Errorf("public number of port %s: %w", private, err)
			}
			l.Ports = append(l.Ports, libpodPort{b.HostIP.String(), private.Num(), uint16(public), string(private.Proto())})
		}
	}
	if c.NetworkingConfig == nil {
		return nil
	}
	l.Networks = map[string]libpodNetwork{}
	for name, at := range c.NetworkingConfig.EndpointsConfig {
		l.Networks[name] = libpodNetwork{at.Aliases}
	}
	return nil
}

func (l *libpodContainer) setLimits(host *container.HostConfig) {
	l.Limits.CPU.Shares = uint64(host.CPUShares)
	if host.NanoCPUs > 0 {
		const period = 100_000 // microseconds, as in the Docker API
		l.Limits.CPU.Period, l.Limits.CPU.Quota = period, host.NanoCPUs*period/1e9
	}
	l.Limits.Memory.Limit, l.Limits.Memory.Swap = host.Memory, host.MemorySwap
	l.Limits.Pids.Limit = *host.PidsLimit
}

func (r *Runtime) createByLibpod(ctx context.Context, c client.ContainerCreateOptions, devices []string) error {
	l, err := toLibpod(c, devices)
	if err != nil {
		return err
	}
	return r.libpod(ctx, http.MethodPost, "/containers/create", l, nil)
}
