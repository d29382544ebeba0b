package postgres_test

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/queue"
)

const instant = queue.Instant(1_780_000_000_000)

// newJob returns a job of the endpoint e.
func newJob(id string) queue.Job {
	return queue.Job{
		Ref: queue.Ref{Endpoint: "e", ID: queue.JobID(id)}, Owner: "alice", Input: []byte(`{}`),
		State: queue.State{Submitted: instant, Queued: instant, Expires: instant + 3_600_000, Terms: queue.Terms{ExecTimeout: time.Minute, Retain: time.Minute}},
	}
}

// submit adds jobs.
func submit(t *testing.T, q queue.JobQueue, jobs ...queue.Job) {
	t.Helper()
	if err := q.Enqueue(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
}

// claim claims up to n jobs of the endpoint e.
func claim(t *testing.T, q queue.JobQueue, now queue.Instant, worker queue.WorkerID, n int, rules *queue.Rules) []queue.Job {
	t.Helper()
	jobs, err := q.Claim(t.Context(), now, []queue.Slot{{Endpoint: "e", Worker: worker, N: n, Until: now + 30_000, Rules: rules}}, nil)
	if err != nil {
		t.Error(err)
	}
	return jobs
}

// finish ends jobs.
func finish(t *testing.T, q queue.JobQueue, jobs ...queue.Job) {
	t.Helper()
	ops := make([]queue.Op, len(jobs))
	for i, j := range jobs {
		ops[i] = queue.Op{Ref: j.Ref, Kind: queue.OpFinish, Status: queue.Completed, Worker: j.Worker, Token: j.Token, Payload: []byte("1")}
	}
	res := make([]queue.Result, len(ops))
	if err := q.Apply(t.Context(), instant, ops, res); err != nil {
		t.Error(err)
	}
	for _, r := range res {
		if r.Err != nil {
			t.Error(r.Err)
		}
	}
}

func TestServersThatClaimAtOnceExceedNoLimit(t *testing.T) {
	both := newTwoServers(t)
	const jobs = 40
	var list []queue.Job
	for i := range jobs {
		j := newJob(fmt.Sprint("job-", i))
		j.Owner, j.Key = fmt.Sprint("owner-", i%3), fmt.Sprint("key-", i%2)
		list = append(list, j)
	}
	submit(t, both, list...)
	rules := &queue.Rules{PerKey: 1, PerUser: 2, Total: 4}
	var mu sync.Mutex
	running := map[string]int{}
	count := func(j *queue.Job, n int) {
		mu.Lock()
		defer mu.Unlock()
		for what, limit := range map[string]int{j.Owner + j.Key: rules.PerKey, j.Owner: rules.PerUser, "all": rules.Total} {
			if running[what] += n; running[what] > limit {
				t.Errorf("%d jobs of %s run, and the limit is %d", running[what], what, limit)
			}
		}
	}
	var done atomic.Int32
	var workers sync.WaitGroup
	for w := range 8 {
		q := both.stores[w%2].Jobs()
		workers.Go(func() {
			for done.Load() < jobs && !t.Failed() {
				held := claim(t, q, instant, queue.WorkerID(fmt.Sprint("w", w)), 2, rules)
				for i := range held {
					count(&held[i], 1)
				}
				for _, j := range held {
					count(&j, -1)
					finish(t, q, j)
					done.Add(1)
				}
			}
		})
	}
	workers.Wait()
}

// Submits, claims and ends at the same time meet every bound of what is read at once, when each is one to three.
func TestNoJobIsLostWhereLittleIsReadAtOnce(t *testing.T) {
	both := newTinyServers(t)
	const users, jobs = 4, 40
	var submits, workers sync.WaitGroup
	for user := range users {
		submits.Go(func() {
			for i := range jobs {
				j := newJob(fmt.Sprint(user, "-", i))
				j.Owner, j.Key, j.Priority = fmt.Sprint("owner-", user%2), fmt.Sprint("key-", i%3), uint8(i%2)
				submit(t, both.stores[(user+i)%2].Jobs(), j)
			}
		})
	}
	var mu sync.Mutex
	ended := map[queue.JobID]int{}
	done := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(ended)
	}
	rules := []*queue.Rules{nil, {PerKey: 2, PerUser: 3}}
	for w := range 4 {
		q := both.stores[w%2].Jobs()
		workers.Go(func() {
			for n := 0; done() < users*jobs && !t.Failed(); n++ {
				list := claim(t, q, instant, queue.WorkerID(fmt.Sprint("w", w)), 1+n%5, rules[n/5%2])
				finish(t, q, list...)
				mu.Lock()
				for _, j := range list {
					ended[j.ID]++
				}
				mu.Unlock()
			}
		})
	}
	submits.Wait()
	workers.Wait()
	for id, n := range ended {
		if n != 1 {
			t.Errorf("job %s was claimed %d times, want once", id, n)
		}
	}
	if s, err := both.Stats(t.Context(), instant, "e", nil); err != nil || s.Completed != users*jobs || s.Queued+s.Running != 0 {
		t.Errorf("Stats = %+v, %v, want %d jobs completed", s, err, users*jobs)
	}
}

