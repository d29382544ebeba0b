package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/internal/postgrestest"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/servers"
)

// openShort opens a store that waits for the database about a second where others wait ten.
func openShort(t *testing.T, url string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), url, postgres.Short(&postgres.Options{MaxConns: 8, Key: testKey}))
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// connections makes a store have several connections in each pool.
func connections(t *testing.T, s *postgres.Store) {
	t.Helper()
	must(t, ignore(volumes.ErrExists, s.Volumes().Create(t.Context(), volumes.Volume{ID: "warm", Owner: "alice"})))
	var calls sync.WaitGroup
	for range 16 {
		calls.Go(func() {
			if _, err := s.Volumes().Get(t.Context(), "warm"); err != nil {
				t.Error(err)
			}
			if _, err := s.Jobs().Get(t.Context(), instant, queue.Ref{Endpoint: "e", ID: "none"}); !errors.Is(err, queue.ErrNotFound) {
				t.Error(err)
			}
		})
	}
	calls.Wait()
}

// within fails if f takes longer than a store with short times may need.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	begin := time.Now()
	f()
	if took := time.Since(begin); took > suite.Within(5*time.Second) {
		t.Errorf("%s took %v, want the time of a call and of its repetition", what, took)
	}
}

// notNow fails unless an error tells the client to come back.
func notNow(t *testing.T, what string, err error, want ...error) {
	t.Helper()
	if problem.Of(err).Status != 503 || len(want) > 0 && !errors.Is(err, want[0]) {
		t.Errorf("%s = %v (status %d), want %v, which is a 503", what, err, problem.Of(err).Status, want)
	}
}

func TestConnectionsThatGoSilentAreReplaced(t *testing.T) {
	f, through := postgrestest.NewFreezer(t, postgresql.Database(t))
	s := openShort(t, through)
	for _, idle := range []bool{false, true} {
		connections(t, s)
		submit(t, s.Jobs(), newJob(map[bool]string{false: "a", true: "b"}[idle]))
		if idle {
			time.Sleep(1100 * time.Millisecond) // then connections are checked before they are used
		}
		f.Freeze(false)
		within(t, "a submit, a claim and a read", func() {
			err := s.Jobs().Enqueue(t.Context(), []queue.Job{newJob(map[bool]string{false: "c", true: "d"}[idle])})
			if idle && err != nil {
				t.Errorf("Enqueue = %v, want none: the connection is checked before the job is sent", err)
			}
			must(t, ignore(postgres.ErrUnknown, err))
			if jobs, err := claimOne(t.Context(), s.Jobs()); err != nil || len(jobs) != 1 {
				t.Errorf("Claim = %d jobs, %v, want one", len(jobs), err)
			}
			if _, err := s.Volumes().Get(t.Context(), "warm"); err != nil {
				t.Errorf("Get = %v, want the volume", err)
			}
		})
		f.Thaw()
	}
}

func TestAFrozenPoolerIsA503UntilItGoesOn(t *testing.T) {
	f, through := postgrestest.NewFreezer(t, postgresql.Database(t))
	s := openShort(t, through+"&connect_timeout=1")
	connections(t, s)
	must(t, s.Err(t.Context()))
	f.Freeze(true)
	within(t, "a refusal", func() {
		notNow(t, "Enqueue", s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("a")}))
		_, err := s.Volumes().Get(t.Context(), "warm")
		notNow(t, "Get", err, postgres.ErrUnreachable)
		notNow(t, "Err", s.Err(t.Context()))
	})
	f.Thaw()
	eventually(t, func() error {
		_, err := s.Volumes().Get(t.Context(), "warm")
		return errors.Join(err, s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("b")}), s.Err(t.Context()))
	})
}

func TestCloseDoesNotWaitForADatabaseThatIsSilent(t *testing.T) {
	f, through := postgrestest.NewFreezer(t, postgresql.Database(t))
	s, err := postgres.Open(t.Context(), through, &postgres.Options{MaxConns: 8, Key: testKey}) // with the times of operation
	must(t, err)
	connections(t, s)
	f.Freeze(true)
	var calls sync.WaitGroup
	for range 10 {
		calls.Go(func() { _ = s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("a")}) }) // how it ends does not matter
		calls.Go(func() { _, _ = s.Volumes().Get(t.Context(), "warm") })
	}
	eventually(t, func() error {
		if s.Jobs().Stalled() == 0 {
			return errors.New("no call is under way: this shows nothing")
		}
		return nil
	})
	within(t, "Close", func() { _ = s.Close() })
	within(t, "the end of the calls", calls.Wait)
}

