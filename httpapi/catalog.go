package httpapi

import (
	"net/http"
	"slices"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/problem"
)

func catalogOperations() []operation {
	return group(APIControl, AreaCatalog,
		op("listGpuTypes", "GET /v2/catalog/gpus", ScopeAny, listGPUs),
		op("getGpuType", "GET /v2/catalog/gpus/{id}", ScopeAny, getGPU),
		op("listCpuTypes", "GET /v2/catalog/cpus", ScopeAny, listCPUs),
		op("getCpuType", "GET /v2/catalog/cpus/{id}", ScopeAny, getCPU),
		op("listDataCenters", "GET /v2/catalog/datacenters", ScopeAny, listDataCenters),
		op("getDataCenter", "GET /v2/catalog/datacenters/{id}", ScopeAny, getDataCenter),
	)
}

func (b *describer) describeCatalog() map[string]description {
	gpu, cpu, dc := openapi.For[gpuTypeBody](&b.Builder), openapi.For[cpuTypeBody](&b.Builder), openapi.For[dataCenterBody](&b.Builder)
	dcStock := listInQuery("include", values("GPU_AVAILABILITY", "CPU_AVAILABILITY"), "What to add to the answer.")
	return map[string]description{
		"listGpuTypes": {summary: "List GPU types", params: gpuParams(), answers: ok(b.list("gpus", gpu, false))},
		"getGpuType":   {summary: "Get a GPU type", params: gpuParams(), answers: ok(gpu)},
		"listCpuTypes": {summary: "List CPU flavors", params: cpuParams(), answers: ok(b.list("cpus", cpu, false))},
		"getCpuType":   {summary: "Get a CPU flavor", params: cpuParams(), answers: ok(cpu)},
		"listDataCenters": {summary: "List data centers", answers: ok(b.list("dataCenters", dc, false)), params: []*openapi.Parameter{
			dcStock,
			listInQuery("regions", values(catalog.Regions()...), "In one of these regions."),
			listInQuery("networkVolumeTypes", values(catalog.Standard, catalog.HighPerformance), "With all of these types of volumes."),
			listInQuery("compliance", openapi.Of("string").NotEmpty(), "With all of these certifications."),
			flag("globalNetwork", "With or without global networking."),
		}},
		"getDataCenter": {summary: "Get a data center", params: []*openapi.Parameter{dcStock}, answers: ok(dc)},
	}
}

type gpuTypeBody struct {
	ID           string               `json:"id"`
	Name         string               `json:"name"`
	Pool         *string              `json:"pool"`
	Manufacturer catalog.Manufacturer `json:"manufacturer"`
	Memory       int                  `json:"memory"`
	Secure       bool                 `json:"secure"`
	Community    bool                 `json:"community"`
	Price        gpuPriceBody         `json:"price"`
	MaxCount     maxCountBody         `json:"maxCount"`
	availabilityBody
}

type gpuPriceBody struct {
	Secure     float64 `json:"secure"`
	Community  float64 `json:"community"`
	Serverless float64 `json:"serverless,omitempty"`
}

type maxCountBody struct {
	Secure    int `json:"secure"`
	Community int `json:"community"`
}

func gpuTypeOf(g catalog.GPUType) gpuTypeBody {
	return gpuTypeBody{
		ID: g.ID, Name: g.Name, Pool: orNull(g.Pool), Manufacturer: g.Manufacturer, Memory: g.Memory,
		Secure: g.Secure, Community: g.Community,
		Price:    gpuPriceBody{g.Price.Secure, g.Price.Community, g.Price.Serverless},
		MaxCount: maxCountBody{g.MaxCount.Secure, g.MaxCount.Community},
	}
}

type cpuTypeBody struct {
	ID           string       `json:"id"`
	Name         string       `json:"name"`
	Group        string       `json:"group"`
	VCPU         vcpuBody     `json:"vcpu"`
	RAMGBPerVCPU float64      `json:"ramGbPerVcpu"`
	Price        cpuPriceBody `json:"price"`
	availabilityBody
}

type vcpuBody struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

type cpuPriceBody struct {
	SecurePerVCPU     float64 `json:"securePerVcpu"`
	ServerlessPerVCPU float64 `json:"serverlessPerVcpu"`
}

func cpuTypeOf(f catalog.CPUFlavor) cpuTypeBody {
	return cpuTypeBody{
		ID: f.ID, Name: f.Name, Group: f.Group, VCPU: vcpuBody{f.VCPU.Min, f.VCPU.Max},
		RAMGBPerVCPU: f.RAMPerVCPU, Price: cpuPriceBody{f.Price.Secure, f.Price.Serverless},
	}
}

type dataCenterBody struct {
	ID                 string               `json:"id"`
	Name               string               `json:"name"`
	Region             catalog.Region       `json:"region"`
	GlobalNetwork      bool                 `json:"globalNetwork"`
	NetworkVolumeTypes []catalog.VolumeType `json:"networkVolumeTypes"`
	Compliance         []string             `json:"compliance"`
	GPUAvailability    []stockBody          `json:"gpuAvailability,omitempty"`
	CPUAvailability    []stockBody          `json:"cpuAvailability,omitempty"`
}

