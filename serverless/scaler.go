package serverless

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/internal/id"
	"github.com/podyard/podyard/serverless/balance"
	"github.com/podyard/podyard/serverless/events"
	"github.com/podyard/podyard/serverless/fleet"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/servers"
	"github.com/podyard/podyard/serverless/telemetry"
	"github.com/podyard/podyard/serverless/workers"
)

// newScaler returns the scaler of s, over its queue, endpoints and workers.
func (s *Service) newScaler(o *Options) *fleet.Scaler {
	at := o.WorkerURL
	if at == nil {
		at = func() string { return "" }
	}
	fo := fleet.Options{
		Fleet: o.Fleet, Queue: scalerQueue{s.queue, s.balancer, s.freeAt}, Endpoints: s.endpoints, Registry: scalerRegistry{&s.registry, s},
		Balancer: s.balancer,
		Clock:    s.clock, Wake: s.arm, NewID: s.newWorkerID, Env: s.workerEnv, URL: at,
		Adopt: len(o.WorkerSecret) > 0 && !o.ReplaceWorkers, // the keys of earlier workers are valid
		Meter: o.Meter, Spent: o.Spent, Deterministic: o.Deterministic, Observer: fleetEvents{o.Observer, s.events}, Logger: s.log,
	}
	if s.server != nil {
		fo.Lead, fo.Adopt = scalerLead{s.server}, true // the workers of the other servers stay
	}
	return fleet.New(fo)
}

// fleetEvents adds what happens to the workers of a fleet to the events, and passes it on.
type fleetEvents struct {
	telemetry.Observer // may be nil
	events             *events.Log
}

// Worker implements telemetry.Observer.
func (f fleetEvents) Worker(e telemetry.WorkerEvent) {
	switch {
	case e.Change == telemetry.WorkerStarted && e.Result == telemetry.StartOK:
		f.events.Worker(e.Endpoint, e.Worker, events.WorkerStarted)
	case e.Change == telemetry.WorkerLost, e.Change == telemetry.WorkerStarted && e.Result == telemetry.StartFailed:
		f.events.Worker(e.Endpoint, e.Worker, events.WorkerFailed)
	}
	if f.Observer != nil {
		f.Observer.Worker(e)
	}
}

// Loop implements telemetry.Observer.
func (f fleetEvents) Loop(e telemetry.LoopEvent) {
	if f.Observer != nil {
		f.Observer.Loop(e)
	}
}

// watchWorkers adds what happens to the workers of the registry to the events.
func (s *Service) watchWorkers() {
	s.registry.Watch(func(k workers.Key, here bool) {
		kind := events.WorkerLeft
		if here {
			kind = events.WorkerJoined
		}
		s.events.Worker(k.Endpoint, k.ID, kind)
	})
}

// A scalerLead is the lease of the server that decides for an endpoint.
type scalerLead struct{ server *servers.Server }

// scalerLease begins the names of the leases of scalers.
const scalerLease = "scaler/"

// Lead implements fleet.Lead.
func (l scalerLead) Lead(ctx context.Context, endpoint string, shown []byte) ([]byte, bool, error) {
	lease, leads, err := l.server.Lead(ctx, scalerLease+endpoint, shown)
	return lease.Data, leads, err
}

// Resign implements fleet.Lead.
func (l scalerLead) Resign(ctx context.Context, endpoint string) error {
	return l.server.Resign(ctx, scalerLease+endpoint)
}

// Leads implements fleet.Lead.
func (l scalerLead) Leads(endpoint string) bool { return l.server.Leads(scalerLease + endpoint) }

// shownElsewhere returns what the server shows that decides for an endpoint. ok is false at that
// server itself.
func (s *Service) shownElsewhere(ctx context.Context, endpoint string) (shown []byte, ok bool, err error) {
	if s.server == nil || s.server.Leads(scalerLease+endpoint) {
		return nil, false, nil
	}
	list, err := s.server.Store().Leases(ctx, s.clock.Now(), scalerLease+endpoint)
	if err != nil {
		return nil, true, err
	}
	for _, l := range list {
		if l.Name == scalerLease+endpoint {
			return l.Data, true, nil
		}
	}
	return nil, true, nil
}

// A scalerQueue is the queue for the scaler. Requests in flight count as running jobs, and
// requests that wait for a worker as queued ones.
type scalerQueue struct {
	fleet.Queue
	balancer *balance.Balancer
	freeAt   func(endpoint string, at Instant)
}

