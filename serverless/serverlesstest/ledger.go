package serverlesstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/podyard/podyard/serverless"
)

// A Ledger is a queue that passes calls on to another and writes down what was
// acknowledged: by answers, and by whatever else was seen. It checks the invariants of a
// queue as it goes (a token is issued once, a lease is fenced, a run has one result, what
// comes out is what went in), and Check holds a queue that was opened again, after a crash
// perhaps, to everything that was acknowledged.
//
// It is safe for concurrent use. What it finds is in Err: the first violation.
type Ledger struct {
	Queue serverless.JobQueue

	mu     sync.Mutex
	err    error
	jobs   map[serverless.Ref]*account
	tokens map[serverless.Token]bool
	due    map[hook]bool // webhooks that were acknowledged: true until they are settled
	flight map[*flying]bool
	now    serverless.Instant // the latest that was named
	sweeps int                // of Expire and Purge, which do not say what they moved
}

// An account is what is known of a job.
type account struct {
	job     serverless.Job // as it was submitted
	sure    bool           // it was acknowledged
	gone    bool           // and is deleted
	state   serverless.State
	sweep   int // how many sweeps there were when the state was seen
	results map[uint32]result
}

// A result is how a run ended.
type result struct {
	status serverless.Status
	output []byte
}

type hook struct {
	serverless.Ref
	run uint32
}

// A flying call has no answer yet: what it asks for may have happened or not.
type flying struct {
	op    *serverless.Op // nil: anything that Expire and Purge do
	hooks []hook         // that it may settle
}

var _ serverless.JobQueue = (*Ledger)(nil)

// NewLedger returns a ledger of q, which is empty.
func NewLedger(q serverless.JobQueue) *Ledger {
	return &Ledger{
		Queue: q, jobs: map[serverless.Ref]*account{}, tokens: map[serverless.Token]bool{},
		due: map[hook]bool{}, flight: map[*flying]bool{},
	}
}

// Clone is a copy for a queue that is yet to be opened, with what is in flight now as
// something that may have happened.
func (l *Ledger) Clone() *Ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := NewLedger(nil)
	c.err, c.now, c.sweeps = l.err, l.now, l.sweeps
	c.tokens, c.due, c.flight = maps.Clone(l.tokens), maps.Clone(l.due), maps.Clone(l.flight)
	for ref, a := range l.jobs {
		copied := *a
		copied.results = maps.Clone(a.results)
		c.jobs[ref] = &copied
	}
	return c
}

// Err is the first violation.
func (l *Ledger) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Now is the latest instant that a call has named.
func (l *Ledger) Now() serverless.Instant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// broken notes a violation. The caller holds mu.
func (l *Ledger) broken(format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf(format, args...)
	}
}

// fly notes a call under way, and returns what ends it.
func (l *Ledger) fly(now serverless.Instant, fs ...*flying) (land func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = max(l.now, now)
	for _, f := range fs {
		l.flight[f] = true
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, f := range fs {
			delete(l.flight, f)
		}
	}
}

// InFlight are the jobs of the calls under way.
func (l *Ledger) InFlight() (refs []serverless.Ref) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for f := range l.flight {
		if f.op != nil {
			refs = append(refs, f.op.Ref)
		}
	}
	return refs
}

// Saw notes a state that was seen from outside: it may not be lost any more.
func (l *Ledger) Saw(ref serverless.Ref, s *serverless.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.jobs[ref]
	if a == nil {
		return
	}
	a.sure = true
	l.settle(a, s)
}

// settle writes down a state.
func (l *Ledger) settle(a *account, s *serverless.State) {
	if a.state.Status.Terminal() && !s.Status.Terminal() && s.Run == a.state.Run {
		l.broken("%q was %v and is %v in the same run", a.job.ID, a.state.Status, s.Status)
	}
	if s.Run < a.state.Run {
		l.broken("%q was in run %d and is in run %d", a.job.ID, a.state.Run, s.Run)
	}
	if s.Status.Terminal() && (!a.state.Status.Terminal() || a.state.Run != s.Run) && s.Flags&serverless.HasWebhook != 0 {
		// It may have been settled before its end had an answer.
		if h := (hook{a.job.Ref, s.Run}); !l.settled(h) {
			l.due[h] = true
		}
	}
	a.state, a.sweep = *s, l.sweeps
}