func TestAListenerThatHearsNothingListensAgain(t *testing.T) {
	database := postgresql.Database(t)
	f, through := postgrestest.NewFreezer(t, database)
	s, other := openShort(t, through), openURL(t, database)
	hints := make(chan []string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var watcher sync.WaitGroup
	watcher.Go(func() { _ = s.Pods().Watch(ctx, func(ids []string) { hints <- ids }) })
	defer watcher.Wait()
	defer cancel()
	<-hints // it listens
	f.Freeze(false)
	if ids := <-hints; ids != nil {
		t.Errorf("the hint is %q, want that some may be lost", ids)
	}
	must(t, other.Pods().Create(t.Context(), &pods.Pod{ID: "a"}))
	if ids := <-hints; len(ids) != 1 || ids[0] != "a" {
		t.Errorf("the hint is %q, want the pod of the other server", ids)
	}
}

// The sessions that are open only read from now on, as on a primary that has become a standby, and new ones
// change what they like, as on the new primary.
func TestAFailoverThatLeavesConnectionsOpenIsNotNoticed(t *testing.T) {
	s := openShort(t, postgresql.Database(t))
	connections(t, s)
	readOnly(t, true)
	submit(t, s.Jobs(), newJob("a"))
	must(t, s.Volumes().Create(t.Context(), volumes.Volume{ID: "v", Owner: "alice"}))
	must(t, s.Err(t.Context()))
}

func TestADatabaseThatOnlyReadsIsA503UntilItChanges(t *testing.T) {
	database := postgresql.Database(t)
	s := openShort(t, database)
	connections(t, s)
	readOnly(t, false)
	notNow(t, "Enqueue", s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("a")}))
	notNow(t, "Create", s.Volumes().Create(t.Context(), volumes.Volume{ID: "v", Owner: "alice"}))
	notNow(t, "Err", s.Err(t.Context()))
	if _, err := postgres.Open(t.Context(), database, nil); err == nil || !strings.Contains(err.Error(), "127.0.0.1:") || !strings.Contains(err.Error(), "default_transaction_read_only is on") {
		t.Errorf("Open = %v, want an error that names the host and the setting", err)
	}
	readAndWrite(t)
	eventually(t, func() error {
		return errors.Join(ignore(queue.ErrExists, s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("a")})), s.Err(t.Context()))
	})
}

// A server that is restarted as a standby, and made the primary later, is as good as a cluster that has no
// primary for a while.
func TestAStandbyIsRefusedAtTheStartAndWaitedForLater(t *testing.T) {
	suite.SkipUnlessLong(t)
	var server postgrestest.Server // of its own: it becomes a standby
	t.Cleanup(server.Stop)
	database := server.Empty(t)
	s := openShort(t, database)
	connections(t, s)
	var dir string
	must(t, connect(t, database).QueryRow(t.Context(), "SHOW data_directory").Scan(&dir))
	server.Restart(t, false, func() { must(t, os.WriteFile(filepath.Join(dir, "standby.signal"), nil, 0o644)) })
	_, err := postgres.Open(t.Context(), database, nil)
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:") || !strings.Contains(err.Error(), "it is a standby. Use the address of the primary") {
		t.Errorf("Open = %v, want an error that names the host, and what to do", err)
	}
	notNow(t, "Enqueue", s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("a")})) // its connection was in use just now
	notNow(t, "a second Enqueue", s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("a")}), postgres.ErrUnreachable)
	notNow(t, "Err", s.Err(t.Context()), postgres.ErrUnreachable)
	server.Admin(t, "SELECT pg_promote()")
	submit(t, s.Jobs(), newJob("a"))
	must(t, s.Err(t.Context()))
}

