package prometheus

import (
	"maps"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/podyard/podyard/internal/clock"
)

const (
	// MaxEndpoints is how many endpoints have series of their own: the first ones that are seen.
	MaxEndpoints = 200
	// MaxHosts is the same for hosts.
	MaxHosts = 64
	// other is the label of all that come later.
	other = "other"
)

// A Clock has the time: Now, and AfterFunc(t, f), which calls f once Now has reached t and returns a
// stop that reports whether it prevented the call. f must not block. It is one type in all packages.
type Clock = clock.Clock

// Options configures Metrics. The zero value and nil work.
type Options struct {
	// Version is that of the program. Default: the one of its module.
	Version string
	// Registry gets the collectors. Default: a new one, with those of the Go runtime and of the
	// process.
	Registry *prometheus.Registry
	// Registerer gets the collectors instead, for a program that serves them itself: the one of its
	// framework, or one with labels of its own (prometheus.WrapRegistererWith). Metrics.Handler then
	// serves what the Registerer gathers if it is a prometheus.Gatherer, and else nothing.
	Registerer prometheus.Registerer
	// Clock is the clock of the services, by which ages are computed. Default: the system's.
	Clock Clock
}

// Metrics are the metrics of one server. It is safe for concurrent use.
type Metrics struct {
	gatherer prometheus.Gatherer
	clock    clock.Clock
	vectors
	durations, starting, sizes *layout
	sources                    atomic.Pointer[Sources]

	mu        sync.Mutex // guards changes of endpoints and hosts
	endpoints atomic.Pointer[map[string]*endpoint]
	near      [256]atomic.Pointer[endpoint] // by slot: the first endpoint of each, found without the map
	hosts     atomic.Pointer[map[string]string]
	rest      *endpoint // of all later endpoints
	requests  sync.Map  // of requestKey: *request
	inFlight  sync.Map  // by area: prometheus.Gauge
}

// New returns metrics without sources.
func New(o *Options) *Metrics {
	if o == nil {
		o = &Options{}
	}
	m := &Metrics{clock: o.Clock, vectors: newVectors(), durations: newLayout(1000, jobSeconds, true), starting: newLayout(1000, startSeconds, true), sizes: newLayout(1, bodyBytes, false)}
	if m.clock == nil {
		m.clock = clock.System{}
	}
	registerer := m.register(o)
	m.endpoints.Store(&map[string]*endpoint{})
	m.hosts.Store(&map[string]string{})
	m.rest = m.newEndpoint(other)
	for _, c := range m.all() {
		registerer.MustRegister(c)
	}
	registerer.MustRegister(newJobs(m), newGauges(m))
	version, goVersion := o.Version, ""
	if b, ok := debug.ReadBuildInfo(); ok {
		goVersion = b.GoVersion
		if version == "" {
			version = b.Main.Version
		}
	}
	m.buildInfo.WithLabelValues(version, goVersion).Set(1)
	m.leader.Set(1)
	m.beginAll()
	return m
}

// register returns where the collectors go, and sets where they are gathered.
func (m *Metrics) register(o *Options) prometheus.Registerer {
	if o.Registerer != nil {
		var ok bool
		if m.gatherer, ok = o.Registerer.(prometheus.Gatherer); !ok {
			m.gatherer = prometheus.NewRegistry()
		}
		return o.Registerer
	}
	r := o.Registry
	if r == nil {
		r = prometheus.NewRegistry()
		r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	m.gatherer = r
	return r
}

// Handler serves the metrics, as text, as OpenMetrics with exemplars, or with native
// histograms, as the scraper asks.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.gatherer, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

// SetSources says where gauges come from. Without them there are none.
func (m *Metrics) SetSources(s Sources) { m.sources.Store(&s) }

// slot is a cheap hash: an id has random letters at its end.
func slot(id string) uint8 {
	if len(id) < 2 {
		return 0
	}
	return id[len(id)-1] + 37*id[len(id)-2]
}

// endpointOf returns the series of an endpoint.
func (m *Metrics) endpointOf(id string) *endpoint {
	if e := m.near[slot(id)].Load(); e != nil && e.id == id {
		return e
	}
	return m.lookUp(id)
}

func (m *Metrics) lookUp(id string) *endpoint {
	known := *m.endpoints.Load()
	if e := known[id]; e != nil {
		return e
	}
	if len(known) >= MaxEndpoints {
		return m.rest
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	known = *m.endpoints.Load()
	if e := known[id]; e != nil {
		return e
	}
	if len(known) >= MaxEndpoints {
		return m.rest
	}
	e := m.newEndpoint(id)
	next := maps.Clone(known)
	next[id] = e
	m.endpoints.Store(&next)
	m.near[slot(id)].CompareAndSwap(nil, e)
	return e
}

// hostOf returns the label of a host.
func (m *Metrics) hostOf(id string) string {
	known := *m.hosts.Load()
	if label, ok := known[id]; ok {
		return label
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	known = *m.hosts.Load()
	if _, ok := known[id]; ok || len(known) < MaxHosts {
		next := maps.Clone(known)
		next[id] = id
		m.watchRestarts.WithLabelValues(id)
		m.podStart.WithLabelValues(id)
		m.hosts.Store(&next)
		return id
	}
	return other
}
