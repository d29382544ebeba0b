package httpapi

import (
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/podyard/podyard/internal/container"
	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
)

// endpointRules adds what endpoints.Service checks.
func endpointRules(s *openapi.Schema) *openapi.Schema {
	containerRules(s)
	s.At("templateId").NotEmpty()
	s.At("gpu/pools").NotEmpty()
	s.At("gpu/count").Between(1, container.MaxCount)
	s.At("gpu/allowedCudaVersions/*").Pattern = cudaPattern
	s.At("cpu").NotEmpty()
	s.At("cpu/*/id").NotEmpty()
	s.At("cpu/*/vcpuCount").Between(2, container.MaxCount)
	s.At("workers/min").Between(0, endpoints.MaxWorkers)
	s.At("workers/max").Between(0, endpoints.MaxWorkers)
	s.At("workers/idleTimeout").Between(int(endpoints.MinIdle.Seconds()), int(endpoints.MaxIdle.Seconds()))
	openapi.OneOf(s.At("scaling/type"), endpoints.QueueDelay, endpoints.RequestCount)
	delay := s.At("scaling/queueDelay").Between(0, int(endpoints.MaxDelay.Seconds()))
	delay.Minimum = new(endpoints.MinDelay.Seconds())
	s.At("scaling/requestCount").Between(1, container.MaxCount)
	s.At("scaling").AnyOf = []*openapi.Schema{{Required: []string{"queueDelay"}}, {Required: []string{"requestCount"}}}
	s.At("scaling").MaxProperties = 2
	s.At("timeout").Between(inMillis(queue.MinExecTimeout), inMillis(queue.MaxExecTimeout))
	openapi.OneOf(s.At("flashboot"), endpoints.FlashBootOff, endpoints.FlashBootOn, endpoints.FlashBootPriority)
	return s
}

func createEndpointBody() *openapi.Schema {
	s := endpointRules(recorded(func(o *object) { o.createEndpoint(&endpoints.CreateRequest{}) }))
	s.Required = append(s.Required, "name", "scaling")
	openapi.OneOf(s.At("type"), endpoints.QueueType, endpoints.LoadBalancerType)
	s.At("gpu").Required = []string{"pools"}
	s.At("gpu/minCudaVersion").Pattern = cudaPattern
	s.At("disk").Defaults(endpoints.DefaultDisk)
	s.At("workers/max").Defaults(endpoints.DefaultMaxWorkers)
	s.At("workers/idleTimeout").Defaults(int(endpoints.DefaultIdle.Seconds()))
	s.At("timeout").Defaults(endpoints.DefaultTimeout.Milliseconds())
	idOrImage(s)
	return s
}

func updateEndpointBody() *openapi.Schema {
	return endpointRules(recorded(func(o *object) { o.updateEndpoint(&endpoints.UpdateRequest{}) }))
}

// DecodeEndpoint parses the body of POST /v2/serverless, for a program that creates
// endpoints from its configuration. It returns an error for wrong syntax (400). Violations
// of the schema are in the request; serverless.Service reports them together with its own.
func DecodeEndpoint(body []byte) (r endpoints.CreateRequest, err error) {
	err = decodeBody(body, &r, &r.Violations, (*object).createEndpoint)
	return r, err
}

func (o *object) createEndpoint(r *endpoints.CreateRequest) {
	o.require("type")
	r.Type = endpoints.Type(o.text("type"))
	o.endpointSettings(&r.Settings)
	o.unknown()
}

func (o *object) updateEndpoint(r *endpoints.UpdateRequest) {
	o.endpointSettings(&r.Settings)
	o.unknown()
}

// endpointSettings reads the members that create and update share.
func (o *object) endpointSettings(s *endpoints.Settings) {
	s.TemplateID = o.template()
	s.Name = o.str("name")
	s.Image = o.str("image")
	s.GPU = o.endpointGPU()
	s.CPU = o.endpointCPU()
	s.Args, s.Entrypoint, s.Cmd = o.command()
	s.Disk = o.integer("disk")
	s.Ports = o.strings("ports")
	s.Env = o.env()
	s.Registry = o.registry()
	if w := o.object("workers"); w != nil {
		s.Workers = endpoints.WorkerSettings{Min: w.integer("min"), Max: w.integer("max"), Idle: w.span("idleTimeout", time.Second)}
		w.unknown()
	}
	s.Scaling = o.scaling()
	s.DataCenterIDs = o.choices("dataCenterIds")
	s.NetworkVolumes = o.choices("networkVolumes")
	s.Timeout = o.span("timeout", time.Millisecond)
	if f := o.str("flashboot"); f != nil {
		s.FlashBoot = (*endpoints.FlashBoot)(f)
	}
}

func (o *object) endpointGPU() *endpoints.GPUSettings {
	sub := o.object("gpu")
	if sub == nil {
		return nil
	}
	g := &endpoints.GPUSettings{
		Pools: sub.choices("pools"), ExcludedTypes: sub.choices("excludedTypes"), Count: sub.integer("count"),
		AllowedCUDAVersions: sub.choices("allowedCudaVersions"), MinCUDAVersion: sub.str("minCudaVersion"),
	}
	sub.unknown()
	return g
}

// endpointCPU keeps the positions of the list: an element that is not an object becomes an
// empty one.
func (o *object) endpointCPU() []endpoints.CPUSettings {
	list := o.objects("cpu")
	if list == nil {
		return nil
	}
	cpu := make([]endpoints.CPUSettings, len(list))
	for i, m := range list {
		if m == nil {
			continue
		}
		m.require("id", "vcpuCount")
		cpu[i].ID = m.text("id")
		cpu[i].VCPU = m.number("vcpuCount")
		m.unknown()
	}
	return cpu
}

// scaling reads a union by its type. A member of the other type is an unknown property.
func (o *object) scaling() *endpoints.Scaling {
	sub := o.object("scaling")
	if sub == nil {
		return nil
	}
	s := &endpoints.Scaling{Type: endpoints.ScalingType(sub.text("type"))}
	delay, count := s.Type == endpoints.QueueDelay, s.Type == endpoints.RequestCount
	switch {
	case delay:
		sub.require("queueDelay")
	case count:
		sub.require("requestCount")
	default: // an unknown type: accept the members of both types
		sub.require("type")
		delay, count = true, true
	}
	if delay {
		if d := sub.seconds("queueDelay"); d != nil {
			s.Delay = *d
		}
	}
	if count {
		s.Count = sub.number("requestCount")
	}
	sub.unknown()
	return s
}

// span reads a whole number of units. A number that is too large for a Duration becomes the
// longest one, which is above every limit.
func (o *object) span(name string, unit time.Duration) *time.Duration {
	n := o.integer(name)
	if n == nil {
		return nil
	}
	most := int(math.MaxInt64 / unit)
	d := time.Duration(max(min(*n, most), -most)) * unit
	return &d
}

// seconds reads a number of seconds that may have a fraction, to the nanosecond.
func (o *object) seconds(name string) *time.Duration {
	v := o.take(name, "a number", "0")
	if v == nil {
		return nil
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		o.faults.Add(problem.Invalid, o.pointer(name), "must be a number")
		return nil
	}
	const most = 9e9 // seconds
	d := time.Duration(math.Round(max(min(f, most), -most) * float64(time.Second)))
	return &d
}
