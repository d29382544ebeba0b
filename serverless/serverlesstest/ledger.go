package serverlesstest

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"maps"
	"strings"
	"sync"

	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/queue"
)

// A Ledger is a queue that passes calls on to another queue and records everything that was
// acknowledged, by an answer or by an observation. It checks invariants on the way: a token
// is issued once, a lease is fenced, a run has one result, payloads come out as they went in.
// Check compares a queue that was opened again, for example after a crash, with everything
// that was acknowledged.
//
// It is safe for concurrent use. Err returns the first violation.
type Ledger struct {
	Queue queue.JobQueue

	mu       sync.Mutex
	err      error
	jobs     map[queue.Ref]*jobRecord
	tokens   map[queue.Token]bool
	due      map[hook]bool // acknowledged webhooks; true until they are settled
	dead     map[queue.Ref]deadRecord
	inFlight map[*inFlightCall]bool
	now      queue.Instant // the latest instant of a call
	sweeps   int           // calls of Expire and Purge, which do not return what they moved
}

// A jobRecord is what the ledger knows of a job.
type jobRecord struct {
	job          queue.Job // as it was submitted
	acknowledged bool      // Enqueue was acknowledged
	gone         bool      // the job was deleted
	state        queue.State
	sweep        int // Ledger.sweeps when the state was seen
	results      map[uint32]result
}

// A result is the end of a run.
type result struct {
	status queue.Status
	output []byte
}

type hook struct {
	queue.Ref
	run uint32
}

// A deadRecord is an acknowledged dead letter.
type deadRecord struct {
	run      uint32
	until    queue.Instant
	dropped  bool // or may have been
	obsolete bool // the job has completed in a later run
}

// An inFlightCall is a call without an answer yet: its effect may have happened or not.
type inFlightCall struct {
	op    *queue.Op // nil: any move of Expire and Purge
	hooks []hook    // webhooks that it may settle
}

var _ queue.JobQueue = (*Ledger)(nil)

// NewLedger returns a ledger of q, which must be empty.
func NewLedger(q queue.JobQueue) *Ledger {
	return &Ledger{
		Queue: q, jobs: map[queue.Ref]*jobRecord{}, tokens: map[queue.Token]bool{},
		due: map[hook]bool{}, dead: map[queue.Ref]deadRecord{}, inFlight: map[*inFlightCall]bool{},
	}
}

// Clone returns a copy for a queue that is opened later. Calls in flight may or may not have
// happened in it.
func (l *Ledger) Clone() *Ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := NewLedger(nil)
	c.err, c.now, c.sweeps = l.err, l.now, l.sweeps
	c.tokens, c.due, c.inFlight = maps.Clone(l.tokens), maps.Clone(l.due), maps.Clone(l.inFlight)
	c.dead = maps.Clone(l.dead)
	for ref, a := range l.jobs {
		copied := *a
		copied.results = maps.Clone(a.results)
		c.jobs[ref] = &copied
	}
	return c
}

// Err returns the first violation, or nil.
func (l *Ledger) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Now returns the latest instant of a call.
func (l *Ledger) Now() queue.Instant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// violation records a violation. The caller holds mu.
func (l *Ledger) violation(format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf(format, args...)
	}
}

// begin records a call in flight. land ends it.
func (l *Ledger) begin(now queue.Instant, fs ...*inFlightCall) (land func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = max(l.now, now)
	for _, f := range fs {
		l.inFlight[f] = true
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, f := range fs {
			delete(l.inFlight, f)
		}
	}
}

// InFlight returns the jobs of the calls in flight.
func (l *Ledger) InFlight() (refs []queue.Ref) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for f := range l.inFlight {
		if f.op != nil {
			refs = append(refs, f.op.Ref)
		}
	}
	return refs
}

// Observe records a state that was seen from outside. The queue must not lose it any more.
func (l *Ledger) Observe(ref queue.Ref, s *queue.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.jobs[ref]
	if a == nil {
		return
	}
	a.acknowledged = a.acknowledged || !s.Unshown()
	l.settle(a, s)
}

