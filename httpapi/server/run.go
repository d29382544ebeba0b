package server

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/serverless"
)

// Maximum times of the shutdown in addition to Options.Drain.
const (
	podsTime    = 2 * time.Second        // to close runtimes, and for services to record the ends
	readersTime = 250 * time.Millisecond // for clients to read the rest
	answerTime  = time.Second            // to answer active requests
	storeTime   = time.Second            // for services and workers whose store does not answer
)

// Run runs the services and serves the listeners until ctx ends. Then it stops everything
// in the order of the package comment and returns nil. It may be called once.
//
// If a service or a listener ends by itself, the server stops in the same order, and Run
// returns the error. Run also returns the errors of closing stores and runtimes. It always
// closes the listeners.
func (s *Server) Run(ctx context.Context, listeners ...Listener) error {
	if s.begun.Swap(true) {
		return errors.Join(errBegun, closeListeners(listeners))
	}
	r := &running{Server: s, failed: make(chan error, 1)}
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	pull, stopPull := context.WithCancel(work)
	defer stopPull()
	hold, letGo := context.WithCancel(work)
	defer letGo()

	r.serve(hold, listeners)
	r.start(work)
	r.startWorkers(pull)
	var err error
	select {
	case err = <-r.failed:
	case <-ctx.Done():
	}

	s.log.InfoContext(work, "stopping")
	if err == nil && s.wait > 0 {
		s.leaving.Store(true)
		err = r.linger(s.wait)
	}
	drain, cancel := context.WithTimeout(work, s.drain)
	defer cancel()
	late, cancel := context.WithTimeout(work, s.drain+podsTime)
	defer cancel()
	s.gate.drain()
	stopPull()
	waitFor(&r.workers, s.drain+storeTime)
	s.finish(drain)
	s.endProxied(work)
	err = errors.Join(err, s.endRuntimes(late))
	s.lastReads(work)
	s.gate.close()
	letGo()
	r.answer(work)
	stopWork()
	waitFor(&r.services, storeTime)
	err = errors.Join(err, s.closeStores())
	r.workers.Wait() // calls of a store that is closed return
	r.services.Wait()
	return err
}

// waitFor waits for all of g, but not longer than limit.
func waitFor(g *sync.WaitGroup, limit time.Duration) {
	done := make(chan struct{})
	go func() { g.Wait(); close(done) }()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

func closeListeners(list []Listener) error {
	var errs []error
	for _, l := range list {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// A running is what one call of Run has started.
type running struct {
	*Server

	failed   chan error // the first error that stops the server
	services sync.WaitGroup
	workers  sync.WaitGroup
	doors    []*door
}

// linger waits for d, or until an error stops the server.
func (r *running) linger(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case err := <-r.failed:
		return err
	case <-t.C:
		return nil
	}
}

// fail stops the server with an error.
func (r *running) fail(err error) {
	select {
	case r.failed <- err:
	default: // it stops already
	}
}

// start runs the services until ctx ends.
func (r *running) start(ctx context.Context) {
	run := func(name string, f func(context.Context) error) {
		r.services.Go(func() {
			err := f(ctx)
			switch {
			case ctx.Err() == nil:
				r.fail(fmt.Errorf("server: %s ended: %w", name, errors.Join(err, errEarly)))
			case err != nil && !errors.Is(err, context.Canceled):
				r.log.ErrorContext(ctx, "service ended", "service", name, "err", err)
			}
		})
	}
	if r.joined != nil {
		run("servers", r.joined.Run)
	}
	if r.Server.services.Pods != nil {
		run("pods", r.Server.services.Pods.Run)
	}
	if r.Server.services.Jobs != nil {
		run("jobs", r.Server.services.Jobs.Run)
	}
	if r.Server.services.Billing != nil && r.keepBilling > 0 {
		run("billing", r.expireBilling)
	}
	if r.Server.services.Spending != nil && r.limited {
		run("spending", r.Server.services.Spending.Run)
	}
	if r.Server.services.Volumes != nil {
		run("volumes", r.sweepVolumes)
	}
	run("incidents", r.watch)
	if r.stores.Run != nil {
		run("stores", r.stores.Run)
	}
}

// billingPause is the time between two looks for usages that are no longer kept.
const billingPause = time.Hour

// expireBilling deletes usages that are no longer kept until ctx ends.
func (s *Server) expireBilling(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := s.services.Billing.Expire(ctx, s.keepBilling); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "old usages were not deleted", "err", err)
		}
		clock.Sleep(ctx, s.clock, s.clock.Now().Add(billingPause), nil)
	}
	return nil
}

// sweepPause is the time between two looks for deleted volumes whose contents are here.
const sweepPause = time.Minute

// sweepVolumes removes what is in volumes that were deleted at another server, until ctx ends.
func (s *Server) sweepVolumes(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := s.services.Volumes.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "what is in deleted volumes was not removed", "err", err)
		}
		clock.Sleep(ctx, s.clock, s.clock.Now().Add(sweepPause), nil)
	}
	return nil
}

var errEarly = errors.New("it is needed until the end")

// startWorkers runs the workers of this process until ctx ends.
func (r *running) startWorkers(ctx context.Context) {
	jobs := r.Server.services.Jobs
	if jobs != nil {
		r.workers.Go(func() {
			if err := jobs.ServeHandlers(ctx, &serverless.ServeOptions{Drain: r.drain}); err != nil && ctx.Err() == nil {
				r.fail(fmt.Errorf("server: %w", err))
			}
		})
	}
	for _, w := range r.Server.workers {
		w.Options.Drain = first(w.Options.Drain, r.drain)
		r.workers.Go(func() {
			serve := func() error { return jobs.Serve(ctx, w.Endpoint, w.Worker, &w.Options) }
			if w.Handler != nil {
				serve = func() error { return httpapi.ServeHTTP(ctx, jobs, w.Endpoint, w.Handler, &w.Options) }
			}
			if err := serve(); err != nil && ctx.Err() == nil {
				r.fail(fmt.Errorf("server: %w", err))
			}
		})
	}
}

