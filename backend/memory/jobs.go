package memory

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/podyard/podyard/internal/jobindex"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
)

// Jobs is a serverless.JobQueue in memory. It keeps the payload slices it is given and
// loses everything with the process. Make one with NewJobs; it is safe for concurrent
// use.
//
// One mutex guards it: a move is a few hundred nanoseconds, and what happens under it
// does not grow with the number of jobs.
type Jobs struct {
	mu     sync.Mutex
	x      *jobindex.Index
	bodies bodies
	extras map[uint32]*extra // by job
	outbox outbox
	seq    uint64
	token  serverless.Token

	watchMu  sync.Mutex // guards changes of watchers
	watchers atomic.Pointer[[]*watcher]
}

var _ serverless.JobQueue = (*Jobs)(nil)

// NewJobs returns an empty queue.
func NewJobs() *Jobs {
	q := &Jobs{x: jobindex.New(), extras: map[uint32]*extra{}, token: 1 << 32}
	q.outbox.entries = map[entryKey]*entry{}
	q.watchers.Store(&[]*watcher{})
	return q
}

// Len is how many jobs there are, in whatever status.
func (q *Jobs) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.x.Len()
}

// Enqueue adds all jobs or none.
func (q *Jobs) Enqueue(_ context.Context, jobs []serverless.Job) error {
	if err := q.enqueue(jobs); err != nil {
		return err
	}
	if !q.watched() {
		return nil
	}
	evs := make([]serverless.Event, len(jobs))
	for i := range jobs {
		evs[i] = serverless.Event{Kind: serverless.EventReady, Ref: jobs[i].Ref}
	}
	q.tell(evs)
	return nil
}

func (q *Jobs) enqueue(jobs []serverless.Job) error {
	for i := range jobs {
		if n := len(jobs[i].ID); n == 0 || n > serverless.MaxJobID {
			return problem.Newf(problem.Invalid, "a job id has 1 to %d bytes", serverless.MaxJobID)
		}
	}
	var one [1]uint32
	recs := one[:0]
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range jobs {
		rec, ok := q.x.Add(jobs[i].Ref, jobs[i].Owner)
		if !ok {
			for _, rec := range recs {
				q.x.Drop(rec)
			}
			return serverless.ErrExists
		}
		recs = append(recs, rec)
	}
	for i, rec := range recs {
		q.show(rec, &jobs[i])
	}
	return nil
}

// show makes a job visible that was added.
func (q *Jobs) show(i uint32, j *serverless.Job) {
	q.seq++
	j.Seq = q.seq
	*q.bodies.put(i) = body{input: j.Input, output: j.Output}
	if j.Webhook != "" || j.Extra != nil {
		q.extras[i] = &extra{webhook: j.Webhook, forWork: j.Extra}
	}
	q.x.Show(i, &j.State)
}

// job is the whole job.
func (q *Jobs) job(i uint32) serverless.Job {
	var j serverless.Job
	q.fill(&j, i)
	return j
}

// fill makes j the whole job.
func (q *Jobs) fill(j *serverless.Job, i uint32) {
	b := q.bodies.at(i)
	j.Ref, j.Owner, j.State, j.Input, j.Output = q.x.Ref(i), q.x.Owner(i), q.x.State(i), b.input, b.output
	if x := q.extras[i]; x != nil {
		j.Webhook, j.Extra, j.Error = x.webhook, x.forWork, x.err
	}
}

func (q *Jobs) extra(i uint32) *extra {
	x := q.extras[i]
	if x == nil {
		x = &extra{}
		q.extras[i] = x
	}
	return x
}

// Apply makes each move.
func (q *Jobs) Apply(_ context.Context, now serverless.Instant, ops []serverless.Op, res []serverless.Result) error {
	var evs []serverless.Event
	q.mu.Lock()
	for i := range ops {
		rec := q.x.Find(ops[i].Ref)
		if rec == 0 {
			res[i] = serverless.Result{Err: serverless.ErrNotFound}
			continue
		}
		res[i], evs = q.move(now, rec, &ops[i], evs)
	}
	q.mu.Unlock()
	q.tell(evs)
	return nil
}

// tells are the effects that watchers hear of.
const tells = serverless.EvReady | serverless.EvDone | serverless.EvStop | serverless.EvChunk

// move applies one op to a job, and appends what it has to tell. Whoever begins to watch
// from here on sees the job as the move leaves it.
func (q *Jobs) move(now serverless.Instant, i uint32, op *serverless.Op, evs []serverless.Event) (serverless.Result, []serverless.Event) {
	before := q.x.State(i)
	res := serverless.Result{State: before}
	res.Effect, res.Err = res.State.Apply(now, op)
	if res.Effect&tells != 0 && q.watched() {
		ref := op.Ref
		if ref.ID == "" {
			ref = q.x.Ref(i)
		}
		evs = res.Effect.Events(evs, ref, before.Worker)
	}
	if res.Effect != 0 {
		q.carryOut(now, i, &before, &res.State, res.Effect, op)
	}
	return res, evs
}

// carryOut does what an effect says.
func (q *Jobs) carryOut(now serverless.Instant, i uint32, before, s *serverless.State, eff serverless.Effect, op *serverless.Op) {
	if eff&serverless.Delete != 0 {
		q.x.Move(i, before, s, eff)
		q.bodies.drop(i)
		delete(q.extras, i)
		return
	}
	if eff&serverless.NewSeq != 0 {
		q.seq++
		s.Seq = q.seq
	}
	q.payloads(i, eff, op)
	if eff&serverless.DropInput != 0 {
		q.outbox.void(q.x.Ref(i), s)
	}
	q.x.Move(i, before, s, eff)
	if eff&serverless.PutOutbox != 0 {
		q.outbox.add(q.job(i), now)
	}
}

// payloads keeps what the op brought and drops what is void.
func (q *Jobs) payloads(i uint32, eff serverless.Effect, op *serverless.Op) {
	if eff&serverless.DropOutput != 0 {
		q.bodies.at(i).output = nil
		if x := q.extras[i]; x != nil {
			x.err, x.chunks = "", nil
		}
	}
	if eff&serverless.DropInput != 0 {
		q.bodies.at(i).input = nil
	}
	if eff&serverless.PutOutput != 0 {
		q.bodies.at(i).output = op.Payload
		if op.Error != "" {
			q.extra(i).err = op.Error
		}
	}
	if eff&serverless.AddChunk != 0 {
		x := q.extra(i)
		x.chunks = append(x.chunks, op.Payload)
	}
	if eff&serverless.DropChunks != 0 {
		x := q.extra(i)
		clear(x.chunks[:op.N])
		x.chunks = x.chunks[op.N:]
	}
}
