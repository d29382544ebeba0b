package serverlesstest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

func (w *walker) submit(ctx context.Context) error {
	jobs := make([]queue.Job, w.drawCount())
	for i := range jobs {
		w.made++
		j := &jobs[i]
		j.Ref = queue.Ref{Endpoint: w.endpoint(), ID: queue.JobID(fmt.Sprint("job-", w.made))}
		j.Owner = w.owner()
		j.Input = fmt.Appendf(nil, `{"n":%d}`, w.made)
		j.Submitted, j.Queued, j.ExecTimeout, j.Retain = w.now, w.now, time.Duration(1+w.Draw(exec))*time.Millisecond, time.Duration(w.Draw(keep))*time.Millisecond
		j.Expires = w.now + 1 + w.drawSpan()
		if w.Draw(4) == 0 {
			j.Flags |= queue.LowPriority
		}
		if w.Draw(4) == 0 {
			withWebhook(j)
		}
		if w.Draw(4) == 0 {
			keepsResult(j)
		}
		w.drawPolicy(j)
		j.Priority, j.Key = w.priority(), w.key()
		if w.Draw(8) == 0 {
			j.Extra = []byte(`{}`)
		}
		if w.Draw(8) == 0 {
			j.Trace = trace()
		}
		if w.Draw(3) == 0 {
			j.Unique = w.unique()
		}
		w.refs = append(w.refs, j.Ref)
	}
	return w.enqueue(ctx, jobs)
}

// drawPolicy draws a delay, a retry policy and a dead letter.
func (w *walker) drawPolicy(j *queue.Job) {
	if ready := w.now + 1 + w.drawSpan(); w.Draw(5) == 0 && ready < j.Expires {
		j.Queued, j.Delayed = ready, true
	}
	if w.Draw(2) == 0 {
		j.Retry = queue.RetryPolicy{
			Attempts: uint8(2 + w.Draw(4)), Timeouts: w.Draw(2) == 0, Factor: float32(1 + w.Draw(3)), Jitter: float32(w.Draw(3)) / 2,
			Delay: time.Duration(w.Draw(2)*w.Draw(1000)) * time.Millisecond, MaxDelay: time.Duration(1000+w.Draw(5000)) * time.Millisecond,
		}
	}
	if w.Draw(3) == 0 {
		j.DeadLetter = time.Duration(1+w.drawSpan()) * time.Millisecond
	}
}

// changeRules changes the rules of an endpoint. Half of the time it has none.
func (w *walker) changeRules(context.Context) error {
	endpoint := w.endpoint()
	if w.Draw(4) == 0 {
		w.lifted[endpoint] = max(w.lifted[endpoint], w.now-queue.Instant(w.Draw(2)*w.Draw(lease)))
	}
	w.rules[endpoint] = nil
	if w.Draw(2) == 0 {
		if at := w.lifted[endpoint]; at > 0 {
			w.rules[endpoint] = &queue.Rules{HoldsSince: at}
		}
		return nil
	}
	r := &queue.Rules{Paused: w.Draw(8) == 0}
	for _, limit := range []*int{&r.PerKey, &r.PerUser, &r.Total} {
		if w.Draw(2) == 0 {
			*limit = 1 + w.Draw(1+w.Draw(w.Batch))
		}
	}
	_, forgets := w.Queue.(Reopened)
	rated := !forgets && w.Draw(2) == 0
	if rated {
		for _, rate := range []*queue.Rate{&r.Rate, &r.PerKeyRate, &r.PerUserRate} {
			*rate = w.rate()
		}
	}
	if w.Draw(3) == 0 {
		keys := queue.KeyRules{}
		for _, name := range []string{"k", "l"} {
			rule := queue.KeyRule{PerKey: w.Draw(4)}
			if rated {
				rule.Rate = w.rate()
			}
			if rule != (queue.KeyRule{}) {
				keys[name] = rule
			}
		}
		r.Keys = &keys
	}
	r.HoldsSince = w.lifted[endpoint]
	r.Ageing = [...]time.Duration{0, time.Millisecond, time.Second, time.Minute}[w.Draw(4)]
	w.rules[endpoint] = r
	return nil
}

