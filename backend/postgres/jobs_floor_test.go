package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/queue"
)

// pass submits jobs to the endpoint e and ends them, some times, with a look for the floor each time. It
// returns the first Seq of the last time.
func pass(t *testing.T, q *postgres.Jobs, prefix string) (first int64) {
	t.Helper()
	for round := range 4 {
		list := make([]queue.Job, postgres.FloorClaims)
		for i := range list {
			list[i] = newJob(fmt.Sprint(prefix, "-", round, "-", i))
		}
		submit(t, q, list...)
		finish(t, q, claim(t, q, instant, "w", len(list), nil)...)
		must(t, q.Look(t.Context()))
		first = int64(list[0].Seq)
	}
	return first
}

// raise is pass with a floor that rises.
func raise(t *testing.T, q *postgres.Jobs, prefix string) {
	t.Helper()
	pass(t, q, prefix)
	if first := pass(t, q, prefix+"-again"); q.Floor("e") < first {
		t.Errorf("the floor is %d, and all jobs up to %d were claimed before two looks", q.Floor("e"), first)
	}
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

// A job that is queued again keeps its place, which may be below the floors of all servers.
func TestAFloorHidesNoJobThatIsQueuedAgain(t *testing.T) {
	suite.SkipUnlessLong(t)
	both := newTwoServers(t)
	a, b := both.stores[0].Jobs(), both.stores[1].Jobs()
	submit(t, a, newJob("first"), newJob("second"))
	if held := claim(t, a, instant, "w", 2, nil); len(held) != 2 {
		t.Fatalf("%d jobs were claimed, want 2", len(held))
	}
	raise(t, a, "a")
	raise(t, b, "b")
	submit(t, a, newJob("last"))
	lose(t, a, "second")
	lose(t, a, "first")
	if s, err := b.Stats(t.Context(), instant, "e", nil); err != nil || s.Ready != 3 || s.Oldest == 0 {
		t.Errorf("Stats = %+v, %v, want three jobs", s, err)
	}
	wantNext(t, b, "first", "second", "last")
}

// A server of the version before writes rows without the column that the migration has added.
func TestAFloorHidesNoRowOfAnOlderServer(t *testing.T) {
	suite.SkipUnlessLong(t)
	url := postgresql.Database(t)
	q := openURL(t, url).Jobs()
	submit(t, q, newJob("old"))
	claim(t, q, instant, "w", 1, nil)
	raise(t, q, "new")
	lose(t, q, "old")
	execute(t, url, `CREATE TABLE public.r AS SELECT ep, owner, prio, key, seq, queued, expires, low, lost FROM podyard.job_ready`)
	execute(t, url, `DELETE FROM podyard.job_ready`)
	execute(t, url, `INSERT INTO podyard.job_ready (ep, owner, prio, key, seq, queued, expires, low, lost)
		SELECT ep, owner, prio, key, seq, queued, expires, low, lost FROM public.r`)
	wantNext(t, q, "old")
}

// A transaction of a caller may commit long after jobs with greater numbers were claimed. Floors do not
// wait for it.
func TestAFloorHidesNoJobOfACallersTransaction(t *testing.T) {
	suite.SkipUnlessLong(t)
	url := postgresql.Database(t)
	q := openURL(t, url).Jobs()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	tx, err := conn.Begin(t.Context())
	must(t, err)
	must(t, q.EnqueueTx(t.Context(), tx, newJob("slow")))
	raise(t, q, "others")
	submit(t, q, newJob("fast"))
	must(t, tx.Commit(t.Context()))
	wantNext(t, q, "slow", "fast")
}

// A server may stop for any time between getting the numbers of jobs and committing them. Floors wait for
// it.
func TestAFloorHidesNoJobOfAServerThatIsSlow(t *testing.T) {
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
	pass(t, q, "others")
	before := q.Floor("e")
	pass(t, q, "more")
	if now := q.Floor("e"); now != before {
		t.Errorf("the floor rose from %d to %d, although a transaction that may add below it has not ended", before, now)
	}
	_, err = conn.Exec(t.Context(), `SELECT pg_advisory_unlock(42)`)
	must(t, err)
	slow.Wait()
	wantNext(t, q, "slow")
	raise(t, q, "after it")
}

// A crash of the database undoes claims that were not durable. Connections are new then.
func TestFloorsEndWithTheirConnections(t *testing.T) {
	suite.SkipUnlessLong(t)
	url := postgresql.Database(t)
	q := openURL(t, url).Jobs()
	raise(t, q, "before")
	execute(t, url, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()`)
	eventually(t, func() error {
		_, err := q.Stats(t.Context(), instant, "e", nil)
		return err
	})
	if floor := q.Floor("e"); floor != 0 {
		t.Errorf("the floor is %d on a new connection, want none", floor)
	}
}

// While somebody has an old transaction open, a claim does not read again what was claimed before.
func TestClaimsUnderAnOldTransactionReadLittle(t *testing.T) {
	suite.SkipUnlessLong(t)
	url := postgresql.Database(t)
	q := openURL(t, url).Jobs()
	keepDead(t, url)
	submit(t, q, newJob("first"))
	execute(t, url, `INSERT INTO podyard.job_ready (ep, owner, prio, key, seq, queued, expires, low, lost, late)
		SELECT 'e', 'alice', 0, '', nextval('podyard.job_seq'), 0, 0, false, '', false FROM generate_series(1, 20000)`)
	execute(t, url, `DELETE FROM podyard.job_ready WHERE expires = 0`)
	raise(t, q, "later")
	other, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer func() { _ = other.Close(context.WithoutCancel(t.Context())) }()
	with, without := readBlocks(t, other, q.Floor("e")), readBlocks(t, other, 0)
	t.Logf("%d blocks from the floor, %d without it", with, without)
	if with > 50 || without < 200 {
		t.Errorf("a claim reads %d blocks from the floor and %d without it, want few and many", with, without)
	}
}