// finish returns when no job is in progress, or when ctx ends. Workers get no new jobs
// meanwhile. It checks again after the busy endpoints are idle, because a worker may have
// got a job just before the drain began.
func (s *Server) finish(ctx context.Context) {
	if s.services.Jobs == nil {
		return
	}
	for busy := s.busy(ctx); len(busy) > 0; busy = s.busy(ctx) {
		done := func() bool {
			busy = slices.DeleteFunc(busy, func(id string) bool { return !s.works(ctx, id) })
			return len(busy) == 0
		}
		if !until(ctx, 20*time.Millisecond, done) {
			return
		}
	}
}

// endProxied ends the requests to workers of load-balancing endpoints that are left, while
// their workers still run. WebSockets are closed with the status 1001.
func (s *Server) endProxied(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	until(ctx, 5*time.Millisecond, s.gate.endProxied())
}

// busy returns the endpoints with jobs in progress, or none if the store does not say.
func (s *Server) busy(ctx context.Context) (ids []string) {
	ctx, cancel := context.WithTimeout(ctx, 2*storeTime)
	defer cancel()
	for e, err := range s.stores.Endpoints.List(ctx) {
		if err != nil {
			s.log.WarnContext(ctx, "the store does not say which endpoints there are", "err", err)
			return nil
		}
		if s.works(ctx, e.ID) {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// works reports whether an endpoint has jobs in progress. It returns false if the store
// cannot say.
func (s *Server) works(ctx context.Context, endpoint string) bool {
	h, err := s.services.Jobs.Health(ctx, endpoint)
	return err == nil && h.Jobs.Running > 0
}

// endRuntimes closes the runtimes. It returns when the services have recorded how their
// containers ended, or when ctx ends. In that case the next server reads the runtimes' own
// records.
func (s *Server) endRuntimes(ctx context.Context) error {
	s.end.begin()
	err := s.closeRuntimes(ctx)
	ctx, cancel := context.WithTimeout(ctx, podsTime)
	defer cancel()
	until(ctx, 10*time.Millisecond, func() bool { return s.end.seen(ctx) && s.noted(ctx) })
	return err
}

// noted reports whether the pod store has the end of every container that ended.
func (s *Server) noted(ctx context.Context) bool {
	if s.stores.Pods == nil {
		return true
	}
	for _, st := range s.end.ended() {
		p, err := s.stores.Pods.Get(ctx, st.PodID)
		if err == nil && p.Seen.Phase < pods.PhaseExited && p.Seen.Gen == st.Gen && p.Want.Power != pods.PowerTerminated {
			return false
		}
	}
	return true
}

// lastReads gives clients time to read the rest of results and logs.
func (s *Server) lastReads(ctx context.Context) {
	if !s.gate.read() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readersTime)
	defer cancel()
	<-ctx.Done()
}

// answer closes the listeners. It returns when all requests are answered, or after
// answerTime.
func (r *running) answer(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var all sync.WaitGroup
	for _, d := range r.doors {
		all.Go(func() {
			if err := d.shut(ctx); err != nil {
				r.log.WarnContext(ctx, "requests were cut off", "addr", d.l.Addr().String(), "err", err)
			}
		})
	}
	if all.Wait(); !until(ctx, 5*time.Millisecond, r.gate.answered) {
		r.log.WarnContext(ctx, "requests go on after the end")
	}
}

// until polls ok. It returns false if ctx ends first.
func until(ctx context.Context, every time.Duration, ok func() bool) bool {
	look := time.NewTicker(every)
	defer look.Stop()
	for !ok() {
		select {
		case <-look.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// serve serves the listeners. ctx is the base context of all requests.
func (r *running) serve(ctx context.Context, listeners []Listener) {
	for _, l := range listeners {
		d := &door{l: l, active: map[net.Conn]bool{}}
		d.srv = newHTTPServer(l.Handler, r.conns, r.api.BodyTimeout)
		d.srv.BaseContext = func(net.Listener) context.Context { return ctx }
		d.srv.ErrorLog = log.New(netLog{r.log}, "", 0)
		d.srv.ConnState = d.note
		if r.conns != nil {
			d.srv.ConnState = func(c net.Conn, s http.ConnState) { r.conns.ConnState(c, s); d.note(c, s) }
		}
		r.doors = append(r.doors, d)
		r.services.Go(func() {
			if err := d.srv.Serve(l.Listener); !errors.Is(err, http.ErrServerClosed) {
				r.fail(fmt.Errorf("server: serve %s: %w", l.Addr(), err))
			}
		})
	}
}

// A door is a listener that is served.
type door struct {
	l   Listener
	srv *http.Server

	mu     sync.Mutex
	active map[net.Conn]bool // connections with a request
}

func (d *door) note(c net.Conn, state http.ConnState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if delete(d.active, c); state == http.StateActive {
		d.active[c] = true
	}
}

func (d *door) quiet() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.active) == 0
}

// shut closes the listener, and the connections after their answers. Shutdown of
// http.Server would also wait for connections that never had a request.
func (d *door) shut(ctx context.Context) error {
	d.srv.SetKeepAlivesEnabled(false)
	if !until(ctx, 5*time.Millisecond, d.quiet) {
		return errors.Join(ctx.Err(), d.srv.Close())
	}
	return d.srv.Close()
}
