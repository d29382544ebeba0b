package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/serverlesstest"
)

// Rules that run in a short test too: those in which a database differs most from a memory.
var quickRules = []string{
	"ARateIsABucket", "AStartThatNobodyGotIsGivenBack", "AllJobsOrNone", "SeqGrows", "TheOldestFirst", "NotToTheWorkerThatLostIt", "KeysTakeTurns", "PerKey",
	"DelayedJobsAreReadyInTheOrderOfTheirTimes", "TheLogOfAttempts", "ADrainIsFencedByLease", "ADeliveryOutlivesARetry",
	"TakenKeyCreatesNothing", "OneEnd", "DeadLettersOfACallHaveItsOrder",
}

// longest reports whether tests of minutes run, which .ci/long postgres has.
func longest() bool { return os.Getenv("PODYARD_LONG") != "" }

func runJobCases(t *testing.T, all bool, jobs func(t *testing.T) queue.JobQueue) {
	t.Helper()
	for _, c := range serverlesstest.QueueCases() {
		if all || slices.Contains(quickRules, c.Name) {
			suite.Run(t, c.Name, c.Why, func(t *testing.T) { c.Run(t, jobs(t)) })
		}
	}
}

func TestJobs(t *testing.T) {
	runJobCases(t, suite.Long(), func(t *testing.T) queue.JobQueue { return openURL(t, postgresql.Database(t)).Jobs() })
}

func TestJobsOfTwoServersInTurn(t *testing.T) {
	suite.SkipUnlessLong(t)
	runJobCases(t, longest(), func(t *testing.T) queue.JobQueue { return newTwoServers(t) })
}

func TestNoSizeChangesAnAnswer(t *testing.T) {
	suite.SkipUnlessLong(t)
	runJobCases(t, longest(), func(t *testing.T) queue.JobQueue { return newTinyServers(t) })
}

// newCopying opens a queue that copies also the jobs of small calls.
func newCopying(t *testing.T) *postgres.Jobs {
	t.Helper()
	q := openURL(t, postgresql.Database(t)).Jobs()
	q.CopyAll()
	return q
}

func TestJobsThatAreCopied(t *testing.T) {
	suite.SkipUnlessLong(t)
	runJobCases(t, longest(), func(t *testing.T) queue.JobQueue { return newCopying(t) })
}

func TestACallOfManyJobsAddsAllOrNone(t *testing.T) {
	suite.SkipUnlessLong(t)
	for name, url := range map[string]func(t *testing.T) string{
		"direct": func(t *testing.T) string { return postgresql.Database(t) },
		"pooled": func(t *testing.T) string { return pooled(t, postgresql.Database(t)) },
	} {
		t.Run(name, func(t *testing.T) { checkManyJobs(t, openURL(t, url(t)).Jobs()) })
	}
}

func checkManyJobs(t *testing.T, q *postgres.Jobs) {
	t.Helper()
	odd := "a\x00b\xff'\"\\{},NULL"
	many := func(prefix string) (jobs []queue.Job) {
		for i := range 1200 {
			j := newJob(fmt.Sprint(prefix, odd, i))
			j.Owner, j.Key, j.Webhook, j.Input, j.Extra = odd, odd, "https://"+odd, []byte(odd), []byte(odd)
			j.Trace = queue.Trace{Parent: odd, State: odd}
			jobs = append(jobs, j)
		}
		return jobs
	}
	first := many("1")
	first[3].Input = bytes.Repeat([]byte("x"), 1<<20)
	submit(t, q, first...)
	for i := 1; i < len(first); i++ {
		if first[i].Seq <= first[i-1].Seq {
			t.Fatalf("the numbers of job %d and the one before are %d and %d", i, first[i].Seq, first[i-1].Seq)
		}
	}
	second := many("2")
	second[700].ID = first[7].ID
	if err := q.Enqueue(t.Context(), second); !errors.Is(err, queue.ErrExists) {
		t.Errorf("Enqueue with an id that is taken = %v, want ErrExists", err)
	}
	wantStats(t, q, len(first))
	got, err := q.Get(t.Context(), instant, first[3].Ref)
	if err != nil || !bytes.Equal(got.Input, first[3].Input) {
		t.Errorf("the input has %d bytes, %v", len(got.Input), err)
	}
	got, err = q.Get(t.Context(), instant, first[1199].Ref)
	if err != nil || got.Owner != odd || got.Key != odd || string(got.Input) != odd || string(got.Extra) != odd || got.Webhook != first[0].Webhook || got.Trace != first[0].Trace {
		t.Errorf("Get = %+v, %v", got, err)
	}
	for _, j := range claim(t, q, instant, "w", 5, nil) {
		finish(t, q, j)
	}
	wantStats(t, q, len(first)-5)
}

