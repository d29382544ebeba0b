package nvidia

import (
	"slices"
	"strings"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
)

const gibibyte = 1 << 30

// Inventory returns what a host with these devices has: the types for its catalog, in the
// order of their first device, and the devices of each type. Types cost nothing, are in
// both tiers and in the pool of catalog.HostPool.
//
// In place of a partitioned GPU there are its parts. Each size is a type of its own, for
// example "NVIDIA A100-SXM4-80GB MIG 2g.20gb". A pod can have one part, because a CUDA
// program uses the first part that it sees and no other.
func Inventory(devices []Device) (types []catalog.GPUType, host []pods.HostGPUs) {
	for _, d := range devices {
		if d.MIG {
			continue
		}
		memory := int((d.Memory + gibibyte/2) / gibibyte)
		i := slices.IndexFunc(types, func(t catalog.GPUType) bool { return t.ID == d.Name })
		if i < 0 {
			i = len(types)
			types = append(types, catalog.GPUType{
				ID: d.Name, Name: shortName(d.Name), Pool: catalog.HostPool(d.Name), Manufacturer: catalog.NVIDIA,
				Memory: memory, Secure: true, Community: true,
			})
			host = append(host, pods.HostGPUs{Type: d.Name})
		}
		host[i].Devices = append(host[i].Devices, d.UUID)
		n := len(host[i].Devices)
		if d.Parent != "" {
			n = 1
		}
		types[i].MaxCount = catalog.MaxCount{Secure: n, Community: n}
		types[i].Memory = min(types[i].Memory, memory) // the smallest of its devices
	}
	return types, host
}

// shortName returns a name without the common prefixes: "RTX 4090".
func shortName(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(name, "NVIDIA "), "GeForce ")
}
