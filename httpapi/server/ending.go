package server

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/podyard/podyard/pods"
)

// An end coordinates the closing of runtimes while services still use them.
type end struct {
	mu       sync.Mutex
	begun    bool
	runtimes []*ending
	reported map[string]pods.ContainerState // containers that ended since begin
}

// begin marks the start of the end. From now on, services do not see errors of runtimes.
func (e *end) begin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begun, e.reported = true, map[string]pods.ContainerState{}
}

func (e *end) over() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.begun
}

// observe records a state that a runtime reports.
func (e *end) observe(st pods.ContainerState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.begun && st.Phase >= pods.PhaseExited {
		e.reported[st.PodID] = st
	}
}

// ended returns the containers that ended since begin.
func (e *end) ended() (list []pods.ContainerState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, st := range e.reported {
		list = append(list, st)
	}
	return list
}

// wrap wraps each runtime of hosts once, so that services do not see it fail when it
// closes.
func (e *end) wrap(hosts []pods.Host) []pods.Host {
	made := map[pods.Runtime]pods.Runtime{}
	wrapped := make([]pods.Host, len(hosts))
	for i, h := range hosts {
		wrapped[i] = h
		if !distinct(h.Runtime) {
			continue // pods.New returns the error
		}
		if made[h.Runtime] == nil {
			rt := &ending{Runtime: h.Runtime, end: e}
			e.runtimes = append(e.runtimes, rt)
			made[h.Runtime] = rt.withLogs()
		}
		wrapped[i].Runtime = made[h.Runtime]
	}
	return wrapped
}

// seen reports whether the services have received all states of closed runtimes.
func (e *end) seen(ctx context.Context) bool {
	for _, rt := range e.runtimes {
		if _, err := rt.Runtime.List(ctx); err != nil && rt.watched() {
			return false
		}
	}
	return true
}

// An ending is a runtime that does not look broken to services after the server has closed
// it. After that, a failed call waits until its context ends: the services stop soon, and
// the next server repeats the call.
type ending struct {
	pods.Runtime

	end     *end
	mu      sync.Mutex
	watches int
}

var (
	_ pods.Runtime   = (*ending)(nil)
	_ pods.LogReader = (*endingLogs)(nil)
)

// Unwrap implements the interface that pods.As uses.
func (e *ending) Unwrap() pods.Runtime { return e.Runtime }

func (e *ending) settle(ctx context.Context, err error) error {
	if err == nil || !e.end.over() {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// Ensure implements pods.Runtime.
func (e *ending) Ensure(ctx context.Context, s pods.Spec) error {
	return e.settle(ctx, e.Runtime.Ensure(ctx, s))
}

// Stop implements pods.Runtime. After the end has begun, it returns no error. A process has
// ended with its runtime. A container still runs, and its pod is still due to stop.
func (e *ending) Stop(ctx context.Context, podID string, grace time.Duration) error {
	if err := e.Runtime.Stop(ctx, podID, grace); err != nil && !e.end.over() {
		return err
	}
	return nil
}

// Remove implements pods.Runtime.
func (e *ending) Remove(ctx context.Context, podID string, grace time.Duration) error {
	return e.settle(ctx, e.Runtime.Remove(ctx, podID, grace))
}

// List implements pods.Runtime.
func (e *ending) List(ctx context.Context) ([]pods.ContainerState, error) {
	list, err := e.Runtime.List(ctx)
	return list, e.settle(ctx, err)
}

// Watch implements pods.Runtime.
func (e *ending) Watch(ctx context.Context, f func(pods.ContainerState)) error {
	e.watch(1)
	err := e.Runtime.Watch(ctx, func(st pods.ContainerState) {
		e.end.observe(st)
		f(st)
	})
	e.watch(-1)
	return e.settle(ctx, err)
}

func (e *ending) watch(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.watches += n
}

func (e *ending) watched() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.watches > 0
}

// withLogs returns e, with Logs if its runtime has logs.
func (e *ending) withLogs() pods.Runtime {
	if logs, ok := pods.As[pods.LogReader](e.Runtime); ok {
		return &endingLogs{e, logs}
	}
	return e
}

// An endingLogs is an ending with logs.
type endingLogs struct {
	*ending

	logs pods.LogReader
}

// Logs implements pods.LogReader. After the end has begun, a log that its runtime cuts off
// ends without an error.
func (e *endingLogs) Logs(ctx context.Context, podID string, q pods.LogQuery) iter.Seq2[pods.LogLine, error] {
	return func(yield func(pods.LogLine, error) bool) {
		for line, err := range e.logs.Logs(ctx, podID, q) {
			if err != nil && e.end.over() || !yield(line, err) {
				return
			}
		}
	}
}
