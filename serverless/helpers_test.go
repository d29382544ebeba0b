package serverless_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// serviceOn is newService on a queue of the test's, with the endpoints "echo" and "other".
func serviceOn(t *testing.T, q serverless.JobQueue, o *serverless.Options) *serverless.Service {
	t.Helper()
	s := serverless.New(q, twoEndpoints(t), o)
	runService(t, s)
	return s
}

func twoEndpoints(t testing.TB) serverless.EndpointStore {
	t.Helper()
	eps := memory.NewEndpoints()
	for _, id := range []string{"echo", "other"} {
		if err := eps.Create(t.Context(), &serverless.Endpoint{ID: id, Name: id}); err != nil {
			t.Fatal(err)
		}
	}
	return eps
}

// submitEcho submits a job of alice to echo.
func submitEcho(t *testing.T, s *serverless.Service, change ...func(*serverless.Request)) serverless.Ref {
	t.Helper()
	r := serverless.Request{Input: []byte(`{}`)}
	for _, f := range change {
		f(&r)
	}
	j, err := s.Submit(t.Context(), "alice", "echo", r)
	if err != nil {
		t.Fatalf("Submit: %v", err)
	}
	return j.Ref
}

func withTTL(d time.Duration) func(*serverless.Request) {
	return func(r *serverless.Request) { r.Policy.TTL = &d }
}

func withTimeout(d time.Duration) func(*serverless.Request) {
	return func(r *serverless.Request) { r.Policy.ExecutionTimeout = &d }
}

func withWebhook(url string) func(*serverless.Request) {
	return func(r *serverless.Request) { r.Webhook = url }
}

func withInput(in string) func(*serverless.Request) {
	return func(r *serverless.Request) { r.Input = []byte(in) }
}

// mustGet is Get of a job that must be there.
func mustGet(t *testing.T, s *serverless.Service, ref serverless.Ref) serverless.Job {
	t.Helper()
	j, err := s.Get(t.Context(), "alice", ref)
	if err != nil {
		t.Fatalf("Get %s: %v", ref.ID, err)
	}
	return j
}

func wantStatus(t *testing.T, s *serverless.Service, ref serverless.Ref, want serverless.Status) {
	t.Helper()
	if got := mustGet(t, s, ref).Status; got != want {
		t.Fatalf("status is %v, want %v", got, want)
	}
}

func wantGone(t *testing.T, s *serverless.Service, ref serverless.Ref) {
	t.Helper()
	if j, err := s.Get(t.Context(), "alice", ref); !errors.Is(err, serverless.ErrNotFound) {
		t.Fatalf("Get = %v, %v, want ErrNotFound", j.Status, err)
	}
}

// until checks that something happens exactly at d: it sleeps until a millisecond before d and
// calls before, then until d and calls after.
func until(d time.Duration, before, after func()) {
	time.Sleep(d - time.Millisecond)
	synctest.Wait()
	before()
	time.Sleep(time.Millisecond)
	synctest.Wait()
	after()
}

// takeOne has a worker of echo take one job, and fails when there is none within a second.
func takeOne(t *testing.T, s *serverless.Service, w serverless.WorkerID) serverless.Job {
	t.Helper()
	jobs := tryTake(t, s, w)
	if len(jobs) != 1 {
		t.Fatalf("Take of %s gives %d jobs, want one", w, len(jobs))
	}
	return jobs[0]
}

func tryTake(t *testing.T, s *serverless.Service, w serverless.WorkerID) []serverless.Job {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	jobs, err := s.Take(ctx, "echo", w, 1)
	if err != nil {
		t.Fatalf("Take of %s: %v", w, err)
	}
	return jobs
}

func ping(t *testing.T, s *serverless.Service, w serverless.WorkerID, lists ...serverless.JobID) {
	t.Helper()
	if err := s.Ping(t.Context(), "echo", w, lists); err != nil {
		t.Fatalf("Ping of %s: %v", w, err)
	}
}

// pingLost is a ping that lists a job which is not w's.
func pingLost(t *testing.T, s *serverless.Service, w serverless.WorkerID, lists ...serverless.JobID) {
	t.Helper()
	if err := s.Ping(t.Context(), "echo", w, lists); !errors.Is(err, serverless.ErrLeaseLost) {
		t.Fatalf("Ping of %s, which lists a job that is not its own = %v, want ErrLeaseLost", w, err)
	}
}

// finish reports a result without a token, as a remote worker does.
func finish(t *testing.T, s *serverless.Service, ref serverless.Ref, w serverless.WorkerID, out string) error {
	t.Helper()
	return s.Report(t.Context(), queue.Op{Ref: ref, Kind: queue.OpFinish, Worker: w, Status: serverless.Completed, Payload: []byte(out)})
}

// stops is what Stops says at once.
func stops(t *testing.T, s *serverless.Service, w serverless.WorkerID) []serverless.JobID {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	ids, err := s.WaitStops(ctx, "echo", w)
	if err != nil {
		t.Fatalf("Stops of %s: %v", w, err)
	}
	return ids
}

// A lineLog records lines from several goroutines.
type lineLog struct {
	mu    sync.Mutex
	lines []string
}

func (n *lineLog) add(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, line)
}

func (n *lineLog) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.lines)
}

var errInjected = errors.New("the disk is away")

// A faultyQueue counts the calls of a queue, and can be made to refuse them.
type faultyQueue struct {
	serverless.JobQueue
	calls atomic.Int64 // but for those of Watch

	mu          sync.Mutex
	failures    map[string]int // method: how many calls still fail
	lostAnswers map[string]int // method: how many calls still fail after they have done their work
	muted       bool           // no events pass
	watchers    []func([]queue.Event)
}

