package shard_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/shard"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/serverlesstest"
	"github.com/podyard/podyard/serverless/servers"
)

// A broken queue answers nothing while it is down.
type broken struct {
	queue.JobQueue
	mu    sync.Mutex
	down  bool
	calls int64
}

var errDown = problem.New(problem.Unavailable, "the database is down")

func (b *broken) set(down bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = down
}

func (b *broken) err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	if b.down {
		return errDown
	}
	return nil
}

// Unwrap has the queue found by those who look for more than a JobQueue.
func (b *broken) Unwrap() queue.JobQueue { return b.JobQueue }

func (b *broken) counter() budget.Counter { return b.JobQueue.(budget.Counter) }

func (b *broken) Limit(s *budget.Set) { b.counter().Limit(s) }

func (b *broken) Usage(ctx context.Context, user string) (budget.Usage, error) {
	if err := b.err(); err != nil {
		return budget.Usage{}, err
	}
	return b.counter().Usage(ctx, user)
}

// A hanging counter does not say what a user holds.
type hanging struct{ *broken }

func (hanging) Usage(ctx context.Context, _ string) (budget.Usage, error) {
	<-ctx.Done()
	return budget.Usage{}, ctx.Err()
}

func (b *broken) Users(ctx context.Context) ([]string, error) {
	if err := b.err(); err != nil {
		return nil, err
	}
	return b.counter().Users(ctx)
}

func (b *broken) Enqueue(ctx context.Context, jobs []queue.Job) error {
	if err := b.err(); err != nil {
		return err
	}
	return b.JobQueue.Enqueue(ctx, jobs)
}

func (b *broken) Claim(ctx context.Context, now queue.Instant, slots []queue.Slot, out []queue.Job) ([]queue.Job, error) {
	if err := b.err(); err != nil {
		return out, err
	}
	return b.JobQueue.Claim(ctx, now, slots, out)
}

func (b *broken) Get(ctx context.Context, now queue.Instant, ref queue.Ref) (queue.Job, error) {
	if err := b.err(); err != nil {
		return queue.Job{}, err
	}
	return b.JobQueue.Get(ctx, now, ref)
}

func (b *broken) Stats(ctx context.Context, now queue.Instant, endpoint string, r *queue.Rules) (queue.Stats, error) {
	if err := b.err(); err != nil {
		return queue.Stats{}, err
	}
	return b.JobQueue.Stats(ctx, now, endpoint, r)
}

// List counts each job as a call.
func (b *broken) List(ctx context.Context, now queue.Instant, q queue.ListQuery) iter.Seq2[queue.Job, error] {
	return func(yield func(queue.Job, error) bool) {
		for j, err := range b.JobQueue.List(ctx, now, q) {
			if err := cmp.Or(err, b.err()); !yield(j, err) {
				return
			}
		}
	}
}

func (b *broken) Expire(ctx context.Context, now queue.Instant, limit int) (queue.Instant, error) {
	if err := b.err(); err != nil {
		return 0, err
	}
	return b.JobQueue.Expire(ctx, now, limit)
}

func (b *broken) Deliveries(ctx context.Context, now, until queue.Instant, limit int) ([]queue.Delivery, error) {
	if err := b.err(); err != nil {
		return nil, err
	}
	return b.JobQueue.Deliveries(ctx, now, until, limit)
}

// A world is some shards on memory, a control store and the servers that use them.
type world struct {
	control *control
	shards  []*broken
}

// A control is a control store that answers nothing while it is down.
type control struct {
	*memory.Servers
	broken
}

func (c *control) Changes(ctx context.Context, after int64, limit int) ([]servers.Record, error) {
	if err := c.err(); err != nil {
		return nil, err
	}
	return c.Servers.Changes(ctx, after, limit)
}

func newWorld(shards int) *world {
	w := &world{control: &control{Servers: memory.NewServers()}}
	for range shards {
		w.shards = append(w.shards, &broken{JobQueue: memory.NewJobs()})
	}
	return w
}

