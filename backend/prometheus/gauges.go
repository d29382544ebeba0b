package prometheus

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// Sources are what gauges are read from. A nil source has no gauges.
type Sources struct {
	Jobs *serverless.Service
	Pods *pods.Service
	// Ready returns nil while the store takes new work.
	Ready func() error
	// Size is the bytes of the store's files, Dead those of them that only deleted records have,
	// Damages how many of its records and files were found damaged.
	Size, Dead, Damages func() int64
	// Incidents returns what is wrong, such as server.Server.Incidents. No two have the same Cause and ID.
	Incidents func() []Incident
}

// An Incident is one cause of trouble. Its texts are labels.
type Incident struct{ Cause, ID, Name, Severity string }

// freshFor is how long values are kept, so that many scrapers cost no more than one.
const freshFor = time.Second

// collectFor is how long the stores may take to answer.
const collectFor = 10 * time.Second

// gaugeDescs are the metrics that a gauges collects.
type gaugeDescs struct {
	queued, waiting, running, oldest   *prometheus.Desc
	workers, max                       *prometheus.Desc
	undrained, hookPending, hookOldest *prometheus.Desc
	pods, unplaced, capacity, claimed  *prometheus.Desc
	storeBytes, storeDead              *prometheus.Desc
	storeDamage, storeWritable         *prometheus.Desc
	incident                           *prometheus.Desc
}

// gauges collects what is read at a scrape.
type gauges struct {
	m *Metrics
	gaugeDescs

	mu   sync.Mutex
	at   time.Time
	last []prometheus.Metric
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+name, help, labels, nil)
}

func newGauges(m *Metrics) *gauges {
	return &gauges{m: m, gaugeDescs: gaugeDescs{
		queued:        desc("jobs_queued", "Queued jobs by priority; low has those for which no worker is started. A priority without jobs has a series only if it is the default, 5.", "endpoint", "priority"),
		waiting:       desc("jobs_waiting", "Queued jobs by what they wait for: a worker (ready), their time (delayed), other jobs or their owner (blocked), a rate or a held key (held).", "endpoint", "state"),
		running:       desc("jobs_running", "Jobs and requests in progress.", "endpoint"),
		oldest:        desc("jobs_oldest_queued_seconds", "Age of the oldest job that is ready and waits.", "endpoint"),
		workers:       desc("workers", "Workers by state.", "endpoint", "state"),
		max:           desc("workers_max", "The most workers that the endpoint may have, with its name.", "endpoint", "name"),
		undrained:     desc("stream_undrained_bytes", "Bytes of chunks that were not read."),
		hookPending:   desc("webhook_pending", "Webhooks that are not delivered and not given up."),
		hookOldest:    desc("webhook_oldest_seconds", "Age of the oldest of them."),
		pods:          desc("pods", "Pods by status and compute.", "status", "compute"),
		unplaced:      desc("pods_waiting", "Pods that wait for a host with room."),
		capacity:      desc("host_capacity", "What a host has: vcpu, memory_bytes, or a type of GPU.", "host", "resource"),
		claimed:       desc("host_claimed", "What of it pods and workers have.", "host", "resource"),
		storeBytes:    desc("store_bytes", "Bytes of the files of the store."),
		storeDead:     desc("store_dead_bytes", "Bytes of these files that were deleted and have not made room yet, an estimate."),
		storeDamage:   desc("store_damage_total", "Records and files of the store that were found damaged."),
		storeWritable: desc("store_writable", "1 while the store takes new work."),
		incident:      desc("incident", "1 for each cause of trouble, with the name of what it is about.", "cause", "id", "name", "severity"),
	}}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		g.queued, g.waiting, g.running, g.oldest, g.workers, g.max, g.undrained, g.hookPending, g.hookOldest,
		g.pods, g.unplaced, g.capacity, g.claimed, g.storeBytes, g.storeDead, g.storeDamage, g.storeWritable, g.incident,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(to chan<- prometheus.Metric) {
	for _, x := range g.read() {
		to <- x
	}
}

// read returns the values, which are at most a second old.
func (g *gauges) read() []prometheus.Metric {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := g.m.clock.Now(); now.Sub(g.at) >= freshFor {
		g.last, g.at = g.collect(), now
	}
	return g.last
}

// A reading collects the values of one scrape.
type reading struct{ list []prometheus.Metric }

func (r *reading) add(d *prometheus.Desc, v float64, labels ...string) {
	r.list = append(r.list, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...))
}

func (g *gauges) collect() []prometheus.Metric {
	s := g.m.sources.Load()
	if s == nil {
		return nil
	}
	ctx := context.Background() //nolint:forbidigo // a collector gets no context
	ctx, cancel := clock.WithDeadline(ctx, g.m.clock, g.m.clock.Now().Add(collectFor))
	defer cancel()
	r := &reading{}
	if s.Jobs != nil {
		g.jobs(ctx, r, s.Jobs)
	}
	if s.Pods != nil {
		g.hosts(ctx, r, s.Pods)
	}
	if s.Ready != nil {
		writable := 1.0
		if s.Ready() != nil {
			writable = 0
		}
		r.add(g.storeWritable, writable)
	}
	if s.Incidents != nil {
		for _, i := range s.Incidents() {
			r.add(g.incident, 1, i.Cause, i.ID, i.Name, i.Severity)
		}
	}
	if s.Size != nil {
		r.add(g.storeBytes, float64(s.Size()))
	}
	if s.Dead != nil {
		r.add(g.storeDead, float64(s.Dead()))
	}
	if s.Damages != nil {
		r.list = append(r.list, prometheus.MustNewConstMetric(g.storeDamage, prometheus.CounterValue, float64(s.Damages())))
	}
	return r.list
}