func TestACallOfMoreJobsThanAreSentAhead(t *testing.T) {
	q := openURL(t, postgresql.Database(t)).Jobs()
	jobs := make([]queue.Job, 13_000)
	for i := range jobs {
		jobs[i] = newJob(fmt.Sprint(i))
	}
	jobs[12_999].ID = "5"
	if err := q.Enqueue(t.Context(), jobs); !errors.Is(err, queue.ErrExists) {
		t.Errorf("Enqueue with an id twice = %v, want ErrExists", err)
	}
	wantStats(t, q, 0)
	jobs[12_999].ID = "x"
	submit(t, q, jobs...)
	wantStats(t, q, len(jobs))
}

func TestACallOfManyJobsIsMadeAgainWhenItsConnectionEnds(t *testing.T) {
	url := postgresql.Database(t)
	q := openURL(t, url).Jobs()
	execute(t, url, `CREATE SEQUENCE podyard.tried`)
	execute(t, url, `CREATE FUNCTION podyard.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF nextval('podyard.tried') = 300 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NEW; END $$`)
	execute(t, url, `CREATE TRIGGER fail BEFORE INSERT ON podyard.job_bodies FOR EACH ROW EXECUTE FUNCTION podyard.fail()`)
	var jobs []queue.Job
	for i := range 1200 {
		jobs = append(jobs, newJob(fmt.Sprint(i)))
		jobs[i].Input = bytes.Repeat([]byte("x"), 10_000) // more than is on its way
	}
	submit(t, q, jobs...)
	wantStats(t, q, len(jobs))
}

