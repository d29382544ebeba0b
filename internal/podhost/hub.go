package podhost

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/podyard/podyard/pods"
)

// backlog is how many changes may wait for one watcher before it is told to List again.
const backlog = 1 << 14

// ErrBehind is what Watch returns when its function is so slow that thousands of changes
// wait.
var ErrBehind = errors.New("too many changes wait, list again")

// A Hub hands changes to watchers, to each in the order of Send. The zero value has none.
// It is safe for concurrent use.
type Hub struct {
	mu       sync.Mutex
	watchers []*watcher
	lost     error // changes may be missed, until Found
	closed   error
}

type watcher struct {
	queue []pods.State // guarded by Hub.mu
	lost  error
	wake  chan struct{} // holds one token while there is something to look at
}

// Send never waits: each watcher has a queue. Watchers get copies of s.
func (h *Hub) Send(s pods.State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.watchers {
		if len(w.queue) >= backlog {
			w.queue, w.lost = nil, ErrBehind
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
// what was sent before; or ErrBehind.
func (h *Hub) Watch(ctx context.Context, f func(pods.State)) error {
	w := h.join()
	defer h.drop(w)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wake:
		}
		queue, err := h.next(w)
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

func (h *Hub) join() *watcher {
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

// next is what waits for w, and the error after it that ends the watch.
func (h *Hub) next(w *watcher) ([]pods.State, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	queue := w.queue
	w.queue = nil
	if w.lost != nil {
		return queue, w.lost
	}
	return queue, h.closed
}

func (h *Hub) drop(w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers = slices.DeleteFunc(h.watchers, func(o *watcher) bool { return o == w })
}

// Lose ends every Watch with err, and those to come until Found: changes may be missed.
func (h *Hub) Lose(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = err
	for _, w := range h.watchers {
		w.lost = err
		w.signal()
	}
}

// Found takes back Lose, for every Watch that begins from now on.
func (h *Hub) Found() {
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
func CopyState(s pods.State) pods.State {
	s.Ports = slices.Clone(s.Ports)
	return s
}