func (w *world) open(t *testing.T, server string, change ...func(*shard.Options)) *shard.Queue {
	t.Helper()
	o := shard.Options{Control: w.control, Server: server}
	for i, s := range w.shards {
		o.Shards = append(o.Shards, shard.Shard{Name: name(i), Jobs: s})
	}
	for _, f := range change {
		f(&o)
	}
	q, err := shard.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func name(i int) string { return string(rune('a' + i)) }

func job(endpoint, id string, now time.Time) queue.Job {
	at := queue.At(now)
	return queue.Job{
		Ref: queue.Ref{Endpoint: endpoint, ID: queue.JobID(id)}, Owner: "u", Input: []byte(`{}`),
		State: queue.State{Submitted: at, Queued: at, Expires: at + 7*86_400_000, Terms: queue.Terms{ExecTimeout: time.Hour, Retain: time.Minute}},
	}
}

func submit(t *testing.T, q queue.JobQueue, endpoint, id string) queue.Job {
	t.Helper()
	jobs := []queue.Job{job(endpoint, id, time.Now())}
	if err := q.Enqueue(t.Context(), jobs); err != nil {
		t.Fatalf("Enqueue of %s = %v", id, err)
	}
	return jobs[0]
}

func claim(t *testing.T, q queue.JobQueue, endpoint string, n int, rules *queue.Rules) []queue.Job {
	t.Helper()
	now := queue.At(time.Now())
	jobs, err := q.Claim(t.Context(), now, []queue.Slot{{Endpoint: endpoint, Worker: "w", N: n, Until: now + 3_600_000, Rules: rules}}, nil)
	if err != nil {
		t.Fatalf("Claim = %v", err)
	}
	return jobs
}

func finish(t *testing.T, q queue.JobQueue, jobs ...queue.Job) {
	t.Helper()
	for _, j := range jobs {
		res := []queue.Result{{}}
		op := queue.Op{Ref: j.Ref, Kind: queue.OpFinish, Worker: j.Worker, Token: j.Token, Status: queue.Completed, Payload: []byte("1")}
		if err := errors.Join(q.Apply(t.Context(), queue.At(time.Now()), []queue.Op{op}, res), res[0].Err); err != nil {
			t.Fatalf("OpFinish of %s = %v", j.ID, err)
		}
	}
}

func stats(t *testing.T, q queue.JobQueue, endpoint string) queue.Stats {
	t.Helper()
	s, err := q.Stats(t.Context(), queue.At(time.Now()), endpoint, nil)
	if err != nil {
		t.Fatalf("Stats = %v", err)
	}
	return s
}

func move(t *testing.T, q *shard.Queue, endpoint, to string) {
	t.Helper()
	if err := q.Move(t.Context(), endpoint, to); err != nil {
		t.Fatalf("Move of %s to %s = %v", endpoint, to, err)
	}
}

func where(t *testing.T, q *shard.Queue, endpoint string) shard.Placement {
	t.Helper()
	p, err := q.Placement(t.Context(), endpoint)
	if err != nil {
		t.Fatalf("Placement = %v", err)
	}
	return p
}

func ids(jobs []queue.Job) (list []string) {
	for i := range jobs {
		list = append(list, string(jobs[i].ID))
	}
	return list
}

func list(t *testing.T, q queue.JobQueue, l queue.ListQuery) (jobs []queue.Job) {
	t.Helper()
	for j, err := range q.List(t.Context(), queue.At(time.Now()), l) {
		if err != nil {
			t.Fatalf("List = %v", err)
		}
		jobs = append(jobs, j)
	}
	return jobs
}

func TestThreeShardsAreAQueue(t *testing.T) {
	serverlesstest.TestJobQueue(t, func(t *testing.T) queue.JobQueue {
		w := newWorld(3)
		return counted{w.open(t, "one"), w}
	})
}

// A counted queue implements serverlesstest.ReadCounter: how often its shards and its control store were asked.
type counted struct {
	*shard.Queue
	w *world
}

func (c counted) Reads(context.Context) (n int64, _ error) {
	for _, b := range append([]*broken{&c.w.control.broken}, c.w.shards...) {
		b.mu.Lock()
		n += b.calls
		b.mu.Unlock()
	}
	return n, nil
}

func TestServersOverThreeShardsAreAQueue(t *testing.T) {
	suite.SkipUnlessLong(t)
	serverlesstest.TestShared(t, func(t *testing.T) []queue.JobQueue {
		w := newWorld(3)
		return []queue.JobQueue{w.open(t, "one"), w.open(t, "two")}
	})
}

// Every rule holds for an endpoint that is drained to another shard.
func TestADrainedEndpointIsAQueue(t *testing.T) {
	suite.SkipUnlessLong(t)
	for _, c := range serverlesstest.QueueCases() {
		t.Run(c.Name, func(t *testing.T) {
			q := newWorld(3).open(t, "one")
			for _, endpoint := range []string{"echo", "a", "b"} {
				move(t, q, endpoint, "a")
				move(t, q, endpoint, "b")
			}
			c.Run(t, q)
		})
	}
}

func TestShardsAnswerAsTheModelDoes(t *testing.T) {
	suite.SkipUnlessLong(t)
	for seed := range uint64(4) {
		w := serverlesstest.Walk{Queue: newWorld(1).open(t, "one"), Steps: 300, Draw: rand.New(rand.NewPCG(seed, 0)).IntN}
		if err := w.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnotherShardMovesNothing(t *testing.T) {
	w := newWorld(2)
	before := w.open(t, "one")
	at := map[string]string{}
	for n := range 200 {
		endpoint := fmt.Sprint("e", n)
		submit(t, before, endpoint, "x")
		at[endpoint] = where(t, before, endpoint).Shard
	}
	w.shards = append(w.shards, &broken{JobQueue: memory.NewJobs()})
	after := w.open(t, "two", func(o *shard.Options) { slices.Reverse(o.Shards) })
	counts := map[string]int{}
	for endpoint, s := range at {
		if got := where(t, after, endpoint); got != (shard.Placement{Shard: s}) {
			t.Errorf("%s was on %s, and is now on %+v", endpoint, s, got)
		}
		counts[s]++
	}
	for n := range 300 {
		endpoint := fmt.Sprint("new", n)
		submit(t, after, endpoint, "x")
		counts[where(t, after, endpoint).Shard]++
	}
	if counts["a"] < 150 || counts["b"] < 150 || counts["c"] < 60 {
		t.Errorf("endpoints by shard: %v, want about 200, 200 and 100", counts)
	}
}

func TestJobsOfTwoShardsAreAddedAllOrNone(t *testing.T) {
	w := newWorld(2)
	q := w.open(t, "one")
	move(t, q, "x", "a")
	move(t, q, "y", "b")
	submit(t, q, "y", "2")
	both := func() error {
		return q.Enqueue(t.Context(), []queue.Job{job("x", "1", time.Now()), job("y", "2", time.Now())})
	}
	if err := both(); !errors.Is(err, queue.ErrExists) {
		t.Errorf("Enqueue with an id in use = %v, want ErrExists", err)
	}
	w.shards[1].set(true)
	if err := both(); !errors.Is(err, errDown) {
		t.Errorf("Enqueue with a dead shard = %v, want its error", err)
	}
	w.shards[1].set(false)
	if n := len(list(t, q, queue.ListQuery{Endpoint: "x"})); n != 0 {
		t.Errorf("%d jobs were added, want none", n)
	}
}

// Two memories give the same tokens.
func TestATokenIsALeaseOnItsShardOnly(t *testing.T) {
	q := newWorld(2).open(t, "one")
	move(t, q, "x", "a")
	move(t, q, "y", "b")
	submit(t, q, "x", "1")
	submit(t, q, "y", "1")
	x, y := claim(t, q, "x", 1, nil)[0], claim(t, q, "y", 1, nil)[0]
	if x.Token == y.Token {
		t.Errorf("both shards gave the token %d", x.Token)
	}
	res := []queue.Result{{}}
	op := queue.Op{Ref: y.Ref, Kind: queue.OpFinish, Worker: "w", Token: x.Token, Status: queue.Completed}
	if err := q.Apply(t.Context(), queue.At(time.Now()), []queue.Op{op}, res); err != nil || !errors.Is(res[0].Err, queue.ErrLeaseLost) {
		t.Errorf("OpFinish with a token of another shard = %v, %v, want ErrLeaseLost", err, res[0].Err)
	}
	finish(t, q, x, y)
}

func TestAMoveDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(2)
		q := w.open(t, "one")
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = q.Run(ctx) }()
		move(t, q, "x", "a")
		submit(t, q, "x", "1")
		finish(t, q, claim(t, q, "x", 1, nil)...)
		submit(t, q, "x", "2")
		move(t, q, "x", "b")
		submit(t, q, "x", "3")
		if got := where(t, q, "x"); got != (shard.Placement{Shard: "b", From: "a"}) {
			t.Errorf("Placement = %+v", got)
		}
		if err := q.Move(t.Context(), "x", "a"); problem.KindOf(err) != problem.Conflict {
			t.Errorf("Move during a drain = %v, want a conflict", err)
		}
		jobs := list(t, q, queue.ListQuery{Endpoint: "x"})
		if got := ids(jobs); !slices.Equal(got, []string{"3", "2", "1"}) {
			t.Errorf("List = %v, want the newest first", got)
		}
		if got := ids(list(t, q, queue.ListQuery{Endpoint: "x", Before: jobs[0].Seq, Limit: 1})); !slices.Equal(got, []string{"2"}) {
			t.Errorf("List before %d = %v, want 2", jobs[0].Seq, got)
		}
		if err := q.Enqueue(t.Context(), []queue.Job{job("x", "2", time.Now())}); !errors.Is(err, queue.ErrExists) {
			t.Errorf("Enqueue of an id of the old shard = %v, want ErrExists", err)
		}
		if s := stats(t, q, "x"); s.Queued != 2 || s.Completed != 1 || s.LastSeq < jobs[0].Seq {
			t.Errorf("Stats = %+v", s)
		}
		got := claim(t, q, "x", 5, nil)
		if !slices.Equal(ids(got), []string{"2", "3"}) {
			t.Errorf("Claim = %v, want the job of the old shard first", ids(got))
		}
		finish(t, q, got...)
		for range 25 {
			time.Sleep(time.Hour)
			_, _ = q.Expire(t.Context(), queue.At(time.Now()), 100)
		}
		if got := where(t, q, "x"); got != (shard.Placement{Shard: "b"}) {
			t.Errorf("Placement after a day = %+v, want b alone", got)
		}
		move(t, q, "x", "a")
		if s := stats(t, q, "x"); s.Completed != 3 {
			t.Errorf("Completed = %d, want the 3 of both shards", s.Completed)
		}
		stop()
		synctest.Wait()
	})
}