func (l *Ledger) settled(h hook) bool {
	open, known := l.due[h]
	return known && !open
}

// result writes down how a run ended.
func (l *Ledger) result(a *account, s *serverless.State, output []byte) {
	if !s.Status.Terminal() {
		return
	}
	old, ok := a.results[s.Run]
	if ok && (old.status != s.Status || !bytes.Equal(old.output, output)) {
		l.broken("run %d of %q has two results: %v %q and %v %q", s.Run, a.job.ID, old.status, old.output, s.Status, output)
	}
	a.results[s.Run] = result{s.Status, output}
}

// Enqueue implements serverless.JobQueue.
func (l *Ledger) Enqueue(ctx context.Context, jobs []serverless.Job) error {
	fs := make([]*flying, len(jobs))
	l.mu.Lock()
	for i := range jobs {
		fs[i] = &flying{op: &serverless.Op{Ref: jobs[i].Ref}}
		if a := l.jobs[jobs[i].Ref]; a == nil || a.gone {
			l.jobs[jobs[i].Ref] = &account{job: jobs[i], state: jobs[i].State, results: map[uint32]result{}}
		}
	}
	l.mu.Unlock()
	defer l.fly(0, fs...)()
	if err := l.Queue.Enqueue(ctx, jobs); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range jobs {
		l.jobs[jobs[i].Ref].sure = true
	}
	return nil
}