// rate draws a rate, or none.
func (w *walker) rate() queue.Rate {
	if w.Draw(2) == 0 {
		return queue.Rate{}
	}
	return queue.Rate{Limit: 1 + w.Draw(6), Per: time.Duration(1+w.Draw(10)) * time.Second}
}

// priority draws a priority, mostly the default.
func (w *walker) priority() uint8 {
	if w.Draw(2) == 0 {
		return queue.DefaultPriority
	}
	return uint8(w.Draw(queue.MaxPriority + 1))
}

// unique draws one of a few keys, and how long it is held.
func (w *walker) unique() queue.Unique {
	return queue.Unique{
		Key: [...]string{"u", "v", "w", "x"}[w.Draw(4)], While: queue.UniqueWhile(1 + w.Draw(int(queue.ForPeriod))),
		Period: time.Duration(w.drawSpan()) * time.Millisecond,
	}
}

// replacement draws what replaces a queued job.
func (w *walker) replacement() *queue.Job {
	j := &queue.Job{Input: fmt.Appendf(nil, `{"r":%d}`, w.Draw(1_000_000)), State: queue.State{Terms: queue.Terms{ExecTimeout: time.Duration(1+w.Draw(exec)) * time.Millisecond}}}
	if w.Draw(3) == 0 {
		withWebhook(j)
	}
	if w.Draw(3) == 0 {
		lowPriority(j)
	}
	if w.Draw(3) == 0 {
		j.Extra = []byte(`{}`)
	}
	if w.Draw(3) == 0 {
		j.Trace = trace()
	}
	return j
}

// key draws a key, mostly none or one of a few.
func (w *walker) key() string {
	switch w.Draw(8) {
	case 0, 1, 2:
		return [...]string{"k", "l", "m"}[w.Draw(3)]
	case 3:
		return fmt.Sprint("key-", w.Draw(1000))
	}
	return ""
}

func (w *walker) enqueue(ctx context.Context, jobs []queue.Job) error {
	if w.limited { // both refuse by what is there, and one of them may have swept less
		if _, _, err := w.expire(ctx, w.Batch); err != nil {
			return err
		}
	}
	_, _, err := compareBoth(w, "Enqueue", func(q queue.JobQueue) ([]queue.Job, error) {
		mine := append([]queue.Job(nil), jobs...)
		err := q.Enqueue(ctx, mine)
		if len(jobs) > 1 && errors.Is(err, queue.ErrKeyTaken) {
			err = queue.ErrKeyTaken // which one of the keys that are taken is not said
		}
		if err != nil {
			return nil, err // whether the jobs have got their sizes is not said
		}
		for i := 1; i < len(mine); i++ {
			if mine[i].Seq <= mine[i-1].Seq {
				return nil, fmt.Errorf("a Seq of %d after %d", mine[i].Seq, mine[i-1].Seq)
			}
		}
		return mine, nil
	})
	return err
}

// submitAgain: an id that is taken, among others that are not.
func (w *walker) submitAgain(ctx context.Context) error {
	j, ok := w.pick(ctx)
	if !ok || j.Status != queue.InQueue { // a queue may refuse a new job of another status
		return nil
	}
	w.made++
	fresh := j
	fresh.Attempt, fresh.Leases = 0, 0 // its attempts and leases are not there
	fresh.ID = queue.JobID(fmt.Sprint("job-", w.made))
	return w.enqueue(ctx, []queue.Job{fresh, j})
}

func (w *walker) claim(ctx context.Context) error {
	slots := make([]queue.Slot, 1+w.Draw(3))
	for i := range slots {
		slots[i] = queue.Slot{Endpoint: w.endpoint(), Worker: w.worker(), N: w.drawCount(), Until: w.now + 1 + w.drawSpan()%lease}
		slots[i].Rules = w.rules[slots[i].Endpoint]
	}
	got, _, err := compareBoth(w, "Claim", func(q queue.JobQueue) ([]queue.Job, error) {
		return q.Claim(ctx, w.now, slots, nil)
	})
	if err != nil {
		return err
	}
	for _, j := range got {
		if w.tokens[j.Token] {
			return fmt.Errorf("token %d was issued before", j.Token)
		}
		w.tokens[j.Token] = true
	}
	return nil
}