func TestAKeyOfTheOldShardIsTaken(t *testing.T) {
	q := newWorld(2).open(t, "one")
	move(t, q, "x", "a")
	keyed := job("x", "1", time.Now())
	keyed.Creation = &idempotency.Record{Request: *idempotency.NewRequest("k", nil), ID: "1", At: time.Now()}
	if err := q.Enqueue(t.Context(), []queue.Job{keyed}); err != nil {
		t.Fatal(err)
	}
	move(t, q, "x", "b")
	keyed.ID = "2"
	if err := q.Enqueue(t.Context(), []queue.Job{keyed}); !errors.Is(err, idempotency.ErrTaken) {
		t.Errorf("Enqueue with a key of the old shard = %v, want ErrTaken", err)
	}
	if r, err := q.FindKey(t.Context(), keyed.Creation.Key); err != nil || r.ID != "1" {
		t.Errorf("FindKey = %+v, %v", r, err)
	}
}

func TestLimitsHoldOverBothShards(t *testing.T) {
	for _, c := range []struct {
		name  string
		rules queue.Rules
	}{{"total", queue.Rules{Total: 3}}, {"user", queue.Rules{PerUser: 3}}} {
		q := newWorld(2).open(t, "one")
		move(t, q, "x", "a")
		submit(t, q, "x", "1")
		submit(t, q, "x", "2")
		first := claim(t, q, "x", 2, &c.rules)
		move(t, q, "x", "b")
		for n := range 4 {
			submit(t, q, "x", fmt.Sprint("new", n))
		}
		if got := claim(t, q, "x", 9, &c.rules); len(got) != 1 {
			t.Errorf("%s: Claim = %v, want one more job under a limit of 3", c.name, ids(got))
		}
		finish(t, q, first...)
		if got := claim(t, q, "x", 9, &c.rules); len(got) != 2 {
			t.Errorf("%s: Claim = %v, want two more jobs", c.name, ids(got))
		}
	}
}

func TestADeadShardHurtsItsEndpointsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3)
		q := w.open(t, "one")
		for _, s := range []string{"a", "b", "c"} {
			move(t, q, "on-"+s, s)
			submit(t, q, "on-"+s, "1")
		}
		w.shards[1].set(true)
		_, err := q.Get(t.Context(), queue.At(time.Now()), queue.Ref{Endpoint: "on-b", ID: "1"})
		if !errors.Is(err, errDown) || !slices.Contains([]string{"shard b: " + errDown.Error()}, err.Error()) {
			t.Errorf("Get on the dead shard = %v, want its error with its name", err)
		}
		if h := q.Health(); h[0].Err != nil || h[1].Shard != "b" || !errors.Is(h[1].Err, errDown) || h[1].Since.IsZero() {
			t.Errorf("Health = %+v", h)
		}
		for n := range 20 {
			submit(t, q, fmt.Sprint("new", n), "1")
			if s := where(t, q, fmt.Sprint("new", n)).Shard; s == "b" {
				t.Error("a new endpoint was given to the dead shard")
			}
		}
		now := queue.At(time.Now())
		if next, err := q.Expire(t.Context(), now, 10); err != nil || next == 0 || next > now+1000 {
			t.Errorf("Expire = %d, %v, want to be called again within a second", next, err)
		}
		if _, err := q.Deliveries(t.Context(), now, now+1000, 10); err != nil {
			t.Errorf("Deliveries = %v", err)
		}
		if err := q.Move(t.Context(), "on-b", "a"); !errors.Is(err, errDown) || where(t, q, "on-b") != (shard.Placement{Shard: "b"}) {
			t.Errorf("Move from the dead shard = %v", err)
		}
		finish(t, q, claim(t, q, "on-a", 1, nil)...)
		w.shards[1].set(false)
		time.Sleep(2 * time.Second)
		if _, err := q.Expire(t.Context(), queue.At(time.Now()), 10); err != nil {
			t.Error(err)
		}
		if h := q.Health(); h[1].Err != nil {
			t.Errorf("Health = %+v", h)
		}
		finish(t, q, claim(t, q, "on-b", 1, nil)...)
	})
}

