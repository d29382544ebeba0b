package memory

import (
	"context"
	"slices"

	"github.com/podyard/podyard/serverless"
)

type watcher struct{ f func([]serverless.Event) }

// Watch calls f until ctx ends. f may be called by several goroutines at once.
func (q *Jobs) Watch(ctx context.Context, f func([]serverless.Event)) error {
	w := &watcher{f}
	q.rewatch(func(list []*watcher) []*watcher { return append(list, w) })
	f([]serverless.Event{{Kind: serverless.EventGap}})
	<-ctx.Done()
	q.rewatch(func(list []*watcher) []*watcher {
		return slices.DeleteFunc(list, func(o *watcher) bool { return o == w })
	})
	return ctx.Err()
}

// rewatch puts what change makes of a copy of the watchers in their place.
func (q *Jobs) rewatch(change func([]*watcher) []*watcher) {
	q.watchMu.Lock()
	defer q.watchMu.Unlock()
	list := change(slices.Clone(*q.watchers.Load()))
	q.watchers.Store(&list)
}

func (q *Jobs) watched() bool { return len(*q.watchers.Load()) > 0 }

func (q *Jobs) tell(evs []serverless.Event) {
	if len(evs) == 0 {
		return
	}
	for _, w := range *q.watchers.Load() {
		w.f(evs)
	}
}