// settle records a state.
func (l *Ledger) settle(a *jobRecord, s *queue.State) {
	if a.state.Status.Terminal() && !s.Status.Terminal() && s.Run == a.state.Run {
		l.violation("%q was %v and is %v in the same run", a.job.ID, a.state.Status, s.Status)
	}
	if s.Run < a.state.Run {
		l.violation("%q was in run %d and is in run %d", a.job.ID, a.state.Run, s.Run)
	}
	l.settleAttempts(a, s)
	if s.Status.Terminal() && (!a.state.Status.Terminal() || a.state.Run != s.Run) && s.Flags&queue.HasWebhook != 0 {
		// It may have been settled before its end had an answer.
		if h := (hook{a.job.Ref, s.Run}); !l.settled(h) {
			l.due[h] = true
		}
	}
	a.state, a.sweep = *s, l.sweeps
}

// settleAttempts records how many attempts have ended, which is durable, and a dead letter.
func (l *Ledger) settleAttempts(a *jobRecord, s *queue.State) {
	if s.Run == a.state.Run && (s.Attempt < a.state.Attempt || s.Attempt > 0 && s.Attempt >= s.Retry.Attempts) {
		l.violation("%q had ended %d attempts, and has ended %d of %d", a.job.ID, a.state.Attempt, s.Attempt, s.Retry.Attempts)
	}
	failed := s.Status == queue.Failed || s.Status == queue.TimedOut
	if d, ok := l.dead[a.job.Ref]; failed && s.DeadLetter > 0 && (!ok || d.run < s.Run) {
		l.dead[a.job.Ref] = deadRecord{run: s.Run, until: s.Kept()}
	} else if ok && s.Status == queue.Completed && d.run < s.Run {
		d.dropped, d.obsolete = true, true
		l.dead[a.job.Ref] = d
	}
}

func (l *Ledger) settled(h hook) bool {
	open, known := l.due[h]
	return known && !open
}

// result records the end of a run.
func (l *Ledger) result(a *jobRecord, s *queue.State, output []byte) {
	if !s.Status.Terminal() {
		return
	}
	old, ok := a.results[s.Run]
	if ok && (old.status != s.Status || !bytes.Equal(old.output, output)) {
		l.violation("run %d of %q has two results: %v %q and %v %q", s.Run, a.job.ID, old.status, old.output, s.Status, output)
	}
	a.results[s.Run] = result{s.Status, output}
}

// Enqueue implements queue.JobQueue.
func (l *Ledger) Enqueue(ctx context.Context, jobs []queue.Job) error {
	fs := make([]*inFlightCall, len(jobs))
	l.mu.Lock()
	for i := range jobs {
		fs[i] = &inFlightCall{op: &queue.Op{Ref: jobs[i].Ref}}
		if a := l.jobs[jobs[i].Ref]; a == nil || a.gone {
			l.jobs[jobs[i].Ref] = &jobRecord{job: jobs[i], state: jobs[i].State, results: map[uint32]result{}}
		}
	}
	l.mu.Unlock()
	defer l.begin(0, fs...)()
	if err := l.Queue.Enqueue(ctx, jobs); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range jobs {
		if !jobs[i].Unshown() {
			l.jobs[jobs[i].Ref].acknowledged = true
		}
	}
	return nil
}

// FindKey implements queue.JobQueue.
func (l *Ledger) FindKey(ctx context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return l.Queue.FindKey(ctx, key)
}