// readOnly makes the sessions that are open only read, and new ones too unless the user of the tests has a
// setting of its own.
func readOnly(t *testing.T, own bool) {
	t.Helper()
	t.Cleanup(func() {
		readAndWrite(t)
		postgresql.Admin(t, "ALTER ROLE postgres RESET default_transaction_read_only")
	})
	open := connect(t, postgresql.URL("postgres", "", "postgres"))
	if own {
		postgresql.Admin(t, "ALTER ROLE postgres SET default_transaction_read_only = off")
	}
	postgresql.Admin(t, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
	has(t, open, "default_transaction_read_only", "on")
	if !own {
		eventually(t, func() error { return hasNew(t, "default_transaction_read_only", "on") })
	}
}

func readAndWrite(t *testing.T) {
	t.Helper()
	postgresql.Admin(t, "SET default_transaction_read_only = off", "ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()")
	eventually(t, func() error { return hasNew(t, "default_transaction_read_only", "off") })
}

// hasNew returns an error unless a new session has the value of a setting.
func hasNew(t *testing.T, name, want string) error {
	t.Helper()
	c := connect(t, postgresql.URL("postgres", "", "postgres"))
	defer func() { must(t, c.Close(context.WithoutCancel(t.Context()))) }()
	return hasSetting(t, c, name, want)
}

func has(t *testing.T, c *pgx.Conn, name, want string) {
	t.Helper()
	eventually(t, func() error { return hasSetting(t, c, name, want) })
}

func hasSetting(t *testing.T, c *pgx.Conn, name, want string) error {
	t.Helper()
	var got string
	if err := c.QueryRow(context.WithoutCancel(t.Context()), "SHOW "+name).Scan(&got); err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("%s is %s, want %s", name, got, want)
	}
	return nil
}

// connect returns a connection that is closed when the test ends, if not before.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(context.WithoutCancel(t.Context()), url)
	must(t, err)
	t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
	return c
}

// lock makes a statement in a transaction, which unlock ends.
func lock(t *testing.T, url, sql string) (unlock func()) {
	t.Helper()
	tx, err := connect(t, url).Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), sql)
	must(t, err)
	return func() { must(t, tx.Rollback(t.Context())) }
}

// A database refuses with each of these codes what it may accept later.
func TestWhatADatabaseRefusesForNowIsA503(t *testing.T) {
	database := postgresql.Database(t)
	s := openShort(t, database)
	execute(t, database, `CREATE TABLE refusal (code text); CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		RAISE EXCEPTION 'planted' USING ERRCODE = (SELECT code FROM refusal); END $$;
		CREATE TRIGGER t BEFORE INSERT ON podyard.jobs FOR EACH ROW EXECUTE FUNCTION refuse();
		CREATE TRIGGER t BEFORE INSERT ON podyard.volumes FOR EACH ROW EXECUTE FUNCTION refuse()`)
	for _, c := range []struct {
		code    string
		now     bool
		unready bool
	}{
		{"53100", true, true}, {"53200", true, true}, {"53400", true, true}, {"57014", true, false}, {"57P03", true, false},
		{"58030", true, false}, {"55P03", true, false}, {"08P01", true, false}, {"22012", false, false}, {"XX001", false, false},
	} {
		execute(t, database, `DELETE FROM refusal; INSERT INTO refusal VALUES ('`+c.code+`')`)
		for what, err := range map[string]error{
			"Enqueue":           s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("a")}),
			"Enqueue by key":    s.Jobs().Enqueue(t.Context(), []queue.Job{keyed("a")}),
			"Enqueue of unique": s.Jobs().Enqueue(t.Context(), []queue.Job{unique("a")}),
			"Create":            s.Volumes().Create(t.Context(), volumes.Volume{ID: "v", Owner: "alice"}),
		} {
			if errors.Is(err, postgres.ErrNotNow) != c.now || (problem.Of(err).Status == 503) != c.now {
				t.Errorf("%s after %s = %v, want ErrNotNow: %v", what, c.code, err, c.now)
			}
		}
		if err := s.Err(t.Context()); (err != nil) != c.unready {
			t.Errorf("Err after %s = %v, want an error: %v", c.code, err, c.unready)
		}
		eventually(t, func() error { return s.Err(t.Context()) })
	}
	execute(t, database, `DROP TRIGGER t ON podyard.jobs`)
	submit(t, s.Jobs(), newJob("a"))
}