func TestWithoutTheControlStoreJobsEndAndNoneIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(2)
		q := w.open(t, "one")
		submit(t, q, "x", "1")
		w.control.set(true)
		submit(t, q, "x", "2")
		time.Sleep(15 * time.Second)
		if err := q.Enqueue(t.Context(), []queue.Job{job("x", "3", time.Now())}); problem.KindOf(err) != problem.Unavailable {
			t.Errorf("Enqueue after 15 s without the control store = %v, want Unavailable", err)
		}
		finish(t, q, claim(t, q, "x", 2, nil)...)
		if _, err := q.Get(t.Context(), queue.At(time.Now()), queue.Ref{Endpoint: "x", ID: "none"}); problem.KindOf(err) != problem.Unavailable {
			t.Errorf("Get of a job that is not found = %v, want Unavailable", err)
		}
		w.control.set(false)
		submit(t, q, "x", "3")
	})
}

// The server that is gone has a lease that the move waits for.
func TestAServerThatIsGoneDelaysAMoveByItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(2)
		q := w.open(t, "one")
		w.open(t, "gone")
		move(t, q, "x", "a")
		began := time.Now()
		submitted := make(chan time.Duration)
		go func() {
			time.Sleep(time.Second)
			submit(t, q, "x", "1")
			submitted <- time.Since(began)
		}()
		move(t, q, "x", "b")
		if took := time.Since(began); took < 14*time.Second || took > 17*time.Second {
			t.Errorf("the move took %s, want about 15 s", took)
		}
		if took := <-submitted; took < 14*time.Second || took > 17*time.Second {
			t.Errorf("a submit in the hold took %s, want about 15 s", took)
		}
		if got := len(list(t, w.shards[1], queue.ListQuery{Endpoint: "x"})); got != 1 {
			t.Errorf("the new shard has %d jobs, want the one that waited", got)
		}
	})
}

func TestTheQueueOfBeforeIsAdopted(t *testing.T) {
	w := newWorld(3)
	submit(t, w.shards[2], "old", "1")
	q := w.open(t, "one", func(o *shard.Options) { o.Adopt = "c" })
	if _, err := q.Get(t.Context(), queue.At(time.Now()), queue.Ref{Endpoint: "old", ID: "1"}); err != nil {
		t.Errorf("Get of a job of before = %v", err)
	}
	if got := where(t, q, "old").Shard; got != "c" {
		t.Errorf("the endpoint is on %s, want c", got)
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	jobs, ctl := memory.NewJobs(), memory.NewServers()
	for what, o := range map[string]shard.Options{
		"no shard":      {Control: ctl, Server: "s"},
		"no control":    {Shards: []shard.Shard{{Name: "a", Jobs: jobs}}, Server: "s"},
		"no server":     {Shards: []shard.Shard{{Name: "a", Jobs: jobs}}, Control: ctl},
		"no name":       {Shards: []shard.Shard{{Jobs: jobs}}, Control: ctl, Server: "s"},
		"no queue":      {Shards: []shard.Shard{{Name: "a"}}, Control: ctl, Server: "s"},
		"one name":      {Shards: []shard.Shard{{Name: "a", Jobs: jobs}, {Name: "a", Jobs: jobs}}, Control: ctl, Server: "s"},
		"unknown adopt": {Shards: []shard.Shard{{Name: "a", Jobs: jobs}}, Control: ctl, Server: "s", Adopt: "b"},
	} {
		if _, err := shard.New(t.Context(), o); problem.KindOf(err) != problem.Invalid {
			t.Errorf("%s: New = %v, want Invalid", what, err)
		}
	}
}
