package serverlesstest

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/podyard/podyard/serverless"
)

// A Model is a serverless.JobQueue so plain that it is right at a glance: a map, State.Apply
// and linear scans. It says what a backend has to answer. It is not safe for concurrent
// use, and Watch tells nothing. The zero value is empty.
type Model struct {
	jobs   map[serverless.Ref]*modelJob
	stats  map[string]*serverless.Stats
	outbox []*modelEntry
	seq    uint64
	token  serverless.Token
}

type modelJob struct {
	serverless.Job
	chunks   [][]byte
	attempts []serverless.Attempt
}

type modelEntry struct {
	serverless.Delivery
	due serverless.Instant
}

var _ serverless.JobQueue = (*Model)(nil)

// Enqueue adds all jobs or none.
func (m *Model) Enqueue(_ context.Context, jobs []serverless.Job) error {
	if m.jobs == nil {
		m.jobs, m.stats = map[serverless.Ref]*modelJob{}, map[string]*serverless.Stats{}
	}
	taken := map[serverless.Ref]bool{}
	for _, j := range jobs {
		if m.jobs[j.Ref] != nil || taken[j.Ref] {
			return serverless.ErrExists
		}
		taken[j.Ref] = true
	}
	for i := range jobs {
		m.seq++
		jobs[i].Seq = m.seq
		j := &modelJob{Job: jobs[i]}
		m.jobs[j.Ref] = j
		if m.stats[j.Endpoint] == nil {
			m.stats[j.Endpoint] = &serverless.Stats{}
		}
		m.stats[j.Endpoint].Note(nil, &j.State, serverless.Put)
		m.stats[j.Endpoint].LastSeq = m.seq
	}
	return nil
}

// inOrder are the jobs that ok selects, by Seq.
func (m *Model) inOrder(ok func(*modelJob) bool) (list []*modelJob) {
	for _, j := range m.jobs {
		if ok(j) {
			list = append(list, j)
		}
	}
	slices.SortFunc(list, func(a, b *modelJob) int { return cmp.Compare(a.Seq, b.Seq) })
	return list
}

// Claim tries the queued jobs one after another.
func (m *Model) Claim(_ context.Context, now serverless.Instant, slots []serverless.Slot, out []serverless.Job) ([]serverless.Job, error) {
	for _, s := range slots {
		n := s.N
		for _, j := range m.inOrder(func(j *modelJob) bool { return j.Endpoint == s.Endpoint && j.Status == serverless.InQueue }) {
			if n == 0 {
				break
			}
			r := m.move(now, j, &serverless.Op{Kind: serverless.OpClaim, Worker: s.Worker, Token: m.token + 1, Until: s.Until})
			if r.Err == nil {
				m.token++
				out = append(out, j.Job)
				n--
			}
		}
	}
	return out, nil
}

// Apply makes each move.
func (m *Model) Apply(_ context.Context, now serverless.Instant, ops []serverless.Op, res []serverless.Result) error {
	for i := range ops {
		res[i] = serverless.Result{Err: serverless.ErrNotFound}
		if j := m.jobs[ops[i].Ref]; j != nil {
			res[i] = m.move(now, j, &ops[i])
		}
	}
	return nil
}

// move applies one op and does what its effect says.
func (m *Model) move(now serverless.Instant, j *modelJob, op *serverless.Op) serverless.Result {
	before := j.State
	eff, err := j.State.Apply(now, op)
	st := m.stats[j.Endpoint]
	if eff&serverless.NewSeq != 0 {
		m.seq++
		j.Seq, st.LastSeq = m.seq, m.seq
	}
	if eff != 0 {
		st.Note(&before, &j.State, eff)
	}
	if eff&serverless.DropOutput != 0 {
		j.Output, j.Error, j.chunks = nil, "", nil
	}
	if eff&serverless.DropInput != 0 {
		j.Input = nil
		for _, e := range m.outbox {
			if e.Job.Ref == j.Ref && e.Job.Submitted == j.Submitted {
				e.Job.Input = nil
			}
		}
	}
	if eff&serverless.PutOutput != 0 {
		j.Output, j.Error = op.Payload, op.Error
	}
	if eff&serverless.AddChunk != 0 {
		j.chunks = append(j.chunks, op.Payload)
	}
	if eff&serverless.DropChunks != 0 {
		j.chunks = j.chunks[op.N:]
	}
	if eff&serverless.Delete != 0 {
		delete(m.jobs, j.Ref)
	}
	if eff&serverless.PutOutbox != 0 {
		m.deliver(now, j.Job)
	}
	return serverless.Result{State: j.State, Effect: eff, Err: err}
}

func (m *Model) deliver(now serverless.Instant, j serverless.Job) {
	d := serverless.Delivery{ID: serverless.DeliveryID(j.Ref, j.Run), Job: j}
	if !slices.ContainsFunc(m.outbox, func(e *modelEntry) bool { return e.ID == d.ID && e.Job.Endpoint == j.Endpoint }) {
		m.outbox = append(m.outbox, &modelEntry{d, now})
	}
}

