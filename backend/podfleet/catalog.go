package podfleet

import (
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/serverless/endpoints"
)

// Catalog returns a catalog for endpoints from a catalog of pods.
func Catalog(c catalog.Catalog) endpoints.Catalog { return serverlessCatalog{c} }

type serverlessCatalog struct{ c catalog.Catalog }

func (o serverlessCatalog) Flavor(id string, vcpus int) (memoryGB int, ok bool) {
	f, ok := o.c.CPU(id)
	if !ok || vcpus < f.VCPU.Min || vcpus > f.VCPU.Max {
		return 0, ok
	}
	return f.Memory(vcpus), true
}

func (o serverlessCatalog) Pool(id string) []string { return gpuTypes(o.c, id) }

func (o serverlessCatalog) DataCenter(id string) bool {
	_, ok := o.c.DataCenter(id)
	return ok
}

// gpuTypes returns the GPU types in a pool. A type without a pool is in none.
func gpuTypes(c catalog.Catalog, pool string) (ids []string) {
	for i := range c.GPUs {
		if pool != "" && c.GPUs[i].Pool == pool {
			ids = append(ids, c.GPUs[i].ID)
		}
	}
	return ids
}
