package postgres_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/serverlesstest"
)

// crashRounds is how often the tests crash something: PODYARD_LONG, or a few times.
func crashRounds() int {
	n := 5
	_, _ = fmt.Sscan(os.Getenv("PODYARD_LONG"), &n) // not a number: as it is
	return n
}

// durable is the URL of a database whose commits are durable, as they are unless somebody turns it
// off. The server of the tests has it off.
func durable(url string) string { return url + "&synchronous_commit=on" }

// A stuckQueue does not answer a call that fails until it is released: for its caller, the call is
// under way, and may have had its effect or not.
type stuckQueue struct {
	*postgres.Jobs
	stuck   atomic.Int32
	release chan struct{}
}

func (q *stuckQueue) answer(err error) error {
	if err != nil {
		q.stuck.Add(1)
		<-q.release
	}
	return err
}

func (q *stuckQueue) Enqueue(ctx context.Context, jobs []queue.Job) error {
	return q.answer(q.Jobs.Enqueue(ctx, jobs))
}

func (q *stuckQueue) Claim(ctx context.Context, now queue.Instant, slots []queue.Slot, out []queue.Job) ([]queue.Job, error) {
	jobs, err := q.Jobs.Claim(ctx, now, slots, out)
	return jobs, q.answer(err)
}

func (q *stuckQueue) Apply(ctx context.Context, now queue.Instant, ops []queue.Op, res []queue.Result) error {
	return q.answer(q.Jobs.Apply(ctx, now, ops, res))
}

// A crashLoad is work during which the database crashes.
type crashLoad struct {
	url   string
	store *postgres.Store
	l     *serverlesstest.Ledger
	made  atomic.Int64
	done  atomic.Int64
}

// round works, crashes the database, and compares it with what was acknowledged.
func (c *crashLoad) round(t *testing.T) error {
	t.Helper()
	const callers = 8
	q := &stuckQueue{Jobs: c.store.Jobs(), release: make(chan struct{})}
	c.l.Queue = q
	var stop atomic.Bool
	var ended atomic.Int32
	var workers sync.WaitGroup
	for w := range callers {
		workers.Go(func() {
			defer ended.Add(1)
			for !stop.Load() {
				if c.step(t, queue.WorkerID(fmt.Sprint("w", w))) != nil {
					return
				}
			}
		})
	}
	time.Sleep(time.Duration(100+rand.IntN(200)) * time.Millisecond) // a crash at any place
	postgresql.Restart(t, true, nil)
	stop.Store(true)
	for q.stuck.Load()+ended.Load() < callers {
		time.Sleep(time.Millisecond)
	}
	err := c.check(t)
	close(q.release)
	workers.Wait()
	return err
}

// check compares the store with what was acknowledged. The check before leased all deliveries.
func (c *crashLoad) check(t *testing.T) error {
	t.Helper()
	execute(t, c.url, `UPDATE podyard.job_outbox SET due = 1`)
	return c.l.Check(t.Context(), c.store.Jobs())
}

func (c *crashLoad) step(t *testing.T, w queue.WorkerID) error {
	t.Helper()
	j := newJob(fmt.Sprint("job-", c.made.Add(1)))
	j.Flags, j.Webhook, j.Retain = queue.HasWebhook, "https://example.org", time.Hour
	if err := c.l.Enqueue(t.Context(), []queue.Job{j}); err != nil {
		return err
	}
	jobs, err := c.l.Claim(t.Context(), instant, []queue.Slot{{Endpoint: "e", Worker: w, N: 2, Until: instant + 30_000}}, nil)
	if err != nil {
		return err
	}
	ops := make([]queue.Op, len(jobs))
	for i, j := range jobs {
		ops[i] = queue.Op{Ref: j.Ref, Kind: queue.OpFinish, Status: queue.Completed, Worker: w, Token: j.Token, Payload: fmt.Append(nil, j.Token)}
	}
	if err := c.l.Apply(t.Context(), instant, ops, make([]queue.Result, len(ops))); err != nil {
		return err
	}
	c.done.Add(int64(len(ops)))
	return nil
}

func newCrashLoad(t *testing.T, url string) *crashLoad {
	t.Helper()
	s := openURL(t, url)
	return &crashLoad{url: url, store: s, l: serverlesstest.NewLedger(s.Jobs())}
}

func TestACrashOfTheDatabaseLosesNothing(t *testing.T) {
	suite.SkipUnlessLong(t)
	c := newCrashLoad(t, durable(postgresql.Database(t)))
	for n := range crashRounds() {
		if err := c.round(t); err != nil {
			t.Fatalf("round %d: %v", n, err)
		}
	}
	t.Logf("%d jobs were submitted, %d ended, %d crashes, nothing was lost", c.made.Load(), c.done.Load(), crashRounds())
}