func dataCenterOf(d catalog.DataCenter) dataCenterBody {
	return dataCenterBody{
		ID: d.ID, Name: d.Name, Region: d.Region, GlobalNetwork: d.GlobalNetwork,
		NetworkVolumeTypes: append([]catalog.VolumeType{}, d.Volumes...),
		Compliance:         append([]string{}, d.Compliance...),
	}
}

// bodies converts a list of records to their form on the wire.
func bodies[T, B any](list []T, body func(T) B, keep func(T) bool) []B {
	out := make([]B, 0, len(list))
	for _, v := range list {
		if keep(v) {
			out = append(out, body(v))
		}
	}
	return out
}

func all[T any](T) bool { return true }

// one answers with a single record of the catalog, as the query asks for it.
func one[T, Q, B any](c *call, find func(string) (T, bool), query func() (Q, error), body func(T, Q) (B, bool, error)) error {
	v, ok := find(c.r.PathValue("id"))
	if !ok {
		return problem.New(problem.NotFound, "resource not found")
	}
	q, err := query()
	if err != nil {
		return err
	}
	b, _, err := body(v, q)
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, b)
}

// listed returns the records of a list of the catalog that the query selects.
func listed[T, Q, B any](list []T, query func() (Q, error), body func(T, Q) (B, bool, error)) ([]B, error) {
	q, err := query()
	if err != nil {
		return nil, err
	}
	out := make([]B, 0, len(list))
	for _, v := range list {
		b, keep, err := body(v, q)
		if err != nil {
			return nil, err
		}
		if keep {
			out = append(out, b)
		}
	}
	return out, nil
}

func listGPUs(c *call) error {
	list, err := listed(c.Pods.Catalog().GPUs, c.gpuQuery, c.gpu)
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, struct {
		GPUs []gpuTypeBody `json:"gpus"`
	}{list})
}

func getGPU(c *call) error { return one(c, c.Pods.Catalog().GPU, c.gpuQuery, c.gpu) }

func listCPUs(c *call) error {
	list, err := listed(c.Pods.Catalog().CPUs, c.cpuQuery, c.cpu)
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, struct {
		CPUs []cpuTypeBody `json:"cpus"`
	}{list})
}

func getCPU(c *call) error { return one(c, c.Pods.Catalog().CPU, c.cpuQuery, c.cpu) }

// A dataCenterQuery has the stock of data centers, and selects which are listed.
type dataCenterQuery struct {
	gpus, cpus stockByDataCenter
	keep       func(catalog.DataCenter) bool
}

func (c *call) dataCenterQuery() (q dataCenterQuery, err error) {
	if q.keep, err = c.dataCenterFilter(); err != nil {
		return q, err
	}
	q.gpus, q.cpus, err = c.dataCenterStock()
	return q, err
}

func (c *call) dataCenter(d catalog.DataCenter, q dataCenterQuery) (dataCenterBody, bool, error) {
	b := dataCenterOf(d)
	b.GPUAvailability, b.CPUAvailability = q.gpus[d.ID], q.cpus[d.ID]
	return b, q.keep(d), nil
}

func listDataCenters(c *call) error {
	list, err := listed(c.Pods.Catalog().DataCenters, c.dataCenterQuery, c.dataCenter)
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, struct {
		DataCenters []dataCenterBody `json:"dataCenters"`
	}{list})
}

func getDataCenter(c *call) error {
	return one(c, c.Pods.Catalog().DataCenter, c.dataCenterQuery, c.dataCenter)
}

// certifications returns the allowed values of the parameter: the published ones, and others
// that data centers of this catalog have.
func (c *call) certifications() []string {
	list := catalog.Certifications()
	for _, d := range c.Pods.Catalog().DataCenters {
		for _, name := range d.Compliance {
			if !slices.Contains(list, name) {
				list = append(list, name)
			}
		}
	}
	return list
}

// dataCenterFilter reads which data centers are listed: those in any of the regions, with all
// of the volume types and certifications.
func (c *call) dataCenterFilter() (func(catalog.DataCenter) bool, error) {
	regions, err := querySome(c, "regions", catalog.Regions()...)
	if err != nil {
		return nil, err
	}
	volumes, err := querySome(c, "networkVolumeTypes", catalog.Standard, catalog.HighPerformance)
	if err != nil {
		return nil, err
	}
	compliance, err := querySome(c, "compliance", c.certifications()...)
	if err != nil {
		return nil, err
	}
	_, filtered := c.query("globalNetwork")
	global, err := c.queryFlag("globalNetwork")
	if err != nil {
		return nil, err
	}
	return func(d catalog.DataCenter) bool {
		return (len(regions) == 0 || slices.Contains(regions, d.Region)) &&
			(!filtered || d.GlobalNetwork == global) &&
			containsAll(d.Compliance, compliance) && containsAll(d.Volumes, volumes)
	}, nil
}

func containsAll[S ~string](have, want []S) bool {
	return !slices.ContainsFunc(want, func(w S) bool { return !slices.Contains(have, w) })
}