// Expire ticks what is due, in the order of Seq.
func (m *Model) Expire(_ context.Context, now serverless.Instant, limit int) (next serverless.Instant, _ error) {
	due := m.inOrder(func(j *modelJob) bool { return j.Due() <= now })
	for _, j := range due[:min(limit, len(due))] {
		m.move(now, j, &serverless.Op{Kind: serverless.OpTick})
	}
	for _, j := range m.jobs {
		if next == 0 || j.Due() < next {
			next = j.Due()
		}
	}
	return next, nil
}

// Purge cancels queued jobs.
func (m *Model) Purge(_ context.Context, now serverless.Instant, p serverless.PurgeQuery) (removed int, next uint64, err error) {
	left := p.Limit
	for _, j := range m.inOrder(func(j *modelJob) bool {
		return j.Endpoint == p.Endpoint && j.Status == serverless.InQueue && j.Seq > p.After && j.Seq <= p.UpTo
	}) {
		if left == 0 {
			return removed, next, nil
		}
		left, next = left-1, j.Seq
		if p.Owner != "" && p.Owner != j.Owner {
			continue
		}
		if r := m.move(now, j, &serverless.Op{Kind: serverless.OpPurge}); r.Err == nil {
			removed++
		}
	}
	return removed, 0, nil
}

// Get returns the job.
func (m *Model) Get(_ context.Context, now serverless.Instant, ref serverless.Ref) (serverless.Job, error) {
	j := m.jobs[ref]
	if j == nil || j.Gone(now) {
		return serverless.Job{}, serverless.ErrNotFound
	}
	return j.Job, nil
}

// Chunks returns what was not drained.
func (m *Model) Chunks(ctx context.Context, now serverless.Instant, ref serverless.Ref, maxBytes int) ([][]byte, serverless.State, error) {
	j, err := m.Get(ctx, now, ref)
	if err != nil {
		return nil, serverless.State{}, err
	}
	chunks := m.jobs[ref].chunks
	for i, c := range chunks {
		if maxBytes -= len(c); maxBytes < 0 && i > 0 {
			return chunks[:i], j.State, nil
		}
	}
	return chunks, j.State, nil
}

// List yields jobs, newest first.
func (m *Model) List(_ context.Context, now serverless.Instant, q serverless.ListQuery) iter.Seq2[serverless.Job, error] {
	list := m.inOrder(func(j *modelJob) bool {
		return j.Endpoint == q.Endpoint && (q.Owner == "" || q.Owner == j.Owner) &&
			(len(q.Status) == 0 || slices.Contains(q.Status, j.Status)) && !j.Gone(now)
	})
	return func(yield func(serverless.Job, error) bool) {
		for _, j := range slices.Backward(list) {
			if !yield(serverless.Job{Ref: j.Ref, Owner: j.Owner, State: j.State}, nil) {
				return
			}
		}
	}
}

// Stats answers for one endpoint.
func (m *Model) Stats(_ context.Context, _ serverless.Instant, endpoint string) (serverless.Stats, error) {
	if m.stats[endpoint] == nil {
		return serverless.Stats{}, nil
	}
	s := *m.stats[endpoint]
	for _, j := range m.inOrder(func(j *modelJob) bool { return j.Endpoint == endpoint && j.Status == serverless.InQueue }) {
		if j.Flags&serverless.LowPriority == 0 {
			s.Oldest = j.Queued
			break
		}
	}
	return s, nil
}

// Watch waits for ctx to end.
func (m *Model) Watch(ctx context.Context, _ func([]serverless.Event)) error {
	<-ctx.Done()
	return ctx.Err()
}

// Deliveries leases what is due.
func (m *Model) Deliveries(_ context.Context, now, until serverless.Instant, limit int) (ds []serverless.Delivery, _ error) {
	slices.SortStableFunc(m.outbox, func(a, b *modelEntry) int { return cmp.Compare(a.due, b.due) })
	for _, e := range m.outbox {
		if e.due <= now && len(ds) < limit {
			m.token++
			e.Token, e.due = m.token, until
			ds = append(ds, e.Delivery)
		}
	}
	return ds, nil
}

// Record settles entries or schedules them anew.
func (m *Model) Record(_ context.Context, as []serverless.Attempt) error {
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

// NextDelivery is when the first entry is due.
func (m *Model) NextDelivery(context.Context) (next serverless.Instant, _ error) {
	for _, e := range m.outbox {
		if next == 0 || e.due < next {
			next = e.due
		}
	}
	return next, nil
}

// Attempts is the log of a job, as long as the job is there.
func (m *Model) Attempts(_ context.Context, ref serverless.Ref) ([]serverless.Attempt, error) {
	if j := m.jobs[ref]; j != nil {
		return slices.Clone(j.attempts), nil
	}
	return nil, nil
}
