package pods

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods/telemetry"
)

// Run brings the hosts to the desired state of the pods until ctx ends. It returns nil when
// everything that it started has ended. Do not use Run and Step together.
func (s *Service) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	defer func() {
		cancel()
		s.loop.wg.Wait()
		watchers.Wait()
	}()
	if s.shared != nil {
		if err := s.refreshHosts(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "pods: look at the hosts of all servers", "err", err)
		}
		watchers.Go(func() { s.shareHosts(ctx) })
	}
	watchers.Go(func() { s.watchStore(ctx) })
	for _, src := range s.openSources() {
		watchers.Go(func() { s.watchSource(ctx, src) })
	}
	var next time.Time
	for {
		due := next
		var err error
		next, err = s.dispatch(ctx, s.clock.Now)
		if ctx.Err() != nil {
			return nil
		}
		s.observeLoop(telemetry.LoopPods, "", due, err)
		if err != nil {
			// Wait for that time even when woken: the call that failed has also woken this
			// loop.
			s.log.WarnContext(ctx, "pods: look for work", "err", err)
			_ = s.sleep(ctx, next.Sub(s.clock.Now()), nil)
			continue
		}
		stop := func() bool { return true }
		if !next.IsZero() {
			stop = s.clock.AfterFunc(clock.Within(s.clock, next), s.loop.signal)
		}
		select {
		case <-s.loop.wake:
		case <-ctx.Done():
		}
		stop()
	}
}

// Step does everything that is due at now, waits for the calls it made, and returns when the
// next work is due; zero when nothing is scheduled.
//
// A runtime without the interface Notifier is listed at each Step.
func (s *Service) Step(ctx context.Context, now time.Time) (next time.Time, err error) {
	if err := s.refreshHosts(ctx); err != nil {
		s.log.WarnContext(ctx, "pods: look at the hosts of all servers", "err", err)
	}
	for _, src := range s.openSources() {
		if err := s.relist(ctx, src); err != nil {
			s.log.WarnContext(ctx, "pods: list containers", "err", err)
		}
	}
	for {
		next, err = s.dispatch(ctx, func() time.Time { return now })
		if err != nil {
			return next, err
		}
		s.loop.wg.Wait()
		s.loop.mu.Lock()
		idle := len(s.loop.ready) == 0 && !s.loop.capacityFreed
		s.loop.mu.Unlock()
		if idle {
			return s.loop.enqueueDue(now), ctx.Err()
		}
	}
}

// dispatch starts the work there is and does not wait for it. With an error, next is when to
// try again.
func (s *Service) dispatch(ctx context.Context, now func() time.Time) (next time.Time, err error) {
	if err := s.initialSync(ctx); err != nil {
		return now().Add(retryMin), err
	}
	if err := s.resyncLostHints(ctx); err != nil {
		return now().Add(retryMin), err
	}
	next = s.loop.enqueueDue(now())
	if err := s.placeWaiting(ctx, now()); err != nil {
		s.log.WarnContext(ctx, "pods: place waiting pods", "err", err)
		s.loop.scheduleAt(waitingPodsKey, now().Add(retryMin))
		next = now().Add(retryMin)
	}
	for {
		it := s.loop.pop()
		if it == nil {
			return next, ctx.Err()
		}
		select {
		case s.loop.slots <- struct{}{}:
		case <-ctx.Done():
			s.loop.retain(it)
			s.loop.push(it.id, nil)
			s.loop.done(it.id)
			return next, ctx.Err()
		}
		s.loop.wg.Go(func() {
			defer func() { <-s.loop.slots; s.loop.done(it.id) }()
			t := now()
			if err := s.sync(ctx, it, t); err != nil {
				if ctx.Err() == nil {
					s.log.WarnContext(ctx, "pods: look after a pod", "pod", it.id, "err", err)
					s.observeLoop(telemetry.LoopPods, "", time.Time{}, err)
				}
				s.loop.retain(it)
				s.loop.scheduleAt(it.id, t.Add(retryMin))
			}
		})
	}
}

// A runtimeSource is a runtime with the hosts that share it.
type runtimeSource struct {
	rt     Runtime
	hosts  []*Host
	listed bool          // it has been listed once, by a server that has its hosts
	again  chan struct{} // a host of it was leased
}

// openSources subscribes to the runtimes that report changes, once, and returns the others,
// which must be watched or listed.
func (s *Service) openSources() (silent []*runtimeSource) {
	if s.loop.sources == nil {
		for _, h := range s.order {
			s.loop.addHost(h)
		}
		for _, src := range s.loop.sources {
			if n, ok := As[Notifier](src.rt); ok {
				n.Notify(s.enqueueState)
			}
		}
	}
	for _, src := range s.loop.sources {
		if _, ok := As[Notifier](src.rt); !ok {
			silent = append(silent, src)
		}
	}
	return silent
}

// listAgain makes the goroutine that watches the runtime list it, if again is set.
func (src *runtimeSource) listAgain(again bool) {
	if !again {
		return
	}
	select {
	case src.again <- struct{}{}:
	default:
	}
}

func (l *loop) addHost(h *Host) {
	for _, src := range l.sources {
		if sameRuntime(src.rt, h.Runtime) {
			src.hosts = append(src.hosts, h)
			return
		}
	}
	l.sources = append(l.sources, &runtimeSource{rt: h.Runtime, hosts: []*Host{h}, again: make(chan struct{}, 1)})
}

