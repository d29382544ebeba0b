package serverless

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/podyard/podyard/serverless/balance"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/fleet"
	"github.com/podyard/podyard/serverless/workers"
)

// balances reports whether users may create load-balancing endpoints.
func balances(o *Options) bool {
	if o.Prober == nil {
		return false
	}
	_, ports := fleet.As[fleet.WorkerPorts](o.Fleet)
	return o.Fleet == nil || ports
}

func (s *Service) newBalancer(o *Options) *balance.Balancer {
	ports, ok := fleet.As[fleet.WorkerPorts](o.Fleet)
	return balance.New(balance.Options{
		Clock: s.clock, Prober: o.Prober,
		Address: func(k workers.Key, port int) (string, bool) {
			if !ok {
				return "", false
			}
			return ports.WorkerAddress(k.Endpoint, k.ID, port)
		},
		Changed: func(endpoint string) {
			s.scaler.Wake(endpoint)
			if o.RequestsChanged != nil {
				o.RequestsChanged(endpoint)
			}
		},
		RunCheck: o.RunCheck,
	})
}

// AcquireWorker returns a lease on a worker of a load-balancing endpoint for one request. It
// waits until ctx ends if there is no worker in rotation; the scaler then starts one. The
// caller must release the lease. Errors are balance.ErrNoWorkers, and ErrNoEndpoint if the
// endpoint is deleted meanwhile.
func (s *Service) AcquireWorker(ctx context.Context, endpoint string, a balance.Affinity) (*balance.Lease, error) {
	return s.balancer.Acquire(ctx, endpoint, a)
}

// RequestDemand returns the requests of a load-balancing endpoint.
func (s *Service) RequestDemand(endpoint string) balance.Demand { return s.balancer.Demand(endpoint) }

// ServeRequests serves the requests of a load-balancing endpoint in this process, until ctx
// ends. dial opens a connection on which a program answers HTTP; package httpapi has ServeHTTP
// for an http.Handler. ServeRequests then drains: it returns nil when every request has ended,
// at most o.Drain and a second later. It returns an error at once if the endpoint does not
// exist or has a queue, or if a worker with this id serves it already. o may be nil;
// Concurrency is ignored.
func (s *Service) ServeRequests(ctx context.Context, endpoint string, dial balance.Dialer, o *ServeOptions) error {
	if o == nil {
		o = &ServeOptions{}
	}
	id := s.localID(cmp.Or(o.ID, WorkerID(LocalWorkerPrefix+endpoint)))
	e, err := s.endpoints.Get(ctx, endpoint)
	if err == nil && !e.Balances() {
		err = fmt.Errorf("it has the type %s", endpoints.QueueType)
	}
	if err != nil {
		return fmt.Errorf("serverless: serve %q: %w", endpoint, err)
	}
	w := s.balancer.JoinLocal(endpoint, id, dial)
	if w == nil {
		return fmt.Errorf("serverless: serve %q: the worker id %q is taken", endpoint, id)
	}
	<-ctx.Done()
	w.Leave(context.WithoutCancel(ctx), cmp.Or(o.Drain, 10*time.Second))
	return nil
}

// views returns the workers of an endpoint of either type, ordered by id.
func (s *Service) views(endpoint string) []workers.View {
	list, direct := s.registry.List(endpoint), s.balancer.List(endpoint)
	if s.crowd != nil {
		list = s.crowd.views(endpoint, list, s.now())
	}
	if len(direct) == 0 {
		return list
	}
	list = append(list, direct...)
	slices.SortFunc(list, func(a, b workers.View) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// listenerEnv returns the environment variables of a worker of a load-balancing endpoint.
func listenerEnv(e *Endpoint, w WorkerID) map[string]string {
	l := e.Listener()
	return map[string]string{
		endpoints.EnvPort:       strconv.Itoa(l.Port),
		endpoints.EnvHealthPort: strconv.Itoa(l.HealthPort),
		endpoints.EnvHealthPath: l.HealthPath,
		"RUNPOD_POD_ID":         string(w),
		"RUNPOD_POD_HOSTNAME":   string(w),
		"RUNPOD_ENDPOINT_ID":    e.ID,
	}
}
