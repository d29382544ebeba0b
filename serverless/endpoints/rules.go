package endpoints

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/podyard/podyard/internal/container"
	"github.com/podyard/podyard/serverless/queue"
)

// endpointRules checks requests: each field by the schema (422), then the rules across fields
// (400).
type endpointRules struct {
	catalog  Catalog // nil: ids are not checked
	balances bool    // load-balancing endpoints are offered
	container.Rules
}

// create checks the fields that only a new endpoint needs, and the values of r.
func (v endpointRules) create(r *CreateRequest) {
	if r.Name == nil {
		v.Invalid("/name", "is required")
	}
	if r.Image == nil {
		v.Invalid("/image", "is required")
	}
	switch r.Type {
	case QueueType:
	case LoadBalancerType:
		if !v.balances {
			v.BadRequest("/type", "load-balancing endpoints are not offered: use QUEUE")
		}
	default:
		v.Invalid("/type", "must be one of QUEUE, LOAD_BALANCER")
	}
	if r.Scaling == nil {
		v.Invalid("/scaling", "is required")
	}
	if g := r.GPU; g != nil {
		if g.Pools == nil {
			v.Invalid("/gpu/pools", "is required")
		}
		if g.MinCUDAVersion != nil && *g.MinCUDAVersion == "" {
			v.Invalid("/gpu/minCudaVersion", wantCUDA)
		}
	}
	v.values(&r.Settings)
}

// values checks each field of r alone.
func (v endpointRules) values(r *Settings) {
	v.SetFields(r.Name, r.Image, r.command(), r.Disk)
	v.Ports(r.Ports)
	v.Env(r.Env)
	if r.GPU != nil {
		v.gpu(r.GPU)
	}
	v.cpu(r.CPU)
	v.workers(r.Workers)
	if r.Scaling != nil {
		v.scaling(*r.Scaling)
	}
	for i, id := range r.DataCenterIDs {
		if v.catalog != nil && !v.catalog.DataCenter(id) {
			v.Invalid(elementPath("/dataCenterIds", i), "unknown data center %q", id)
		}
	}
	if d := r.Timeout; d != nil && (*d < queue.MinExecTimeout || *d > queue.MaxExecTimeout) {
		v.Invalid("/timeout", "must be from %d to %d milliseconds", queue.MinExecTimeout.Milliseconds(), queue.MaxExecTimeout.Milliseconds())
	}
	if r.FlashBoot != nil && !slices.Contains(flashBoots, *r.FlashBoot) {
		v.Invalid("/flashboot", "must be one of OFF, FLASHBOOT, PRIORITY_FLASHBOOT")
	}
}

var flashBoots = []FlashBoot{FlashBootOff, FlashBootOn, FlashBootPriority}

// wantCUDA is the text of a violation of cudaVersion.
const wantCUDA = "must be a version as major.minor"

var cudaVersion = regexp.MustCompile(`^[0-9]+\.[0-9]+$`)

func (v endpointRules) gpu(g *GPUSettings) {
	if g.Pools != nil && len(g.Pools) == 0 {
		v.Invalid("/gpu/pools", "must have at least 1 entry")
	}
	for i, id := range g.Pools {
		if v.catalog != nil && len(v.catalog.Pool(id)) == 0 {
			v.Invalid(elementPath("/gpu/pools", i), "unknown GPU pool %q", id)
		}
	}
	if g.ExcludedTypes != nil && g.Pools == nil {
		v.Invalid("/gpu/excludedTypes", "needs pools: the two are one selection")
	}
	seen := make(map[string]bool, len(g.ExcludedTypes))
	for i, id := range g.ExcludedTypes {
		id = strings.TrimSpace(id)
		switch {
		case id == "" || id[0] == '-':
			v.Invalid(elementPath("/gpu/excludedTypes", i), "must not be blank and not begin with '-'")
		case seen[id]:
			v.Invalid(elementPath("/gpu/excludedTypes", i), "%q is listed twice", id)
		}
		seen[id] = true
	}
	if g.Count != nil {
		v.Count("/gpu/count", *g.Count)
	}
	for i, s := range g.AllowedCUDAVersions {
		if !cudaVersion.MatchString(s) {
			v.Invalid(elementPath("/gpu/allowedCudaVersions", i), wantCUDA)
		}
	}
	if s := g.MinCUDAVersion; s != nil && *s != "" && !cudaVersion.MatchString(*s) {
		v.Invalid("/gpu/minCudaVersion", wantCUDA)
	}
}

func (v endpointRules) cpu(list []CPUSettings) {
	if list != nil && len(list) == 0 {
		v.Invalid("/cpu", "must have at least 1 entry")
	}
	seen := make(map[CPUSettings]bool, len(list))
	for i, m := range list {
		place := elementPath("/cpu", i)
		if m.ID != "" && seen[m] {
			v.Invalid(place, "%s with %d vCPUs is listed twice", m.ID, m.VCPU)
			continue
		}
		seen[m] = true
		known, memory := true, 1
		if v.catalog != nil {
			memory, known = v.catalog.Flavor(m.ID, m.VCPU)
		}
		switch {
		case m.ID == "":
			v.Invalid(place+"/id", "must not be empty")
		case !known:
			v.Invalid(place+"/id", "unknown CPU flavor %q", m.ID)
		}
		switch {
		case m.VCPU > container.MaxCount:
			v.Count(place+"/vcpuCount", m.VCPU)
		case m.VCPU < 2 || m.VCPU&(m.VCPU-1) != 0:
			v.Invalid(place+"/vcpuCount", "must be a power of two, at least 2")
		case known && memory == 0:
			v.Invalid(place+"/vcpuCount", "flavor %s does not have %d vCPUs", m.ID, m.VCPU)
		}
	}
}

