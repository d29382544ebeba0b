package httpapi

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
)

// An endpointBody is an endpoint on the wire, by the published schema.
type endpointBody struct {
	ID          string         `json:"id"`
	Name        string         `json:"name"`
	Type        endpoints.Type `json:"type"`
	RequestURLs requestURLs    `json:"requestUrls"`
	Image       string         `json:"image"`
	commandBody
	Disk           int                 `json:"disk,omitempty"`
	Ports          []string            `json:"ports"`
	Env            map[string]string   `json:"env"`
	Registry       *string             `json:"registry"`
	GPU            *endpointGPUBody    `json:"gpu,omitempty"`
	CPU            []cpuBody           `json:"cpu,omitempty"`
	Workers        endpointWorkers     `json:"workers"`
	Scaling        scalingBody         `json:"scaling"`
	DataCenterIDs  []string            `json:"dataCenterIds"`
	NetworkVolumes []string            `json:"networkVolumes"`
	Timeout        int64               `json:"timeout"`
	FlashBoot      endpoints.FlashBoot `json:"flashboot"`
	CreatedAt      wireTime            `json:"createdAt"`
}

// requestURLs are the addresses of an endpoint: Base and Health where it has no queue, all but
// Base where it has one. {job_id} is literal.
type requestURLs struct {
	Base       string `json:"base,omitempty"`
	Run        string `json:"run,omitempty"`
	RunSync    string `json:"runSync,omitempty"`
	Status     string `json:"status,omitempty"`
	Stream     string `json:"stream,omitempty"`
	Cancel     string `json:"cancel,omitempty"`
	Retry      string `json:"retry,omitempty"`
	PurgeQueue string `json:"purgeQueue,omitempty"`
	Health     string `json:"health"`
}

type endpointGPUBody struct {
	Pools               []string `json:"pools"`
	ExcludedTypes       []string `json:"excludedTypes,omitempty"`
	Count               int      `json:"count"`
	AllowedCUDAVersions []string `json:"allowedCudaVersions"`
	MinCUDAVersion      *string  `json:"minCudaVersion"`
}

type endpointWorkers struct {
	Min         int  `json:"min"`
	Max         int  `json:"max"`
	IdleTimeout *int `json:"idleTimeout,omitempty"`
}

// A scalingBody has only the member of its type.
type scalingBody struct {
	Type         endpoints.ScalingType `json:"type"`
	QueueDelay   *float64              `json:"queueDelay,omitempty"`
	RequestCount *int                  `json:"requestCount,omitempty"`
}

// endpointBody returns e as its owner sees it.
func (c *call) endpointBody(e *serverless.Endpoint) endpointBody {
	timeout := e.ExecTimeout
	if timeout == 0 {
		timeout = serverless.DefaultExecTimeout
	}
	b := endpointBody{
		ID: e.ID, Name: e.Name, Type: endpoints.QueueType, RequestURLs: c.requestURLs(e.ID),
		Image: e.Container.Image, commandBody: commandOf(e.Container.Args), Disk: e.Container.Disk,
		Ports: orEmpty(e.Container.Ports), Env: e.Container.Env, Registry: orNull(e.Container.Registry),
		Workers: endpointWorkers{Min: e.Workers.Min, Max: e.Workers.Max}, Scaling: scalingOf(e.Scaling),
		DataCenterIDs: orEmpty(e.DataCenterIDs), NetworkVolumes: orEmpty(e.NetworkVolumes),
		Timeout: timeout.Milliseconds(), FlashBoot: e.FlashBoot, CreatedAt: wireTime(e.Created),
	}
	if b.Env == nil {
		b.Env = map[string]string{}
	}
	if b.FlashBoot == "" {
		b.FlashBoot = endpoints.FlashBootOff
	}
	if g := e.GPU; g != nil {
		b.GPU = &endpointGPUBody{orEmpty(g.Pools), g.ExcludedTypes, g.Count, orEmpty(g.AllowedCUDAVersions), orNull(g.MinCUDAVersion)}
	}
	if e.Balances() {
		b.Type, b.RequestURLs = e.Type, c.balanceURLs(e)
	}
	for _, m := range e.CPU {
		// Without a catalog the memory is not known, and the schema requires at least 1.
		b.CPU = append(b.CPU, cpuBody{m.ID, m.VCPU, max(m.Memory, 1)})
	}
	if s := int(e.Workers.Idle / time.Second); s > 0 && e.Scaling.Type != endpoints.RequestCount {
		b.Workers.IdleTimeout = &s
	}
	return b
}

// scalingOf returns the scaling of an endpoint. The schema requires one, so an endpoint
// that the scaler does not manage gets the smallest delay.
func scalingOf(s endpoints.Scaling) scalingBody {
	if s.Type == endpoints.RequestCount {
		return scalingBody{Type: s.Type, RequestCount: &s.Count}
	}
	delay := max(s.Delay, endpoints.MinDelay).Seconds()
	return scalingBody{Type: endpoints.QueueDelay, QueueDelay: &delay}
}

func (c *call) requestURLs(id string) requestURLs {
	base := c.publicURL() + "/v2/" + id
	return requestURLs{
		Run: base + "/run", RunSync: base + "/runsync", Status: base + "/status/{job_id}", Stream: base + "/stream/{job_id}",
		Cancel: base + "/cancel/{job_id}", Retry: base + "/retry/{job_id}", PurgeQueue: base + "/purge-queue", Health: base + "/health",
	}
}

// balanceURLs are the addresses of a load-balancing endpoint.
func (c *call) balanceURLs(e *serverless.Endpoint) requestURLs {
	base := c.publicURL() + balancePrefix + e.ID
	return requestURLs{Base: base, Health: base + e.Listener().HealthPath}
}

// publicURL returns the URL before /v2 in addresses for clients.
func (c *call) publicURL() string {
	switch {
	case c.url != "":
		return c.url
	case c.r.TLS != nil:
		return "https://" + c.r.Host
	}
	return "http://" + c.r.Host
}

// orEmpty returns an empty list for an absent one.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// A releaseBody is a release on the wire.
type releaseBody struct {
	ID              string       `json:"id"`
	Version         int          `json:"version"`
	Source          string       `json:"source"`
	BuildID         *string      `json:"buildId"`
	CreatedByUserID *string      `json:"createdByUserId"`
	WorkerCount     int          `json:"workerCount"`
	CreatedAt       wireTime     `json:"createdAt"`
	Diff            []changeBody `json:"diff"`
}

type changeBody struct {
	Field string          `json:"field"`
	Old   json.RawMessage `json:"old"`
	New   json.RawMessage `json:"new"`
}

// releasesOf returns the releases of e, newest first. running is the number of workers by
// version.
func releasesOf(e *serverless.Endpoint, running map[int]int) []releaseBody {
	list := make([]releaseBody, 0, len(e.Releases))
	for _, r := range slices.Backward(e.Releases) {
		b := releaseBody{
			ID: r.ID, Version: r.Version, Source: "MANUAL", CreatedByUserID: orNull(r.User),
			WorkerCount: running[r.Version], CreatedAt: wireTime(r.Created), Diff: make([]changeBody, 0, len(r.Diff)),
		}
		for _, d := range r.Diff {
			b.Diff = append(b.Diff, changeBody{d.Field, d.Old, d.New})
		}
		list = append(list, b)
	}
	return list
}