// A server locks jobs that it does not know, and changes others without that. In every second round
// one server knows all.
func TestServersThatMoveTheJobsOfEachOtherDoNotWaitInACircle(t *testing.T) {
	suite.SkipUnlessLong(t)
	both := newTwoServers(t)
	const jobs, rounds = 20, 10
	now := instant
	for round := range rounds {
		for i := range jobs {
			name := fmt.Sprint(round, "-", i)
			submit(t, both, newJob(name))
			q := both.stores[i*round%2].Jobs()
			got := claim(t, q, now, queue.WorkerID(name), 1, nil)
			if len(got) != 1 {
				t.Fatalf("job %s cannot be claimed", name)
			}
			chunk := queue.Op{Ref: got[0].Ref, Kind: queue.OpChunk, Worker: got[0].Worker, Token: got[0].Token, Payload: []byte(`{"output":1}`)}
			must(t, q.Apply(t.Context(), now, []queue.Op{chunk}, make([]queue.Result, 1)))
		}
		now += 30_001 // the leases are over, and each server sees it
		var sweeps sync.WaitGroup
		for _, s := range both.stores {
			sweeps.Go(func() {
				if _, err := s.Jobs().Expire(t.Context(), now, 1000); err != nil {
					t.Error(err)
				}
			})
		}
		sweeps.Wait()
	}
	for _, s := range both.stores {
		_ = s.Close() // what its connections have counted can be read then
	}
	conn, err := pgx.Connect(t.Context(), both.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var found int
	err = conn.QueryRow(t.Context(), `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`).Scan(&found)
	if err != nil || found > 0 {
		t.Errorf("%d of %d sweeps waited until the database found a deadlock, %v", found, 2*rounds, err)
	}
}

func TestAClaimIsBoundedByBytes(t *testing.T) {
	suite.SkipUnlessLong(t)
	for name, owners := range map[string]int{"in the order of one line": 1, "in turn": 2} {
		t.Run(name, func(t *testing.T) {
			q := openURL(t, postgresql.Database(t)).Jobs()
			const jobs = 5
			for i := range jobs {
				j := newJob(fmt.Sprint("job-", i))
				j.Owner, j.Input = fmt.Sprint("owner-", i%owners), bytes.Repeat([]byte(" "), 5<<20)
				submit(t, q, j)
			}
			if owners == 1 {
				if got := len(claim(t, q, instant, "w", jobs, nil)); got != 2 {
					t.Errorf("a claim gave %d jobs of 5 MiB, want 2", got)
				}
			}
			var others sync.WaitGroup
			var n atomic.Int32
			for w := range jobs {
				others.Go(func() { n.Add(int32(len(claim(t, q, instant, queue.WorkerID(fmt.Sprint("other", w)), 1, nil)))) })
			}
			others.Wait()
			if want := int32(jobs - 2*(2-owners)); n.Load() != want {
				t.Errorf("%d claims at once gave %d jobs, want %d", jobs, n.Load(), want)
			}
		})
	}
}

func TestServersThatClaimAtOnceGetEachJobOnce(t *testing.T) {
	for name, owners := range map[string]int{"in the order of one line": 1, "in turn": 3} {
		t.Run(name, func(t *testing.T) {
			both := newTwoServers(t)
			const jobs = 120
			var list []queue.Job
			for i := range jobs {
				j := newJob(fmt.Sprint("job-", i))
				j.Owner = fmt.Sprint("owner-", i%owners)
				list = append(list, j)
			}
			submit(t, both, list...)
			var claimed sync.Map
			var n atomic.Int32
			var workers sync.WaitGroup
			for w := range 6 {
				q := both.stores[w%2].Jobs()
				workers.Go(func() {
					for n.Load() < jobs && !t.Failed() {
						for _, j := range claim(t, q, instant, queue.WorkerID(fmt.Sprint("w", w)), 3, nil) {
							if other, twice := claimed.LoadOrStore(j.ID, j.Worker); twice {
								t.Errorf("%s has %s, and %s too", j.ID, other, j.Worker)
							}
							n.Add(1)
						}
					}
				})
			}
			workers.Wait()
		})
	}
}

// The jobs of a server that died go back when their leases end, and not before: the opening of a
// store takes no job from a server that lives.
func TestTheLeasesOfADeadServerEndOnAnother(t *testing.T) {
	url := postgresql.Database(t)
	dead := openURL(t, url)
	submit(t, dead.Jobs(), newJob("a"), newJob("b"))
	claim(t, dead.Jobs(), instant, "w", 2, nil)
	_ = dead.Close()
	q := openURL(t, url).Jobs()
	if got := claim(t, q, instant+29_999, "v", 2, nil); len(got) > 0 {
		t.Errorf("%d jobs were taken from a worker whose lease had not ended", len(got))
	}
	next := instant
	for next != 0 && next <= instant+30_000 {
		var err error
		if next, err = q.Expire(t.Context(), instant+30_000, 10); err != nil {
			t.Fatal(err)
		}
	}
	if got := claim(t, q, instant+30_000, "v", 2, nil); len(got) != 2 {
		t.Errorf("%d jobs were claimed when the leases had ended, want 2", len(got))
	}
}

func TestTextsMayHaveAnyBytes(t *testing.T) {
	q := openURL(t, postgresql.Database(t)).Jobs()
	odd := "a\x00b\xff'\\"
	j := newJob("id" + odd)
	j.Owner, j.Key, j.Webhook, j.Flags, j.DeadLetter = "o"+odd, "k"+odd, "https://"+odd, queue.HasWebhook, time.Hour
	j.Endpoint, j.Input, j.Extra = "e"+odd, []byte(odd), []byte(odd)
	submit(t, q, j, newJob("other"))
	jobs, err := q.Claim(t.Context(), instant, []queue.Slot{{Endpoint: j.Endpoint, Worker: queue.WorkerID("w" + odd), N: 1, Until: instant + 1000}}, nil)
	if err != nil || len(jobs) != 1 || jobs[0].Owner != j.Owner || jobs[0].Key != j.Key || string(jobs[0].Extra) != odd {
		t.Fatalf("Claim = %+v, %v", jobs, err)
	}
	op := queue.Op{Ref: j.Ref, Kind: queue.OpFinish, Status: queue.Failed, Worker: jobs[0].Worker, Error: "traceback " + odd}
	res := make([]queue.Result, 1)
	if err := q.Apply(t.Context(), instant, []queue.Op{op}, res); err != nil || res[0].Err != nil {
		t.Fatalf("Apply = %v, %v", err, res[0].Err)
	}
	got, err := q.Get(t.Context(), instant, j.Ref)
	if err != nil || got.Error != op.Error || got.Webhook != j.Webhook {
		t.Errorf("Get = %+v, %v", got, err)
	}
	if d, err := q.DeadLetter(t.Context(), instant, j.Ref); err != nil || d.Error != op.Error {
		t.Errorf("DeadLetter = %+v, %v", d, err)
	}
}

// Events of another server arrive, and a watcher is told when some may have been lost.
func TestAnotherServerIsToldOfEvents(t *testing.T) {
	both := newTwoServers(t)
	events := make(chan queue.Event, 100)
	go func() {
		_ = both.stores[1].Jobs().Watch(t.Context(), func(evs []queue.Event) {
			for _, e := range evs {
				events <- e
			}
		})
	}()
	for range 2 { // of the server itself, and of the connection
		if e := <-events; e.Kind != queue.EventGap {
			t.Fatalf("the first event is %+v, want a gap", e)
		}
	}
	j := newJob("a\x00\xff")
	submit(t, both.stores[0].Jobs(), j)
	if e := <-events; e != (queue.Event{Kind: queue.EventReady, Ref: queue.Ref{Endpoint: "e"}}) {
		t.Errorf("event %+v, want that a job is ready", e)
	}
	res := make([]queue.Result, 1)
	if err := both.stores[0].Jobs().Apply(t.Context(), instant, []queue.Op{{Ref: j.Ref, Kind: queue.OpCancel}}, res); err != nil {
		t.Fatal(err)
	}
	if e := <-events; e != (queue.Event{Kind: queue.EventDone, Ref: j.Ref}) {
		t.Errorf("event %+v, want the end of the job", e)
	}
	execute(t, both.url, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'`)
	if e := <-events; e.Kind != queue.EventGap {
		t.Errorf("event %+v after an interruption, want a gap", e)
	}
}

// An opened store counts with others and adds up to the same.
func TestCountersOfManyOpeningsAreFolded(t *testing.T) {
	url := postgresql.Database(t)
	var last *postgres.Store
	for i := range 3 {
		execute(t, url, `SELECT setval('podyard.job_epochs', $1)`, 1+i*100)
		last = openURL(t, url)
		submit(t, last.Jobs(), newJob(fmt.Sprint("job-", i)))
	}
	if _, err := last.Jobs().Expire(t.Context(), instant, 1); err != nil {
		t.Fatal(err)
	}
	if st, err := last.Jobs().Stats(t.Context(), instant, "e", nil); err != nil || st.Queued != 3 {
		t.Errorf("Stats = %+v, %v, want three jobs", st, err)
	}
}
