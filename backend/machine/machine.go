// Package machine makes the machine that the program runs on a host of pods: with its cores,
// its memory and, where the program knows them, its GPUs. The runtime is that of any backend:
// processes, containers, or several of them.
package machine

import (
	"runtime"

	"github.com/podyard/podyard/internal/podhost"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
)

// Options limits what pods may use of the machine. The zero value and nil offer all of it.
type Options struct {
	// ID is the host's, unique and lasting: pods remember it. Default "local".
	ID string
	// Cores is how many processor cores pods share. Default: those of the machine.
	Cores int
	// Memory is how many GB pods may have together. Default: the machine's, or 8 where that
	// cannot be read.
	Memory int
	// GPUTypes and GPUs are what nvidia.Inventory returns: the types for the catalog and the
	// devices of each. The runtime must hand them out. Default: none.
	GPUTypes []catalog.GPUType
	GPUs     []pods.HostGPUs
	// CUDA is the CUDA version of the driver, "12.8". Default: not known.
	CUDA string
}

// Host returns this machine as a host that runs pods by rt, and the catalog that offers it
// and nothing else: [catalog.Local]. With them pods.New makes a service whose pods run here.
// For simulated hosts there is pods.SimulatedHosts.
func Host(rt pods.Runtime, o *Options) (catalog.Catalog, pods.Host) {
	d := o.withDefaults()
	c := catalog.Local(d.Cores, d.Memory, d.GPUTypes...)
	c.DataCenters[0].GlobalNetwork = rt.Capabilities().PrivateNetworks
	return c, pods.Host{
		ID: d.ID, DataCenter: catalog.LocalDataCenter, Runtime: rt,
		GPUs: d.GPUs, CUDA: d.CUDA,
		VCPU: map[string]int{catalog.HostFlavor: max(d.Cores, 2)}, Memory: d.Memory,
	}
}

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.ID == "" {
		d.ID = "local"
	}
	if d.Cores <= 0 {
		d.Cores = runtime.NumCPU()
	}
	if d.Memory <= 0 {
		d.Memory = memory()
	}
	return d
}

// memory is that of the machine in GB.
func memory() int {
	bytes := podhost.MachineMemory()
	if bytes == 0 {
		return 8
	}
	return int(max(bytes>>30, 1))
}
