package podhost

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/pods"
)

// watched is a running Watch, and the runs in the changes that it got.
type watched struct {
	runs []uint64
	err  chan error
}

// watch returns after the Watch has started. Each call of its function waits for hold.
func watch(ctx context.Context, h *Hub, hold <-chan struct{}) *watched {
	w := &watched{err: make(chan error, 1)}
	go func() {
		w.err <- h.Watch(ctx, func(s pods.ContainerState) {
			w.runs = append(w.runs, s.Run)
			<-hold
		})
	}()
	synctest.Wait()
	return w
}

func ignore() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// ends checks the error of a Watch, and the changes before it.
func (w *watched) ends(t *testing.T, want error, runs ...uint64) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-w.err:
		if !errors.Is(err, want) {
			t.Errorf("Watch = %v, want %v", err, want)
		}
	default:
		t.Fatalf("Watch goes on, want %v", want)
	}
	if diff := cmp.Diff(runs, w.runs); diff != "" {
		t.Errorf("runs that Watch was told of (-want +got):\n%s", diff)
	}
}

func TestEveryWatcherHearsEverythingInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Hub
		hold := make(chan struct{})
		quick, slow := watch(t.Context(), &h, ignore()), watch(t.Context(), &h, hold)
		for run := range uint64(3) {
			h.Send(pods.ContainerState{Run: run})
		}
		closed := errors.New("closed")
		h.Close(closed)
		quick.ends(t, closed, 0, 1, 2)
		close(hold)
		slow.ends(t, closed, 0, 1, 2)
		watch(t.Context(), &h, ignore()).ends(t, closed)
	})
}

func TestWatchEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Hub
		ctx, cancel := context.WithCancel(t.Context())
		hold := make(chan struct{})
		idle, busy := watch(ctx, &h, ignore()), watch(ctx, &h, hold)
		h.Send(pods.ContainerState{Run: 1})
		synctest.Wait()
		h.Send(pods.ContainerState{Run: 2})
		synctest.Wait()
		cancel()
		idle.ends(t, context.Canceled, 1, 2)
		close(hold)
		busy.ends(t, context.Canceled, 1)
		if len(h.watchers) != 0 {
			t.Errorf("%d watchers are left, want none", len(h.watchers))
		}
	})
}

func TestAWatcherThatDoesNotKeepUpIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Hub
		hold := make(chan struct{})
		w := watch(t.Context(), &h, hold)
		h.Send(pods.ContainerState{Run: 1})
		synctest.Wait()
		for range maxQueued + 1 {
			h.Send(pods.ContainerState{Run: 2})
		}
		close(hold)
		w.ends(t, ErrSlowWatcher, 1)
	})
}

func TestWhatIsLostEndsEveryWatchUntilItIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Hub
		w := watch(t.Context(), &h, ignore())
		h.Send(pods.ContainerState{Run: 1})
		lost := errors.New("lost")
		h.Disconnect(lost)
		w.ends(t, lost, 1)
		watch(t.Context(), &h, ignore()).ends(t, lost)
		h.Reconnect()
		w = watch(t.Context(), &h, ignore())
		h.Send(pods.ContainerState{Run: 2})
		closed := errors.New("closed")
		h.Close(closed)
		w.ends(t, closed, 2)
	})
}

func TestWatchersShareNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Hub
		closed := errors.New("closed")
		for range 2 {
			go func() {
				_ = h.Watch(t.Context(), func(s pods.ContainerState) { // Close ends it
					if s.Ports[0].Public != 1 {
						t.Error("another watcher changed what this one was told")
					}
					s.Ports[0].Public = 2
				})
			}()
		}
		synctest.Wait()
		s := pods.ContainerState{Ports: []pods.PortMapping{{Public: 1}}}
		h.Send(s)
		h.Close(closed)
		synctest.Wait()
		if s.Ports[0].Public != 1 {
			t.Error("a watcher changed what was sent")
		}
	})
}
