package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/queue"
)

// withoutLines takes back the migration that made lines, and those after it.
const withoutLines = `DROP TABLE podyard.job_key_holds, podyard.job_logs, podyard.job_rates, podyard.job_keys, podyard.secrets, podyard.job_lines, podyard.job_owners, podyard.job_news; ALTER TABLE podyard.job_endpoints DROP COLUMN rates; DROP FUNCTION podyard.tell_added, podyard.tell_began, podyard.tell_ended CASCADE;
	ALTER TABLE podyard.job_endpoints DROP COLUMN floor, DROP COLUMN counted, DROP COLUMN per_key, DROP COLUMN per_user;
	ALTER TABLE podyard.job_running DROP COLUMN counted;
	CREATE INDEX job_ready_late ON podyard.job_ready ((ep || ''::bytea), owner, prio, key, seq) WHERE late;
	DELETE FROM podyard.migrations WHERE version >= 10;`

// An upgrade knows the jobs that an older server has left, also those of many owners, keys and priorities.
func TestAnUpgradeKeepsAHundredThousandMixedJobs(t *testing.T) {
	if !longest() {
		t.Skip("slow: it runs with PODYARD_LONG")
	}
	url := postgresql.Database(t)
	s := openURL(t, url)
	const jobs = 100_000
	list := make([]queue.Job, jobs)
	for i := range list {
		list[i] = newJob(fmt.Sprint(i))
		list[i].Owner, list[i].Key, list[i].Priority = fmt.Sprint("owner ", i%100), fmt.Sprint("key ", i%1000), uint8(i/1000%10)
	}
	submit(t, s.Jobs(), list...)
	running := claim(t, s.Jobs(), instant, "w", 100, nil)
	s.Close()
	execute(t, url, withoutLines)
	began := time.Now()
	q := openURL(t, url).Jobs()
	first := claim(t, q, instant, "v", 1, nil)
	t.Logf("the first job is claimed %v after the start", time.Since(began))
	if len(first) != 1 || first[0].Priority != 9 {
		t.Errorf("the first claim has %+v, want one job with priority 9", first)
	}
	finish(t, q, running...)
	got := len(running) + len(first)
	for {
		list := claim(t, q, instant, "v", 2000, nil)
		if got += len(list); len(list) == 0 {
			break
		}
	}
	if got != jobs {
		t.Errorf("%d jobs were claimed before and after the upgrade, want %d", got, jobs)
	}
}

