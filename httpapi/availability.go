package httpapi

import (
	"regexp"
	"slices"
	"strings"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/problem"
)

// stockParams are the parameters of a product that need include=AVAILABILITY.
func stockParams(products ...string) []*openapi.Parameter {
	return []*openapi.Parameter{
		listInQuery("include", values("AVAILABILITY"), "Adds what is free. It needs product."),
		listInQuery("product", values(products...), "What the availability is for. It needs include, as all other parameters do."),
	}
}

func gpuParams() []*openapi.Parameter {
	letters, cuda := openapi.Of("string"), openapi.Of("string")
	letters.Pattern, cuda.Pattern = country.String(), exactCUDA.String()
	least := openapi.Of("string")
	least.Pattern = atLeastCUDA.String()
	return append(stockParams("POD", "CLUSTER", "SERVERLESS"),
		number("count", 1, 1<<31-1, 1, "GPUs that must be free on one host."),
		inQuery("cloud", values(pods.Secure, pods.Community).Defaults(pods.DefaultCloud), "The tier."),
		listInQuery("countryCodes", letters, "Only in these countries."),
		listInQuery("cudaVersions", cuda, "Only hosts with one of these versions."),
		inQuery("minCudaVersion", least, "Only hosts with this version or a later one."),
	)
}

func cpuParams() []*openapi.Parameter {
	return append(stockParams("POD", "SERVERLESS"), number("vcpuCount", 2, 1<<31-1, 2, "vCPUs that must be free on one host, a power of two."))
}

// A level is how much of a thing is free.
type level string

const (
	none   level = "NONE"
	low    level = "LOW"
	medium level = "MEDIUM"
	high   level = "HIGH"
)

// levelOf returns HIGH if at least half of the stock is free, MEDIUM if at least a fifth is.
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

// A stockBody is the availability of something in a data center.
type stockBody struct {
	ID           string `json:"id"`
	Name         string `json:"name"`
	Availability level  `json:"availability"`
}

type cudaBody struct {
	Version   string `json:"version"`
	Available bool   `json:"available"`
}

// availabilityBody is added to a GPU type or a CPU flavor by include=AVAILABILITY.
type availabilityBody struct {
	Availability level       `json:"availability,omitempty"`
	DataCenters  []stockBody `json:"dataCenters,omitempty"`
	CUDAVersions []cudaBody  `json:"cudaVersions,omitempty"`
}

// A stockQuery is the part of a request about availability.
type stockQuery struct {
	asked     bool // false: the request does not include availability
	products  []string
	demand    pods.Requirements // without the type
	countries []string
}

var (
	country     = regexp.MustCompile(`^[A-Z]{2}$`)
	exactCUDA   = regexp.MustCompile(`^\d+\.\d+$`)
	atLeastCUDA = regexp.MustCompile(`^\d+(\.\d+)?$`)
)

// stockQuery reads the parameters that all products have. Without include it refuses the other
// parameters in names, because they would have no effect.
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

// gpuQuery reads the parameters for GPU types.
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

// cpuQuery reads the parameters for CPU flavors.
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

// supply returns the capacity of the hosts for q, whose demand names a GPU type or CPU flavor.
// There are no clusters, and workers only where the type is in a pool.
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

// availabilityOf sums up capacities.
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

// stockByDataCenter has the availability of each type in each data center.
type stockByDataCenter map[string][]stockBody

// gpuStock and cpuStock read the capacity of every type once.
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

// dataCenterStock returns the stock that the parameter include asks for; nil for what it does
// not name.
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

// inCountries reports whether a data center in these countries has the type at all.
func inCountries(list []pods.HostCapacity, countries []string) bool {
	return len(countries) == 0 || len(list) > 0
}

// gpu returns a GPU type as q asks for it; keep is false when a list leaves it out.
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

// cpu returns a CPU flavor as q asks for it.
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
