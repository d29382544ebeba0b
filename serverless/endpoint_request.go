package serverless

import (
	"maps"
	"strings"
	"time"

	"github.com/podyard/podyard/problem"
)

// An EndpointType is how requests reach the workers of an endpoint.
type EndpointType string

// The types. Only queues are offered.
const (
	QueueType        EndpointType = "QUEUE"
	LoadBalancerType EndpointType = "LOAD_BALANCER"
)

// Defaults of an endpoint that is made with CreateEndpoint.
const (
	DefaultDisk       = 50 // GB
	DefaultMaxWorkers = 3
	DefaultIdle       = 10 * time.Second
	DefaultTimeout    = 300_000 * time.Millisecond
)

// Bounds of an endpoint. The public schema sets those of Idle and the lower one of Delay;
// the rest is ours: no job waits for longer than it can live, and nobody asks for a
// number of workers that no fleet has.
const (
	MinIdle    = time.Second
	MaxIdle    = time.Hour
	MinDelay   = 500 * time.Millisecond
	MaxDelay   = MaxTTL
	MaxWorkers = 1000
)

// A CreateEndpointRequest asks for an endpoint: name, type, image, scaling and exactly
// one of GPU and CPU are required.
type CreateEndpointRequest struct {
	Type EndpointType
	EndpointSettings
}

// An UpdateEndpointRequest changes what it names and leaves the rest as it is.
type UpdateEndpointRequest struct {
	EndpointSettings
}

// EndpointSettings are what a request can say of an endpoint. What is nil is absent; of a
// slice or map an empty one is not.
type EndpointSettings struct {
	// TemplateID names a template whose container settings count where they are absent
	// here.
	TemplateID     string
	Name           *string
	Image          *string
	Args           *string
	Disk           *int // GB
	Ports          []string
	Env            map[string]string
	Registry       *string // id of a credential; empty: none
	GPU            *GPUSettings
	CPU            []CPUSettings // in order of preference
	Workers        WorkerSettings
	Scaling        *Scaling
	DataCenterIDs  []string
	NetworkVolumes []string
	Timeout        *time.Duration
	FlashBoot      *FlashBoot

	// Faults are what a decoder found. They are reported together with the faults of the
	// values, and a field with a fault gets no second one.
	Faults problem.Violations
}

// GPUSettings select GPUs. Pools and ExcludedTypes are one selection: a request that
// names Pools replaces both.
type GPUSettings struct {
	Pools               []string
	ExcludedTypes       []string
	Count               *int
	AllowedCUDAVersions []string
	MinCUDAVersion      *string // empty: no floor
}

// CPUSettings are one eligible machine.
type CPUSettings struct {
	ID   string // flavor
	VCPU int
}

// WorkerSettings bound the number of workers.
type WorkerSettings struct {
	Min, Max *int
	Idle     *time.Duration
}

// endpointOrder is the documented fields: faults are reported in this order.
var endpointOrder = []string{
	"name", "type", "image", "gpu", "gpu/pools", "gpu/excludedTypes", "gpu/count", "gpu/allowedCudaVersions",
	"gpu/minCudaVersion", "cpu", "args", "disk", "ports", "env", "registry",
	"workers", "workers/min", "workers/max", "workers/idleTimeout",
	"scaling", "scaling/type", "scaling/queueDelay", "scaling/requestCount",
	"dataCenterIds", "networkVolumes", "timeout", "flashboot", "templateId",
}

// apply writes what r says into e. What it writes is e's own. c may be nil, and then the
// memory of CPU machines is not known.
func (r *EndpointSettings) apply(e *Endpoint, c Catalog) {
	set(&e.Name, r.Name)
	set(&e.Container.Image, r.Image)
	set(&e.Container.Args, r.Args)
	set(&e.Container.Disk, r.Disk)
	set(&e.Container.Registry, r.Registry)
	set(&e.Workers.Min, r.Workers.Min)
	set(&e.Workers.Max, r.Workers.Max)
	set(&e.Workers.Idle, r.Workers.Idle)
	set(&e.Scaling, r.Scaling)
	set(&e.ExecTimeout, r.Timeout)
	set(&e.FlashBoot, r.FlashBoot)
	replace(&e.Container.Ports, r.Ports)
	replace(&e.DataCenterIDs, r.DataCenterIDs)
	replace(&e.NetworkVolumes, r.NetworkVolumes)
	if r.Env != nil {
		e.Container.Env = make(map[string]string, len(r.Env))
		maps.Copy(e.Container.Env, r.Env)
	}
	if r.GPU != nil {
		e.GPU = r.GPU.on(e.GPU)
	}
	if r.CPU != nil {
		e.CPU = make([]EndpointCPU, 0, len(r.CPU))
		for _, m := range r.CPU {
			e.CPU = append(e.CPU, EndpointCPU{ID: m.ID, VCPU: m.VCPU, Memory: memoryOf(c, m)})
		}
	}
}

// on is the selection that was, changed by r; nil is one without settings.
func (r *GPUSettings) on(was *EndpointGPU) *EndpointGPU {
	g := EndpointGPU{Count: 1}
	if was != nil {
		g = *was
	}
	if r.Pools != nil {
		replace(&g.Pools, r.Pools)
		g.ExcludedTypes = nil
		for _, id := range r.ExcludedTypes {
			g.ExcludedTypes = append(g.ExcludedTypes, strings.TrimSpace(id))
		}
	}
	set(&g.Count, r.Count)
	replace(&g.AllowedCUDAVersions, r.AllowedCUDAVersions)
	set(&g.MinCUDAVersion, r.MinCUDAVersion)
	return &g
}

func memoryOf(c Catalog, m CPUSettings) int {
	if c == nil {
		return 0
	}
	gb, _ := c.Flavor(m.ID, m.VCPU)
	return gb
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// replace copies from, unless it is nil. Nothing and an empty list are the same in a
// record.
func replace(to *[]string, from []string) {
	if from != nil {
		*to = append([]string(nil), from...)
	}
}
