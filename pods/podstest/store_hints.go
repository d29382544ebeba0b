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
		func(t *testing.T, s pods.Store) {
			w := watchStore(t, s)
			create(t, s, bare("a", "o", 0))
			w.until(t, "a", func() bool { _, err := s.Get(t.Context(), "a"); return err == nil })
			if _, err := s.Update(t.Context(), "a", func(p *pods.Pod) error { p.Name = "new"; return nil }); err != nil {
				t.Fatal(err)
			}
			w.until(t, "a", func() bool { p, err := s.Get(t.Context(), "a"); return err == nil && p.Name == "new" })
			if err := s.Delete(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			w.until(t, "a", func() bool { _, err := s.Get(t.Context(), "a"); return errors.Is(err, pods.ErrNotFound) })
		},
	}, {
		"WatchTellsOfWhatIsFreeAgain",
		"a watcher is told of a holder after what it had was released",
		func(t *testing.T, s pods.Store) {
			w := watchStore(t, s)
			hold(t, s, held("w", claim("r", 1, 1)))
			release(t, s, "w")
			w.until(t, "w", func() bool { n, err := s.Used(t.Context(), "r"); return err == nil && n == 0 })
		},
	}, {
		"WatchEndsWithItsContext",
		"Watch returns the error of its context when that ends, and other watchers go on",
		func(t *testing.T, s pods.Store) {
			first, second := watchStore(t, s), watchStore(t, s)
			first.cancel()
			if err := first.ended(t); !errors.Is(err, context.Canceled) {
				t.Errorf("Watch = %v, want context.Canceled", err)
			}
			create(t, s, bare("a", "o", 0))
			second.until(t, "a", func() bool { return true })
		},
	}}
}

// storePatience is how long the suite waits for a hint.
const storePatience = 30 * time.Second

// hints is a Watch and what it was told.
type hints struct {
	cancel context.CancelFunc
	told   chan []string
	err    chan error
}

// watchStore starts a Watch and returns when it is known to watch: it was told of a pod
// that is changed for that.
func watchStore(t *testing.T, s pods.Store) *hints {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &hints{cancel: cancel, told: make(chan []string, 10_000), err: make(chan error, 1)}
	go func() { w.err <- s.Watch(ctx, func(ids []string) { w.told <- slices.Clone(ids) }) }()
	t.Cleanup(cancel)
	probe := bare("probe", "suite", 0)
	if err := s.Create(t.Context(), probe); err != nil && !errors.Is(err, pods.ErrExists) {
		t.Fatal(err)
	}
	for waited := time.Duration(0); waited < storePatience; waited += tick {
		if _, err := s.Update(t.Context(), "probe", func(p *pods.Pod) error { p.Want.Run++; return nil }); err != nil {
			t.Fatal(err)
		}
		again := time.NewTimer(tick)
		select {
		case <-w.told:
			again.Stop()
			return w
		case <-again.C:
		}
	}
	t.Fatalf("waited %s for Watch to tell of anything", storePatience)
	return nil
}

// until waits for a hint at id at which done holds. A nil hint is one at everything.
func (w *hints) until(t *testing.T, id string, done func() bool) {
	t.Helper()
	late := time.NewTimer(storePatience)
	defer late.Stop()
	for {
		select {
		case ids := <-w.told:
			if (ids == nil || slices.Contains(ids, id)) && done() {
				return
			}
		case <-late.C:
			t.Fatalf("waited %s for Watch to tell of pod %q after its change", storePatience, id)
		}
	}
}

func (w *hints) ended(t *testing.T) error {
	t.Helper()
	late := time.NewTimer(storePatience)
	defer late.Stop()
	select {
	case err := <-w.err:
		return err
	case <-late.C:
		t.Fatalf("waited %s for Watch to end with its context", storePatience)
		return nil
	}
}
