package fleet

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/workers"
)

// reconcile handles every endpoint that is due.
func (s *Scaler) reconcile(ctx context.Context, now queue.Instant) error {
	due, all, known := s.table.due(now)
	if !known {
		return nil
	}
	var errs []error
	if all {
		list, err := s.everyEndpoint(ctx)
		if err != nil {
			s.table.resyncFailed(now)
			errs, list = append(errs, err), due
		}
		due = list
	}
	for _, endpoint := range due {
		if err := s.reconcileEndpoint(ctx, now, endpoint); err != nil {
			s.table.retry(endpoint, now)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// everyEndpoint returns every endpoint whose workers are managed, and every other endpoint
// that still has workers.
func (s *Scaler) everyEndpoint(ctx context.Context) (list []string, err error) {
	managed := map[string]bool{}
	for e, err := range s.o.Endpoints.List(ctx) {
		if err != nil {
			return nil, err
		}
		if s.Manages(e) {
			managed[e.ID] = true
			list = append(list, e.ID)
		}
	}
	return append(list, s.table.leftovers(managed)...), nil
}

func (s *Scaler) reconcileEndpoint(ctx context.Context, now queue.Instant, endpoint string) error {
	e, err := s.o.Endpoints.Get(ctx, endpoint)
	if err != nil && !errors.Is(err, endpoints.ErrNotFound) {
		return err
	}
	managed := err == nil && s.Manages(e)
	if err != nil {
		e = &endpoints.Endpoint{ID: endpoint}
	}
	if managed || s.table.hasWorkers(endpoint) {
		if leads, err := s.lead(ctx, now, e); err != nil || !leads {
			return err
		}
	}
	if !managed {
		return s.scaleToZero(ctx, now, endpoint)
	}
	return s.scale(ctx, now, e)
}

// scale decides how many workers e should have, and records what to ask of the fleet.
func (s *Scaler) scale(ctx context.Context, now queue.Instant, e *endpoints.Endpoint) error {
	known, _, err := s.observe(ctx, now, e)
	if err != nil {
		return err
	}
	rules := e.QueueSettings().Rules()
	st, err := s.o.Queue.Stats(ctx, now, e.ID, &rules)
	if err != nil {
		return err
	}
	why, until, err := s.spent(ctx, e)
	if err != nil {
		return err
	}
	ws, spare, b := s.table.situation(now, e, known)
	url := s.o.URL()
	if url == "" {
		b = Backoff{Fails: 1, Until: now.Add(retryPause), Reason: "the service does not know yet where its workers reach it"}
	}
	d := Decide(now, e, Demand{
		Queued: st.Ready - st.ReadyLow, Low: st.ReadyLow, Running: st.Running, Oldest: st.Oldest, Spare: spare,
		Spent: why, SpentUntil: until,
	}, ws, b)
	for _, id := range slices.Concat(d.Stop, d.Drain) {
		s.stop(workers.Key{Endpoint: e.ID, ID: id})
	}
	fresh := make([]queue.WorkerID, d.Start)
	for i := range fresh {
		if fresh[i], err = s.o.NewID(); err != nil {
			return err
		}
	}
	s.table.decided(e, d, fresh, st.Ready > st.ReadyLow, func(id queue.WorkerID) WorkerSpec { return s.spec(e, id, url) })
	return nil
}

// spent returns why e may have no workers, and until when.
func (s *Scaler) spent(ctx context.Context, e *endpoints.Endpoint) (why string, until queue.Instant, err error) {
	if s.o.Spent == nil || e.Owner == "" {
		return "", 0, nil
	}
	why, at, err := s.o.Spent(ctx, e.Owner)
	if why == "" || err != nil {
		return "", 0, err
	}
	return why, queue.At(at), nil
}

// stop stops a worker. A worker that is in the registry is drained first, so that it is
// stopped only when it has no job.
func (s *Scaler) stop(k workers.Key) {
	if s.o.Registry.Drain(k) {
		s.Wake(k.Endpoint)
		return
	}
	s.table.happen(k, evStop, s.now())
}

// Drain has a worker end when it has no job. Another one is started if one is needed.
func (s *Scaler) Drain(k workers.Key) {
	if s.table.isLive(k) {
		s.stop(k)
		s.Wake(k.Endpoint)
	}
}

// observe combines what the fleet and the registry know of an endpoint's workers: which ones
// have joined, are unhealthy or have ended. It takes the jobs from workers that are gone.
func (s *Scaler) observe(ctx context.Context, now queue.Instant, e *endpoints.Endpoint) (known map[queue.WorkerID]*workers.View, done []jobsEnd, err error) {
	if s.o.Balancer != nil {
		s.o.Balancer.Sync(ctx, e, s.table.statuses(e.ID))
	}
	known = map[queue.WorkerID]*workers.View{}
	for _, v := range s.o.Registry.List(e.ID) {
		known[v.ID] = &v
	}
	o := s.table.observe(now, e, known)
	if o.failing != nil { // the back-off limits how often this is logged
		b := s.failing(ctx, e.ID, &o)
		s.o.Logger.Warn("workers do not start", "endpoint", e.ID, "fails", b.Fails, "reason", b.Reason)
	}
	for _, k := range o.forgot {
		s.o.Registry.Drain(k)
	}
	for _, end := range o.ends {
		if err := s.o.Registry.Release(ctx, end.worker, end.kind, end.why); err != nil {
			return nil, nil, err
		}
		s.o.Registry.Remove(end.worker)
	}
	s.table.jobsEnded(now, e.ID, o.ends)
	return known, o.ends, nil
}

// scaleToZero stops the workers of an endpoint that must have none or is deleted.
func (s *Scaler) scaleToZero(ctx context.Context, now queue.Instant, endpoint string) error {
	_, done, err := s.observe(ctx, now, &endpoints.Endpoint{ID: endpoint})
	if err != nil {
		return err
	}
	s.table.release(now, endpoint, done)
	return nil
}

// replaceUnresponsive kills the workers that keep running a job that they must stop. Their
// other jobs return to the queue without a counted delivery.
func (s *Scaler) replaceUnresponsive(ctx context.Context, now queue.Instant) {
	for _, k := range s.o.Registry.Unresponsive(now) {
		if !s.table.isLive(k) {
			continue
		}
		s.o.Logger.Warn("replacing a worker that keeps running a stopped job", "endpoint", k.Endpoint, "worker", k.ID)
		s.o.Registry.Drain(k)
		if err := s.o.Registry.Release(ctx, k, queue.OpRelease, ""); err != nil {
			s.o.Logger.Error("replacing a worker failed", "endpoint", k.Endpoint, "worker", k.ID, "err", err)
			continue
		}
		s.table.happen(k, evKill, now)
	}
}

// spec returns the spec of a new worker of e. url is the base URL of the jobs API.
func (s *Scaler) spec(e *endpoints.Endpoint, id queue.WorkerID, url string) WorkerSpec {
	c := e.Clone()
	var listener *endpoints.Listener
	if e.Balances() {
		l := e.Listener()
		listener = &l
	}
	return WorkerSpec{
		Endpoint: e.ID, Owner: e.Owner, ID: id, Release: e.Version, Container: c.Container,
		GPU: c.GPU, CPU: c.CPU, DataCenterIDs: c.DataCenterIDs, NetworkVolumes: c.NetworkVolumes,
		Listener: listener, Env: s.o.Env(c, id, url),
	}
}

// maxComeLimit is the largest accepted RUNPOD_INIT_TIMEOUT.
const maxComeLimit = 7 * 24 * time.Hour

// initTimeout returns how long a worker of e may run before it first asks for a job, or is
// healthy for the first time.
func initTimeout(e *endpoints.Endpoint) time.Duration {
	if e.Balances() {
		return HealthyLimit
	}
	n, err := strconv.Atoi(e.Container.Env["RUNPOD_INIT_TIMEOUT"])
	if err == nil && n > 0 && n <= int(maxComeLimit/time.Second) {
		return time.Duration(n) * time.Second
	}
	return comeLimit
}
