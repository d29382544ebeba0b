package serverlesstest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/podyard/podyard/internal/unwrap"
	"github.com/podyard/podyard/serverless/queue"
)

func (w *walker) deliver(ctx context.Context) error {
	lease := 1 + w.drawSpan()
	queue, model, err := compareBoth(w, "Deliveries", func(q queue.JobQueue) ([]queue.Delivery, error) {
		list, err := q.Deliveries(ctx, w.now, w.now+lease, 1<<20)
		slices.SortFunc(list, func(a, b queue.Delivery) int {
			return cmp.Or(cmp.Compare(a.Job.Endpoint, b.Job.Endpoint), cmp.Compare(a.ID, b.ID))
		})
		for i := range list {
			if err := q.LoadDelivery(ctx, &list[i]); err != nil {
				return list, err
			}
		}
		return list, err
	})
	if err != nil {
		return err
	}
	for i := range queue {
		w.sent = append(w.sent, leasedDelivery{queue[i], model[i]})
	}
	return w.compareOutbox(ctx)
}

func (w *walker) compareOutbox(ctx context.Context) error {
	_, _, err := compareBoth(w, "NextDelivery", func(q queue.JobQueue) (queue.Instant, error) { return q.NextDelivery(ctx) })
	return err
}

// record reports deliveries, some of them under a lease that is lost by now.
func (w *walker) record(ctx context.Context) error {
	for range min(w.drawCount(), len(w.sent)) {
		i := w.Draw(len(w.sent))
		s := w.sent[i]
		a := queue.Attempt{Ref: s.queue.Job.Ref, DeliveryID: s.queue.ID, At: w.now, Status: 500, Err: "no"}
		switch w.Draw(4) {
		case 0:
			a.Next, a.Postponed = w.now+1+w.drawSpan(), true
		case 1:
			a.Next = w.now + 1 + w.drawSpan()
		}
		if w.Draw(4) > 0 {
			w.sent = slices.Delete(w.sent, i, i+1)
		}
		_, _, err := compareBoth(w, "Record", func(q queue.JobQueue) ([]queue.Attempt, error) {
			if a.Token = s.queue.Token; q == queue.JobQueue(&w.model) {
				a.Token = s.model.Token
			}
			if err := q.Record(ctx, []queue.Attempt{a}); err != nil {
				return nil, err
			}
			if _, err := q.Get(ctx, w.now, a.Ref); err != nil {
				return nil, nil //nolint:nilerr // the log may go with the job, or stay
			}
			return q.Attempts(ctx, a.Ref)
		})
		if err != nil {
			return err
		}
	}
	return w.compareOutbox(ctx)
}

func (w *walker) read(ctx context.Context) error {
	j, ok := w.pick(ctx)
	if !ok {
		return nil
	}
	return w.compareJob(ctx, j.Ref)
}

func (w *walker) compareJob(ctx context.Context, ref queue.Ref) error {
	_, _, err := compareBoth(w, "Get", func(q queue.JobQueue) (queue.Job, error) { return q.Get(ctx, w.now, ref) })
	if err != nil {
		return fmt.Errorf("of %v: %w", ref, err)
	}
	_, _, err = compareBoth(w, "PastAttempts", func(q queue.JobQueue) ([]queue.JobAttempt, error) { return q.PastAttempts(ctx, w.now, ref) })
	if err != nil {
		return fmt.Errorf("of %v: %w", ref, err)
	}
	_, _, err = compareBoth(w, "PastLeases", func(q queue.JobQueue) ([]queue.JobLease, error) { return q.PastLeases(ctx, w.now, ref) })
	if err != nil {
		return fmt.Errorf("of %v: %w", ref, err)
	}
	return nil
}