// apply makes the ops on both sides, each under the token that its own job has: as asks
// for the one of the lease, none or a wrong one.
func (w *walker) apply(ctx context.Context, ops []queue.Op, as []int) error {
	_, _, err := compareBoth(w, "Apply", func(q queue.JobQueue) ([]queue.Result, error) {
		mine := append([]queue.Op(nil), ops...)
		for i := range mine {
			j, err := q.Get(ctx, w.now, mine[i].Ref)
			if err != nil && !errors.Is(err, queue.ErrNotFound) {
				return nil, err
			}
			switch as[i] {
			case 0:
				mine[i].Token = j.Token
			case 1:
				mine[i].Token = j.Token + 1<<40
			}
		}
		res := make([]queue.Result, len(ops))
		err := q.Apply(ctx, w.now, mine, res)
		for i := range res {
			if errors.Is(res[i].Err, queue.ErrNotFound) { // swept or not: the queue's choice
				res[i] = queue.Result{Err: queue.ErrNotFound}
			}
		}
		return res, err
	})
	if err != nil {
		return fmt.Errorf("of %+v: %w", ops, err)
	}
	return nil
}

// draw makes an op on j that may or may not be allowed.
func (w *walker) draw(j *queue.Job) (op queue.Op, as int) {
	kinds := [...]queue.OpKind{
		queue.OpRenew, queue.OpFinish, queue.OpFinish, queue.OpRelease, queue.OpChunk, queue.OpChunk,
		queue.OpProgress, queue.OpCancel, queue.OpPurge, queue.OpRetry, queue.OpSetTTL, queue.OpTick,
		queue.OpRecover, queue.OpWorkerLost, queue.OpWorkerLost, queue.OpRedeliver,
		queue.OpDamage, queue.OpStart, queue.OpDelete, queue.OpDropInput, queue.OpNoResult, queue.OpReplace, queue.OpReplace,
	}
	op = queue.Op{Ref: j.Ref, Kind: kinds[w.Draw(len(kinds))], Status: queue.Completed, Worker: j.Worker, Adopt: w.Draw(2) == 0}
	switch {
	case w.Draw(8) == 0:
		op.Worker = w.worker()
	case op.Worker == "":
		op.Worker = j.Lost
	}
	op.Untouched = op.Kind == queue.OpRelease && op.Adopt
	op.Until = w.now + 1 + w.drawSpan()
	if op.Kind == queue.OpFinish && w.Draw(2) == 0 {
		op.Status, op.Error, op.NoRetry = queue.Failed, "no", w.Draw(6) == 0
	}
	if op.Kind == queue.OpFinish && w.Draw(5) == 0 {
		op.Status, op.Ready, op.Error = [...]queue.Status{queue.InQueue, queue.Cancelled}[w.Draw(2)], w.now+w.drawSpan(), ""
		return op, 0
	}
	if op.Kind == queue.OpFinish && j.Key != "" && w.Draw(3) == 0 {
		op.Hold = time.Duration(w.drawSpan()) * time.Millisecond
	}
	if op.Kind == queue.OpReplace {
		op.Job = w.replacement()
	}
	if (op.Kind == queue.OpWorkerLost || op.Kind == queue.OpNoResult) && w.Draw(2) == 0 {
		op.Error = "it was killed"
		return op, 0
	}
	if w.Draw(4) > 0 {
		op.Payload = fmt.Appendf(nil, "%d.%d", w.now, w.Draw(1000))
	}
	return op, [...]int{0, 0, 0, 2, 2, 1}[w.Draw(6)]
}

