package disk

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/serverless/queue"
)

// A work continues with a store of an earlier version and lists the results.
type work struct {
	state
	now queue.Instant
}

func workText(t *testing.T, s *Store) string {
	w := &work{state: state{t: t, s: s}, now: fixtureNow}
	w.claims()
	w.workers()
	w.queue()
	w.user()
	w.deliver()
	w.end()
	return w.b.String()
}

// claims claims more of a host than it has, and releases something.
func (w *work) claims() {
	ctx := w.t.Context()
	p := &pods.Pod{ID: "new", Owner: "alice", Created: w.now.Time()}
	p.Placement.Claims = []pods.Claim{{Resource: "gpu/host1/GPU-0", Units: 1, Limit: 1}}
	w.line("a pod that wants what another one has: %v", w.s.Pods().Create(ctx, p))
	_, err := w.s.Pods().Update(ctx, "running", func(p *pods.Pod) error { p.Placement.Claims = nil; return nil })
	must(w.t, err)
	w.line("once that one has given it up: %v", w.s.Pods().Create(ctx, p))
	must(w.t, w.s.Pods().Release(ctx, "worker-echo-1"))
	must(w.t, w.s.Pods().Delete(ctx, "terminated", nil))
}

func (w *work) apply(op queue.Op) queue.Result {
	w.now++
	res := make([]queue.Result, 1)
	must(w.t, w.s.Jobs().Apply(w.t.Context(), w.now, []queue.Op{op}, res))
	w.line("%s: %s, error %v", op.Ref.ID, res[0].State.Status, res[0].Err)
	return res[0]
}

// workers continue with their jobs, under the tokens of the earlier version.
func (w *work) workers() {
	ref := queue.Ref{Endpoint: "echo", ID: "running"}
	j, err := w.s.Jobs().Get(w.t.Context(), w.now, ref)
	must(w.t, err)
	op := queue.Op{Ref: ref, Worker: j.Worker, Token: j.Token}
	renew, chunk, drain, stale, end := op, op, op, op, op
	renew.Kind, renew.Until = queue.OpRenew, w.now+60_000
	chunk.Kind, chunk.Payload = queue.OpChunk, []byte(`{"output":"after"}`)
	drain.Kind, drain.From, drain.N, drain.Bytes = queue.OpDrain, j.Drained, 1, 1
	stale.Kind, stale.Token = queue.OpRenew, j.Token-1
	end.Kind, end.Status, end.Payload = queue.OpFinish, queue.Completed, []byte(`"end"`)
	for _, op := range []queue.Op{renew, chunk, drain, stale, end} {
		w.apply(op)
	}
	j, err = w.s.Jobs().Get(w.t.Context(), w.now, ref)
	must(w.t, err)
	w.payload("output", j.Output)
	chunks, _, err := w.s.Jobs().Chunks(w.t.Context(), w.now, ref, 1<<20)
	must(w.t, err)
	w.line("  chunks: %q", chunks)
}

// queue claims and finishes all queued jobs in order.
func (w *work) queue() {
	for {
		w.now++
		jobs, err := w.s.Jobs().Claim(w.t.Context(), w.now, []queue.Slot{
			{Endpoint: "echo", Worker: "new", N: 1, Until: w.now + 60_000}, {Endpoint: "other", Worker: "new", N: 1, Until: w.now + 60_000},
		}, nil)
		must(w.t, err)
		if len(jobs) == 0 {
			return
		}
		for _, j := range jobs {
			w.line("claimed: %s/%s", j.Endpoint, j.ID)
			w.payload("input", j.Input)
			w.text("webhook", j.Webhook)
			w.payload("extra", j.Extra)
			w.apply(queue.Op{
				Ref: j.Ref, Kind: queue.OpFinish, Worker: "new", Token: j.Token, Status: queue.Failed, Error: "again", Payload: []byte(`"of ` + string(j.ID) + `"`),
			})
		}
	}
}

// user retries all jobs that can be retried, and submits a new one.
func (w *work) user() {
	for _, id := range []queue.JobID{"failed", "timed-out", "damaged", "run-256", "completed"} {
		r := w.apply(queue.Op{Ref: queue.Ref{Endpoint: "echo", ID: id}, Kind: queue.OpRetry})
		w.line("  run %d", r.State.Run)
	}
	w.apply(queue.Op{Ref: queue.Ref{Endpoint: "echo", ID: "hook-settled"}, Kind: queue.OpRedeliver})
	j := newJob("new")
	j.Submitted, j.Queued = w.now, w.now
	must(w.t, w.s.Jobs().Enqueue(w.t.Context(), []queue.Job{j}))
	taken := newJob("failed")
	w.line("a job under an id that is taken: %v", w.s.Jobs().Enqueue(w.t.Context(), []queue.Job{taken}))
	w.queue()
}

// deliver sends every webhook: half of them at the second attempt only.
func (w *work) deliver() {
	ctx := w.t.Context()
	for round := range 2 {
		w.now += 3_600_000
		ds, err := w.s.Jobs().Deliveries(ctx, w.now, w.now+1, 100)
		must(w.t, err)
		loadAll(w.t, w.s, ds)
		slices.SortFunc(ds, func(a, b queue.Delivery) int { return strings.Compare(a.ID, b.ID) })
		for i, d := range ds {
			w.line("webhook %s after %d tries: %v", d.ID, d.Tries, d.Job.Status)
			w.payload("output", d.Job.Output)
			w.text("error", d.Job.Error)
			w.text("to", d.Job.Webhook)
			a := queue.Attempt{Ref: d.Job.Ref, DeliveryID: d.ID, Token: d.Token, At: w.now, Status: 200}
			if i%2 == 0 && round == 0 {
				a.Status, a.Next = 500, w.now+1
			}
			must(w.t, w.s.Jobs().Record(ctx, []queue.Attempt{a}))
		}
	}
	as, err := w.s.Jobs().Attempts(ctx, queue.Ref{Endpoint: "echo", ID: "hook-settled"})
	must(w.t, err)
	w.line("attempts of hook-settled: %d", len(as))
}

// end lets the retention of all jobs pass. Their records are deleted, and their counts stay.
func (w *work) end() {
	ctx := w.t.Context()
	_, err := w.s.Jobs().Expire(ctx, at+100_000_000, 1000)
	must(w.t, err)
	w.line("jobs at the end: %d", w.s.Jobs().Len())
	w.s = reopen(w.t, w.s)
	for _, ep := range fixtureEndpoints() {
		w.stats(ep)
	}
	w.line("payloads at the end: %d", w.count(keyBody))
	w.line("entries and attempts at the end: %d", w.count(keyEntry)+w.count(keyAttempt))
	r, err := w.s.Check(ctx)
	must(w.t, errors.Join(err, r.Err()))
}

// count returns the number of records of a kind.
func (w *work) count(kind byte) (n int) {
	e, err := w.s.engine()
	must(w.t, err)
	must(w.t, each(e.db, []byte{kind}, func(_, _ []byte) error { n++; return nil }))
	return n
}
