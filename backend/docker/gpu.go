package docker

import (
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/podyard/podyard/pods"
)

// labelGPUs says by what it is seen in a container that its GPUs arrived: the paths of
// device nodes, or what device requests name, with commas between.
const labelGPUs = "io.podyard.gpus"

// nvidiaHook is the program by which Docker takes requests for the driver "nvidia".
const nvidiaHook = "nvidia-container-runtime-hook"

// A gpuMethod is how a container is given GPUs.
type gpuMethod int

const (
	byRequest gpuMethod = iota // the engine is asked for the driver "nvidia"
	byCDI                      // the engine is asked for CDI devices
	byPodman                   // so is Podman, through its own API
	byEdits                    // CDI is read here, and the engine asked for nodes, mounts and environment
)

// gpuSupport are what an engine says of the ways that it has.
type gpuSupport struct {
	podman bool
	local  bool     // it is on this machine, as far as the address tells
	cdi    []string // the directories of its CDI specifications; none: it knows no CDI
	found  bool     // it says that it has found GPUs there
	nvidia bool     // it has the driver "nvidia"
}

// gpuSupport looks at what the engine says of itself.
func (r *Runtime) gpuSupport(podman bool, info system.Info) gpuSupport {
	f := gpuSupport{podman: podman, local: strings.HasPrefix(r.api.DaemonHost(), "unix://")}
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

// method is how GPUs are handed over.
func (f gpuSupport) method() gpuMethod {
	switch {
	case f.podman:
		return byPodman
	case len(f.cdi) > 0 && (f.found || !f.nvidia):
		return byCDI
	case f.nvidia, !f.local:
		return byRequest // an engine that cannot says what it lacks
	}
	return byEdits
}

// available says whether there are GPUs that can be handed over. The directories are those of
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

// A gpuGrant is how one container is given its GPUs. The zero value is none.
type gpuGrant struct {
	requests []container.DeviceRequest
	names    []string // of CDI, for Podman's own API
	edits    edits
	expected []string // see labelGPUs
}

// hideGPUsEnv keeps NVIDIA's runtime from showing GPUs to a container whose image or owner asks for
// them in the environment: where it is Docker's default it does, and they may be another's.
const hideGPUsEnv = "NVIDIA_VISIBLE_DEVICES=void"

// hideEnv is the environment of a container that is to have no GPUs of NVIDIA's runtime.
func (f gpuSupport) hideEnv() []string {
	if !f.nvidia {
		return nil
	}
	return []string{hideGPUsEnv}
}

// gpuGrant is how the container of s is given its GPUs.
func (r *Runtime) gpuGrant(s pods.Spec) (g gpuGrant, err error) {
	facts := r.engine.gpus
	if s.GPUs == 0 && len(s.Devices) == 0 {
		g.edits.env = facts.hideEnv()
		return g, nil
	}
	if len(s.Devices) == 0 || len(s.Devices) != s.GPUs {
		// An engine that is told how many has the same ones for everybody.
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

// apply has a container made with its GPUs. What c points to stays as it is.
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

// checkCreatedGPUs is arrived for a container that was not started. Podman does not know before.
func (e engine) checkCreatedGPUs(c *container.InspectResponse) error {
	if e.podman {
		return nil
	}
	return checkGPUs(c)
}

// checkGPUs says what is wrong when a container has not got the GPUs that it was to have.
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

// hasDevice says whether a container has one of the things in labelGPUs.
func hasDevice(host *container.HostConfig, want string) bool {
	return slices.ContainsFunc(host.Devices, func(d container.DeviceMapping) bool { return d.PathInContainer == want }) ||
		slices.ContainsFunc(host.DeviceRequests, func(q container.DeviceRequest) bool {
			return slices.Contains(q.DeviceIDs, want)
		})
}
