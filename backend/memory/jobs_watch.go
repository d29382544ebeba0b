package memory

import (
	"context"
	"slices"

	"github.com/podyard/podyard/serverless/queue"
)

type watcher struct{ f func([]queue.Event) }

// Watch implements queue.JobQueue. f may be called by several goroutines at once.
func (q *Jobs) Watch(ctx context.Context, f func([]queue.Event)) error {
	w := &watcher{f}
	q.updateWatchers(func(list []*watcher) []*watcher { return append(list, w) })
	f([]queue.Event{{Kind: queue.EventGap}})
	<-ctx.Done()
	q.updateWatchers(func(list []*watcher) []*watcher {
		return slices.DeleteFunc(list, func(o *watcher) bool { return o == w })
	})
	return ctx.Err()
}

// updateWatchers replaces the list of watchers by the result of change on a copy.
func (q *Jobs) updateWatchers(change func([]*watcher) []*watcher) {
	q.watchMu.Lock()
	defer q.watchMu.Unlock()
	list := change(slices.Clone(*q.watchers.Load()))
	q.watchers.Store(&list)
}

func (q *Jobs) watched() bool { return len(*q.watchers.Load()) > 0 }

func (q *Jobs) notify(evs []queue.Event) {
	if len(evs) == 0 {
		return
	}
	for _, w := range *q.watchers.Load() {
		w.f(evs)
	}
}