// A change of the schema wants tables that a caller's transaction uses. Others do not wait behind it.
func TestAnUpgradeBesideAnOpenTransactionHoldsUpNobody(t *testing.T) {
	url := postgresql.Database(t)
	q := openURL(t, url).Jobs()
	execute(t, url, withoutLines)
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	tx, err := conn.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE podyard.job_ready IN ROW EXCLUSIVE MODE`) // as who has added a job
	must(t, err)
	waits := make(chan string, 1)
	logger := slog.New(slog.NewTextHandler(writerFunc(func(b []byte) {
		select {
		case waits <- string(b):
		default:
		}
	}), nil))
	opened := make(chan error, 1)
	go func() {
		s, err := postgres.Open(t.Context(), url, &postgres.Options{Key: testKey, Logger: logger})
		if err == nil {
			s.Close()
		}
		opened <- err
	}()
	if text := <-waits; !strings.Contains(text, "waits for transactions of others") {
		t.Errorf("the log has %q, want that the change waits", text)
	}
	submit(t, q, newJob("a"))
	must(t, tx.Commit(t.Context()))
	must(t, <-opened)
	wantNext(t, q, "a")
}

type writerFunc func(b []byte)

func (f writerFunc) Write(b []byte) (int, error) { f(b); return len(b), nil }

// pass submits jobs to the endpoint e and ends them.
func pass(t *testing.T, q *postgres.Jobs, prefix string) {
	t.Helper()
	list := make([]queue.Job, 64)
	for i := range list {
		list[i] = newJob(fmt.Sprint(prefix, "-", i))
	}
	submit(t, q, list...)
	finish(t, q, claim(t, q, instant, "w", len(list), nil)...)
}

// wantNext claims the jobs with these ids, in their order, and ends them.
func wantNext(t *testing.T, q queue.JobQueue, ids ...string) {
	t.Helper()
	jobs := claim(t, q, instant, "v", len(ids), nil)
	var got []string
	for _, j := range jobs {
		got = append(got, string(j.ID))
	}
	if fmt.Sprint(got) != fmt.Sprint(ids) {
		t.Errorf("%q were claimed, want %q", got, ids)
	}
	finish(t, q, jobs...)
}

// lose has the worker w lose a job.
func lose(t *testing.T, q queue.JobQueue, id string) {
	t.Helper()
	res := make([]queue.Result, 1)
	op := queue.Op{Ref: newJob(id).Ref, Kind: queue.OpWorkerLost, Worker: "w"}
	if err := q.Apply(t.Context(), instant, []queue.Op{op}, res); err != nil || res[0].Err != nil {
		t.Fatal(err, res[0].Err)
	}
}

// Claims read the news of a line in pieces, and each piece is newer than the one before.
func TestALineKeepsTheJobsOfItsFirstNews(t *testing.T) {
	for _, several := range []bool{false, true} {
		t.Run(fmt.Sprint("several lines ", several), func(t *testing.T) {
			url := postgresql.Database(t)
			q := openURL(t, url).Jobs()
			const jobs = 1500 // more than one piece of news has
			for i := range jobs {
				j := newJob(fmt.Sprint(i))
				if several {
					j.Key = fmt.Sprint(i % 2)
				}
				submit(t, q, j)
			}
			var got []string
			for len(got) < jobs {
				list := claim(t, q, instant, "w", 500, nil)
				if len(list) == 0 {
					break
				}
				for _, j := range list {
					got = append(got, string(j.ID))
				}
			}
			if len(got) != jobs {
				t.Fatalf("%d jobs were claimed, the first one is %q, want %d", len(got), got[:min(1, len(got))], jobs)
			}
			for i, id := range got {
				if id != fmt.Sprint(i) {
					t.Fatalf("job %q was claimed at place %d", id, i)
				}
			}
		})
	}
}

// A job that is queued again keeps its place, which may be before where all servers begin to read.
func TestALineHidesNoJobThatIsQueuedAgain(t *testing.T) {
	both := newTwoServers(t)
	a, b := both.stores[0].Jobs(), both.stores[1].Jobs()
	submit(t, a, newJob("first"), newJob("second"))
	if held := claim(t, a, instant, "w", 2, nil); len(held) != 2 {
		t.Fatalf("%d jobs were claimed, want 2", len(held))
	}
	for i := range 12 { // more than a row may lag behind
		pass(t, a, fmt.Sprint("a", i))
		pass(t, b, fmt.Sprint("b", i))
	}
	submit(t, a, newJob("last"))
	lose(t, a, "second")
	lose(t, a, "first")
	if s, err := b.Stats(t.Context(), instant, "e", nil); err != nil || s.Ready != 3 || s.Oldest == 0 {
		t.Errorf("Stats = %+v, %v, want three jobs", s, err)
	}
	wantNext(t, b, "first", "second", "last")
}

// A server of the version before knows neither lines nor what it should tell them. Triggers do.
func TestALineKnowsTheRowsOfAnOlderServer(t *testing.T) {
	url := postgresql.Database(t)
	q := openURL(t, url).Jobs()
	submit(t, q, newJob("old"), newJob("other"))
	claim(t, q, instant, "w", 1, nil)
	pass(t, q, "new")
	one := &queue.Rules{Total: 0, PerUser: 1}
	if list := claim(t, q, instant, "w", 1, one); len(list) != 0 {
		t.Fatalf("%d jobs were claimed, want none: one runs", len(list))
	}
	execute(t, url, `DELETE FROM podyard.job_running`)
	execute(t, url, `INSERT INTO podyard.job_running (ep, owner, key, num, seq, id, node) SELECT ep, owner, key, num, seq, id, 1 FROM podyard.jobs WHERE id = 'old'`)
	if list := claim(t, q, instant, "w", 1, one); len(list) != 0 {
		t.Errorf("%d jobs were claimed while an older server has one, want none", len(list))
	}
	lose(t, q, "old")
	execute(t, url, `CREATE TABLE public.r AS SELECT ep, owner, prio, key, seq, queued, expires, low, lost FROM podyard.job_ready`)
	execute(t, url, `DELETE FROM podyard.job_ready`)
	execute(t, url, `INSERT INTO podyard.job_ready (ep, owner, prio, key, seq, queued, expires, low, lost)
		SELECT ep, owner, prio, key, seq, queued, expires, low, lost FROM public.r`)
	wantNext(t, q, "old")
}

// A transaction of a caller may commit long after jobs with greater numbers were claimed. Claims do not
// wait for it.
func TestALineHidesNoJobOfACallersTransaction(t *testing.T) {
	url := postgresql.Database(t)
	q := openURL(t, url).Jobs()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	tx, err := conn.Begin(t.Context())
	must(t, err)
	must(t, q.EnqueueTx(t.Context(), tx, newJob("slow")))
	for i := range 4 {
		pass(t, q, fmt.Sprint("others", i))
	}
	submit(t, q, newJob("fast"))
	must(t, tx.Commit(t.Context()))
	wantNext(t, q, "slow", "fast")
}

// A server may stop for any time between getting the numbers of jobs and committing them.
func TestALineHidesNoJobOfAServerThatIsSlow(t *testing.T) {
	suite.SkipUnlessLong(t)
	both := newTwoServers(t)
	execute(t, both.url, `CREATE FUNCTION podyard.wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.input = 'slow' THEN PERFORM pg_advisory_xact_lock(42); END IF;
			RETURN NEW;
		END $$;
		CREATE TRIGGER wait BEFORE INSERT ON podyard.job_bodies FOR EACH ROW EXECUTE FUNCTION podyard.wait()`)
	conn, err := pgx.Connect(t.Context(), both.url)
	must(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	_, err = conn.Exec(t.Context(), `SELECT pg_advisory_lock(42)`)
	must(t, err)
	j := newJob("slow")
	j.Input = []byte("slow")
	var slow sync.WaitGroup
	slow.Go(func() { submit(t, both.stores[0].Jobs(), j) })
	eventually(t, func() error {
		var waits int
		err := conn.QueryRow(t.Context(), `SELECT 1/count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`).Scan(&waits)
		return err
	})
	q := both.stores[1].Jobs()
	for i := range 4 {
		pass(t, q, fmt.Sprint("others", i))
	}
	_, err = conn.Exec(t.Context(), `SELECT pg_advisory_unlock(42)`)
	must(t, err)
	slow.Wait()
	wantNext(t, q, "slow")
}

// A crash of the database undoes claims that were not durable. Connections are new then.
func TestWhatIsKnownOfNewsEndsWithTheConnections(t *testing.T) {
	url := postgresql.Database(t)
	q := openURL(t, url).Jobs()
	pass(t, q, "before")
	if q.From("e") == 0 {
		t.Error("a claim begins to read the news from 0 after it has read some, want from the first transaction under way")
	}
	execute(t, url, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()`)
	eventually(t, func() error {
		_, err := q.Stats(t.Context(), instant, "e", nil)
		return err
	})
	if from := q.From("e"); from != 0 {
		t.Errorf("news are read from %d on a new connection, want from 0", from)
	}
}

