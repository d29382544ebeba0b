package disk

import (
	"context"
	"slices"
	"sync"
)

// A hub sends hints to all watchers.
type hub[T any] struct {
	mu       sync.RWMutex
	watchers []*watcher[T]
}

type watcher[T any] struct{ f func([]T) }

// watch calls f until ctx ends, possibly several times concurrently. It calls first after f is
// registered.
func (h *hub[T]) watch(ctx context.Context, f func([]T), first func()) error {
	w := &watcher[T]{f}
	h.mu.Lock()
	h.watchers = append(slices.Clone(h.watchers), w)
	h.mu.Unlock()
	first()
	<-ctx.Done()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers = slices.DeleteFunc(slices.Clone(h.watchers), func(o *watcher[T]) bool { return o == w })
	return ctx.Err()
}

func (h *hub[T]) watched() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.watchers) > 0
}

func (h *hub[T]) notify(what []T) {
	h.mu.RLock()
	list := h.watchers
	h.mu.RUnlock()
	for _, w := range list {
		w.f(what)
	}
}
