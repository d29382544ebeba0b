package serverlesstest

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/queue"
)

// TestShared runs the rules of a queue over several queues of one store, as servers have them.
// open returns at least two queues of a new, empty store. Each case of QueueCases gets a queue
// that gives every call to the next of them; then come the rules of two servers.
func TestShared(t *testing.T, open func(t *testing.T) []queue.JobQueue) {
	for _, c := range QueueCases() {
		suite.Run(t, c.Name, c.Why, func(t *testing.T) { c.Run(t, InTurn(open(t)...)) })
	}
	for _, c := range sharedCases() {
		suite.Run(t, c.name, c.why, func(t *testing.T) {
			list := open(t)
			c.run(&fixture{T: t, q: list[0], now: start}, &fixture{T: t, q: list[1], now: start, made: 5000})
		})
	}
}

// A sharedCase is a rule of two queues of one store.
type sharedCase struct {
	name, why string
	run       func(a, b *fixture)
}

func sharedCases() []sharedCase {
	return []sharedCase{
		{"EventsReachTheOtherServer", "Watch reports what another server did: ready, done, stop, chunk", eventsReachTheOther},
		{"SeqGrowsAcrossServers", "a job that is submitted after another call has returned comes after its jobs, on any server", seqGrowsAcross},
		{"ServersClaimEachJobOnce", "servers that submit and claim at once give each job once, under tokens that differ", serversClaimOnce},
		{"TheOtherServerExpiresALease", "a lease that one server gave is ended by the Expire of another", otherExpires},
		{"TheOtherServerTakesADelivery", "a delivery whose lease has ended at one server is given to the other", otherDelivers},
		{"ReportsGoToAnyServer", "a worker may claim at one server, renew at another, and report at either, once", reportsAnywhere},
	}
}

func eventsReachTheOther(a, b *fixture) {
	h := b.watch()
	a.add()
	h.ready("Enqueue at the other server")
	j := a.take("w")
	a.mustApply(chunk(j, "1"))
	h.await("OpChunk at the other server", queue.Event{Kind: queue.EventChunk, Ref: j.Ref})
	a.mustApply(userOp(j, queue.OpCancel))
	h.stopped("OpCancel at the other server", j)
	j = a.run()
	a.mustApply(finishOp(j, "1"))
	h.done("OpFinish at the other server", j)
}

func seqGrowsAcross(a, b *fixture) {
	last := uint64(0)
	for n := range 40 {
		k := [...]*fixture{a, b}[n%2]
		for _, j := range k.enqueue(k.job(), k.job()) {
			if j.Seq <= last {
				k.Errorf("Seq %d of %q after %d, want a larger one", j.Seq, j.ID, last)
			}
			last = j.Seq
		}
	}
	got := ids(a.claim(a.slot("w", 80)))
	for i := 1; i < len(got); i++ {
		if first, second := a.get(queue.Job{Ref: queue.Ref{Endpoint: echo, ID: got[i-1]}}), a.get(queue.Job{Ref: queue.Ref{Endpoint: echo, ID: got[i]}}); first.Seq >= second.Seq {
			a.Errorf("%q is claimed before %q, want the order of Seq", got[i-1], got[i])
		}
	}
	a.wantEqual("claimed", 80, len(got))
}

func serversClaimOnce(a, b *fixture) {
	const each, callers = 20, 8
	var mu sync.Mutex
	got, tokens := map[queue.JobID]int{}, map[queue.Token]bool{}
	work := func(k *fixture, name string) {
		for n := range each {
			j := a.plain(fmt.Sprintf("%s-%d", name, n))
			if err := k.q.Enqueue(k.Context(), []queue.Job{j}); err != nil {
				k.Errorf("Enqueue = %v, want nil", err)
			}
			jobs, err := k.q.Claim(k.Context(), k.now, []queue.Slot{k.slot(queue.WorkerID(name), 1+n%3)}, nil)
			if err != nil {
				k.Errorf("Claim = %v, want nil", err)
			}
			mu.Lock()
			for i := range jobs {
				got[jobs[i].ID]++
				tokens[jobs[i].Token] = true
			}
			mu.Unlock()
		}
	}
	inParallel(2*callers, func(i int) { work([...]*fixture{a, b}[i%2], fmt.Sprint("w", i)) })
	for _, j := range b.claim(b.slot("last", 2*each*callers)) {
		got[j.ID]++
		tokens[j.Token] = true
	}
	a.wantEqual("jobs, tokens", []int{2 * each * callers, 2 * each * callers}, []int{len(got), len(tokens)})
	for id, n := range got {
		if n != 1 {
			a.Errorf("%q was claimed %d times, want once", id, n)
		}
	}
	a.wantEqual("Running", int64(2*each*callers), a.stats(echo).Running)
}

// plain returns a job with a name, for callers that do not share the fixture's counter.
func (k *fixture) plain(name string) queue.Job {
	return queue.Job{
		Ref: queue.Ref{Endpoint: echo, ID: queue.JobID(name)}, Owner: "user-1", Input: []byte(`{}`),
		State: queue.State{Submitted: k.now, Queued: k.now, Expires: k.now + ttl, Terms: queue.Terms{ExecTimeout: exec * time.Millisecond, Retain: keep * time.Millisecond}},
	}
}

func otherExpires(a, b *fixture) {
	j := a.run()
	b.now += lease
	b.expire()
	b.wantStatus(j, queue.InQueue)
	b.take("other")
	a.now = b.now
	a.mustRefuse(finishOp(j, "1"), queue.ErrLeaseLost)
}

