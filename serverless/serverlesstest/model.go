package serverlesstest

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
)

// A Model is the simplest possible queue.JobQueue: a map, State.Apply and linear scans. It
// defines what a backend must answer. It is not safe for concurrent use, and its Watch sends
// no events. The zero value is an empty queue.
type Model struct {
	jobs   map[queue.Ref]*modelJob
	stats  map[string]*queue.Stats
	outbox []*modelEntry
	limits *budget.Set
	dead   []queue.DeadLetter // newest last
	seq    uint64
	token  queue.Token
	keys   map[idempotency.Digest]idempotency.Record
	claims uint64
	served map[modelGroup]queue.Turn
	unique map[modelKey]queue.Ref

	buckets map[modelBucket]queue.Bucket
	holds   map[modelBucket]queue.Hold // of keys
	rules   map[string]queue.Rules     // of the last claim or count of an endpoint
}

type modelJob struct {
	queue.Job
	chunks   [][]byte
	attempts []queue.Attempt
	past     []queue.JobAttempt
	leases   []queue.JobLease
}

type modelEntry struct {
	queue.Delivery
	due queue.Instant
}

var _ queue.JobQueue = (*Model)(nil)

// Enqueue implements queue.JobQueue.
func (m *Model) Enqueue(_ context.Context, jobs []queue.Job) error {
	if m.jobs == nil {
		m.jobs, m.stats, m.served = map[queue.Ref]*modelJob{}, map[string]*queue.Stats{}, map[modelGroup]queue.Turn{}
	}
	taken := map[queue.Ref]bool{}
	for _, j := range jobs {
		if m.jobs[j.Ref] != nil || taken[j.Ref] {
			return queue.ErrExists
		}
		taken[j.Ref] = true
	}
	if err := m.checkKeys(jobs); err != nil {
		return err
	}
	if err := m.admit(jobs); err != nil {
		return err
	}
	keys := queue.Creations(jobs)
	for _, r := range keys {
		if old, ok := m.keys[r.Key]; ok && !old.Over(r.At) {
			return idempotency.ErrTaken
		}
	}
	for _, r := range keys {
		if m.keys == nil {
			m.keys = map[idempotency.Digest]idempotency.Record{}
		}
		m.keys[r.Key] = r
	}
	for i := range jobs {
		m.seq++
		jobs[i].Seq = m.seq
		j := &modelJob{Job: jobs[i]}
		j.Creation = nil
		m.jobs[j.Ref] = j
		m.takeKey(&j.Job)
		if m.stats[j.Endpoint] == nil {
			m.stats[j.Endpoint] = &queue.Stats{}
		}
		m.stats[j.Endpoint].Count(nil, &j.State, queue.Put)
		m.stats[j.Endpoint].LastSeq = m.seq
	}
	return nil
}

// FindKey implements queue.JobQueue.
func (m *Model) FindKey(_ context.Context, key idempotency.Digest) (idempotency.Record, error) {
	r, ok := m.keys[key]
	if !ok {
		return r, idempotency.ErrNotFound
	}
	return r, nil
}

// inOrder returns the jobs that ok selects, ordered by Seq.
func (m *Model) inOrder(ok func(*modelJob) bool) (list []*modelJob) {
	for _, j := range m.jobs {
		if ok(j) {
			list = append(list, j)
		}
	}
	slices.SortFunc(list, func(a, b *modelJob) int { return cmp.Compare(a.Seq, b.Seq) })
	return list
}

// Apply implements queue.JobQueue.
func (m *Model) Apply(_ context.Context, now queue.Instant, ops []queue.Op, res []queue.Result) error {
	for i := range ops {
		res[i] = queue.Result{Err: queue.ErrNotFound}
		if j := m.jobs[ops[i].Ref]; j != nil {
			res[i] = m.move(now, j, &ops[i])
		}
	}
	return nil
}