func TestTimeoutsOfTheRoleAreA503(t *testing.T) {
	for setting, value := range map[string]string{"statement_timeout": "150ms", "lock_timeout": "150ms", "none": ""} {
		t.Run(setting, func(t *testing.T) {
			database := postgresql.Database(t)
			with := database
			if value != "" {
				with += "&" + setting + "=" + value
			}
			s := openShort(t, with)
			submit(t, s.Jobs(), newJob("a"))
			unlock := lock(t, database, "LOCK TABLE podyard.jobs")
			var calls sync.WaitGroup
			within(t, "refusals", func() {
				for _, id := range []string{"b", "c", "d", "e", "f", "g", "h", "i"} {
					calls.Go(func() {
						notNow(t, "Enqueue", s.Jobs().Enqueue(t.Context(), []queue.Job{newJob(id)}), postgres.ErrNotNow)
					})
				}
				calls.Wait()
			})
			unlock()
			submit(t, s.Jobs(), newJob("b"))
		})
	}
}

func TestAMissingStandbyIsNotReadyAndUnknown(t *testing.T) {
	database := postgresql.Database(t)
	s := openShort(t, durable(database))
	submit(t, s.Jobs(), newJob("a"))
	t.Cleanup(func() { postgresql.Admin(t, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()") })
	postgresql.Admin(t, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()")
	n := 0
	eventually(t, func() error {
		n++
		err := s.Jobs().Enqueue(t.Context(), []queue.Job{newJob(fmt.Sprint("b", n))})
		if err == nil {
			return errors.New("no commit waits for the standby: this shows nothing")
		}
		notNow(t, "Enqueue", err, postgres.ErrUnknown)
		return nil
	})
	notNow(t, "Err", s.Err(t.Context()))
	postgresql.Admin(t, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
	eventually(t, func() error {
		return errors.Join(ignore(queue.ErrExists, s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("c")})), s.Err(t.Context()))
	})
}

// A worker whose chunk is refused with a 503 sends it again. None is lost and none is there twice, whether what was
// sent before the outage is lost or arrives late.
func TestAStreamOverAnOutageIsWhole(t *testing.T) {
	suite.SkipUnlessLong(t)
	for name, end := range map[string]func(f *postgrestest.Freezer){"what was sent is lost": (*postgrestest.Freezer).Cut, "what was sent arrives late": (*postgrestest.Freezer).Thaw} {
		t.Run(name, func(t *testing.T) {
			f, through := postgrestest.NewFreezer(t, postgresql.Database(t))
			q := openShort(t, through+"&connect_timeout=1").Jobs()
			submit(t, q, newJob("a"))
			j := claim(t, q, instant, "w", 1, nil)[0]
			again := func(op queue.Op) (refusals int) {
				op.Ref, op.Worker, op.Token = j.Ref, j.Worker, j.Token
				eventually(t, func() error {
					res := make([]queue.Result, 1)
					err := q.Apply(t.Context(), instant, []queue.Op{op}, res)
					if err == nil {
						must(t, res[0].Err)
						return nil
					}
					refusals++
					notNow(t, "Apply", err)
					return err
				})
				return refusals
			}
			var want, got []string
			refusals := 0
			for n := range 60 {
				if n == 20 {
					f.Freeze(true)
					time.AfterFunc(3*time.Second, func() { end(f) })
				}
				payload := fmt.Sprintf(`{"output":%d}`, n/2) // some are like the one before
				want = append(want, payload)
				refusals += again(queue.Op{Kind: queue.OpChunk, Payload: []byte(payload)})
			}
			if refusals == 0 {
				t.Error("nothing was refused: this shows nothing")
			}
			list, _, err := q.Chunks(t.Context(), instant, j.Ref, 1<<20)
			must(t, err)
			for _, c := range list {
				got = append(got, string(c))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the stream (-want +got):\n%s", diff)
			}
		})
	}
}

// The answer to the commit of each move is lost. A repetition of the call gets the result of the first one, and
// what is like it but another call is made.
func TestAMoveWhoseAnswerIsLostIsMadeOnce(t *testing.T) {
	suite.SkipUnlessLong(t)
	for _, arrives := range []bool{false, true} {
		t.Run(fmt.Sprint("the commit arrives: ", arrives), func(t *testing.T) {
			c, through := newCutter(t, postgresql.Database(t)+"&default_query_exec_mode=cache_describe", arrives)
			q := openURL(t, through).Jobs()
			submit(t, q, newJob("a"))
			j := claim(t, q, instant, "w", 1, nil)[0]
			apply := func(op queue.Op) (queue.Result, error) {
				op.Ref, op.Worker = j.Ref, j.Worker
				res := make([]queue.Result, 1)
				err := q.Apply(t.Context(), instant, []queue.Op{op}, res)
				return res[0], err
			}
			for n, op := range []queue.Op{{Kind: queue.OpChunk, Payload: []byte(`{"output":1}`)}, {Kind: queue.OpFinish, Status: queue.Completed, Payload: []byte(`1`)}} {
				q.Forget(j.Ref) // the job is locked first, and then there is a commit that the cutter sees
				c.armed.Store(true)
				if _, err := apply(op); !errors.Is(err, postgres.ErrUnknown) {
					t.Fatalf("Apply = %v, want ErrUnknown", err)
				}
				if n == 0 { // another move comes between
					if res, err := apply(queue.Op{Kind: queue.OpRenew, Until: instant + 40_000}); err != nil || res.Err != nil {
						t.Errorf("Apply of another move = %v, %v", res.Err, err)
					}
				}
				if res, err := apply(op); err != nil || res.Err != nil || res.State.Chunks != 1 {
					t.Errorf("Apply again = %d chunks, %v, %v, want one and no error", res.State.Chunks, res.Err, err)
				}
				if n == 0 {
					continue
				}
				if res, err := apply(op); err != nil || res.Err == nil {
					t.Errorf("a third Apply = %v, %v, want that the job has ended", res.Err, err)
				}
			}
			if list, _, err := q.Chunks(t.Context(), instant, j.Ref, 1<<20); err != nil || len(list) != 1 {
				t.Errorf("the stream has %d chunks, %v, want one", len(list), err)
			}
		})
	}
}

// An offClock differs from the clock of the system.
type offClock struct {
	clock.System

	by atomic.Int64 // nanoseconds
}

func offBy(d time.Duration) *offClock {
	c := &offClock{}
	c.by.Store(int64(d))
	return c
}

func (c *offClock) Now() time.Time { return c.System.Now().Add(time.Duration(c.by.Load())) }

func (c *offClock) AfterFunc(t time.Time, f func()) func() bool {
	return c.System.AfterFunc(t.Add(-time.Duration(c.by.Load())), f)
}

func TestOpenRefusesAClockThatIsOff(t *testing.T) {
	database := postgresql.Database(t)
	for by, want := range map[time.Duration]string{45 * time.Second: "45s ahead of", -45 * time.Second: "45s behind", 3 * time.Second: ""} {
		s, err := postgres.Open(t.Context(), database, &postgres.Options{MaxConns: 2, Clock: offBy(by)})
		if err == nil {
			_ = s.Close()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("Open with a clock that is off by %v = %v, want %q", by, err, want)
		}
	}
}

func TestAClockThatGoesWrongIsSaidAndNotReady(t *testing.T) {
	var log bytes.Buffer
	c := offBy(0)
	s, err := postgres.Open(t.Context(), postgresql.Database(t), &postgres.Options{MaxConns: 2, Clock: c, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	must(t, s.Err(t.Context()))
	c.by.Store(int64(-time.Minute))
	l := servers.Lease{Name: "server/a", Holder: "a", Until: c.Now().Add(15 * time.Second)}
	if _, err := s.Servers().Take(t.Context(), c.Now(), l); err != nil {
		t.Errorf("Take = %v, want the lease", err)
	}
	const want = "the clock of this server is 1m0s behind that of the database"
	if !strings.Contains(log.String(), want) {
		t.Errorf("the log has %q, want %q", log.String(), want)
	}
	err = s.Err(t.Context())
	notNow(t, "Err", err)
	if !strings.Contains(err.Error(), want) {
		t.Errorf("Err = %v, want %q", err, want)
	}
}