// initialSync enqueues everything, once: the containers of the runtimes that report changes,
// and every pod of the store.
func (s *Service) initialSync(ctx context.Context) error {
	again := s.loop.takeBegin()
	if s.loop.synced && !again {
		return nil
	}
	if err := s.enqueueAll(ctx); err != nil {
		return err
	}
	for _, src := range s.loop.sources {
		if _, ok := As[Notifier](src.rt); !ok {
			src.listAgain(again)
			continue
		}
		src.listed = src.listed && !again
		if err := s.relist(ctx, src); err != nil {
			return err
		}
	}
	s.loop.synced = true
	return nil
}

func (s *Service) enqueueAll(ctx context.Context) error {
	for p, err := range s.store.List(ctx, Filter{}) {
		if err != nil {
			return fmt.Errorf("pods: list all: %w", err)
		}
		s.loop.push(p.ID, nil)
	}
	return nil
}

// resyncLostHints enqueues everything when hints of the store were lost.
func (s *Service) resyncLostHints(ctx context.Context) error {
	s.loop.mu.Lock()
	gap := s.loop.hintsLost
	s.loop.hintsLost = false
	s.loop.mu.Unlock()
	if !gap {
		return nil
	}
	s.loop.noteCapacityFreed()
	err := s.enqueueAll(ctx)
	if err != nil {
		s.loop.mu.Lock()
		s.loop.hintsLost = true
		s.loop.mu.Unlock()
	}
	return err
}

// enqueueState enqueues a pod with the state that a runtime reported.
func (s *Service) enqueueState(st ContainerState) {
	s.loop.push(st.PodID, func(it *workItem) { it.states = append(it.states, st) })
}

// relist compares the containers of a runtime with the pods of the store. It reads the store
// first, so that a container that is made in between is not taken for missing. Hosts that another
// server has are left alone.
func (s *Service) relist(ctx context.Context, src *runtimeSource) error {
	should, hosts := make(map[string]*Pod), s.ownedOf(src)
	if len(hosts) == 0 {
		return nil
	}
	for _, h := range hosts {
		for p, err := range s.store.List(ctx, Filter{Host: h.ID}) {
			if err != nil {
				return fmt.Errorf("pods: list host %q: %w", h.ID, err)
			}
			should[p.ID] = p
		}
	}
	states, err := s.listContainers(ctx, src.hosts[0].ID, src.rt)
	if err != nil {
		return fmt.Errorf("pods: list containers: %w", err)
	}
	for _, st := range states {
		if p := should[st.PodID]; p != nil && p.hostIsBehind(st, !src.listed) {
			continue
		}
		delete(should, st.PodID)
		s.loop.push(st.PodID, func(it *workItem) { it.states, it.source = append(it.states, st), src })
	}
	for id, p := range should {
		s.loop.push(id, func(it *workItem) { it.missingAt = &p.Seen })
	}
	src.listed = true
	return nil
}

// watchStore turns the store's hints into work until ctx ends.
func (s *Service) watchStore(ctx context.Context) {
	s.retryForever(ctx, "watch the store", telemetry.LoopPods, "", func() error {
		return s.store.Watch(ctx, func(ids []string) {
			if ids == nil {
				s.loop.mu.Lock()
				s.loop.hintsLost = true
				s.loop.mu.Unlock()
				s.loop.signal()
				s.subscribers.notifyAll()
				return
			}
			s.notifyChanged(ids...)
		})
	})
}

// watchSource follows a runtime until ctx ends.
func (s *Service) watchSource(ctx context.Context, src *runtimeSource) {
	s.retryForever(ctx, "watch a runtime", telemetry.LoopWatch, src.hosts[0].ID, func() error {
		inner, cancel := context.WithCancel(ctx)
		var watch sync.WaitGroup
		defer watch.Wait()
		defer cancel()
		ended := make(chan error, 1)
		begun := make(chan struct{})
		watch.Go(func() {
			close(begun)
			ended <- src.rt.Watch(inner, s.enqueueState)
		})
		<-begun
		// A change between the first list and the start of the watch shows in the second.
		for _, later := range []time.Duration{0, time.Second} {
			if err := s.sleep(inner, later, ended); err != nil {
				return err
			}
			if err := s.relist(ctx, src); err != nil {
				return err
			}
		}
		return s.relistAgain(ctx, src, ended)
	})
}

// relistAgain lists a runtime when this server has got one of its hosts, until ended.
func (s *Service) relistAgain(ctx context.Context, src *runtimeSource, ended <-chan error) error {
	for {
		select {
		case err := <-ended:
			return err
		case <-src.again:
		}
		src.listed = false
		if err := s.relist(ctx, src); err != nil {
			return err
		}
	}
}

// sleep waits for d on the service's clock, or until ctx or ended is over.
func (s *Service) sleep(ctx context.Context, d time.Duration, ended <-chan error) error {
	if d == 0 {
		return nil
	}
	over := make(chan struct{})
	stop := s.clock.AfterFunc(s.clock.Now().Add(d), func() { close(over) })
	defer stop()
	select {
	case <-over:
		return nil
	case err := <-ended:
		return errors.Join(err, errEnded)
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errEnded = errors.New("pods: the watch has ended")

// retryForever calls fn again and again, with pauses that grow, until ctx ends.
func (s *Service) retryForever(ctx context.Context, what, loop, host string, fn func() error) {
	for tries := 1; ctx.Err() == nil; tries++ {
		began := s.clock.Now()
		err := fn()
		if ctx.Err() != nil {
			return
		}
		if s.clock.Now().Sub(began) > retryMax {
			tries = 1
		}
		s.log.WarnContext(ctx, "pods: "+what, "err", err)
		s.observeLoop(loop, host, time.Time{}, err)
		_ = s.sleep(ctx, backoff(tries), nil)
	}
}

// Pauses between the attempts of one call.
const (
	retryMin = time.Second
	retryMax = time.Minute
)

func backoff(tries int) time.Duration {
	return min(retryMin<<min(tries-1, 10), retryMax)
}
