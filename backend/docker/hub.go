package docker

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/podyard/podyard/pods"
)

// backlog is how many changes may wait for one watcher before it is told to List again.
const backlog = 1 << 14

var (
	errBehind = errors.New("docker: watch: too many changes wait, list again")
	errGap    = errors.New("docker: watch: the engine was lost, list again")
)

// A hub hands changes to watchers. send never waits: each watcher has a queue.
type hub struct {
	mu       sync.Mutex
	watchers []*watcher
	away     bool // the engine does not answer
	closed   bool
}

type watcher struct {
	queue []pods.State // guarded by hub.mu
	lost  error
	wake  chan struct{} // holds one token while there is something to look at
}

func (h *hub) send(s pods.State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.watchers {
		if len(w.queue) >= backlog {
			w.queue, w.lost = nil, errBehind
		}
		if w.lost == nil {
			w.queue = append(w.queue, copyState(s))
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

func (h *hub) watch(ctx context.Context, f func(pods.State)) error {
	w := &watcher{wake: make(chan struct{}, 1)}
	h.mu.Lock()
	h.watchers = append(h.watchers, w)
	if h.away {
		w.lost = errGap
	}
	if h.closed || h.away {
		w.signal()
	}
	h.mu.Unlock()
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

func (h *hub) next(w *watcher) ([]pods.State, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	queue := w.queue
	w.queue = nil
	switch {
	case w.lost != nil:
		return queue, w.lost
	case h.closed:
		return queue, ErrClosed
	}
	return queue, nil
}

// lose tells every watcher, and those to come until found, that changes may be missed.
func (h *hub) lose() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.away = true
	for _, w := range h.watchers {
		w.lost = errGap
		w.signal()
	}
}

func (h *hub) found() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.away = false
}

func (h *hub) drop(w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers = slices.DeleteFunc(h.watchers, func(o *watcher) bool { return o == w })
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, w := range h.watchers {
		w.signal()
	}
}

// copyState keeps a receiver from sharing what another one may change.
func copyState(s pods.State) pods.State {
	s.Ports = slices.Clone(s.Ports)
	return s
}
