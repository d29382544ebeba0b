package docker

import (
	"fmt"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/podyard/podyard/pods"
)

// labelGPUs lists what a container with its GPUs must have, separated by commas: paths of
// device nodes, or names in device requests.
const labelGPUs = "io.podyard.gpus"

// nvidiaHook is the program that Docker needs for requests to the driver "nvidia".
const nvidiaHook = "nvidia-container-runtime-hook"

// A gpuMethod is a way to give GPUs to a container.
type gpuMethod int

const (
	byRequest gpuMethod = iota // a device request for the driver "nvidia"
	byCDI                      // a device request for CDI devices
	byPodman                   // CDI devices, by Podman's own API
	byEdits                    // this package resolves CDI; the engine gets nodes, mounts and environment
)

// gpuSupport says which methods an engine supports.
type gpuSupport struct {
	podman bool
	local  bool     // the engine is on this machine, judged by its address
	cdi    []string // the directories of its CDI specifications; empty: it does not know CDI
	found  bool     // the engine reports GPUs that it discovered by CDI
	nvidia bool     // the engine has the driver "nvidia"
}

// gpuSupport reads what the engine reports about itself.
func (r *Runtime) gpuSupport(podman bool, info system.Info) gpuSupport {
	// Elsewhere than on Linux a socket leads into a virtual machine.
	local := strings.HasPrefix(r.api.DaemonHost(), "unix://") && runtime.GOOS == "linux" && !isDesktop(info)
	f := gpuSupport{podman: podman, local: local}
	_, f.nvidia = info.Runtimes["nvidia"]
	if _, err := exec.LookPath(nvidiaHook); err == nil && f.local {
		f.nvidia = true
	}
	f.cdi = info.CDISpecDirs
	f.found = slices.ContainsFunc(info.DiscoveredDevices, func(d system.DeviceInfo) bool {
		return d.Source == "cdi" && strings.HasPrefix(d.ID, gpuKind+"=")
	})
	return f
}

func (f gpuSupport) method() gpuMethod {
	switch {
	case f.podman:
		return byPodman
	case len(f.cdi) > 0 && (f.found || !f.nvidia):
		return byCDI
	case f.nvidia, !f.local:
		return byRequest // a remote engine does not report whether it has the hook
	}
	return byEdits
}

// available reports whether there are GPUs that a container can get. dirs is
// Options.CDIDirs.
func (f gpuSupport) available(dirs []string) bool {
	switch f.method() {
	case byRequest:
		return f.nvidia
	case byCDI:
		return f.found || f.local && hasUsableGPU(f.cdi, func([]specs.ContainerEdits) bool { return true })
	case byPodman:
		return f.local && hasUsableGPU(dirs, func([]specs.ContainerEdits) bool { return true })
	default:
		return hasUsableGPU(dirs, func(all []specs.ContainerEdits) bool {
			_, err := translate(all)
			return err == nil
		})
	}
}

// A gpuGrant is how one container gets its GPUs. The zero value is for a container without
// GPUs.
type gpuGrant struct {
	requests []container.DeviceRequest
	names    []string // CDI names, for Podman's own API
	edits    edits
	expected []string // see labelGPUs
}

// hideGPUsEnv stops NVIDIA's runtime from adding GPUs to a container because its image or
// owner asks for them in the environment. NVIDIA's runtime does so where it is Docker's
// default runtime, and those GPUs may belong to another pod.
const hideGPUsEnv = "NVIDIA_VISIBLE_DEVICES=void"

// hideEnv returns the environment of a container that must get no GPUs from NVIDIA's
// runtime.
func (f gpuSupport) hideEnv() []string {
	if !f.nvidia {
		return nil
	}
	return []string{hideGPUsEnv}
}

// gpuGrant returns how the container of s gets its GPUs.
func (r *Runtime) gpuGrant(s pods.Spec) (g gpuGrant, err error) {
	facts := r.engine.gpus
	if s.GPUs == 0 && len(s.Devices) == 0 {
		g.edits.env = facts.hideEnv()
		return g, nil
	}
	if len(s.Devices) == 0 || len(s.Devices) != s.GPUs {
		// Given a number, an engine gives the same GPUs to every container.
		return g, fmt.Errorf("it is to have %d GPUs, and the host named %d", s.GPUs, len(s.Devices))
	}
	names := qualifiedNames(s.Devices)
	switch facts.method() {
	case byCDI:
		if facts.local {
			if err := checkAllDeviceNodes(facts.cdi, names); err != nil {
				return g, fmt.Errorf("its GPUs cannot be handed over: %w", err)
			}
		}
		g.requests, g.expected = []container.DeviceRequest{{Driver: "cdi", DeviceIDs: names}}, names
		g.edits.env = facts.hideEnv()
		return g, nil
	case byRequest:
		g.requests = []container.DeviceRequest{{Driver: "nvidia", Capabilities: [][]string{{"gpu"}}, DeviceIDs: s.Devices}}
		g.expected = s.Devices
		return g, nil
	}
	all, err := resolve(r.opts.CDIDirs, names)
	if err == nil && !facts.podman {
		g.edits, err = translate(all)
	}
	if err != nil {
		return gpuGrant{}, fmt.Errorf("its GPUs cannot be handed over: %w", err)
	}
	if g.expected = nodes(all); facts.podman {
		g.names, g.edits.env = names, facts.hideEnv()
	}
	return g, nil
}

// apply adds the GPUs to c. It does not change what c points to.
func (g gpuGrant) apply(c client.ContainerCreateOptions) client.ContainerCreateOptions {
	config, host := *c.Config, *c.HostConfig
	if len(g.expected) > 0 {
		config.Labels = maps.Clone(config.Labels)
		config.Labels[labelGPUs] = strings.Join(g.expected, ",")
	}
	config.Env = slices.Concat(config.Env, g.edits.env)
	host.DeviceRequests, host.Devices = g.requests, g.edits.devices
	host.Mounts = slices.Concat(host.Mounts, g.edits.mounts)
	host.GroupAdd = slices.Concat(host.GroupAdd, g.edits.groups)
	c.Config, c.HostConfig = &config, &host
	return c
}

// checkCreatedGPUs is checkGPUs for a container that was not started. Podman shows no
// devices before the start.
func (e engine) checkCreatedGPUs(c *container.InspectResponse) error {
	if e.podman {
		return nil
	}
	return checkGPUs(c)
}

// checkGPUs returns an error if the container lacks one of its GPUs.
func checkGPUs(c *container.InspectResponse) error {
	wanted := c.Config.Labels[labelGPUs]
	if wanted == "" {
		return nil
	}
	var missing []string
	for want := range strings.SplitSeq(wanted, ",") {
		if c.HostConfig == nil || !hasDevice(c.HostConfig, want) {
			missing = append(missing, want)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("its GPUs did not arrive: the engine made a container without %s", strings.Join(missing, ", "))
	}
	return nil
}

// hasDevice reports whether a container has want, an item of labelGPUs.
func hasDevice(host *container.HostConfig, want string) bool {
	return slices.ContainsFunc(host.Devices, func(d container.DeviceMapping) bool { return d.PathInContainer == want }) ||
		slices.ContainsFunc(host.DeviceRequests, func(q container.DeviceRequest) bool {
			return slices.Contains(q.DeviceIDs, want)
		})
}