// Claim implements serverless.JobQueue.
func (l *Ledger) Claim(ctx context.Context, now serverless.Instant, slots []serverless.Slot, out []serverless.Job) ([]serverless.Job, error) {
	defer l.fly(now)()
	got, err := l.Queue.Claim(ctx, now, slots, nil)
	if err != nil {
		return out, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range got {
		j := &got[i]
		if l.tokens[j.Token] {
			l.broken("token %x was issued twice", j.Token)
		}
		l.tokens[j.Token] = true
		a := l.jobs[j.Ref]
		if a == nil {
			l.broken("claimed %q, which nobody submitted", j.ID)
			continue
		}
		a.sure = true
		if !bytes.Equal(j.Input, a.job.Input) || !bytes.Equal(j.Extra, a.job.Extra) || j.Owner != a.job.Owner {
			l.broken("claimed %q with %q, submitted with %q", j.ID, j.Input, a.job.Input)
		}
		l.settle(a, &j.State)
	}
	return append(out, got...), nil
}

// Apply implements serverless.JobQueue.
func (l *Ledger) Apply(ctx context.Context, now serverless.Instant, ops []serverless.Op, res []serverless.Result) error {
	fs := make([]*flying, len(ops))
	for i := range ops {
		fs[i] = &flying{op: &ops[i]}
	}
	defer l.fly(now, fs...)()
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

func (l *Ledger) applied(op *serverless.Op, r *serverless.Result) {
	a := l.jobs[op.Ref]
	if a == nil || r.Err != nil || r.Effect == 0 {
		return
	}
	if op.Kind <= serverless.OpProgress && op.Token != 0 && op.Token != r.State.Token {
		l.broken("op %d on %q under token %x was taken, its lease is %x", op.Kind, op.ID, op.Token, r.State.Token)
	}
	if r.Effect&serverless.Delete != 0 {
		return
	}
	before := a.state
	l.settle(a, &r.State)
	if !r.State.Status.Terminal() || before.Status.Terminal() {
		return
	}
	var output []byte
	if op.Kind == serverless.OpFinish {
		output = op.Payload
		l.result(a, &r.State, output)
	}
}

// swept notes that jobs may have moved unseen.
func (l *Ledger) swept(land func()) {
	land()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweeps++
}

// Expire implements serverless.JobQueue.
func (l *Ledger) Expire(ctx context.Context, now serverless.Instant, limit int) (serverless.Instant, error) {
	defer l.swept(l.fly(now, &flying{}))
	return l.Queue.Expire(ctx, now, limit)
}

// Purge implements serverless.JobQueue.
func (l *Ledger) Purge(ctx context.Context, now serverless.Instant, p serverless.PurgeQuery) (int, uint64, error) {
	defer l.swept(l.fly(now, &flying{}))
	return l.Queue.Purge(ctx, now, p)
}

// Get implements serverless.JobQueue.
func (l *Ledger) Get(ctx context.Context, now serverless.Instant, ref serverless.Ref) (serverless.Job, error) {
	defer l.fly(now)()
	j, err := l.Queue.Get(ctx, now, ref)
	if err != nil {
		return j, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.got(&j)
	return j, nil
}

func (l *Ledger) got(j *serverless.Job) {
	a := l.jobs[j.Ref]
	if a == nil {
		l.broken("%q is there, which nobody submitted", j.ID)
		return
	}
	a.sure = true
	if j.Reason == serverless.Damaged {
		a.job.Input = nil // it has none from then on
	}
	if !bytes.Equal(j.Input, a.job.Input) || j.Webhook != a.job.Webhook || j.Owner != a.job.Owner {
		l.broken("%q has input %q, submitted with %q", j.ID, j.Input, a.job.Input)
	}
	l.settle(a, &j.State)
	l.result(a, &j.State, j.Output)
}

// Chunks implements serverless.JobQueue.
func (l *Ledger) Chunks(ctx context.Context, now serverless.Instant, ref serverless.Ref, maxBytes int) ([][]byte, serverless.State, error) {
	return l.Queue.Chunks(ctx, now, ref, maxBytes)
}

// List implements serverless.JobQueue.
func (l *Ledger) List(ctx context.Context, now serverless.Instant, q serverless.ListQuery) iter.Seq2[serverless.Job, error] {
	return l.Queue.List(ctx, now, q)
}

// Stats implements serverless.JobQueue.
func (l *Ledger) Stats(ctx context.Context, now serverless.Instant, endpoint string) (serverless.Stats, error) {
	return l.Queue.Stats(ctx, now, endpoint)
}

// Watch implements serverless.JobQueue.
func (l *Ledger) Watch(ctx context.Context, f func([]serverless.Event)) error {
	return l.Queue.Watch(ctx, f)
}

// Deliveries implements serverless.Outbox.
func (l *Ledger) Deliveries(ctx context.Context, now, until serverless.Instant, limit int) ([]serverless.Delivery, error) {
	ds, err := l.Queue.Deliveries(ctx, now, until, limit)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range ds {
		j := &ds[i].Job
		a := l.jobs[j.Ref]
		if a == nil {
			l.broken("a webhook of %q, which nobody submitted", j.ID)
			continue
		}
		if !j.Status.Terminal() || j.Webhook != a.job.Webhook {
			l.broken("a webhook of %q with status %v to %q", j.ID, j.Status, j.Webhook)
		}
		l.result(a, &j.State, j.Output)
	}
	return ds, err
}

// Record implements serverless.Outbox.
func (l *Ledger) Record(ctx context.Context, as []serverless.Attempt) error {
	f := &flying{}
	for i := range as {
		if as[i].Next == 0 {
			f.hooks = append(f.hooks, l.hookOf(&as[i]))
		}
	}
	defer l.fly(0, f)()
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

func (l *Ledger) hookOf(a *serverless.Attempt) hook {
	var run uint32
	if _, err := fmt.Sscanf(a.DeliveryID[strings.LastIndexByte(a.DeliveryID, '_')+1:], "%d", &run); err != nil || serverless.DeliveryID(a.Ref, run) != a.DeliveryID {
		return hook{}
	}
	return hook{a.Ref, run}
}

// NextDelivery implements serverless.Outbox.
func (l *Ledger) NextDelivery(ctx context.Context) (serverless.Instant, error) {
	return l.Queue.NextDelivery(ctx)
}

// Attempts implements serverless.Outbox.
func (l *Ledger) Attempts(ctx context.Context, ref serverless.Ref) ([]serverless.Attempt, error) {
	return l.Queue.Attempts(ctx, ref)
}

// Check holds q, from now on the queue of the ledger, to what was acknowledged: every job
// is there until its ttl or retention ends and then is not, none has lost its result or
// has another one, webhooks wait for their delivery, counters are what a recount gives.
func (l *Ledger) Check(ctx context.Context, q serverless.JobQueue) error {
	l.Queue = q
	for _, ref := range slices.Collect(maps.Keys(l.jobs)) {
		j, err := q.Get(ctx, l.now, ref)
		if err != nil && !errors.Is(err, serverless.ErrNotFound) {
			return fmt.Errorf("get %q: %w", ref.ID, err)
		}
		l.checkJob(ref, &j, err == nil)
	}
	settled := map[hook]bool{} // perhaps
	for f := range l.flight {
		for _, h := range f.hooks {
			settled[h] = true
		}
	}
	l.flight = map[*flying]bool{}
	if err := l.Err(); err != nil {
		return err
	}
	if err := l.checkStats(ctx); err != nil {
		return err
	}
	if err := l.checkHooks(ctx, settled); err != nil {
		return err
	}
	return l.Err()
}

func (l *Ledger) checkJob(ref serverless.Ref, j *serverless.Job, there bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.jobs[ref]
	moving := l.moving(ref)
	switch {
	case !there && !a.sure:
		delete(l.jobs, ref)
		return
	case !there && (a.gone || a.state.Gone(l.now)), !there && slices.ContainsFunc(moving, shortens):
		a.gone = true
		return
	case !there:
		l.broken("%q is lost: it was %v", ref.ID, a.state.Status)
		return
	case a.gone || a.state.Gone(l.now) && len(moving) == 0:
		l.broken("%q is back: it was gone", ref.ID)
		return
	}
	// A run that was acknowledged as ended has its result; one that may have been retried
	// since has a later run. What was not acknowledged may have happened.
	if a.state.Status.Terminal() && j.Run == a.state.Run && j.Status != a.state.Status {
		l.broken("%q was %v and is %v", ref.ID, a.state.Status, j.Status)
	}
	if !a.state.Status.Terminal() && j.Status.Terminal() && len(moving) == 0 && a.sweep == l.sweeps {
		l.broken("%q is %v, which nobody asked for", ref.ID, j.Status)
	}
	l.got(j)
}

// shortens reports whether a call may end a job's life early.
func shortens(f *flying) bool { return f.op != nil && f.op.Kind == serverless.OpSetTTL }

// moving are the calls in flight that may move a job.
func (l *Ledger) moving(ref serverless.Ref) (fs []*flying) {
	for f := range l.flight {
		if f.op == nil || f.op.Ref == ref {
			fs = append(fs, f)
		}
	}
	return fs
}

func (l *Ledger) checkStats(ctx context.Context) error {
	counts := map[string][2]int64{}
	for ref, a := range l.jobs {
		if a.gone {
			continue
		}
		n := counts[ref.Endpoint]
		switch a.state.Status {
		case serverless.InQueue:
			n[0]++
		case serverless.InProgress:
			n[1]++
		}
		counts[ref.Endpoint] = n
	}
	for endpoint, n := range counts {
		s, err := l.Queue.Stats(ctx, l.now, endpoint)
		if err != nil {
			return err
		}
		// Jobs past their time count until they are swept.
		if s.Queued < n[0] || s.Running < n[1] {
			return fmt.Errorf("stats of %q say %d queued and %d running, a recount %d and %d", endpoint, s.Queued, s.Running, n[0], n[1])
		}
	}
	return nil
}

// checkHooks looks for each webhook that was acknowledged and not settled. The leases it
// takes are over at once.
func (l *Ledger) checkHooks(ctx context.Context, settled map[hook]bool) error {
	const never = serverless.Instant(1) << 60
	ds, err := l.Deliveries(ctx, never, never+1, 1<<20)
	if err != nil {
		return err
	}
	found := map[hook]bool{}
	for i := range ds {
		found[hook{ds[i].Job.Ref, ds[i].Job.Run}] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for h, open := range l.due {
		switch {
		case !open, found[h]:
		case settled[h]:
			l.due[h] = false
		default:
			l.broken("the webhook of run %d of %q is lost", h.run, h.ID)
		}
	}
	return nil
}