// compareDead compares the dead letters of an endpoint.
func (w *walker) compareDead(ctx context.Context, endpoint, owner string) ([]queue.DeadLetter, error) {
	list, _, err := compareBoth(w, "DeadLetters", func(q queue.JobQueue) (list []queue.DeadLetter, _ error) {
		for d, err := range q.DeadLetters(ctx, w.now, endpoint, owner) {
			if err != nil {
				return nil, err
			}
			list = append(list, d)
		}
		return list, nil
	})
	for i := range min(len(list), 8) {
		if err == nil {
			_, _, err = compareBoth(w, "DeadLetter", func(q queue.JobQueue) (queue.DeadLetter, error) { return q.DeadLetter(ctx, w.now, list[i].Ref) })
		}
	}
	return list, err
}

func (w *walker) dropDead(ctx context.Context) error {
	list, err := w.compareDead(ctx, w.endpoint(), w.owner())
	if err != nil || len(list) == 0 {
		return err
	}
	var refs []queue.Ref
	for range w.drawCount() {
		refs = append(refs, list[w.Draw(len(list))].Ref)
	}
	return errors.Join(w.Queue.DropDead(ctx, refs), w.model.DropDead(ctx, refs))
}

func (w *walker) advance(context.Context) error {
	w.now += w.drawSpan()
	return nil
}

// sweep expires what is due on both sides. How many calls that takes is the queue's
// choice; when to call again is a lower bound.
func (w *walker) sweep(ctx context.Context) error {
	limit := w.drawCount()
	got, model, err := w.expire(ctx, limit)
	switch {
	case err != nil:
		return err
	case model != 0 && (got == 0 || got > model):
		return fmt.Errorf("Expire says to call again at %d, want no later than %d", got, model)
	}
	if model == 0 || w.Draw(2) == 0 {
		return nil
	}
	w.now = got // from due instant to due instant
	_, _, err = w.expire(ctx, limit)
	return err
}

func (w *walker) expire(ctx context.Context, limit int) (got, model queue.Instant, err error) {
	var next [2]queue.Instant
	if w.model.reorders(w.now) {
		limit = 1 << 20 // so that one call gives the jobs that become ready together their places
	}
	for i, q := range []queue.JobQueue{w.Queue, &w.model} {
		for calls := 0; ; calls++ {
			if next[i], err = q.Expire(ctx, w.now, limit); err != nil {
				return 0, 0, err
			}
			if next[i] == 0 || next[i] > w.now {
				break
			}
			if calls > 100*(w.made+1) {
				return 0, 0, fmt.Errorf("Expire says %d times that something is due at %d", calls, next[i])
			}
		}
	}
	return next[0], next[1], nil
}

// compareAll sweeps, so that both sides have deleted the same jobs, and compares all that
// can be read.
func (w *walker) compareAll(ctx context.Context) error {
	if _, _, err := w.expire(ctx, w.Batch); err != nil {
		return err
	}
	for _, endpoint := range []string{"a", "b", "c"} {
		if err := w.compareEndpoint(ctx, endpoint); err != nil {
			return err
		}
	}
	for range 8 {
		if j, ok := w.pick(ctx); ok {
			if err := w.compareJob(ctx, j.Ref); err != nil {
				return err
			}
		}
	}
	if err := w.compareUsage(ctx); err != nil {
		return err
	}
	return w.compareOutbox(ctx)
}

func (w *walker) compareEndpoint(ctx context.Context, endpoint string) error {
	stats, model, err := compareBoth(w, "Stats", func(q queue.JobQueue) (queue.Stats, error) {
		return q.Stats(ctx, w.now, endpoint, w.rules[endpoint])
	})
	if err != nil {
		return err
	}
	if got, want := stats.Free, model.Free; want > 0 && (got == 0 || got > want) || got > 0 && got <= w.now {
		return fmt.Errorf("Stats: Free is %d, want at most %d, and later than %d, with the rules %+v", got, want, w.now, w.rules[endpoint])
	}
	all, err := w.compareList(ctx, queue.ListQuery{Endpoint: endpoint})
	if err != nil {
		return err
	}
	var count queue.Stats
	for _, j := range all {
		count.Count(nil, &j.State, queue.Put)
	}
	now := queue.Stats{Queued: stats.Queued, QueuedLow: stats.QueuedLow, Delayed: stats.Delayed, Running: stats.Running}
	if err := mismatch("Stats and a recount", count, now); err != nil {
		return err
	}
	q := queue.ListQuery{Endpoint: endpoint, Owner: w.owner()}
	for s := queue.InQueue; s <= queue.TimedOut; s++ {
		if w.Draw(3) == 0 {
			q.Status = append(q.Status, s)
		}
	}
	if _, err := w.compareDead(ctx, endpoint, ""); err != nil {
		return err
	}
	if w.Draw(2) == 0 {
		q.Offset, q.Limit = w.Draw(4), w.Draw(4)
	}
	if err := w.compareCount(ctx, q); err != nil {
		return err
	}
	if _, err = w.comparePage(ctx, w.Draw(4), q); err != nil || len(all) == 0 {
		return err
	}
	for range 1 + w.Draw(3) {
		q.IDs = append(q.IDs, all[w.Draw(len(all))].ID)
	}
	q.IDs = append(q.IDs, "unknown")
	_, err = w.compareList(ctx, q)
	return err
}

