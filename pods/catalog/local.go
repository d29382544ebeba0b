package catalog

// The names that a catalog of one host uses.
const (
	LocalDataCenter = "LOCAL-1"
	HostFlavor      = "host"
	// LocalPool is the serverless pool of GPU types that the public service has in none.
	LocalPool = "LOCAL"
)

// HostPool is the serverless pool of a GPU type of a host: the one that it has in public,
// so that what was written for that finds it, or LocalPool.
func HostPool(gpuType string) string {
	if t, _ := Sample().GPU(gpuType); t.Pool != "" {
		return t.Pool
	}
	return LocalPool
}

// Overcommit is how many vCPUs are promised for each core: vCPUs are a weight and not a
// reservation. Memory is never promised twice, so a vCPU of [Local] has this fraction of
// a core's share of it.
const Overcommit = 4

// Local is the catalog of one host: data center LOCAL-1, the flavor "host" and the GPU
// types it has. vcpus is the number of cores, memory GB. The flavor offers 2, 4, ...
// vCPUs up to the largest power of two that is not above the cores, and 2 on a smaller
// host. Nothing costs anything, unless a GPU type says so.
//
// Network volumes are of the standard type: directories, or the like, of the host. Global
// networking is off: whoever runs the host knows whether its runtime has it.
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