func (v endpointRules) workers(w WorkerSettings) {
	for _, x := range [...]struct {
		place string
		n     *int
	}{{"/workers/min", w.Min}, {"/workers/max", w.Max}} {
		if x.n != nil && (*x.n < 0 || *x.n > MaxWorkers) {
			v.Invalid(x.place, "must be from 0 to %d", MaxWorkers)
		}
	}
	if w.Idle != nil && (*w.Idle < MinIdle || *w.Idle > MaxIdle) {
		v.Invalid("/workers/idleTimeout", "must be from %d to %d seconds", int(MinIdle.Seconds()), int(MaxIdle.Seconds()))
	}
}

func (v endpointRules) scaling(s Scaling) {
	switch s.Type {
	case QueueDelay:
		if s.Delay < MinDelay || s.Delay > MaxDelay {
			v.Invalid("/scaling/queueDelay", "must be from %v to %v seconds", MinDelay.Seconds(), int(MaxDelay.Seconds()))
		}
	case RequestCount:
		v.Count("/scaling/requestCount", s.Count)
	default:
		v.Invalid("/scaling/type", "must be one of QUEUE_DELAY, REQUEST_COUNT")
	}
}

// crossField checks rules across fields. e is the endpoint that r makes from was; was is nil
// for a new endpoint.
func (v endpointRules) crossField(r *Settings, was, e *Endpoint) {
	v.compute(r, was)
	v.selection(e)
	v.balancing(e)
	if e.Workers.Min > e.Workers.Max {
		place := "/workers/max"
		if r.Workers.Min != nil {
			place = "/workers/min"
		}
		v.BadRequest(place, "min, %d, must not be above max, %d", e.Workers.Min, e.Workers.Max)
	}
	if r.Workers.Idle != nil && e.Scaling.Type == RequestCount {
		v.BadRequest("/workers/idleTimeout", "does not apply to an endpoint that scales by REQUEST_COUNT")
	}
}

// volumes checks the network volumes of an endpoint. dataCenters are their data centers. A
// worker mounts the volume of its own data center, so there may be one volume for each. fresh
// says that this request set the volumes.
func (v endpointRules) volumes(e *Endpoint, dataCenters []string, fresh bool) {
	first := map[string]string{}
	for i, id := range e.NetworkVolumes {
		place, dc := elementPath("/networkVolumes", i), dataCenters[i]
		switch {
		case dc == "" && fresh:
			v.BadRequest(place, "network volume %q does not exist", id)
		case dc == "": // deleted since
		case first[dc] == id:
			v.BadRequest(place, "network volume %q is listed twice", id)
		case first[dc] != "":
			v.BadRequest(place, "network volume %q is in %s, as is %q: a worker mounts one", id, dc, first[dc])
		case len(e.DataCenterIDs) > 0 && !slices.Contains(e.DataCenterIDs, dc):
			v.BadRequest(place, "network volume %q is in another data center, %s", id, dc)
		default:
			first[dc] = id
		}
	}
}

// compute checks that an endpoint keeps its kind of machine, GPU or CPU.
func (v endpointRules) compute(r *Settings, was *Endpoint) {
	gpu, cpu := r.GPU != nil, r.CPU != nil
	switch {
	case was == nil && gpu == cpu:
		v.BadRequest("", "exactly one of gpu and cpu must be set")
	case was == nil:
	case gpu && cpu:
		v.BadRequest("", "gpu and cpu exclude each other")
	case gpu && was.GPU == nil:
		v.BadRequest("/gpu", "the endpoint was not created with GPUs, and what it computes with cannot be changed")
	case cpu && was.CPU == nil:
		v.BadRequest("/cpu", "the endpoint was not created with CPUs, and what it computes with cannot be changed")
	}
}

// selection checks that the exclusions leave a GPU type of the pools.
func (v endpointRules) selection(e *Endpoint) {
	g := e.GPU
	if g == nil {
		return
	}
	if len(g.AllowedCUDAVersions) > 0 && g.MinCUDAVersion != "" {
		v.BadRequest("/gpu/minCudaVersion", "minCudaVersion and allowedCudaVersions exclude each other: clear one of them")
	}
	if v.catalog == nil || len(g.ExcludedTypes) == 0 {
		return
	}
	left := make(map[string]bool) // GPU types of the pools; false: excluded
	for _, p := range g.Pools {
		for _, id := range v.catalog.Pool(p) {
			left[id] = true
		}
	}
	known := true
	for i, id := range g.ExcludedTypes {
		if _, ok := left[id]; !ok {
			known = false
			v.BadRequest(elementPath("/gpu/excludedTypes", i), "GPU type %q is in none of the pools", id)
			continue
		}
		left[id] = false
	}
	if known && !slices.Contains(slices.Collect(maps.Values(left)), true) {
		v.BadRequest("/gpu/excludedTypes", "leaves no GPU type of the pools")
	}
}

// elementPath returns the path of an element of a list.
func elementPath(list string, i int) string { return list + "/" + strconv.Itoa(i) }
