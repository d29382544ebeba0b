// Package hub sends what a store observes to its watchers.
package hub

import (
	"context"
	"slices"
	"sync"
)

// A Hub sends hints to all watchers. The zero value has none. It is safe for concurrent use.
type Hub[T any] struct {
	mu       sync.RWMutex
	watchers []*watcher[T]
}

type watcher[T any] struct{ f func([]T) }

// Watch calls f until ctx ends, possibly several times concurrently. It calls first after f is
// registered. It returns the error of ctx.
func (h *Hub[T]) Watch(ctx context.Context, f func([]T), first func()) error {
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

// Watched reports whether there is a watcher.
func (h *Hub[T]) Watched() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.watchers) > 0
}

// Notify calls every watcher with what, which nobody may change.
func (h *Hub[T]) Notify(what []T) {
	h.mu.RLock()
	list := h.watchers
	h.mu.RUnlock()
	for _, w := range list {
		w.f(what)
	}
}