// The test above must find mistakes.
func TestTheCrashTestFindsMistakes(t *testing.T) {
	suite.SkipUnlessLong(t)
	for name, m := range map[string]struct {
		url    func(string) string
		before string // a statement before each comparison
	}{
		"an answer does not wait for the sync":        {url: func(url string) string { return url + "&synchronous_commit=off" }},
		"the webhook is not in the commit of the end": {url: durable, before: `DELETE FROM podyard.job_outbox WHERE n % 7 = 0`},
		"a result is not in the commit of the end":    {url: durable, before: `DELETE FROM podyard.job_outputs WHERE num % 7 = 0`},
		"a counter is not in the commit of the move":  {url: durable, before: `UPDATE podyard.job_counters SET queued = queued - 1000`},
		"a job is not in the commit of its submit":    {url: durable, before: `DELETE FROM podyard.jobs WHERE num % 7 = 0`},
	} {
		t.Run(name, func(t *testing.T) {
			url := postgresql.Database(t)
			c := newCrashLoad(t, m.url(url))
			for range 20 {
				err := c.round(t)
				if err == nil && m.before != "" {
					execute(t, url, m.before)
					err = c.check(t)
				}
				if err != nil {
					t.Logf("found: %v", err)
					return
				}
			}
			t.Error("20 rounds have not found it")
		})
	}
}

// killedVariable has the URL of the database for a process that is killed.
const killedVariable = "PODYARD_TEST_KILLED_SERVER"

// TestServerThatIsKilled works until it is killed, and prints what was acknowledged.
func TestServerThatIsKilled(t *testing.T) {
	url := os.Getenv(killedVariable)
	if url == "" {
		t.Skip("it is a process of TestAKilledServerLosesNothing")
	}
	q := openURL(t, url).Jobs()
	var out sync.Mutex
	say := func(format string, args ...any) {
		out.Lock()
		defer out.Unlock()
		fmt.Printf(format, args...)
	}
	var workers sync.WaitGroup
	for w := range 8 {
		workers.Go(func() {
			for n := 0; !t.Failed(); n++ {
				j := newJob(fmt.Sprintf("job-%d-%d-%d", os.Getpid(), w, n))
				submit(t, q, j)
				say("ack submit %s\n", j.ID)
				for _, j := range claim(t, q, instant, queue.WorkerID(fmt.Sprint("w", os.Getpid(), w)), 2, nil) {
					op := queue.Op{Ref: j.Ref, Kind: queue.OpFinish, Status: queue.Completed, Worker: j.Worker, Token: j.Token, Payload: fmt.Append(nil, j.Token)}
					res := make([]queue.Result, 1)
					if err := q.Apply(t.Context(), instant, []queue.Op{op}, res); err != nil || res[0].Err != nil {
						t.Error(err, res[0].Err)
					}
					say("ack finish %s %d\n", j.ID, j.Token)
				}
			}
		})
	}
	workers.Wait()
}

func TestAKilledServerLosesNothing(t *testing.T) {
	suite.SkipUnlessLong(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	url := durable(postgresql.Database(t))
	q := openURL(t, url).Jobs()
	submitted, finished := map[string]bool{}, map[string]string{}
	for range crashRounds() {
		for _, line := range workUntilKilled(t, self, url) {
			switch f := strings.Fields(line); {
			case len(f) == 3 && f[1] == "submit":
				submitted[f[2]] = true
			case len(f) == 4 && f[1] == "finish":
				if finished[f[2]] != "" {
					t.Errorf("%s has a result twice", f[2])
				}
				finished[f[2]] = f[3]
			}
		}
	}
	for id := range submitted {
		j, err := q.Get(t.Context(), instant, queue.Ref{Endpoint: "e", ID: queue.JobID(id)})
		if err != nil || finished[id] != "" && (j.Status != queue.Completed || string(j.Output) != finished[id]) {
			t.Errorf("%s is %v with the output %q, %v; the result that was acknowledged is %q", id, j.Status, j.Output, err, finished[id])
		}
	}
	if len(submitted) == 0 || len(finished) == 0 {
		t.Error("nothing was acknowledged")
	}
	t.Logf("%d submits and %d results were acknowledged, %d crashes, nothing was lost", len(submitted), len(finished), crashRounds())
}

// workUntilKilled starts a server, kills it and returns what it printed.
func workUntilKilled(t *testing.T, self, url string) (lines []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestServerThatIsKilled$", "-test.count=1")
	cmd.Env = append(os.Environ(), killedVariable+"="+url)
	out, err := cmd.StdoutPipe()
	if err = errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	var kill sync.Once
	in := bufio.NewReader(out)
	for {
		line, err := in.ReadString('\n')
		if err != nil { // the last line may be cut off
			break
		}
		if strings.HasPrefix(line, "ack ") {
			lines = append(lines, line)
			kill.Do(func() {
				time.AfterFunc(time.Duration(100+rand.IntN(300))*time.Millisecond, func() { _ = cmd.Process.Kill() })
			})
		}
	}
	_ = cmd.Wait() // it was killed
	return lines
}