func otherDelivers(a, b *fixture) {
	a.mustApply(finishOp(a.run(withWebhook), "1"))
	first := a.delivery()
	b.wantEqual("Deliveries at the other server", 0, len(b.deliveries(10)))
	b.now += sendLease
	second := b.delivery()
	a.now = b.now
	a.record(a.attempt(first, 0))
	b.wantEqual("attempts under a lost lease", 0, len(b.attempts(first.Job)))
	b.record(b.attempt(second, 0))
	a.wantEqual("attempts", 1, len(a.attempts(first.Job)))
}

func reportsAnywhere(a, b *fixture) {
	j := a.run()
	b.mustApply(workerOp(j, queue.OpRenew, withUntil(b.now+2*lease)))
	a.now += lease
	a.expire()
	a.wantStatus(j, queue.InProgress)
	b.now = a.now
	b.mustApply(finishOp(j, "1"))
	a.mustRefuse(finishOp(j, "2"), queue.ErrLeaseLost)
}

// InTurn returns a queue that gives each call to the next of several queues of one store.
func InTurn(list ...queue.JobQueue) queue.JobQueue { return &turns{list: list} }

type turns struct {
	list []queue.JobQueue
	n    atomic.Uint64
}

func (q *turns) next() queue.JobQueue { return q.list[q.n.Add(1)%uint64(len(q.list))] }

// Shared implements queue.Shared.
func (q *turns) Shared() bool { return true }

func (q *turns) Enqueue(ctx context.Context, jobs []queue.Job) error {
	return q.next().Enqueue(ctx, jobs)
}

func (q *turns) Claim(ctx context.Context, now queue.Instant, slots []queue.Slot, out []queue.Job) ([]queue.Job, error) {
	return q.next().Claim(ctx, now, slots, out)
}

func (q *turns) Apply(ctx context.Context, now queue.Instant, ops []queue.Op, res []queue.Result) error {
	return q.next().Apply(ctx, now, ops, res)
}

func (q *turns) Expire(ctx context.Context, now queue.Instant, limit int) (queue.Instant, error) {
	return q.next().Expire(ctx, now, limit)
}

func (q *turns) Purge(ctx context.Context, now queue.Instant, p queue.PurgeQuery) (int, uint64, error) {
	return q.next().Purge(ctx, now, p)
}

func (q *turns) Get(ctx context.Context, now queue.Instant, ref queue.Ref) (queue.Job, error) {
	return q.next().Get(ctx, now, ref)
}

func (q *turns) Chunks(ctx context.Context, now queue.Instant, ref queue.Ref, maxBytes int) ([][]byte, queue.State, error) {
	return q.next().Chunks(ctx, now, ref, maxBytes)
}

func (q *turns) PastAttempts(ctx context.Context, now queue.Instant, ref queue.Ref) ([]queue.JobAttempt, error) {
	return q.next().PastAttempts(ctx, now, ref)
}

func (q *turns) PastLeases(ctx context.Context, now queue.Instant, ref queue.Ref) ([]queue.JobLease, error) {
	return q.next().PastLeases(ctx, now, ref)
}

func (q *turns) List(ctx context.Context, now queue.Instant, l queue.ListQuery) iter.Seq2[queue.Job, error] {
	return q.next().List(ctx, now, l)
}

func (q *turns) Stats(ctx context.Context, now queue.Instant, endpoint string, r *queue.Rules) (queue.Stats, error) {
	return q.next().Stats(ctx, now, endpoint, r)
}

func (q *turns) Watch(ctx context.Context, f func([]queue.Event)) error {
	return q.next().Watch(ctx, f)
}

func (q *turns) Deliveries(ctx context.Context, now, until queue.Instant, limit int) ([]queue.Delivery, error) {
	return q.next().Deliveries(ctx, now, until, limit)
}

func (q *turns) LoadDelivery(ctx context.Context, d *queue.Delivery) error {
	return q.next().LoadDelivery(ctx, d)
}

func (q *turns) Record(ctx context.Context, a []queue.Attempt) error {
	return q.next().Record(ctx, a)
}

func (q *turns) NextDelivery(ctx context.Context) (queue.Instant, error) {
	return q.next().NextDelivery(ctx)
}

func (q *turns) Attempts(ctx context.Context, ref queue.Ref) ([]queue.Attempt, error) {
	return q.next().Attempts(ctx, ref)
}

func (q *turns) FindKey(ctx context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return q.next().FindKey(ctx, key)
}

func (q *turns) DeadLetters(ctx context.Context, now queue.Instant, endpoint, owner string) iter.Seq2[queue.DeadLetter, error] {
	return q.next().DeadLetters(ctx, now, endpoint, owner)
}

func (q *turns) DeadLetter(ctx context.Context, now queue.Instant, ref queue.Ref) (queue.DeadLetter, error) {
	return q.next().DeadLetter(ctx, now, ref)
}

func (q *turns) DropDead(ctx context.Context, refs []queue.Ref) error {
	return q.next().DropDead(ctx, refs)
}

// Lossy returns a queue whose Watch loses every event, as behind a connection that cannot
// listen. With a gap that is not 0 it reports an EventGap each time that has passed. It is Shared.
func Lossy(q queue.JobQueue, gap time.Duration) queue.JobQueue { return lossy{q, gap} }

type lossy struct {
	queue.JobQueue
	gap time.Duration
}

// Unwrap returns the queue that keeps the jobs.
func (q lossy) Unwrap() queue.JobQueue { return q.JobQueue }

// Shared implements queue.Shared.
func (q lossy) Shared() bool { return true }

func (q lossy) Watch(ctx context.Context, f func([]queue.Event)) error {
	if q.gap == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	each := time.NewTicker(q.gap)
	defer each.Stop()
	for {
		f([]queue.Event{{Kind: queue.EventGap}})
		select {
		case <-each.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
