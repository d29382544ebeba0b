package serverless

import (
	"context"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/workers"
)

// keptInput is the longest input that SubmitAndWait keeps while it waits. With it, the result
// that a worker reports to this server is returned without another read of the job.
const keptInput = 4 << 10

// A result is the end of a job as a report has stored it.
type result struct {
	state  queue.State
	output []byte
	err    string
}

// resultOf returns what op has stored, or nil if it has not ended the job.
func resultOf(op *queue.Op, r *queue.Result) *result {
	if r.Effect&queue.PutOutput == 0 || !r.State.Status.Terminal() {
		return nil
	}
	return &result{r.State, op.Payload, op.Error}
}

// applyReport makes the move of a worker, and gives a result to those who wait for it. They find
// the worker free.
func (s *Service) applyReport(ctx context.Context, op queue.Op) error {
	finish := op.Kind == queue.OpFinish
	var waiting []*watcher
	var end *result
	if finish {
		waiting = s.hub.reporting(op.Ref)
	}
	defer func() { s.hub.reported(waiting, end) }()
	r, err := s.apply(ctx, op)
	switch {
	case finish && err == nil:
		end = resultOf(&op, &r)
		if r.Effect&queue.HoldKey != 0 {
			s.freeAt(op.Endpoint, op.HoldUntil(s.now()).Until)
		}
	case finish && isFull(err):
		err = s.failFull(ctx, op, err)
	}
	unsure := problem.KindOf(err) == problem.Unavailable && !s.registry.HasLocal(workers.Key{Endpoint: op.Endpoint, ID: op.Worker})
	if (finish || op.Kind == queue.OpRelease) && !unsure { // a remote worker may have it still
		if w := s.registry.Find(workers.Key{Endpoint: op.Endpoint, ID: op.Worker}); w != nil {
			w.Done(&op, s.now(), finish && err == nil)
		}
	}
	return err
}

// reporting returns the watchers of a job who want its result. A report of its end is under way:
// the events of the job do not wake them before reported.
func (h *hub) reporting(ref Ref) (list []*watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.jobs[watchKey{ref, queue.EventDone}] {
		if w.wants {
			w.reports++
			list = append(list, w)
		}
	}
	return list
}

// reported wakes watchers after a report. Without a result they read the job.
func (h *hub) reported(list []*watcher, end *result) {
	if len(list) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range list {
		w.reports--
		if end != nil {
			w.result = end
		}
		signal(w.ch)
	}
}

// want has a watcher get the result of a report. The job is not in the queue yet.
func (h *hub) want(w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.wants = true
}

// resultFor returns the result that w has got, or nil.
func (h *hub) resultFor(w *watcher) *result {
	h.mu.Lock()
	defer h.mu.Unlock()
	return w.result
}

// keep has the wait return j, which was just made, with the result of its worker. A wait must not
// keep a long input.
func (w *jobWait) keep(j Job) {
	if len(j.Input)+len(j.Extra) > keptInput {
		return
	}
	w.job = &j
	w.s.hub.want(w.done)
}

// result returns the kept job with its result. It reports false if there is none.
func (w *jobWait) result() (Job, bool) {
	if w.job == nil {
		return Job{}, false
	}
	r := w.s.hub.resultFor(w.done)
	if r == nil {
		return Job{}, false
	}
	j := *w.job
	j.State, j.Output, j.Error = r.state, r.output, r.err
	return j, true
}