// log adds the attempt and the lease that a move has ended to the logs.
func (j *modelJob) log(now queue.Instant, before *queue.State, eff queue.Effect, op *queue.Op) {
	if eff&queue.PutAttempt != 0 {
		j.past = append(j.past[:before.Attempt], before.EndedAttempt(now, &j.State, op))
	}
	if eff&queue.PutLease != 0 {
		j.leases = append(j.leases, before.EndedLease(now, &j.State, op))
	}
}

// move applies one op and carries out its effects.
func (m *Model) move(now queue.Instant, j *modelJob, op *queue.Op) queue.Result {
	before := j.State
	op.Ref = j.Ref
	eff, err := j.State.Apply(now, op)
	if full := m.fits(j, &before, eff, op); err == nil && full != nil {
		j.State = before
		return queue.Result{State: before, Err: full}
	}
	if err == nil && eff&queue.TakeKey != 0 {
		if taken := m.holder(now, &j.Job); taken != nil {
			j.State = before
			return queue.Result{State: before, Err: taken}
		}
		m.takeKey(&j.Job)
	}
	st := m.stats[j.Endpoint]
	if eff&queue.NewSeq != 0 {
		m.seq++
		j.Seq, st.LastSeq = m.seq, m.seq
	}
	if eff != 0 {
		st.Count(&before, &j.State, eff)
	}
	j.log(now, &before, eff, op)
	if eff&queue.DropOutput != 0 {
		j.Output, j.Error, j.chunks = nil, "", nil
	}
	if eff&queue.DropInput != 0 {
		j.Input = nil
		for _, e := range m.outbox {
			if e.Job.Ref == j.Ref && e.Job.Submitted == j.Submitted {
				e.Job.Input = nil
			}
		}
	}
	if eff&queue.GiveStart != 0 {
		m.giveBack(j, before.Started, now)
	}
	if eff&queue.HoldKey != 0 {
		m.hold(j, op.HoldUntil(now))
	}
	if eff&queue.PutInput != 0 {
		j.Input, j.Webhook, j.Extra, j.Trace = op.Job.Input, op.Job.Webhook, op.Job.Extra, op.Job.Trace
	}
	if eff&queue.PutOutput != 0 {
		j.Output, j.Error = op.Payload, op.Error
	}
	if eff&queue.AddChunk != 0 {
		j.chunks = append(j.chunks, op.Payload)
	}
	if eff&queue.DropChunks != 0 {
		j.chunks = j.chunks[op.N:]
	}
	if eff&queue.Delete != 0 {
		delete(m.jobs, j.Ref)
		m.dropKey(&j.Job)
	}
	if eff&queue.PutOutbox != 0 {
		m.deliver(now, j.Job)
	}
	if eff&queue.DropDead != 0 {
		m.dropDead(func(d queue.DeadLetter) bool { return d.Ref == j.Ref })
	}
	if eff&queue.PutDead != 0 {
		m.bury(j.Job)
	}
	return queue.Result{State: j.State, Effect: eff, Err: err}
}

func (m *Model) deliver(now queue.Instant, j queue.Job) {
	d := queue.Delivery{ID: queue.DeliveryID(j.Ref, j.Run), Job: j}
	if !slices.ContainsFunc(m.outbox, func(e *modelEntry) bool { return e.ID == d.ID && e.Job.Endpoint == j.Endpoint }) {
		m.outbox = append(m.outbox, &modelEntry{d, now})
	}
}

// Expire implements queue.JobQueue. It handles due jobs in the order of their instants, and then of
// Seq.
func (m *Model) Expire(_ context.Context, now queue.Instant, limit int) (next queue.Instant, _ error) {
	due := m.inOrder(func(j *modelJob) bool { return j.Due() <= now })
	slices.SortStableFunc(due, func(a, b *modelJob) int { return cmp.Compare(a.Due(), b.Due()) })
	for _, j := range due[:min(limit, len(due))] {
		m.move(now, j, &queue.Op{Kind: queue.OpTick})
	}
	m.dropDead(func(d queue.DeadLetter) bool { return d.Until <= now })
	for _, j := range m.jobs {
		next = queue.Sooner(next, j.Due())
	}
	for _, d := range m.dead {
		next = queue.Sooner(next, d.Until)
	}
	return next, nil
}

