package memory

import (
	"context"
	"slices"

	"github.com/podyard/podyard/internal/jobindex"
	"github.com/podyard/podyard/serverless"
)

type watcher struct{ f func([]serverless.Event) }

// Watch calls f until ctx ends. f may be called by several goroutines at once.
func (q *Jobs) Watch(ctx context.Context, f func([]serverless.Event)) error {
	w := &watcher{f}
	q.watchMu.Lock()
	q.watchers = append(slices.Clone(q.watchers), w)
	q.watchMu.Unlock()
	f([]serverless.Event{{Kind: serverless.EventGap}})
	<-ctx.Done()
	q.watchMu.Lock()
	defer q.watchMu.Unlock()
	q.watchers = slices.DeleteFunc(slices.Clone(q.watchers), func(o *watcher) bool { return o == w })
	return ctx.Err()
}

func (q *Jobs) watched() bool {
	q.watchMu.RLock()
	defer q.watchMu.RUnlock()
	return len(q.watchers) > 0
}

func (q *Jobs) tell(evs []serverless.Event) {
	if len(evs) == 0 {
		return
	}
	q.watchMu.RLock()
	ws := q.watchers
	q.watchMu.RUnlock()
	for _, w := range ws {
		w.f(evs)
	}
}

// events appends what an effect on a job has to tell. The job may be gone by now.
func (q *Jobs) events(evs []serverless.Event, n *jobindex.Name, worker serverless.WorkerID, eff serverless.Effect) []serverless.Event {
	if eff&(serverless.EvReady|serverless.EvDone|serverless.EvStop|serverless.EvChunk) == 0 {
		return evs
	}
	return eff.Events(evs, n.Ref(), worker)
}