// Claim implements queue.JobQueue.
func (l *Ledger) Claim(ctx context.Context, now queue.Instant, slots []queue.Slot, out []queue.Job) ([]queue.Job, error) {
	defer l.begin(now)()
	got, err := l.Queue.Claim(ctx, now, slots, nil)
	if err != nil {
		return out, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range got {
		j := &got[i]
		if l.tokens[j.Token] {
			l.violation("token %x was issued twice", j.Token)
		}
		l.tokens[j.Token] = true
		a := l.jobs[j.Ref]
		if a == nil {
			l.violation("claimed %q, which nobody submitted", j.ID)
			continue
		}
		a.acknowledged = a.acknowledged || !j.Unshown()
		if !bytes.Equal(j.Input, a.job.Input) || !bytes.Equal(j.Extra, a.job.Extra) || j.Owner != a.job.Owner {
			l.violation("claimed %q with %q, submitted with %q", j.ID, j.Input, a.job.Input)
		}
		l.settle(a, &j.State)
	}
	return append(out, got...), nil
}

// Apply implements queue.JobQueue.
func (l *Ledger) Apply(ctx context.Context, now queue.Instant, ops []queue.Op, res []queue.Result) error {
	fs := make([]*inFlightCall, len(ops))
	for i := range ops {
		fs[i] = &inFlightCall{op: &ops[i]}
	}
	defer l.begin(now, fs...)()
	if err := l.Queue.Apply(ctx, now, ops, res); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range ops {
		l.applied(&ops[i], &res[i])
	}
	return nil
}

func (l *Ledger) applied(op *queue.Op, r *queue.Result) {
	a := l.jobs[op.Ref]
	if a == nil || r.Err != nil || r.Effect == 0 {
		return
	}
	if op.Kind <= queue.OpProgress && op.Token != 0 && op.Token != r.State.Token {
		l.violation("op %d on %q under token %x was taken, its lease is %x", op.Kind, op.ID, op.Token, r.State.Token)
	}
	if r.Effect&queue.Delete != 0 {
		a.gone = a.gone || op.Kind == queue.OpDelete
		return
	}
	if r.Effect&queue.PutInput != 0 {
		a.job.Input, a.job.Extra, a.job.Webhook = bytes.Clone(op.Job.Input), bytes.Clone(op.Job.Extra), op.Job.Webhook
	}
	a.acknowledged = a.acknowledged || op.Kind.Durable() || !r.State.Unshown()
	before := a.state
	l.settle(a, &r.State)
	if !r.State.Status.Terminal() || before.Status.Terminal() {
		return
	}
	var output []byte
	if op.Kind == queue.OpFinish {
		output = op.Payload
		l.result(a, &r.State, output)
	}
}

// swept records that jobs may have moved without an answer that says so.
func (l *Ledger) swept(land func()) {
	land()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweeps++
}

// Expire implements queue.JobQueue.
func (l *Ledger) Expire(ctx context.Context, now queue.Instant, limit int) (queue.Instant, error) {
	defer l.swept(l.begin(now, &inFlightCall{}))
	return l.Queue.Expire(ctx, now, limit)
}

// Purge implements queue.JobQueue.
func (l *Ledger) Purge(ctx context.Context, now queue.Instant, p queue.PurgeQuery) (int, uint64, error) {
	defer l.swept(l.begin(now, &inFlightCall{}))
	return l.Queue.Purge(ctx, now, p)
}

// Get implements queue.JobQueue.
func (l *Ledger) Get(ctx context.Context, now queue.Instant, ref queue.Ref) (queue.Job, error) {
	defer l.begin(now)()
	j, err := l.Queue.Get(ctx, now, ref)
	if err != nil {
		return j, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.got(&j)
	return j, nil
}

func (l *Ledger) got(j *queue.Job) {
	a := l.jobs[j.Ref]
	if a == nil {
		l.violation("%q is there, which nobody submitted", j.ID)
		return
	}
	a.acknowledged = true
	if !j.HasInput() {
		a.job.Input = nil // it has none from then on
	}
	if !bytes.Equal(j.Input, a.job.Input) || j.Webhook != a.job.Webhook || j.Owner != a.job.Owner {
		l.violation("%q has input %q, submitted with %q", j.ID, j.Input, a.job.Input)
	}
	l.settle(a, &j.State)
	l.result(a, &j.State, j.Output)
}

// Chunks implements queue.JobQueue.
func (l *Ledger) Chunks(ctx context.Context, now queue.Instant, ref queue.Ref, maxBytes int) ([][]byte, queue.State, error) {
	return l.Queue.Chunks(ctx, now, ref, maxBytes)
}

// List implements queue.JobQueue.
func (l *Ledger) List(ctx context.Context, now queue.Instant, q queue.ListQuery) iter.Seq2[queue.Job, error] {
	return l.Queue.List(ctx, now, q)
}

// Stats implements queue.JobQueue.
func (l *Ledger) Stats(ctx context.Context, now queue.Instant, endpoint string, rules *queue.Rules) (queue.Stats, error) {
	return l.Queue.Stats(ctx, now, endpoint, rules)
}

// Watch implements queue.JobQueue.
func (l *Ledger) Watch(ctx context.Context, f func([]queue.Event)) error {
	return l.Queue.Watch(ctx, f)
}

// Deliveries implements queue.Outbox.
func (l *Ledger) Deliveries(ctx context.Context, now, until queue.Instant, limit int) ([]queue.Delivery, error) {
	ds, err := l.Queue.Deliveries(ctx, now, until, limit)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range ds {
		j := &ds[i].Job
		a := l.jobs[j.Ref]
		if a == nil {
			l.violation("a webhook of %q, which nobody submitted", j.ID)
			continue
		}
		if !j.Status.Terminal() || j.Webhook != a.job.Webhook {
			l.violation("a webhook of %q with status %v to %q", j.ID, j.Status, j.Webhook)
		}
	}
	return ds, err
}

// LoadDelivery implements queue.Outbox.
func (l *Ledger) LoadDelivery(ctx context.Context, d *queue.Delivery) error {
	if err := l.Queue.LoadDelivery(ctx, d); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.jobs[d.Job.Ref]; a != nil && d.Fault == "" {
		l.result(a, &d.Job.State, d.Job.Output)
	}
	return nil
}

// Record implements queue.Outbox.
func (l *Ledger) Record(ctx context.Context, as []queue.Attempt) error {
	f := &inFlightCall{}
	for i := range as {
		if as[i].Next == 0 {
			f.hooks = append(f.hooks, l.hookOf(&as[i]))
		}
	}
	defer l.begin(0, f)()
	if err := l.Queue.Record(ctx, as); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range f.hooks {
		l.due[h] = false
	}
	return nil
}

func (l *Ledger) hookOf(a *queue.Attempt) hook {
	var run uint32
	if _, err := fmt.Sscanf(a.DeliveryID[strings.LastIndexByte(a.DeliveryID, '_')+1:], "%d", &run); err != nil || queue.DeliveryID(a.Ref, run) != a.DeliveryID {
		return hook{}
	}
	return hook{a.Ref, run}
}

// NextDelivery implements queue.Outbox.
func (l *Ledger) NextDelivery(ctx context.Context) (queue.Instant, error) {
	return l.Queue.NextDelivery(ctx)
}

// Attempts implements queue.Outbox.
func (l *Ledger) Attempts(ctx context.Context, ref queue.Ref) ([]queue.Attempt, error) {
	return l.Queue.Attempts(ctx, ref)
}

// PastAttempts implements queue.JobQueue.
func (l *Ledger) PastAttempts(ctx context.Context, now queue.Instant, ref queue.Ref) ([]queue.JobAttempt, error) {
	return l.Queue.PastAttempts(ctx, now, ref)
}

// PastLeases implements queue.JobQueue.
func (l *Ledger) PastLeases(ctx context.Context, now queue.Instant, ref queue.Ref) ([]queue.JobLease, error) {
	return l.Queue.PastLeases(ctx, now, ref)
}

// DeadLetters implements queue.DeadLetters.
func (l *Ledger) DeadLetters(ctx context.Context, now queue.Instant, endpoint, owner string) iter.Seq2[queue.DeadLetter, error] {
	return l.Queue.DeadLetters(ctx, now, endpoint, owner)
}

// DeadLetter implements queue.DeadLetters.
func (l *Ledger) DeadLetter(ctx context.Context, now queue.Instant, ref queue.Ref) (queue.DeadLetter, error) {
	return l.Queue.DeadLetter(ctx, now, ref)
}

// DropDead implements queue.DeadLetters.
func (l *Ledger) DropDead(ctx context.Context, refs []queue.Ref) error {
	l.mu.Lock()
	for _, ref := range refs {
		if d, ok := l.dead[ref]; ok {
			d.dropped = true
			l.dead[ref] = d
		}
	}
	l.mu.Unlock()
	return l.Queue.DropDead(ctx, refs)
}