func newFaultyQueue() *faultyQueue {
	return &faultyQueue{JobQueue: memory.NewJobs(), failures: map[string]int{}, lostAnswers: map[string]int{}}
}

const always = 1 << 30

// failCalls makes the next n calls of a method fail; 0 ends the failures.
func (q *faultyQueue) failCalls(method string, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failures[method] = n
}

// loseAnswers makes the next n calls of a method (Apply, Claim or Record) do their work and fail.
func (q *faultyQueue) loseAnswers(method string, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lostAnswers[method] = n
}

func (q *faultyQueue) failAfter(method string, err error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lostAnswers[method] > 0 {
		q.lostAnswers[method]--
		return errInjected
	}
	return err
}

func (q *faultyQueue) fail(method string) error {
	q.calls.Add(1)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range []string{"all", method} {
		if q.failures[m] > 0 {
			q.failures[m]--
			return errInjected
		}
	}
	return nil
}

// mute drops all events. When it ends, an EventGap is sent.
func (q *faultyQueue) mute(on bool) {
	q.mu.Lock()
	q.muted = on
	ears := slices.Clone(q.watchers)
	q.mu.Unlock()
	for _, f := range ears {
		if !on {
			f([]queue.Event{{Kind: queue.EventGap}})
		}
	}
}

func (q *faultyQueue) Enqueue(ctx context.Context, jobs []serverless.Job) error {
	if err := q.fail("Enqueue"); err != nil {
		return err
	}
	return q.JobQueue.Enqueue(ctx, jobs)
}

func (q *faultyQueue) Claim(ctx context.Context, now serverless.Instant, slots []queue.Slot, out []serverless.Job) ([]serverless.Job, error) {
	if err := q.fail("Claim"); err != nil {
		return out, err
	}
	jobs, err := q.JobQueue.Claim(ctx, now, slots, out)
	if err := q.failAfter("Claim", err); err != nil {
		return out, err
	}
	return jobs, nil
}

func (q *faultyQueue) Apply(ctx context.Context, now serverless.Instant, ops []queue.Op, res []queue.Result) error {
	if err := q.fail("Apply"); err != nil {
		return err
	}
	return q.failAfter("Apply", q.JobQueue.Apply(ctx, now, ops, res))
}

func (q *faultyQueue) Expire(ctx context.Context, now serverless.Instant, limit int) (serverless.Instant, error) {
	if err := q.fail("Expire"); err != nil {
		return 0, err
	}
	return q.JobQueue.Expire(ctx, now, limit)
}

func (q *faultyQueue) Purge(ctx context.Context, now serverless.Instant, p queue.PurgeQuery) (int, uint64, error) {
	if err := q.fail("Purge"); err != nil {
		return 0, 0, err
	}
	return q.JobQueue.Purge(ctx, now, p)
}

func (q *faultyQueue) Get(ctx context.Context, now serverless.Instant, ref serverless.Ref) (serverless.Job, error) {
	if err := q.fail("Get"); err != nil {
		return serverless.Job{}, err
	}
	return q.JobQueue.Get(ctx, now, ref)
}

func (q *faultyQueue) Stats(ctx context.Context, now serverless.Instant, endpoint string, rules *queue.Rules) (serverless.Stats, error) {
	if err := q.fail("Stats"); err != nil {
		return serverless.Stats{}, err
	}
	return q.JobQueue.Stats(ctx, now, endpoint, rules)
}

func (q *faultyQueue) Deliveries(ctx context.Context, now, until serverless.Instant, limit int) ([]serverless.Delivery, error) {
	if err := q.fail("Deliveries"); err != nil {
		return nil, err
	}
	return q.JobQueue.Deliveries(ctx, now, until, limit)
}

func (q *faultyQueue) LoadDelivery(ctx context.Context, d *serverless.Delivery) error {
	if err := q.fail("LoadDelivery"); err != nil {
		return err
	}
	return q.JobQueue.LoadDelivery(ctx, d)
}

func (q *faultyQueue) Record(ctx context.Context, a []serverless.Attempt) error {
	if err := q.fail("Record"); err != nil {
		return err
	}
	return q.failAfter("Record", q.JobQueue.Record(ctx, a))
}

func (q *faultyQueue) NextDelivery(ctx context.Context) (serverless.Instant, error) {
	if err := q.fail("NextDelivery"); err != nil {
		return 0, err
	}
	return q.JobQueue.NextDelivery(ctx)
}

func (q *faultyQueue) List(ctx context.Context, now serverless.Instant, l queue.ListQuery) iter.Seq2[serverless.Job, error] {
	if err := q.fail("List"); err != nil {
		return func(yield func(serverless.Job, error) bool) { yield(serverless.Job{}, err) }
	}
	return q.JobQueue.List(ctx, now, l)
}

func (q *faultyQueue) Watch(ctx context.Context, f func([]queue.Event)) error {
	if err := q.fail("Watch"); err != nil {
		return err
	}
	q.mu.Lock()
	q.watchers = append(q.watchers, f)
	q.mu.Unlock()
	return q.JobQueue.Watch(ctx, func(evs []queue.Event) {
		q.mu.Lock()
		deaf := q.muted
		q.mu.Unlock()
		if !deaf {
			f(evs)
		}
	})
}

// faults returns the faults of an error, and whether they break the schema or a rule across
// fields.
func faults(t *testing.T, err error) (kind problem.Kind, list []string) {
	t.Helper()
	var p *problem.Error
	if !errors.As(err, &p) {
		t.Fatalf("error is %v, want a *problem.Error", err)
	}
	return p.Kind, p.Errors
}
