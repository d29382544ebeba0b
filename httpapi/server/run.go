package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/podyard/podyard/pods"
)

// What the end takes besides Options.Drain, at most.
const (
	podsTime    = 2 * time.Second        // for runtimes to close, and services to note it
	readersTime = 250 * time.Millisecond // for readers to read the rest
	answerTime  = time.Second            // for what is held to be answered
)

// Run lets the service work and serves the listeners, until ctx ends; then it ends
// everything in the order that the package comment has, and returns nil. It is called once.
//
// A service or a listener that ends by itself ends the server in the same order, and its
// error is returned; so is that of a store or a runtime that does not close. Run closes the
// listeners in any case.
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
	s.leaving.Store(true)
	if err == nil {
		err = r.linger(s.wait)
	}
	drain, cancel := context.WithTimeout(work, s.drain)
	defer cancel()
	late, cancel := context.WithTimeout(work, s.drain+podsTime)
	defer cancel()
	s.gate.drain()
	stopPull()
	r.workers.Wait()
	s.finish(drain)
	err = errors.Join(err, s.endRuntimes(late))
	s.lastReads(work)
	s.gate.close()
	letGo()
	r.answer(work)
	stopWork()
	r.services.Wait()
	return errors.Join(err, s.closeStores())
}

func closeListeners(list []Listener) error {
	var errs []error
	for _, l := range list {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// A running is what one Run has started.
type running struct {
	*Server

	failed   chan error // the first error that ends the server
	services sync.WaitGroup
	workers  sync.WaitGroup
	doors    []*door
}

// linger lets everything go on for d, or until something ends the server with an error.
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

// fail ends the server with an error.
func (r *running) fail(err error) {
	select {
	case r.failed <- err:
	default: // it ends already
	}
}

// start has the services work until ctx ends.
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
	if r.Server.services.Pods != nil {
		run("pods", r.Server.services.Pods.Run)
	}
	if r.Server.services.Jobs != nil {
		run("jobs", r.Server.services.Jobs.Run)
	}
	if r.stores.Run != nil {
		run("stores", r.stores.Run)
	}
}

var errEarly = errors.New("it is needed until the end")

// startWorkers has the workers of this process take jobs until ctx ends.
func (r *running) startWorkers(ctx context.Context) {
	for _, w := range r.Server.workers {
		w.Options.Drain = first(w.Options.Drain, r.drain)
		r.workers.Go(func() {
			if err := r.Server.services.Jobs.Serve(ctx, w.Endpoint, w.Worker, &w.Options); err != nil && ctx.Err() == nil {
				r.fail(fmt.Errorf("server: %w", err))
			}
		})
	}
}

// finish returns when no job is in progress, or when ctx ends. Workers get no other jobs
// meanwhile; it looks twice, because one may just have been given a job when the drain
// began.
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

// busy are the endpoints with jobs in progress.
func (s *Server) busy(ctx context.Context) (ids []string) {
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

// works reports whether an endpoint has jobs in progress, as far as the store can be asked.
func (s *Server) works(ctx context.Context, endpoint string) bool {
	h, err := s.services.Jobs.Health(ctx, endpoint)
	return err == nil && h.Jobs.Running > 0
}

// endRuntimes closes the runtimes and returns when the services have noted what became of
// their containers, or when ctx ends; then the runtimes' own records tell the next server.
func (s *Server) endRuntimes(ctx context.Context) error {
	s.end.begin()
	err := s.closeRuntimes(ctx)
	ctx, cancel := context.WithTimeout(ctx, podsTime)
	defer cancel()
	until(ctx, 10*time.Millisecond, func() bool { return s.end.told(ctx) && s.noted(ctx) })
	return err
}

// noted reports whether the store of pods has the end of every container that ended.
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

// lastReads gives those who read what comes the time to read the rest.
func (s *Server) lastReads(ctx context.Context) {
	if !s.gate.read() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readersTime)
	defer cancel()
	<-ctx.Done()
}

// answer returns when everything that was asked is answered, or has to be given up, and
// nothing is listened to any more.
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

// until asks again and again, and reports false when ctx ended first.
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

// serve has the listeners served. Requests have ctx, which ends when they are let go.
func (r *running) serve(ctx context.Context, listeners []Listener) {
	for _, l := range listeners {
		d := &door{l: l, active: map[net.Conn]bool{}}
		d.srv = &http.Server{
			Handler: l.Handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
			BaseContext: func(net.Listener) context.Context { return ctx },
			ConnState:   d.note,
			ErrorLog:    slog.NewLogLogger(r.log.Handler(), slog.LevelWarn),
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
	active map[net.Conn]bool // those with a request
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

// shut closes the listener and its connections, each when it is answered. http.Server's own
// Shutdown would wait for connections that were opened and never used.
func (d *door) shut(ctx context.Context) error {
	d.srv.SetKeepAlivesEnabled(false)
	if !until(ctx, 5*time.Millisecond, d.quiet) {
		return errors.Join(ctx.Err(), d.srv.Close())
	}
	return d.srv.Close()
}
