package catalog

// The names that a catalog of one host uses.
const (
	LocalDataCenter = "LOCAL-1"
	HostFlavor      = "host"
	// LocalPool is the serverless pool of GPU types that are in no pool of the hosted service.
	LocalPool = "LOCAL"
)

// HostPool returns the serverless pool of a GPU type of a host: its pool in the hosted service,
// so that programs written for that one find it, otherwise LocalPool.
func HostPool(gpuType string) string {
	if t, _ := Sample().GPU(gpuType); t.Pool != "" {
		return t.Pool
	}
	return LocalPool
}

// Overcommit is how many vCPUs are promised for each core: vCPUs are a weight and not a
// reservation. Memory is never promised twice, so a vCPU of [Local] has the memory of a core
// divided by this.
const Overcommit = 4

// Local is the catalog of one host: data center LOCAL-1, the flavor "host" and the GPU types it
// has. vcpus is the number of cores, memory GB. The flavor offers 2, 4, ... vCPUs up to the
// largest power of two that is not above the cores, and 2 on a smaller host. Nothing costs
// anything, unless a GPU type says so.
//
// Network volumes are of the standard type: directories of the host, or volumes of its engine.
// Global networking is off; the program turns it on if its runtime has it.
func Local(vcpus, memory int, gpus ...GPUType) Catalog {
	most := 2
	for most*2 <= vcpus {
		most *= 2
	}
	return Catalog{
		GPUs: gpus,
		CPUs: []CPUFlavor{{
			ID: HostFlavor, Name: "This host", Group: "Local",
			VCPU:       Range{Min: 2, Max: most},
			RAMPerVCPU: float64(memory) / float64(max(vcpus, 2)*Overcommit),
		}},
		DataCenters: []DataCenter{{
			ID: LocalDataCenter, Name: "This host", Region: UnknownRegion, Volumes: []VolumeType{Standard},
		}},
	}
}