// reorders reports whether a sweep at now gives jobs other places in the queue.
func (m *Model) reorders(now queue.Instant) bool {
	for _, j := range m.jobs {
		if j.Due() <= now && (j.Delayed || j.Retry.Attempts > 0 || j.DeadLetter > 0) {
			return true
		}
	}
	return false
}

// bury keeps a dead letter of a job.
func (m *Model) bury(j queue.Job) {
	m.dropDead(func(d queue.DeadLetter) bool { return d.Ref == j.Ref })
	m.dead = append(m.dead, queue.DeadLetter{Job: j, Until: j.Kept()})
	same := func(d queue.DeadLetter) bool { return d.Endpoint == j.Endpoint && d.Owner == j.Owner }
	n := 0
	for _, d := range m.dead {
		if same(d) {
			n++
		}
	}
	if n > queue.MaxDeadLetters {
		i := slices.IndexFunc(m.dead, same)
		m.dead = slices.Delete(m.dead, i, i+1)
	}
}

func (m *Model) dropDead(drop func(queue.DeadLetter) bool) { m.dead = slices.DeleteFunc(m.dead, drop) }

// Purge implements queue.JobQueue.
func (m *Model) Purge(_ context.Context, now queue.Instant, p queue.PurgeQuery) (removed int, next uint64, err error) {
	left := p.Limit
	for _, j := range m.inOrder(func(j *modelJob) bool {
		return j.Endpoint == p.Endpoint && j.Status == queue.InQueue && j.Seq > p.After && j.Seq <= p.UpTo
	}) {
		if left == 0 {
			return removed, next, nil
		}
		left, next = left-1, j.Seq
		if p.Owner != "" && p.Owner != j.Owner {
			continue
		}
		if r := m.move(now, j, &queue.Op{Kind: queue.OpPurge}); r.Err == nil {
			removed++
		}
	}
	return removed, 0, nil
}

// Get implements queue.JobQueue.
func (m *Model) Get(_ context.Context, now queue.Instant, ref queue.Ref) (queue.Job, error) {
	j := m.jobs[ref]
	if j == nil || j.Gone(now) {
		return queue.Job{}, queue.ErrNotFound
	}
	return j.Job, nil
}

// Chunks implements queue.JobQueue.
func (m *Model) Chunks(ctx context.Context, now queue.Instant, ref queue.Ref, maxBytes int) ([][]byte, queue.State, error) {
	j, err := m.Get(ctx, now, ref)
	if err != nil {
		return nil, queue.State{}, err
	}
	chunks := m.jobs[ref].chunks
	for i, c := range chunks {
		if maxBytes -= len(c); maxBytes < 0 && i > 0 {
			return chunks[:i], j.State, nil
		}
	}
	return chunks, j.State, nil
}

// List implements queue.JobQueue.
func (m *Model) List(_ context.Context, now queue.Instant, q queue.ListQuery) iter.Seq2[queue.Job, error] {
	list := m.inOrder(func(j *modelJob) bool { return q.Selects(&j.Job, now) })
	return q.Limited(func(yield func(queue.Job, error) bool) {
		for _, j := range slices.Backward(list) {
			if !yield(queue.Job{Ref: j.Ref, Owner: j.Owner, Key: j.Key, State: j.State}, nil) {
				return
			}
		}
	})
}

// Watch implements queue.JobQueue. It waits for ctx to end.
func (m *Model) Watch(ctx context.Context, _ func([]queue.Event)) error {
	<-ctx.Done()
	return ctx.Err()
}

// Deliveries implements queue.Outbox.
func (m *Model) Deliveries(_ context.Context, now, until queue.Instant, limit int) (ds []queue.Delivery, _ error) {
	slices.SortStableFunc(m.outbox, func(a, b *modelEntry) int { return cmp.Compare(a.due, b.due) })
	for _, e := range m.outbox {
		if e.due <= now && len(ds) < limit {
			m.token++
			e.Token, e.due = m.token, until
			d, j := e.Delivery, &e.Job
			d.Job = queue.Job{Ref: j.Ref, Owner: j.Owner, Key: j.Key, State: j.State, Webhook: j.Webhook}
			ds = append(ds, d)
		}
	}
	return ds, nil
}