func (w *walker) compareList(ctx context.Context, lq queue.ListQuery) ([]queue.Job, error) {
	return w.comparePage(ctx, 0, lq)
}

// comparePage is compareList after some jobs. Their Seq may differ from queue to queue.
func (w *walker) comparePage(ctx context.Context, after int, lq queue.ListQuery) ([]queue.Job, error) {
	jobs, _, err := compareBoth(w, "List", func(q queue.JobQueue) (jobs []queue.Job, _ error) {
		lq := lq
		first := lq
		first.Limit = after
		for j, err := range q.List(ctx, w.now, first) {
			if err != nil {
				return nil, err
			}
			if after > 0 {
				lq.Before = j.Seq
			}
		}
		last := ^uint64(0)
		for j, err := range q.List(ctx, w.now, lq) {
			if err != nil {
				return nil, err
			}
			if j.Seq >= last {
				return nil, fmt.Errorf("List yields Seq %d after %d", j.Seq, last)
			}
			last = j.Seq
			jobs = append(jobs, j)
		}
		return jobs, nil
	})
	if err != nil {
		return nil, fmt.Errorf("of %+v: %w", lq, err)
	}
	return jobs, nil
}

// compareCount counts what q selects, if the queue counts.
func (w *walker) compareCount(ctx context.Context, q queue.ListQuery) error {
	counter, ok := unwrap.As[queue.Counter](w.Queue)
	if !ok {
		return nil
	}
	got, err := counter.Count(ctx, w.now, q)
	if err != nil {
		return fmt.Errorf("count of %+v: %w", q, err)
	}
	all := q
	all.Before, all.Offset, all.Limit = 0, 0, 0
	want := 0
	for _, err := range w.model.List(ctx, w.now, all) {
		if err != nil {
			return err
		}
		want++
	}
	if got != want {
		return fmt.Errorf("count of %+v is %d, want %d as of the model", q, got, want)
	}
	return nil
}

// end claims what is left, in order, and lets everything expire.
func (w *walker) end(ctx context.Context) error {
	if err := w.compareAll(ctx); err != nil {
		return err
	}
	for _, endpoint := range []string{"a", "b", "c"} {
		rules := &queue.Rules{}
		if r := w.rules[endpoint]; r != nil {
			rules.Ageing = r.Ageing
		}
		slots := []queue.Slot{{Endpoint: endpoint, Worker: "last", N: 1 << 20, Until: w.now + lease, Rules: rules}}
		if _, _, err := compareBoth(w, "Claim of all", func(q queue.JobQueue) ([]queue.Job, error) {
			return q.Claim(ctx, w.now, slots, nil)
		}); err != nil {
			return err
		}
	}
	w.now += 8 * ttl
	if err := w.compareAll(ctx); err != nil {
		return err
	}
	for _, endpoint := range []string{"a", "b", "c"} {
		jobs, err := w.compareList(ctx, queue.ListQuery{Endpoint: endpoint})
		if err != nil || len(jobs) > 0 {
			return fmt.Errorf("%d jobs are left when every ttl has passed: %w", len(jobs), orNone(err))
		}
	}
	return nil
}