func TestJobsAnswerAsTheModelDoes(t *testing.T) {
	for name, jobs := range map[string]func(t *testing.T) queue.JobQueue{
		"one server":              func(t *testing.T) queue.JobQueue { return openURL(t, postgresql.Database(t)).Jobs() },
		"one server, jobs copied": func(t *testing.T) queue.JobQueue { return newCopying(t) },
		"two servers":             func(t *testing.T) queue.JobQueue { return newTwoServers(t) },
		"two servers, tiny sizes": func(t *testing.T) queue.JobQueue { return newTinyServers(t) },
	} {
		seeds, steps := uint64(1), 60
		if longest() {
			seeds, steps = 8, 400
		}
		for seed := range seeds {
			t.Run(fmt.Sprintf("%s, seed %d", name, seed), func(t *testing.T) {
				t.Parallel()
				w := serverlesstest.Walk{Queue: jobs(t), Steps: steps, Draw: rand.New(rand.NewPCG(seed, 0)).IntN}
				if err := w.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestManyJobsAnswerAsTheModelDoes has lines that are longer than what is read of them at once.
func TestManyJobsAnswerAsTheModelDoes(t *testing.T) {
	if !longest() {
		t.Skip("slow: it runs with PODYARD_LONG")
	}
	w := serverlesstest.Walk{Queue: newTwoServers(t), Steps: 60, Batch: 1500, Draw: rand.New(rand.NewPCG(3, 0)).IntN}
	if err := w.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// twoServers are two stores over one database. Each call goes to the other one than the call before.
type twoServers struct {
	url    string
	stores [2]*postgres.Store
	calls  atomic.Uint64
}

func newTwoServers(t *testing.T) *twoServers {
	t.Helper()
	return newTwoServersWith(t, func(o *postgres.Options) *postgres.Options { return o })
}

// newTinyServers are two servers that read, write and keep one to three of everything at once.
func newTinyServers(t *testing.T) *twoServers {
	t.Helper()
	return newTwoServersWith(t, postgres.Tiny)
}

func newTwoServersWith(t *testing.T, options func(*postgres.Options) *postgres.Options) *twoServers {
	t.Helper()
	q := &twoServers{url: postgresql.Database(t)}
	for i := range q.stores {
		s, err := postgres.Open(t.Context(), q.url, postgres.CallersTime(options(&postgres.Options{MaxConns: 8, Key: testKey})))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		q.stores[i] = s
	}
	for _, s := range q.stores {
		s.Jobs().Eager()
	}
	return q
}

func (q *twoServers) next() *postgres.Jobs { return q.stores[q.calls.Add(1)%2].Jobs() }

func (q *twoServers) Shared() bool { return true }

func (q *twoServers) Enqueue(ctx context.Context, jobs []queue.Job) error {
	return q.next().Enqueue(ctx, jobs)
}

func (q *twoServers) Claim(ctx context.Context, now queue.Instant, slots []queue.Slot, out []queue.Job) ([]queue.Job, error) {
	return q.next().Claim(ctx, now, slots, out)
}

func (q *twoServers) Apply(ctx context.Context, now queue.Instant, ops []queue.Op, res []queue.Result) error {
	return q.next().Apply(ctx, now, ops, res)
}

func (q *twoServers) Expire(ctx context.Context, now queue.Instant, limit int) (queue.Instant, error) {
	return q.next().Expire(ctx, now, limit)
}

func (q *twoServers) Purge(ctx context.Context, now queue.Instant, p queue.PurgeQuery) (int, uint64, error) {
	return q.next().Purge(ctx, now, p)
}

func (q *twoServers) Get(ctx context.Context, now queue.Instant, ref queue.Ref) (queue.Job, error) {
	return q.next().Get(ctx, now, ref)
}

func (q *twoServers) Chunks(ctx context.Context, now queue.Instant, ref queue.Ref, maxBytes int) ([][]byte, queue.State, error) {
	return q.next().Chunks(ctx, now, ref, maxBytes)
}

func (q *twoServers) PastAttempts(ctx context.Context, now queue.Instant, ref queue.Ref) ([]queue.JobAttempt, error) {
	return q.next().PastAttempts(ctx, now, ref)
}

func (q *twoServers) PastLeases(ctx context.Context, now queue.Instant, ref queue.Ref) ([]queue.JobLease, error) {
	return q.next().PastLeases(ctx, now, ref)
}

func (q *twoServers) List(ctx context.Context, now queue.Instant, lq queue.ListQuery) iter.Seq2[queue.Job, error] {
	return q.next().List(ctx, now, lq)
}

func (q *twoServers) Stats(ctx context.Context, now queue.Instant, endpoint string, rules *queue.Rules) (queue.Stats, error) {
	return q.next().Stats(ctx, now, endpoint, rules)
}

func (q *twoServers) Watch(ctx context.Context, f func([]queue.Event)) error {
	return q.next().Watch(ctx, f)
}

func (q *twoServers) Deliveries(ctx context.Context, now, until queue.Instant, limit int) ([]queue.Delivery, error) {
	return q.next().Deliveries(ctx, now, until, limit)
}

func (q *twoServers) LoadDelivery(ctx context.Context, d *queue.Delivery) error {
	return q.next().LoadDelivery(ctx, d)
}

func (q *twoServers) Record(ctx context.Context, a []queue.Attempt) error {
	return q.next().Record(ctx, a)
}

func (q *twoServers) NextDelivery(ctx context.Context) (queue.Instant, error) {
	return q.next().NextDelivery(ctx)
}

func (q *twoServers) Attempts(ctx context.Context, ref queue.Ref) ([]queue.Attempt, error) {
	return q.next().Attempts(ctx, ref)
}

func (q *twoServers) DeadLetters(ctx context.Context, now queue.Instant, endpoint, owner string) iter.Seq2[queue.DeadLetter, error] {
	return q.next().DeadLetters(ctx, now, endpoint, owner)
}

func (q *twoServers) DeadLetter(ctx context.Context, now queue.Instant, ref queue.Ref) (queue.DeadLetter, error) {
	return q.next().DeadLetter(ctx, now, ref)
}

func (q *twoServers) DropDead(ctx context.Context, refs []queue.Ref) error {
	return q.next().DropDead(ctx, refs)
}

func (q *twoServers) FindKey(ctx context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return q.next().FindKey(ctx, key)
}
