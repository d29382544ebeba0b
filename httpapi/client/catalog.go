package client

import (
	"context"
	"net/url"
	"strconv"
)

// Catalog has what can be rented (docs/interface.md 2.15).
type Catalog struct{ c *Client }

// A GPUType is a type of GPU. What is free is there if the query asks for it.
type GPUType struct {
	ID, Name, Pool, Manufacturer string
	Memory                       int // GB
	Secure, Community            bool
	Price                        struct{ Secure, Community, Serverless float64 } // USD an hour
	MaxCount                     struct{ Secure, Community int }
	Availability                 string       // NONE, LOW, MEDIUM or HIGH
	DataCenters                  []DataCenter // only ID, Name and Availability
	CUDAVersions                 []struct {
		Version   string
		Available bool
	}
}

// A CPUType is a flavor of CPUs. What is free is there if the query asks for it.
type CPUType struct {
	ID, Name, Group string
	VCPU            struct{ Min, Max int }
	RAMPerVCPU      float64                                            `json:"ramGbPerVcpu"`
	Price           struct{ SecurePerVCPU, ServerlessPerVCPU float64 } // USD an hour
	Availability    string                                             // NONE, LOW, MEDIUM or HIGH
	DataCenters     []DataCenter                                       // only ID, Name and Availability
}

// A DataCenter is a data center. The availabilities are there if the query asks for them.
type DataCenter struct {
	ID, Name, Region   string
	GlobalNetwork      bool
	NetworkVolumeTypes []string
	Compliance         []string
	GPUAvailability    []GPUType // only ID, Name and Availability
	CPUAvailability    []CPUType // only ID, Name and Availability
	Availability       string    // of what the list of a type says: NONE, LOW, MEDIUM or HIGH
}

// A StockQuery asks what is free. The zero value does not ask.
type StockQuery struct {
	Product        string // POD, SERVERLESS or CLUSTER; the other fields need it
	Count          int    // GPUs on one host
	VCPU           int    // vCPUs on one host
	Cloud          string
	CountryCodes   []string
	CUDAVersions   []string
	MinCUDAVersion string
}

func (q StockQuery) values() url.Values {
	v := url.Values{}
	set := func(name, value string) {
		if value != "" && value != "0" {
			v.Set(name, value)
		}
	}
	if q.Product != "" {
		v.Set("include", "AVAILABILITY")
	}
	set("product", q.Product)
	set("count", strconv.Itoa(q.Count))
	set("vcpuCount", strconv.Itoa(q.VCPU))
	set("cloud", q.Cloud)
	set("minCudaVersion", q.MinCUDAVersion)
	addAll(v, "countryCodes", q.CountryCodes)
	addAll(v, "cudaVersions", q.CUDAVersions)
	return v
}

func addAll(v url.Values, name string, list []string) {
	for _, s := range list {
		v.Add(name, s)
	}
}

// A DataCenterQuery selects data centers. The zero value selects all.
type DataCenterQuery struct {
	Include            []string // GPU_AVAILABILITY, CPU_AVAILABILITY
	Regions            []string // in one of these
	NetworkVolumeTypes []string // with all of these
	Compliance         []string // with all of these
	GlobalNetwork      *bool
}

// GPUs lists the types of GPUs.
func (c *Catalog) GPUs(ctx context.Context, q StockQuery) ([]GPUType, error) {
	out, err := get[struct{ GPUs []GPUType }](ctx, c.c, "/v2/catalog/gpus", q.values())
	return out.GPUs, err
}

// GPU returns a type of GPU.
func (c *Catalog) GPU(ctx context.Context, id string, q StockQuery) (GPUType, error) {
	return get[GPUType](ctx, c.c, join("/v2/catalog/gpus", id), q.values())
}

// CPUs lists the flavors of CPUs.
func (c *Catalog) CPUs(ctx context.Context, q StockQuery) ([]CPUType, error) {
	out, err := get[struct{ CPUs []CPUType }](ctx, c.c, "/v2/catalog/cpus", q.values())
	return out.CPUs, err
}

// CPU returns a flavor of CPUs.
func (c *Catalog) CPU(ctx context.Context, id string, q StockQuery) (CPUType, error) {
	return get[CPUType](ctx, c.c, join("/v2/catalog/cpus", id), q.values())
}

// DataCenters lists data centers.
func (c *Catalog) DataCenters(ctx context.Context, q DataCenterQuery) ([]DataCenter, error) {
	v := url.Values{}
	addAll(v, "include", q.Include)
	addAll(v, "regions", q.Regions)
	addAll(v, "networkVolumeTypes", q.NetworkVolumeTypes)
	addAll(v, "compliance", q.Compliance)
	if q.GlobalNetwork != nil {
		v.Set("globalNetwork", strconv.FormatBool(*q.GlobalNetwork))
	}
	out, err := get[struct{ DataCenters []DataCenter }](ctx, c.c, "/v2/catalog/datacenters", v)
	return out.DataCenters, err
}

// DataCenter returns a data center with what is free in it, if include has GPU_AVAILABILITY or
// CPU_AVAILABILITY.
func (c *Catalog) DataCenter(ctx context.Context, id string, include ...string) (DataCenter, error) {
	v := url.Values{}
	addAll(v, "include", include)
	return get[DataCenter](ctx, c.c, join("/v2/catalog/datacenters", id), v)
}