// queueState is the sum over the endpoints of one label.
type queueState struct {
	name                                                string
	queued                                              [11]int64
	ready, delayed, blocked, held, running              int64
	oldest                                              time.Duration
	initializing, idle, busy, throttled, unhealthy, max int
}

func (g *gauges) jobs(ctx context.Context, r *reading, jobs *serverless.Service) {
	sums, now := map[string]*queueState{}, g.m.clock.Now()
	list, _ := jobs.Survey(ctx) // the store says elsewhere that it is away
	for i := range list {
		label := g.m.endpointOf(list[i].Endpoint.ID).id
		x := sums[label]
		if x == nil {
			x = &queueState{name: label}
			if label == list[i].Endpoint.ID {
				x.name = nameOf(list[i].Endpoint)
			}
			sums[label] = x
		}
		x.add(now, &list[i])
	}
	for label, x := range sums {
		g.queue(r, label, x)
	}
	l, ok, err := jobs.Load(ctx)
	if !ok || err != nil {
		return
	}
	r.add(g.undrained, float64(l.Undrained))
	r.add(g.hookPending, float64(l.Deliveries))
	age := time.Duration(0)
	if l.OldestDelivery != 0 {
		age = max(g.m.clock.Now().Sub(l.OldestDelivery.Time()), 0)
	}
	r.add(g.hookOldest, age.Seconds())
}

// add adds the counts of an endpoint.
func (x *queueState) add(now time.Time, l *serverless.EndpointLoad) {
	for i, n := range l.Queued {
		x.queued[i] += n
	}
	x.ready += l.Ready
	x.delayed += l.Delayed
	x.blocked += l.Blocked
	x.held += l.Held
	x.running += l.Running
	if l.Oldest != 0 {
		x.oldest = max(x.oldest, now.Sub(l.Oldest.Time()))
	}
	x.initializing += l.Workers.Initializing
	x.idle += l.Workers.Idle
	x.busy += l.Workers.Running
	x.throttled += l.Workers.Throttled
	x.unhealthy += l.Workers.Unhealthy
	x.max += l.Endpoint.Workers.Max
}

// maxName is how many characters of a name are in a label.
const maxName = 40

// nameOf returns the name of an endpoint, or its id if it has none. Users choose names.
func nameOf(e *serverless.Endpoint) string {
	name := []rune(strings.ToValidUTF8(cmp.Or(e.Name, e.ID), "?"))
	if len(name) > maxName {
		name = append(name[:maxName-1], '…')
	}
	return string(name)
}

func (g *gauges) queue(r *reading, label string, x *queueState) {
	for i, n := range x.queued {
		priority := "low"
		if i < len(x.queued)-1 {
			priority = strconv.Itoa(i)
		}
		if n == 0 && i != queue.DefaultPriority {
			continue // a third of all series would be such zeros
		}
		r.add(g.queued, float64(n), label, priority)
	}
	for state, n := range map[string]int64{"ready": x.ready, "delayed": x.delayed, "blocked": x.blocked, "held": x.held} {
		r.add(g.waiting, float64(n), label, state)
	}
	r.add(g.running, float64(x.running), label)
	r.add(g.oldest, x.oldest.Seconds(), label)
	for state, n := range map[string]int{
		"initializing": x.initializing, "idle": x.idle, "running": x.busy, "throttled": x.throttled, "unhealthy": x.unhealthy,
	} {
		r.add(g.workers, float64(n), label, state)
	}
	r.add(g.max, float64(x.max), label, x.name)
}

func (g *gauges) hosts(ctx context.Context, r *reading, service *pods.Service) {
	list, err := service.All(ctx)
	if err == nil {
		g.count(r, list)
	}
	states, err := service.HostStates(ctx)
	if err != nil {
		return
	}
	claimed, capacity := map[[2]string]float64{}, map[[2]string]float64{}
	for _, h := range states {
		for _, x := range h.Resources {
			k := [2]string{g.m.hostOf(h.ID), resourceOf(x.Resource)}
			unit := 1.0
			if k[1] == "memory_bytes" {
				unit = 1e9 // the catalog counts in GB
			}
			claimed[k] += float64(x.Units) * unit
			capacity[k] += float64(x.Limit) * unit
		}
	}
	for k := range capacity {
		r.add(g.capacity, capacity[k], k[0], k[1])
		r.add(g.claimed, claimed[k], k[0], k[1])
	}
}

// count adds the numbers of pods.
func (g *gauges) count(r *reading, list []*pods.Pod) {
	sums, waiting := map[[2]string]int{}, 0
	for _, status := range []pods.Status{pods.Provisioning, pods.Starting, pods.Running, pods.Exited, pods.Errored} {
		sums[[2]string{strings.ToLower(string(status)), "cpu"}], sums[[2]string{strings.ToLower(string(status)), "gpu"}] = 0, 0
	}
	for _, p := range list {
		compute := "cpu"
		if p.GPU != nil {
			compute = "gpu"
		}
		sums[[2]string{strings.ToLower(string(p.Status())), compute}]++
		if p.Placement.Host == "" && p.Want.Power == pods.PowerOn {
			waiting++
		}
	}
	for k, n := range sums {
		r.add(g.pods, float64(n), k[0], k[1])
	}
	r.add(g.unplaced, float64(waiting))
}

// resourceOf returns the label of a resource of a host (pods.HostState).
func resourceOf(name string) string {
	kind, id, _ := strings.Cut(name, "/")
	switch kind {
	case "gpu":
		return id
	case "memory":
		return "memory_bytes"
	}
	return kind
}