func (w *walker) op(ctx context.Context) error {
	j, ok := w.pick(ctx)
	if !ok {
		return nil
	}
	op, as := w.draw(&j)
	return w.apply(ctx, []queue.Op{op}, []int{as})
}

// ops are many at once, several of one job among them.
func (w *walker) ops(ctx context.Context) error {
	ops, as := make([]queue.Op, w.drawCount()), []int(nil)
	for i := range ops {
		j, ok := w.pick(ctx)
		if !ok {
			return nil
		}
		op, a := w.draw(&j)
		if w.Draw(2) == 0 { // so that many get on
			op.Kind = queue.OpFinish
		}
		ops[i], as = op, append(as, a)
	}
	return w.apply(ctx, ops, as)
}

// hold has a running job end and hold its key, for which another job waits.
func (w *walker) hold(ctx context.Context) error {
	for range 16 {
		j, ok := w.pick(ctx)
		if !ok {
			return nil
		}
		if j.Status != queue.InProgress || j.Key == "" {
			continue
		}
		w.made++
		next := queue.Job{Ref: queue.Ref{Endpoint: j.Endpoint, ID: queue.JobID(fmt.Sprint("job-", w.made))}, Owner: j.Owner, Key: j.Key, Input: []byte(`{}`)}
		next.Submitted, next.Queued, next.ExecTimeout, next.Retain, next.Expires = w.now, w.now, time.Minute, time.Minute, w.now+7*ttl
		w.refs = append(w.refs, next.Ref)
		if err := w.enqueue(ctx, []queue.Job{next}); err != nil {
			return err
		}
		op := queue.Op{Ref: j.Ref, Kind: queue.OpFinish, Status: queue.Completed, Worker: j.Worker, Adopt: true, Hold: time.Duration(w.drawSpan()) * time.Millisecond}
		return w.apply(ctx, []queue.Op{op}, []int{0})
	}
	return nil
}

func (w *walker) drain(ctx context.Context) error {
	j, ok := w.pick(ctx)
	if !ok {
		return nil
	}
	size := w.Draw(60)
	type look struct {
		Chunks [][]byte
		State  queue.State
	}
	_, seen, err := compareBoth(w, "Chunks", func(q queue.JobQueue) (look, error) {
		list, s, err := q.Chunks(ctx, w.now, j.Ref, size)
		return look{list, s}, err
	})
	if err != nil {
		return err
	}
	op := queue.Op{Ref: j.Ref, Kind: queue.OpDrain, From: seen.State.Drained, N: uint32(len(seen.Chunks))}
	for _, c := range seen.Chunks {
		op.Bytes += int64(len(c))
	}
	if w.Draw(8) == 0 {
		op.From++
	}
	return w.apply(ctx, []queue.Op{op}, []int{w.Draw(8) / 7})
}

func (w *walker) purge(ctx context.Context) error {
	after, okAfter := w.pick(ctx)
	upTo, okUpTo := w.pick(ctx)
	okAfter, okUpTo = okAfter && w.Draw(3) == 0, okUpTo && w.Draw(3) > 0
	p := queue.PurgeQuery{Endpoint: w.endpoint(), Owner: w.owner(), Limit: w.drawCount(), UpTo: 1<<63 - 1}
	_, _, err := compareBoth(w, "jobs that Purge removed", func(q queue.JobQueue) (removed int, err error) {
		p := p
		for _, bound := range []struct {
			of *queue.Job
			to *uint64
			ok bool
		}{{&after, &p.After, okAfter}, {&upTo, &p.UpTo, okUpTo}} {
			if bound.ok {
				j, err := q.Get(ctx, w.now, bound.of.Ref)
				if err != nil {
					return 0, err
				}
				*bound.to = j.Seq
			}
		}
		for {
			n, next, err := q.Purge(ctx, w.now, p)
			removed += n
			if next == 0 || err != nil {
				return removed, err
			}
			if n > p.Limit || next <= p.After {
				return removed, fmt.Errorf("Purge(%+v) = %d, %d: too many, or no way on", p, n, next)
			}
			p.After = next
		}
	})
	return err
}
