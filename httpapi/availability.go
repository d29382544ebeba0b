package httpapi

import (
	"regexp"
	"slices"
	"strings"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/problem"
)

// A level is how much of a thing is free.
type level string

const (
	none   level = "NONE"
	low    level = "LOW"
	medium level = "MEDIUM"
	high   level = "HIGH"
)

// levelOf is HIGH from half of what there is, MEDIUM from a fifth.
func levelOf(list []pods.HostCapacity) level {
	free, total := 0, 0
	for _, s := range list {
		free, total = free+s.Free, total+s.Total
	}
	switch {
	case free == 0:
		return none
	case 2*free >= total:
		return high
	case 5*free >= total:
		return medium
	}
	return low
}

// A stockBody is how available something is somewhere.
type stockBody struct {
	ID           string `json:"id"`
	Name         string `json:"name"`
	Availability level  `json:"availability"`
}

type cudaBody struct {
	Version   string `json:"version"`
	Available bool   `json:"available"`
}

// availabilityBody is what include=AVAILABILITY adds to a GPU type or a CPU flavor.
type availabilityBody struct {
	Availability level       `json:"availability,omitempty"`
	DataCenters  []stockBody `json:"dataCenters,omitempty"`
	CUDAVersions []cudaBody  `json:"cudaVersions,omitempty"`
}

// A stockQuery is what a request wants to know of availability.
type stockQuery struct {
	asked     bool // nothing was asked otherwise
	products  []string
	demand    pods.Requirements // without a type
	countries []string
}

var (
	country     = regexp.MustCompile(`^[A-Z]{2}$`)
	exactCUDA   = regexp.MustCompile(`^\d+\.\d+$`)
	atLeastCUDA = regexp.MustCompile(`^\d+(\.\d+)?$`)
)

// stockQuery reads the parameters that products have in common, and refuses the others of
// names without an include: they would change nothing.
func (c *call) stockQuery(products []string, names ...string) (q stockQuery, err error) {
	include, err := querySome(c, "include", "AVAILABILITY")
	if err != nil {
		return q, err
	}
	if q.products, err = querySome(c, "product", products...); err != nil {
		return q, err
	}
	q.asked = len(include) > 0
	switch {
	case q.asked && len(q.products) == 0:
		return q, problem.New(problem.BadRequest, "include=AVAILABILITY needs product: what is free differs by product")
	case q.asked:
		return q, nil
	case len(q.products) > 0:
		return q, problem.New(problem.BadRequest, "product is valid only with include=AVAILABILITY")
	}
	for _, n := range names {
		if _, given := c.query(n); given {
			return q, problem.Newf(problem.BadRequest, "%s is valid only with include=AVAILABILITY", n)
		}
	}
	return q, nil
}

// gpuQuery reads what can be asked of GPU types.
func (c *call) gpuQuery() (q stockQuery, err error) {
	count, err := c.queryInt("count", 1, 1, 1<<31-1)
	if err != nil {
		return q, err
	}
	cloud, err := queryOneOf(c, "cloud", pods.DefaultCloud, pods.Secure, pods.Community)
	if err != nil {
		return q, err
	}
	countries, err := c.queryMatches("countryCodes", country, "two capital letters each")
	if err != nil {
		return q, err
	}
	cuda, err := c.cudaQuery()
	if err != nil {
		return q, err
	}
	q, err = c.stockQuery([]string{"POD", "CLUSTER", "SERVERLESS"}, "count", "cloud", "countryCodes", "cudaVersions", "minCudaVersion")
	q.countries = countries
	q.demand = pods.Requirements{Count: count, Cloud: cloud, CUDA: cuda}
	if err == nil && len(cuda.Allowed) > 0 && cuda.Min != "" {
		err = problem.New(problem.BadRequest, "cudaVersions and minCudaVersion exclude each other")
	}
	return q, err
}

func (c *call) cudaQuery() (v pods.CUDAVersions, err error) {
	if v.Allowed, err = c.queryMatches("cudaVersions", exactCUDA, "major.minor each"); err != nil {
		return v, err
	}
	least, given := c.query("minCudaVersion")
	switch {
	case !given:
		return v, nil
	case !atLeastCUDA.MatchString(least):
		return v, problem.New(problem.Invalid, "minCudaVersion must be major or major.minor")
	case !strings.Contains(least, "."):
		least += ".0" // any release of that major
	}
	v.Min = least
	return v, nil
}

// cpuQuery reads what can be asked of CPU flavors.
func (c *call) cpuQuery() (q stockQuery, err error) {
	vcpus, err := c.queryInt("vcpuCount", 2, 2, 1<<31-1)
	if err != nil {
		return q, err
	}
	if vcpus&(vcpus-1) != 0 {
		return q, problem.New(problem.Invalid, "vcpuCount must be a power of two")
	}
	q, err = c.stockQuery([]string{"POD", "SERVERLESS"}, "vcpuCount")
	q.demand = pods.Requirements{VCPU: vcpus, Cloud: pods.DefaultCloud}
	return q, err
}

