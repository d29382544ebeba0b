package endpoints

import (
	"maps"
	"strings"
	"time"

	"github.com/podyard/podyard/internal/container"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/queue"
)

// A Type says how requests reach the workers of an endpoint.
type Type string

// The types.
const (
	QueueType        Type = "QUEUE"         // as jobs, through a queue
	LoadBalancerType Type = "LOAD_BALANCER" // directly, as HTTP requests (docs/decisions.md 44)
)

// Defaults of an endpoint that Create makes.
const (
	DefaultDisk       = 50 // GB
	DefaultMaxWorkers = 3
	DefaultIdle       = 10 * time.Second
	DefaultTimeout    = 300_000 * time.Millisecond
)

// Limits of an endpoint. MinIdle, MaxIdle and MinDelay are those of the public schema. MaxDelay
// and MaxWorkers are our choice: no job can wait longer than MaxTTL, and no fleet has more
// workers.
const (
	MinIdle    = time.Second
	MaxIdle    = time.Hour
	MinDelay   = 500 * time.Millisecond
	MaxDelay   = queue.MaxTTL
	MaxWorkers = 1000
)

// A CreateRequest asks for a new endpoint. Name, type, image, scaling and exactly one of GPU
// and CPU are required.
type CreateRequest struct {
	Type Type
	Settings
	// Idempotency is the key of the request (docs/decisions.md 38). Nil: it has none. Only
	// Service.Create uses it.
	Idempotency *idempotency.Request
}

// An UpdateRequest changes the settings that it has and leaves the others.
type UpdateRequest struct {
	Settings
}

// Settings are the fields of a request for an endpoint. A nil field is absent; an empty slice
// or map is not.
type Settings struct {
	// TemplateID is the id of a template. Its container settings replace absent settings.
	TemplateID     string
	Name           *string
	Image          *string
	Args           *string
	Entrypoint     []string // instead of the image's; an empty list is the image's. Without one of the two lists, the other stays
	Cmd            []string // Args says both, if all are there
	Disk           *int     // GB
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

	// Violations are faults that a decoder found. They are reported together with the faults
	// of the values. A field has at most one fault.
	Violations problem.Violations
}

// GPUSettings select GPUs. Pools and ExcludedTypes are one selection: a request with Pools
// replaces both.
type GPUSettings struct {
	Pools               []string
	ExcludedTypes       []string
	Count               *int
	AllowedCUDAVersions []string
	MinCUDAVersion      *string // empty: no minimum
}

// CPUSettings is one eligible machine.
type CPUSettings struct {
	ID   string // flavor
	VCPU int
}

// WorkerSettings limit the number of workers.
type WorkerSettings struct {
	Min, Max *int
	Idle     *time.Duration
}

// endpointOrder lists the fields in their documented order, which is the order of reported
// faults.
var endpointOrder = []string{
	"name", "type", "image", "gpu", "gpu/pools", "gpu/excludedTypes", "gpu/count", "gpu/allowedCudaVersions",
	"gpu/minCudaVersion", "cpu", "args", "entrypoint", "cmd", "disk", "ports", "env", "registry",
	"workers", "workers/min", "workers/max", "workers/idleTimeout",
	"scaling", "scaling/type", "scaling/queueDelay", "scaling/requestCount",
	"dataCenterIds", "networkVolumes", "timeout", "flashboot", "templateId",
}

func (r *Settings) command() container.CommandChange {
	return container.CommandChange{Args: r.Args, Entrypoint: r.Entrypoint, Cmd: r.Cmd}
}

// apply writes the settings of r into e. It copies slices and maps. Without a Catalog (nil)
// the memory of CPU machines is 0.
func (r *Settings) apply(e *Endpoint, c Catalog) {
	setIfGiven(&e.Name, r.Name)
	setIfGiven(&e.Container.Image, r.Image)
	e.Container.Args = r.command().Apply(e.Container.Args)
	setIfGiven(&e.Container.Disk, r.Disk)
	setIfGiven(&e.Container.Registry, r.Registry)
	setIfGiven(&e.Workers.Min, r.Workers.Min)
	setIfGiven(&e.Workers.Max, r.Workers.Max)
	setIfGiven(&e.Workers.Idle, r.Workers.Idle)
	setIfGiven(&e.Scaling, r.Scaling)
	setIfGiven(&e.ExecTimeout, r.Timeout)
	setIfGiven(&e.FlashBoot, r.FlashBoot)
	replace(&e.Container.Ports, r.Ports)
	replace(&e.DataCenterIDs, r.DataCenterIDs)
	replace(&e.NetworkVolumes, r.NetworkVolumes)
	if r.Env != nil {
		e.Container.Env = make(map[string]string, len(r.Env))
		maps.Copy(e.Container.Env, r.Env)
	}
	if r.GPU != nil {
		e.GPU = r.GPU.applyTo(e.GPU)
	}
	if r.CPU != nil {
		e.CPU = make([]CPU, 0, len(r.CPU))
		for _, m := range r.CPU {
			e.CPU = append(e.CPU, CPU{ID: m.ID, VCPU: m.VCPU, Memory: memoryOf(c, m)})
		}
	}
}

// applyTo returns was with the changes of r. was is nil if the endpoint has no GPU settings.
func (r *GPUSettings) applyTo(was *GPU) *GPU {
	g := GPU{Count: 1}
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
	setIfGiven(&g.Count, r.Count)
	replace(&g.AllowedCUDAVersions, r.AllowedCUDAVersions)
	setIfGiven(&g.MinCUDAVersion, r.MinCUDAVersion)
	return &g
}

func memoryOf(c Catalog, m CPUSettings) int {
	if c == nil {
		return 0
	}
	gb, _ := c.Flavor(m.ID, m.VCPU)
	return gb
}

func setIfGiven[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// replace copies from to to, unless from is nil. An empty list is stored as nil.
func replace(to *[]string, from []string) {
	if from != nil {
		*to = append([]string(nil), from...)
	}
}
