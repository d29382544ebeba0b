package podhost

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/podyard/podyard/pods"
)

// maxQueued is how many changes may wait for one watcher before it is told to List again.
const maxQueued = 1 << 14

// ErrSlowWatcher is what Watch returns when its function is so slow that thousands of changes
// wait.
var ErrSlowWatcher = errors.New("too many changes wait, list again")

// A Hub hands changes to watchers, to each in the order of Send. The zero value has none.
// It is safe for concurrent use.
type Hub struct {
	mu       sync.Mutex
	watchers []*watcher
	lost     error // changes may be missed, until Found
	closed   error
}

type watcher struct {
	queue []pods.ContainerState // guarded by Hub.mu
	lost  error
	wake  chan struct{} // holds one token while there is something to look at
}

// Send never waits: each watcher has a queue. Watchers get copies of s.
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

// Watch calls f, one call at a time, with every change that is sent from now on. It
// returns the error of ctx, of Close or of Lose, the latter two after f was called with
// what was sent before; or ErrSlowWatcher.
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

// takeQueue is what waits for w, and the error after it that ends the watch.
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

// Disconnect ends every Watch with err, and those to come until Found: changes may be missed.
func (h *Hub) Disconnect(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = err
	for _, w := range h.watchers {
		w.lost = err
		w.signal()
	}
}

// Reconnect takes back Lose, for every Watch that begins from now on.
func (h *Hub) Reconnect() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = nil
}

// Close ends every Watch with err, also those to come.
func (h *Hub) Close(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = err
	for _, w := range h.watchers {
		w.signal()
	}
}

// CopyState keeps a receiver from sharing what another one may change.
func CopyState(s pods.ContainerState) pods.ContainerState {
	s.Ports = slices.Clone(s.Ports)
	return s
}