// supply is what the hosts have for q, of a GPU type or CPU flavor that its demand names.
// Clusters are not offered, and workers only where a type is in a pool.
func (c *call) supply(q stockQuery, workers bool) ([]pods.HostCapacity, error) {
	if !slices.Contains(q.products, "POD") && (!workers || !slices.Contains(q.products, "SERVERLESS")) {
		return nil, nil
	}
	list, err := c.Pods.Capacity(c.r.Context(), q.demand)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list, func(s pods.HostCapacity) bool {
		d, _ := c.Pods.Catalog().DataCenter(s.DataCenter)
		return len(q.countries) > 0 && !slices.Contains(q.countries, d.Country)
	}), nil
}

// availabilityOf sums a supply up.
func (c *call) availabilityOf(list []pods.HostCapacity) availabilityBody {
	b := availabilityBody{Availability: levelOf(list)}
	places := make(map[string][]pods.HostCapacity)
	versions := make(map[string]bool)
	for _, s := range list {
		places[s.DataCenter] = append(places[s.DataCenter], s)
		if s.CUDA != "" {
			versions[s.CUDA] = versions[s.CUDA] || s.Free > 0
		}
	}
	for _, d := range c.Pods.Catalog().DataCenters {
		if at := places[d.ID]; at != nil && b.Availability != none {
			b.DataCenters = append(b.DataCenters, stockBody{d.ID, d.Name, levelOf(at)})
		}
	}
	for v, free := range versions {
		b.CUDAVersions = append(b.CUDAVersions, cudaBody{v, free})
	}
	slices.SortFunc(b.CUDAVersions, func(x, y cudaBody) int { return pods.CompareCUDA(x.Version, y.Version) })
	return b
}

// stockByDataCenter is what each data center has: of what is listed there, how available it is.
type stockByDataCenter map[string][]stockBody

// gpuStock and cpuStock look at every type once.
func (c *call) gpuStock() (stockByDataCenter, error) {
	at := make(stockByDataCenter)
	for _, g := range c.Pods.Catalog().GPUs {
		if err := c.stock(at, g.ID, g.Name, pods.Requirements{GPU: g.ID, Count: 1}); err != nil {
			return nil, err
		}
	}
	return at, nil
}

func (c *call) cpuStock() (stockByDataCenter, error) {
	at := make(stockByDataCenter)
	for _, f := range c.Pods.Catalog().CPUs {
		if err := c.stock(at, f.ID, f.Name, pods.Requirements{CPU: f.ID, VCPU: f.VCPU.Min}); err != nil {
			return nil, err
		}
	}
	return at, nil
}

func (c *call) stock(at stockByDataCenter, id, name string, d pods.Requirements) error {
	list, err := c.Pods.Capacity(c.r.Context(), d)
	if err != nil {
		return err
	}
	places := make(map[string][]pods.HostCapacity)
	for _, s := range list {
		places[s.DataCenter] = append(places[s.DataCenter], s)
	}
	for place, here := range places {
		at[place] = append(at[place], stockBody{id, name, levelOf(here)})
	}
	return nil
}

// dataCenterStock reads the expansions of data centers and what they add; nil where one
// was not asked for.
func (c *call) dataCenterStock() (gpus, cpus stockByDataCenter, err error) {
	include, err := querySome(c, "include", "GPU_AVAILABILITY", "CPU_AVAILABILITY")
	if err != nil {
		return nil, nil, err
	}
	if slices.Contains(include, "GPU_AVAILABILITY") {
		if gpus, err = c.gpuStock(); err != nil {
			return nil, nil, err
		}
	}
	if slices.Contains(include, "CPU_AVAILABILITY") {
		cpus, err = c.cpuStock()
	}
	return gpus, cpus, err
}

// inCountries reports whether a data center of these countries has a type at all.
func inCountries(list []pods.HostCapacity, countries []string) bool {
	return len(countries) == 0 || len(list) > 0
}

// gpu is a GPU type as q asks for it; keep is false when a listing leaves it out.
func (c *call) gpu(g catalog.GPUType, q stockQuery) (b gpuTypeBody, keep bool, err error) {
	b = gpuTypeOf(g)
	if !q.asked {
		return b, true, nil
	}
	q.demand.GPU = g.ID
	list, err := c.supply(q, g.Pool != "")
	b.availabilityBody = c.availabilityOf(list)
	return b, inCountries(list, q.countries), err
}

// cpu is a CPU flavor as q asks for it.
func (c *call) cpu(f catalog.CPUFlavor, q stockQuery) (b cpuTypeBody, keep bool, err error) {
	b = cpuTypeOf(f)
	if !q.asked {
		return b, true, nil
	}
	q.demand.CPU = f.ID
	var list []pods.HostCapacity
	if q.demand.VCPU <= f.VCPU.Max { // no machine of the flavor is larger
		list, err = c.supply(q, true)
	}
	b.availabilityBody = c.availabilityOf(list)
	return b, true, err
}
