package docker

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"
)

// gpuKind is the CDI kind of the devices that pods.Spec names.
const gpuKind = "nvidia.com/gpu"

// qualifiedNames returns the CDI names of devices.
func qualifiedNames(devices []string) []string {
	names := make([]string, len(devices))
	for i, d := range devices {
		names[i] = gpuKind + "=" + d
	}
	return names
}

// readCDI reads the specifications in dirs. It ignores files that cannot be read.
func readCDI(dirs []string) (*cdi.Cache, error) {
	return cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
}

// resolve returns the container edits for these devices.
func resolve(dirs, names []string) (all []specs.ContainerEdits, err error) {
	cache, err := readCDI(dirs)
	if err != nil {
		return nil, err
	}
	known := map[*cdi.Spec]bool{}
	for _, name := range names {
		d := cache.GetDevice(name)
		if d == nil {
			err := fmt.Errorf("no CDI specification in %s has a device %s", strings.Join(dirs, ", "), name)
			return nil, errors.Join(err, cache.Refresh())
		}
		if err := checkDeviceNodes(d); err != nil {
			return nil, err
		}
		if s := d.GetSpec(); !known[s] {
			known[s] = true
			all = append(all, s.ContainerEdits)
		}
		all = append(all, d.ContainerEdits)
	}
	return all, nil
}

// checkDeviceNodes refuses a device without nodes of its own. Nothing else shows that the
// device is in the container.
func checkDeviceNodes(d *cdi.Device) error {
	if len(d.ContainerEdits.DeviceNodes) == 0 {
		return fmt.Errorf("the CDI specification of %s names no device nodes of its own", d.GetQualifiedName())
	}
	return nil
}

// checkAllDeviceNodes is checkDeviceNodes for devices that an engine resolves. It ignores
// devices that are not in dirs: the engine may see other files there, and refuses the
// devices that it does not know.
func checkAllDeviceNodes(dirs, names []string) error {
	cache, err := readCDI(dirs)
	if err != nil {
		return err
	}
	for _, name := range names {
		if d := cache.GetDevice(name); d != nil {
			if err := checkDeviceNodes(d); err != nil {
				return err
			}
		}
	}
	return nil
}

// nodes returns the device paths that a container with these edits must have.
func nodes(all []specs.ContainerEdits) (paths []string) {
	for _, e := range all {
		for _, n := range e.DeviceNodes {
			if !slices.Contains(paths, n.Path) {
				paths = append(paths, n.Path)
			}
		}
	}
	return paths
}

// edits are CDI edits as fields of the Docker API.
type edits struct {
	devices []container.DeviceMapping
	mounts  []mount.Mount
	env     []string
	groups  []string
}

// translate returns an error for an edit that the Docker API cannot express. A container
// without that edit may lack what its programs need to find the GPU.
func translate(all []specs.ContainerEdits) (e edits, err error) {
	for _, c := range all {
		if err := e.add(&c); err != nil {
			return edits{}, fmt.Errorf("its CDI specification needs %w, which cannot be asked for through the Docker API: "+
				"it takes Podman, a Docker that knows CDI, or NVIDIA's container toolkit", err)
		}
	}
	return e, nil
}

// add appends a set of edits. Of two edits for one path in the container, the later one
// wins.
func (e *edits) add(c *specs.ContainerEdits) error {
	switch {
	case len(c.Hooks) > 0:
		h := c.Hooks[0]
		return fmt.Errorf("the hook %s (%s)", filepath.Base(h.Path), h.HookName)
	case c.IntelRdt != nil:
		return errors.New("a class of Intel RDT")
	case len(c.NetDevices) > 0:
		return fmt.Errorf("the network interface %s", c.NetDevices[0].HostInterfaceName)
	}
	for _, n := range c.DeviceNodes {
		d, err := device(n)
		if err != nil {
			return err
		}
		e.devices = slices.DeleteFunc(e.devices, func(old container.DeviceMapping) bool { return old.PathInContainer == d.PathInContainer })
		e.devices = append(e.devices, d)
	}
	for _, m := range c.Mounts {
		b, err := bindMount(m)
		if err != nil {
			return err
		}
		e.mounts = slices.DeleteFunc(e.mounts, func(old mount.Mount) bool { return old.Target == b.Target })
		e.mounts = append(e.mounts, b)
	}
	e.env = append(e.env, c.Env...)
	for _, g := range c.AdditionalGIDs {
		e.groups = append(e.groups, strconv.FormatUint(uint64(g), 10))
	}
	return nil
}

// device is a node as a field of the Docker API. The engine gives the node the owner and
// the mode that it has on the host.
func device(n *specs.DeviceNode) (container.DeviceMapping, error) {
	d := container.DeviceMapping{PathOnHost: n.HostPath, PathInContainer: n.Path, CgroupPermissions: n.Permissions}
	if d.PathOnHost == "" {
		d.PathOnHost = n.Path
	}
	switch {
	case n.Permissions == cdi.NoPermissions:
		return d, fmt.Errorf("%s without a right to use it", n.Path)
	case n.FileMode != nil || n.UID != nil || n.GID != nil:
		return d, fmt.Errorf("an owner or a mode of its own for %s", n.Path)
	case n.Permissions == "":
		d.CgroupPermissions = "rwm"
	}
	return d, nil
}

// bindMount is a mount as a field of the Docker API. The engine decides about nosuid, nodev
// and noexec.
func bindMount(m *specs.Mount) (mount.Mount, error) {
	b := mount.Mount{Type: mount.TypeBind, Source: m.HostPath, Target: m.ContainerPath, BindOptions: &mount.BindOptions{NonRecursive: true}}
	if m.Type != "" && m.Type != "bind" {
		return b, fmt.Errorf("a mount of type %s", m.Type)
	}
	for _, o := range m.Options {
		switch o {
		case "ro":
			b.ReadOnly = true
		case "rbind":
			b.BindOptions.NonRecursive = false
		case "private", "rprivate", "slave", "rslave", "shared", "rshared":
			b.BindOptions.Propagation = mount.Propagation(o)
		case "rw", "bind", "nosuid", "nodev", "noexec":
		default:
			return b, fmt.Errorf("the mount option %s", o)
		}
	}
	return b, nil
}

// hasUsableGPU reports whether the specifications in dirs describe a GPU that usable
// accepts.
func hasUsableGPU(dirs []string, usable func([]specs.ContainerEdits) bool) bool {
	cache, err := readCDI(dirs)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(cache.ListDevices(), func(name string) bool {
		if !strings.HasPrefix(name, gpuKind+"=") {
			return false
		}
		d := cache.GetDevice(name)
		return usable([]specs.ContainerEdits{d.GetSpec().ContainerEdits, d.ContainerEdits})
	})
}