// Stats implements fleet.Queue.
func (q scalerQueue) Stats(ctx context.Context, now queue.Instant, endpoint string, r *queue.Rules) (queue.Stats, error) {
	st, err := q.Queue.Stats(ctx, now, endpoint, r)
	q.freeAt(endpoint, st.Free) // the scaler is woken then
	d := q.balancer.Demand(endpoint)
	st.Ready += int64(d.Waiting)
	st.Running += int64(d.Running)
	st.Oldest = queue.Sooner(st.Oldest, d.Oldest)
	return st, err
}

// A scalerRegistry has the workers of both types of endpoints for the scaler. Its Release also
// ends the leases of the worker in the queue.
type scalerRegistry struct {
	*workers.Registry
	service *Service
}

// List implements fleet.Registry.
func (r scalerRegistry) List(endpoint string) []workers.View { return r.service.views(endpoint) }

// View implements fleet.Registry.
func (r scalerRegistry) View(k workers.Key) (workers.View, bool) {
	if v, ok := r.service.balancer.View(k); ok {
		return v, true
	}
	return r.Registry.View(k)
}

// Drain implements fleet.Registry.
func (r scalerRegistry) Drain(k workers.Key) bool {
	known := r.service.balancer.Drain(k) || r.Registry.Drain(k)
	r.service.workersChanged()
	return known
}

// Remove implements fleet.Registry.
func (r scalerRegistry) Remove(k workers.Key) {
	r.service.balancer.Remove(k)
	r.Registry.Remove(k)
	r.service.workersChanged()
}

// Release implements fleet.Registry.
func (r scalerRegistry) Release(ctx context.Context, k workers.Key, kind queue.OpKind, why string) error {
	w := r.Find(k)
	if w == nil {
		return nil
	}
	r.Drain(k)
	return r.service.endLeases(ctx, w, kind, why)
}

func (s *Service) newWorkerID() (WorkerID, error) {
	w, err := id.New(s.rand)
	return WorkerID(w), err
}

// Resync makes the scaler check all endpoints soon. Call it after an endpoint, or what the
// fleet can run, has changed outside this Service.
func (s *Service) Resync() {
	s.scaler.Resync()
	s.arm(s.now())
}

// Measure reports the workers that exist now to the meter, in addition to the reports of
// changes. It is for a program that sets Options.Deterministic and calls Step itself; it must
// not be called during Step.
func (s *Service) Measure(ctx context.Context) { s.scaler.Measure(ctx) }

// workerEnv returns the environment variables of the worker protocol. The SDK replaces
// $RUNPOD_POD_ID and $ID by ids and appends parameters with a bare &, so every address has a
// query.
func (s *Service) workerEnv(e *Endpoint, w WorkerID, api string) map[string]string {
	if e.Balances() {
		return listenerEnv(e, w)
	}
	base := strings.TrimSuffix(api, "/") + "/" + e.ID
	machine := "cpu"
	if e.GPU != nil && len(e.GPU.Pools) > 0 {
		machine = e.GPU.Pools[0]
	}
	query := "?gpu=" + url.QueryEscape(machine)
	// The SDK rounds the interval down to whole seconds; below one second it would not wait.
	ping := max(s.lease/3, time.Second)
	return map[string]string{
		"RUNPOD_WEBHOOK_GET_JOB":         base + "/job-take/$ID" + query,
		"RUNPOD_WEBHOOK_POST_OUTPUT":     base + "/job-done/$RUNPOD_POD_ID/$ID" + query,
		"RUNPOD_WEBHOOK_POST_STREAM":     base + "/job-stream/$RUNPOD_POD_ID/$ID" + query,
		"RUNPOD_WEBHOOK_PING":            base + "/ping/$RUNPOD_POD_ID" + query,
		"RUNPOD_PING_INTERVAL":           strconv.FormatInt(ping.Milliseconds(), 10),
		"RUNPOD_POD_ID":                  string(w),
		"RUNPOD_POD_HOSTNAME":            string(w),
		"RUNPOD_AI_API_KEY":              s.WorkerKey(e.ID, w),
		"RUNPOD_ENDPOINT_ID":             e.ID,
		"RUNPOD_SKIP_AUTO_SYSTEM_CHECKS": "true",
		"RUNPOD_SKIP_GPU_CHECK":          "true",
	}
}
