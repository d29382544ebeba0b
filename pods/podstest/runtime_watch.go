package podstest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/podyard/podyard/pods"
)

func watchCases() []RuntimeCase {
	return []RuntimeCase{{
		"WatchTellsEveryChangeInOrder",
		"a watcher sees a pod come Up, go Down and come Up again, in this order and the end as List has it",
		func(t *testing.T, h Harness) {
			w := h.watch(t)
			s := h.pod(t, h.Programs.Runs)
			h.up(t, s)
			h.stop(t, s.PodID, time.Second)
			h.await(t, s, pods.PhaseExited)
			s.Run = 2
			h.up(t, s)
			s.Gen, s.Run = 2, 3
			last := h.up(t, s)

			type step struct {
				gen, run uint64
				phase    pods.Phase
			}
			var steps []step
			h.until(t, "for the watcher to see generation 2 Up", func() bool {
				steps = nil
				for _, c := range w.of(s.PodID) {
					steps = append(steps, step{c.Gen, c.Run, c.Phase})
				}
				return slices.Contains(steps, step{2, 3, pods.PhaseHealthy})
			})
			at := 0
			for _, want := range []step{{1, 1, pods.PhaseHealthy}, {1, 1, pods.PhaseExited}, {1, 2, pods.PhaseHealthy}, {2, 3, pods.PhaseHealthy}} {
				i := slices.Index(steps[at:], want)
				if i < 0 {
					t.Fatalf("no %+v among the changes %+v", want, steps[at:])
				}
				at += i + 1
			}
			for i := 1; i < len(steps); i++ {
				if steps[i].run < steps[i-1].run {
					t.Errorf("change %+v comes after %+v", steps[i], steps[i-1])
				}
			}
			changes := w.of(s.PodID)
			if got := changes[len(changes)-1]; got.Phase != last.Phase || got.Run != last.Run {
				t.Errorf("last change is %+v, List has %+v", got, last)
			}
		},
	}, {
		"WatchTellsFailuresAndExits",
		"a watcher sees how a pod failed or ended, as List has it",
		func(t *testing.T, h Harness) {
			w := h.watch(t)
			s := h.exits(t, 7)
			h.ensure(t, s)
			h.await(t, s, pods.PhaseExited)
			h.until(t, "for the watcher to see the exit", func() bool {
				return slices.ContainsFunc(w.of(s.PodID), func(c pods.ContainerState) bool {
					return c.Phase == pods.PhaseExited && c.ExitCode == 7 && !c.Stopped
				})
			})
			if h.Programs.Missing == nil {
				return
			}
			m := h.pod(t, h.Programs.Missing)
			h.ensure(t, m)
			h.until(t, "for the watcher to see the failure", func() bool {
				return slices.ContainsFunc(w.of(m.PodID), func(c pods.ContainerState) bool {
					return c.Phase == pods.PhaseFailed && c.Reason != ""
				})
			})
		},
	}, {
		"WatchersDoNotDisturbEachOther",
		"there may be several watchers; the end of one is not the end of another",
		func(t *testing.T, h Harness) {
			first, second := h.watch(t), h.watch(t)
			first.end(t, h)
			s := h.pod(t, h.Programs.Runs)
			h.up(t, s)
			h.until(t, "for the other watcher to see the pod Up", func() bool {
				return slices.ContainsFunc(second.of(s.PodID), func(c pods.ContainerState) bool { return c.Phase == pods.PhaseHealthy })
			})
			if got := first.of(s.PodID); len(got) > 0 {
				t.Errorf("a watcher that has ended was told %+v", got)
			}
		},
	}, {
		"WatchEndsWithItsContext",
		"Watch returns the error of its context when that ends, at once when it has",
		func(t *testing.T, h Harness) {
			h.watch(t).end(t, h)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := h.Runtime.Watch(ctx, func(pods.ContainerState) {}); !errors.Is(err, context.Canceled) {
				t.Errorf("Watch with an ended context = %v, want context.Canceled", err)
			}
		},
	}}
}

// A watchRecorder records what a Watch reports.
type watchRecorder struct {
	cancel context.CancelFunc
	err    chan error

	mu     sync.Mutex
	states []pods.ContainerState
}

// watch starts a Watch and returns when it works: it has reported a pod that was made for that.
func (h Harness) watch(t *testing.T) *watchRecorder {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watchRecorder{cancel: cancel, err: make(chan error, 1)}
	go func() {
		w.err <- h.Runtime.Watch(ctx, func(s pods.ContainerState) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.states = append(w.states, s)
		})
	}()
	t.Cleanup(cancel)
	probe := h.pod(t, h.Programs.Runs)
	h.until(t, "for Watch to tell of anything", func() bool {
		h.up(t, probe)
		probe.Run++
		return len(w.of(probe.PodID)) > 0
	})
	return w
}

func (w *watchRecorder) of(id string) (told []pods.ContainerState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.states {
		if s.PodID == id {
			told = append(told, s)
		}
	}
	return told
}

func (w *watchRecorder) end(t *testing.T, h Harness) {
	t.Helper()
	w.cancel()
	h.until(t, "for Watch to end with its context", func() bool {
		select {
		case err := <-w.err:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Watch = %v, want context.Canceled", err)
			}
			return true
		default:
			return false
		}
	})
}