// LoadDelivery implements queue.Outbox.
func (m *Model) LoadDelivery(_ context.Context, d *queue.Delivery) error {
	for _, e := range m.outbox {
		if e.ID == d.ID && e.Job.Endpoint == d.Job.Endpoint && e.Token == d.Token {
			d.Job = e.Job
			return nil
		}
	}
	return queue.ErrLeaseLost
}

// Record implements queue.Outbox.
func (m *Model) Record(_ context.Context, as []queue.Attempt) error {
	for _, a := range as {
		i := slices.IndexFunc(m.outbox, func(e *modelEntry) bool {
			return e.ID == a.DeliveryID && e.Job.Endpoint == a.Endpoint && e.Token == a.Token
		})
		if i < 0 {
			continue
		}
		e := m.outbox[i]
		if !a.Postponed {
			e.Tries++
			if j := m.jobs[a.Ref]; j != nil {
				j.attempts = append(j.attempts, a)
			}
		}
		e.Token, e.due = 0, a.Next
		if a.Next == 0 {
			m.outbox = slices.Delete(m.outbox, i, i+1)
		}
	}
	return nil
}

// NextDelivery implements queue.Outbox.
func (m *Model) NextDelivery(context.Context) (next queue.Instant, _ error) {
	for _, e := range m.outbox {
		if next == 0 || e.due < next {
			next = e.due
		}
	}
	return next, nil
}

// Attempts implements queue.Outbox.
func (m *Model) Attempts(_ context.Context, ref queue.Ref) ([]queue.Attempt, error) {
	if j := m.jobs[ref]; j != nil {
		return slices.Clone(j.attempts), nil
	}
	return nil, nil
}

// PastAttempts implements queue.JobQueue.
func (m *Model) PastAttempts(ctx context.Context, now queue.Instant, ref queue.Ref) ([]queue.JobAttempt, error) {
	j, err := m.Get(ctx, now, ref)
	if err != nil {
		return nil, err
	}
	return slices.Clone(m.jobs[ref].past[:j.Attempt]), nil
}

// PastLeases implements queue.JobQueue.
func (m *Model) PastLeases(ctx context.Context, now queue.Instant, ref queue.Ref) ([]queue.JobLease, error) {
	if _, err := m.Get(ctx, now, ref); err != nil {
		return nil, err
	}
	all := m.jobs[ref].leases
	return slices.Clone(all[max(0, len(all)-queue.MaxLeases):]), nil
}

// DeadLetters implements queue.DeadLetters.
func (m *Model) DeadLetters(_ context.Context, now queue.Instant, endpoint, owner string) iter.Seq2[queue.DeadLetter, error] {
	return func(yield func(queue.DeadLetter, error) bool) {
		for _, d := range slices.Backward(m.dead) {
			if d.Until <= now || d.Endpoint != endpoint || owner != "" && d.Owner != owner {
				continue
			}
			d.Job = queue.Job{Ref: d.Ref, Owner: d.Owner, Key: d.Key, State: d.State}
			if !yield(d, nil) {
				return
			}
		}
	}
}

// DeadLetter implements queue.DeadLetters.
func (m *Model) DeadLetter(_ context.Context, now queue.Instant, ref queue.Ref) (queue.DeadLetter, error) {
	for _, d := range m.dead {
		if d.Ref == ref && now < d.Until {
			return d, nil
		}
	}
	return queue.DeadLetter{}, queue.ErrNotFound
}

// DropDead implements queue.DeadLetters.
func (m *Model) DropDead(_ context.Context, refs []queue.Ref) error {
	m.dropDead(func(d queue.DeadLetter) bool { return slices.Contains(refs, d.Ref) })
	return nil
}
