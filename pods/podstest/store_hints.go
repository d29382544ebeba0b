package podstest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/podyard/podyard/pods"
)

func hintCases() []StoreCase {
	return []StoreCase{{
		"WatchTellsAfterTheFact",
		"a watcher is told of a pod after its creation, change and deletion are visible",
		func(t *testing.T, s pods.PodStore) {
			w := watchStore(t, s)
			create(t, s, minimalPod("a", "o", 0))
			w.until(t, "a", func() bool { _, err := s.Get(t.Context(), "a"); return err == nil })
			if _, err := s.Update(t.Context(), "a", func(p *pods.Pod) error { p.Name = "new"; return nil }); err != nil {
				t.Fatal(err)
			}
			w.until(t, "a", func() bool { p, err := s.Get(t.Context(), "a"); return err == nil && p.Name == "new" })
			if err := s.Delete(t.Context(), "a", nil); err != nil {
				t.Fatal(err)
			}
			w.until(t, "a", func() bool { _, err := s.Get(t.Context(), "a"); return errors.Is(err, pods.ErrNotFound) })
		},
	}, {
		"WatchTellsOfWhatIsFreeAgain",
		"a watcher is told of a holder after what it had was released",
		func(t *testing.T, s pods.PodStore) {
			w := watchStore(t, s)
			reserve(t, s, newReservation("w", claim("r", 1, 1)))
			release(t, s, "w")
			w.until(t, "w", func() bool { n, err := s.Claimed(t.Context(), "r"); return err == nil && n == 0 })
		},
	}, {
		"WatchEndsWithItsContext",
		"Watch returns the error of its context when that ends, and other watchers go on",
		func(t *testing.T, s pods.PodStore) {
			first, second := watchStore(t, s), watchStore(t, s)
			first.cancel()
			if err := first.ended(t); !errors.Is(err, context.Canceled) {
				t.Errorf("Watch = %v, want context.Canceled", err)
			}
			create(t, s, minimalPod("a", "o", 0))
			second.until(t, "a", func() bool { return true })
		},
	}}
}

// hintTimeout is how long the suite waits for a hint.
const hintTimeout = 30 * time.Second

// hintRecorder records what a Watch reports.
type hintRecorder struct {
	cancel   context.CancelFunc
	received chan []string
	err      chan error
}

// watchStore starts a Watch and returns when it works: it has reported a pod that was changed
// for that.
func watchStore(t *testing.T, s pods.PodStore) *hintRecorder {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &hintRecorder{cancel: cancel, received: make(chan []string, 10_000), err: make(chan error, 1)}
	go func() { w.err <- s.Watch(ctx, func(ids []string) { w.received <- slices.Clone(ids) }) }()
	t.Cleanup(cancel)
	probe := minimalPod("probe", "suite", 0)
	if err := s.Create(t.Context(), probe); err != nil && !errors.Is(err, pods.ErrExists) {
		t.Fatal(err)
	}
	for waited := time.Duration(0); waited < hintTimeout; waited += pollInterval {
		if _, err := s.Update(t.Context(), "probe", func(p *pods.Pod) error { p.Want.Run++; return nil }); err != nil {
			t.Fatal(err)
		}
		again := time.NewTimer(pollInterval)
		select {
		case <-w.received:
			again.Stop()
			return w
		case <-again.C:
		}
	}
	t.Fatalf("waited %s for Watch to tell of anything", hintTimeout)
	return nil
}

// until waits for a hint about id after which done holds. A nil hint is about everything.
func (w *hintRecorder) until(t *testing.T, id string, done func() bool) {
	t.Helper()
	late := time.NewTimer(hintTimeout)
	defer late.Stop()
	for {
		select {
		case ids := <-w.received:
			if (ids == nil || slices.Contains(ids, id)) && done() {
				return
			}
		case <-late.C:
			t.Fatalf("waited %s for Watch to tell of pod %q after its change", hintTimeout, id)
		}
	}
}

func (w *hintRecorder) ended(t *testing.T) error {
	t.Helper()
	late := time.NewTimer(hintTimeout)
	defer late.Stop()
	select {
	case err := <-w.err:
		return err
	case <-late.C:
		t.Fatalf("waited %s for Watch to end with its context", hintTimeout)
		return nil
	}
}