// blocks returns how many blocks of the database the statements of a claim read, each.
func blocks(t *testing.T, url string, q *postgres.Jobs, endpoint string) map[string]int64 {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	_, err = conn.Exec(t.Context(), postgres.PlanSettings)
	must(t, err)
	all := map[string]int64{}
	for sql, args := range q.ClaimReads(endpoint, 2, instant) {
		tx, err := conn.Begin(t.Context())
		must(t, err)
		var plan []struct {
			Plan struct {
				Hit  int64 `json:"Shared Hit Blocks"`
				Read int64 `json:"Shared Read Blocks"`
			}
		}
		args = append([]any{pgx.QueryExecModeExec}, args...)
		must(t, tx.QueryRow(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+sql, args...).Scan(&plan))
		must(t, tx.Rollback(t.Context()))
		all[sql] = plan[0].Plan.Hit + plan[0].Plan.Read
	}
	return all
}

// wantFewBlocks checks that no statement of a claim reads much.
func wantFewBlocks(t *testing.T, when string, all map[string]int64, most int64) {
	t.Helper()
	for sql, n := range all {
		t.Logf("%s: %d blocks by %.40s", when, n, strings.TrimSpace(sql))
		if n > most {
			t.Errorf("%s a claim reads %d blocks, want at most %d, by %s", when, n, most, sql)
		}
	}
}

// What a claim reads does not depend on how many jobs or lines wait.
func TestAClaimReadsLittleWhateverWaits(t *testing.T) {
	url := postgresql.Database(t)
	q := openURL(t, url).Jobs()
	list := make([]queue.Job, 10_000)
	for i := range list {
		list[i] = newJob(fmt.Sprint(i))
		list[i].Key = fmt.Sprint("key ", i%5_000)
	}
	list[len(list)-1].Priority = 9 // the line of the endpoint is that of its first job
	submit(t, q, list...)
	for range 4 { // until all news are read
		finish(t, q, claim(t, q, instant, "w", 1, nil)...)
	}
	wantFewBlocks(t, "with 5,000 keys", blocks(t, url, q, "e"), 100)
}

// While somebody has an old transaction open, a claim does not read again what was claimed before, also of
// an endpoint with several lines.
func TestClaimsUnderAnOldTransactionReadLittle(t *testing.T) {
	url := postgresql.Database(t)
	q := openURL(t, url).Jobs()
	keepDead(t, url)
	for i := range 400 {
		five, nine := newJob(fmt.Sprint("five ", i)), newJob(fmt.Sprint("nine ", i))
		nine.Priority, nine.Owner = 9, "another"
		submit(t, q, five, nine, newJob(fmt.Sprint("more ", i)))
		finish(t, q, claim(t, q, instant, "w", 1, nil)...)
		if i > 0 { // so there is always one that waits
			finish(t, q, claim(t, q, instant, "w", 2, nil)...)
		}
	}
	wantFewBlocks(t, "after 800 claims beside an old transaction", blocks(t, url, q, "e"), 100)
}
