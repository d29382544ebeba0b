package podhost

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/podyard/podyard/pods"
)

// maxQueued is how many changes may wait for one watcher. After that, its Watch ends with
// ErrSlowWatcher.
const maxQueued = 1 << 14

// ErrSlowWatcher is the error of a Watch whose function is so slow that maxQueued changes
// wait.
var ErrSlowWatcher = errors.New("too many changes wait, list again")

// A Hub sends changes to watchers, to each in the order of Send. The zero value has no
// watchers. It is safe for concurrent use.
type Hub struct {
	mu       sync.Mutex
	watchers []*watcher
	lost     error // changes may be missed until Reconnect
	closed   error
}

type watcher struct {
	queue []pods.ContainerState // guarded by Hub.mu
	lost  error
	wake  chan struct{} // has one token while there is something to read
}

// Send queues a copy of s for each watcher. It never blocks.
func (h *Hub) Send(s pods.ContainerState) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.watchers {
		if len(w.queue) >= maxQueued {
			w.queue, w.lost = nil, ErrSlowWatcher
		}
		if w.lost == nil {
			w.queue = append(w.queue, CopyState(s))
		}
		w.signal()
	}
}

func (w *watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Watch calls f, one call at a time, with every change sent from now on. It returns the
// error of ctx, of Close or of Disconnect, or ErrSlowWatcher. Before it returns an error of
// Close or Disconnect, f gets the changes that were sent before.
func (h *Hub) Watch(ctx context.Context, f func(pods.ContainerState)) error {
	w := h.addWatcher()
	defer h.removeWatcher(w)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wake:
		}
		queue, err := h.takeQueue(w)
		for _, s := range queue {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			f(s)
		}
		if err != nil {
			return err
		}
	}
}

func (h *Hub) addWatcher() *watcher {
	w := &watcher{wake: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers = append(h.watchers, w)
	w.lost = h.lost
	if h.lost != nil || h.closed != nil {
		w.signal()
	}
	return w
}

// takeQueue returns the waiting changes of w, and the error that ends the watch after them.
func (h *Hub) takeQueue(w *watcher) ([]pods.ContainerState, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	queue := w.queue
	w.queue = nil
	if w.lost != nil {
		return queue, w.lost
	}
	return queue, h.closed
}

func (h *Hub) removeWatcher(w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers = slices.DeleteFunc(h.watchers, func(o *watcher) bool { return o == w })
}

// Disconnect ends every Watch with err because changes may be missed. New calls of Watch
// fail with err until Reconnect.
func (h *Hub) Disconnect(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = err
	for _, w := range h.watchers {
		w.lost = err
		w.signal()
	}
}

// Reconnect ends the effect of Disconnect on new calls of Watch.
func (h *Hub) Reconnect() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = nil
}

// Close ends every Watch with err, also later ones.
func (h *Hub) Close(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = err
	for _, w := range h.watchers {
		w.signal()
	}
}

// CopyState returns a copy of s that shares no slice with it.
func CopyState(s pods.ContainerState) pods.ContainerState {
	s.Ports = slices.Clone(s.Ports)
	return s
}
