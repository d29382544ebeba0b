package disk

import (
	"context"
	"iter"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/serverlesstest"
)

// walk makes a random walk. It prints its seed if it fails.
func walk(t *testing.T, seed uint64, steps int, q queue.JobQueue) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	if err := (serverlesstest.Walk{Queue: q, Steps: steps, Draw: rng.IntN}).Run(t.Context()); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
}

// seeds returns n in a short test, and a larger number in a long one.
func seeds(n uint64) uint64 {
	if longTime() > 0 {
		return 50 * n
	}
	return n
}

func TestJobsAnswerAsTheModelDoes(t *testing.T) {
	for seed := range seeds(4) {
		walk(t, seed, 400, memStore(t).Jobs())
	}
}

func TestJobsAnswerAsTheModelDoesAcrossReopenings(t *testing.T) {
	for seed := range seeds(10) {
		q := &reopening{t: t, s: openForTest(t, "store", inMemory(vfs.NewMem())), rng: rand.New(rand.NewPCG(seed, 1))}
		walk(t, seed, 100, q)
	}
}

// reopening is a queue whose store is closed and opened again from time to time.
type reopening struct {
	t   *testing.T
	s   *Store
	rng *rand.Rand
	// Leases of deliveries are only in memory, and the model has no restarts. So the store
	// stays open after the first lease.
	sent     bool
	openings int
	limits   *budget.Set
}

// Limit implements budget.Counter.
func (q *reopening) Limit(set *budget.Set) {
	q.limits = set
	q.jobs().Limit(set)
}

// Usage implements budget.Counter.
func (q *reopening) Usage(ctx context.Context, user string) (budget.Usage, error) {
	return q.jobs().Usage(ctx, user)
}

// Users implements budget.Counter.
func (q *reopening) Users(ctx context.Context) ([]string, error) { return q.jobs().Users(ctx) }

// Openings implements serverlesstest.Reopened.
func (q *reopening) Openings() int { return q.openings }

func (q *reopening) jobs() *Jobs {
	if !q.sent && q.rng.IntN(20) == 0 {
		q.s = reopen(q.t, q.s)
		q.s.Limit(q.limits)
		q.openings++
	}
	return q.s.Jobs()
}

func (q *reopening) Enqueue(ctx context.Context, jobs []queue.Job) error {
	return q.jobs().Enqueue(ctx, jobs)
}

func (q *reopening) FindKey(ctx context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return q.jobs().FindKey(ctx, key)
}

func (q *reopening) Claim(ctx context.Context, now queue.Instant, slots []queue.Slot, out []queue.Job) ([]queue.Job, error) {
	return q.jobs().Claim(ctx, now, slots, out)
}

func (q *reopening) Apply(ctx context.Context, now queue.Instant, ops []queue.Op, res []queue.Result) error {
	return q.jobs().Apply(ctx, now, ops, res)
}

func (q *reopening) Expire(ctx context.Context, now queue.Instant, limit int) (queue.Instant, error) {
	return q.jobs().Expire(ctx, now, limit)
}

func (q *reopening) Purge(ctx context.Context, now queue.Instant, p queue.PurgeQuery) (int, uint64, error) {
	return q.jobs().Purge(ctx, now, p)
}

func (q *reopening) Get(ctx context.Context, now queue.Instant, ref queue.Ref) (queue.Job, error) {
	return q.jobs().Get(ctx, now, ref)
}

func (q *reopening) Chunks(ctx context.Context, now queue.Instant, ref queue.Ref, maxBytes int) ([][]byte, queue.State, error) {
	return q.jobs().Chunks(ctx, now, ref, maxBytes)
}

func (q *reopening) List(ctx context.Context, now queue.Instant, lq queue.ListQuery) iter.Seq2[queue.Job, error] {
	return q.jobs().List(ctx, now, lq)
}

func (q *reopening) Stats(ctx context.Context, now queue.Instant, endpoint string, rules *queue.Rules) (queue.Stats, error) {
	return q.jobs().Stats(ctx, now, endpoint, rules)
}

func (q *reopening) Watch(ctx context.Context, f func([]queue.Event)) error {
	return q.s.Jobs().Watch(ctx, f)
}

func (q *reopening) Deliveries(ctx context.Context, now, until queue.Instant, limit int) ([]queue.Delivery, error) {
	ds, err := q.jobs().Deliveries(ctx, now, until, limit)
	q.sent = q.sent || len(ds) > 0
	return ds, err
}

func (q *reopening) LoadDelivery(ctx context.Context, d *queue.Delivery) error {
	return q.jobs().LoadDelivery(ctx, d)
}

func (q *reopening) Record(ctx context.Context, a []queue.Attempt) error {
	return q.jobs().Record(ctx, a)
}

func (q *reopening) NextDelivery(ctx context.Context) (queue.Instant, error) {
	return q.jobs().NextDelivery(ctx)
}

func (q *reopening) Attempts(ctx context.Context, ref queue.Ref) ([]queue.Attempt, error) {
	return q.jobs().Attempts(ctx, ref)
}

func (q *reopening) PastAttempts(ctx context.Context, now queue.Instant, ref queue.Ref) ([]queue.JobAttempt, error) {
	return q.jobs().PastAttempts(ctx, now, ref)
}

func (q *reopening) PastLeases(ctx context.Context, now queue.Instant, ref queue.Ref) ([]queue.JobLease, error) {
	return q.jobs().PastLeases(ctx, now, ref)
}

func (q *reopening) DeadLetters(ctx context.Context, now queue.Instant, endpoint, owner string) iter.Seq2[queue.DeadLetter, error] {
	return q.jobs().DeadLetters(ctx, now, endpoint, owner)
}

func (q *reopening) DeadLetter(ctx context.Context, now queue.Instant, ref queue.Ref) (queue.DeadLetter, error) {
	return q.jobs().DeadLetter(ctx, now, ref)
}

func (q *reopening) DropDead(ctx context.Context, refs []queue.Ref) error {
	return q.jobs().DropDead(ctx, refs)
}
