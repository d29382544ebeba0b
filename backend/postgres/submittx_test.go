package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/telemetry"
)

// submits counts the jobs that an observer is told of.
type submits struct{ n atomic.Int64 }

func (s *submits) Job(e telemetry.JobEvent) {
	if e.Change == telemetry.JobSubmitted {
		s.n.Add(1)
	}
}
func (s *submits) Worker(telemetry.WorkerEvent)   {}
func (s *submits) Webhook(telemetry.WebhookEvent) {}
func (s *submits) Loop(telemetry.LoopEvent)       {}

// eachSubmit runs a test with a service whose endpoint e has settings of its own.
func eachSubmit(t *testing.T, test func(t *testing.T, s *serverless.Service, seen *submits, begin func() ownTx)) {
	t.Helper()
	eachTx(t, func(t *testing.T, _ string, store *postgres.Store, begin func() ownTx) {
		must(t, store.Endpoints().Create(t.Context(), &serverless.Endpoint{
			ID: "e", Name: "e", ExecTimeout: 7 * time.Second,
			Queue: &endpoints.QueueSettings{Retry: queue.RetryPolicy{Attempts: 4, Delay: time.Second, Factor: 2, MaxDelay: time.Minute}, DeadLetter: time.Hour},
		}))
		seen := &submits{}
		test(t, serverless.New(store.Jobs(), store.Endpoints(), &serverless.Options{Observer: seen}), seen, begin)
	})
}

func request(input string, more ...func(*serverless.Request)) serverless.Request {
	r := serverless.Request{Input: []byte(input)}
	for _, f := range more {
		f(&r)
	}
	return r
}

func withKey(key, content string) func(*serverless.Request) {
	return func(r *serverless.Request) {
		r.Idempotency = idempotency.NewRequest(key, []string{"alice", "run"}, []byte(content))
	}
}

func TestAJobOfATransactionIsWhatSubmitMakes(t *testing.T) {
	suite.SkipUnlessLong(t)
	eachSubmit(t, func(t *testing.T, s *serverless.Service, seen *submits, begin func() ownTx) {
		tx := begin()
		must(t, tx.insert("order"))
		got, err := s.SubmitTx(t.Context(), tx.tx, "alice", "e", request(`{"n":1}`))
		must(t, err)
		if _, err := s.Get(t.Context(), "alice", got.Ref); !errors.Is(err, serverless.ErrNotFound) {
			t.Errorf("Get before the commit = %v, want ErrNotFound", err)
		}
		must(t, tx.commit())
		there, err := s.Get(t.Context(), "alice", got.Ref)
		must(t, err)
		plain, err := s.Submit(t.Context(), "alice", "e", request(`{"n":1}`))
		must(t, err)
		if there.Retry != plain.Retry || there.DeadLetter != plain.DeadLetter || there.ExecTimeout != plain.ExecTimeout || there.Retain != plain.Retain ||
			there.Priority != plain.Priority || there.Flags != plain.Flags || there.Expires.Sub(there.Submitted) != plain.Expires.Sub(plain.Submitted) {
			t.Errorf("the job of a transaction is %+v, and that of Submit %+v", there.State, plain.State)
		}
		if seen.n.Load() != 2 {
			t.Errorf("the observer was told of %d jobs, want 2", seen.n.Load())
		}
		gone := begin()
		lost, err := s.SubmitTx(t.Context(), gone.tx, "alice", "e", request(`{}`))
		must(t, err)
		must(t, gone.rollback())
		if _, err := s.Get(t.Context(), "alice", lost.Ref); !errors.Is(err, serverless.ErrNotFound) {
			t.Errorf("Get after a rollback = %v, want ErrNotFound", err)
		}
	})
}

func TestATransactionIsRefusedWhatSubmitRefuses(t *testing.T) {
	suite.SkipUnlessLong(t)
	eachSubmit(t, func(t *testing.T, s *serverless.Service, _ *submits, begin func() ownTx) {
		short, key, low := time.Millisecond, "", -1
		tx := begin()
		for name, r := range map[string]func() serverless.Request{
			"no input":     func() serverless.Request { return request("") },
			"half a value": func() serverless.Request { return request("{{{") },
			"a list":       func() serverless.Request { return request("[1]") },
			"a webhook": func() serverless.Request {
				return request("{}", func(r *serverless.Request) { r.Webhook = "nonsense" })
			},
			"a ttl": func() serverless.Request {
				return request("{}", func(r *serverless.Request) { r.Policy.TTL = &short })
			},
			"a queue": func() serverless.Request {
				return request("{}", func(r *serverless.Request) { r.Queue.Key, r.Queue.Priority = &key, &low })
			},
		} {
			_, want := s.Submit(t.Context(), "alice", "e", r())
			_, got := s.SubmitTx(t.Context(), tx.tx, "alice", "e", r())
			var refused, like *problem.Error
			if !errors.As(want, &refused) || !errors.As(got, &like) || like.Kind != refused.Kind || !slices.Equal(like.Errors, refused.Errors) {
				t.Errorf("%s: SubmitTx = %v, want %v", name, got, want)
			}
			_, got = s.SubmitAllTx(t.Context(), tx.tx, "alice", "e", []serverless.Request{request("{}"), r()})
			if faults := (*problem.Error)(nil); !errors.As(got, &faults) || len(faults.Errors) == 0 || !strings.HasPrefix(faults.Errors[0], "/1/") {
				t.Errorf("%s: SubmitAllTx = %v, want a fault of the second request", name, got)
			}
		}
		for _, endpoint := range []string{"unknown", ""} {
			if _, err := s.SubmitTx(t.Context(), tx.tx, "alice", endpoint, request("{}")); !errors.Is(err, serverless.ErrNoEndpoint) {
				t.Errorf("SubmitTx to %q = %v, want ErrNoEndpoint", endpoint, err)
			}
		}
		must(t, tx.insert("order")) // the transaction goes on
		must(t, tx.commit())
	})
}

func TestAllJobsOfACallAreInATransactionOrNone(t *testing.T) {
	suite.SkipUnlessLong(t)
	eachSubmit(t, func(t *testing.T, s *serverless.Service, seen *submits, begin func() ownTx) {
		var all []serverless.Request
		for i := range 100 {
			all = append(all, request(fmt.Sprintf(`{"n":%d}`, i), withKey(fmt.Sprint("k", i), "x")))
		}
		tx := begin()
		jobs, err := s.SubmitAllTx(t.Context(), tx.tx, "alice", "e", all)
		must(t, err)
		must(t, tx.commit())
		for i, j := range jobs {
			there, err := s.Get(t.Context(), "alice", j.Ref)
			if err != nil || string(there.Input) != fmt.Sprintf(`{"n":%d}`, i) {
				t.Fatalf("job %d is %s, %v", i, there.Input, err)
			}
		}
		next := begin()
		_, err = s.SubmitAllTx(t.Context(), next.tx, "alice", "e", []serverless.Request{request("{}", withKey("new", "x")), request("{}"), all[7]})
		if again := (*idempotency.Repeated)(nil); !errors.As(err, &again) || again.ID != string(jobs[7].ID) {
			t.Errorf("a key that was used = %v, want a repetition of %s", err, jobs[7].ID)
		}
		if _, err := s.SubmitAllTx(t.Context(), next.tx, "alice", "e", nil); err != nil {
			t.Errorf("no requests = %v", err)
		}
		must(t, next.commit())
		if h, err := s.Health(t.Context(), "e"); err != nil || h.Jobs.Queued != int64(len(jobs)) || seen.n.Load() != int64(len(jobs)) {
			t.Errorf("%+v, %v, and %d submits, want %d jobs", h, err, seen.n.Load(), len(jobs))
		}
	})
}

func TestAKeyInATransactionIsThatOfSubmit(t *testing.T) {
	suite.SkipUnlessLong(t)
	eachSubmit(t, func(t *testing.T, s *serverless.Service, _ *submits, begin func() ownTx) {
		gone := begin()
		_, err := s.SubmitTx(t.Context(), gone.tx, "alice", "e", request("{}", withKey("k", "x")))
		must(t, err)
		must(t, gone.rollback())
		first := begin()
		made, err := s.SubmitTx(t.Context(), first.tx, "alice", "e", request("{}", withKey("k", "x")))
		must(t, err)
		repeated := func(where string, err error) {
			t.Helper()
			if again := (*idempotency.Repeated)(nil); !errors.As(err, &again) || again.ID != string(made.ID) {
				t.Errorf("%s = %v, want a repetition of %s", where, err, made.ID)
			}
		}
		_, err = s.SubmitTx(t.Context(), first.tx, "alice", "e", request("{}", withKey("k", "x")))
		repeated("in the same transaction", err)
		must(t, first.commit())
		_, err = s.Submit(t.Context(), "alice", "e", request("{}", withKey("k", "x")))
		repeated("Submit", err)
		if _, err = s.Submit(t.Context(), "alice", "e", request("{}", withKey("k", "y"))); !errors.Is(err, idempotency.ErrReused) {
			t.Errorf("another request = %v, want ErrReused", err)
		}
	})
}

// Two transactions of two connections have the same key: the second one waits for the commit of the first.
func TestOfTwoOpenTransactionsWithAKeyOneMakesTheJob(t *testing.T) {
	suite.SkipUnlessLong(t)
	url := postgresql.Database(t)
	store := openURL(t, url)
	must(t, store.Endpoints().Create(t.Context(), &serverless.Endpoint{ID: "e", Name: "e"}))
	s := serverless.New(store.Jobs(), store.Endpoints(), nil)
	db, err := pgxpool.New(t.Context(), url)
	must(t, err)
	defer db.Close()
	first, err := db.Begin(t.Context())
	must(t, err)
	made, err := s.SubmitTx(t.Context(), first, "alice", "e", request("{}", withKey("k", "x")))
	must(t, err)
	second := make(chan error)
	go func() {
		second <- pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
			_, err := s.SubmitTx(t.Context(), tx, "alice", "e", request("{}", withKey("k", "x")))
			return err
		})
	}()
	for waits := 0; waits == 0; { // until the database has it wait
		must(t, db.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waits))
	}
	must(t, first.Commit(t.Context()))
	if again := (*idempotency.Repeated)(nil); !errors.As(<-second, &again) || again.ID != string(made.ID) {
		t.Errorf("the second transaction = %v, want a repetition of %s", again, made.ID)
	}
}

func TestATransactionIsOneOfPgxOrOfDatabaseSQL(t *testing.T) {
	suite.SkipUnlessLong(t)
	store := openURL(t, postgresql.Database(t))
	s := serverless.New(store.Jobs(), store.Endpoints(), nil)
	for _, tx := range []any{nil, (*sql.Tx)(nil), &sql.DB{}, "tx"} {
		if _, err := s.SubmitTx(t.Context(), tx, "alice", "e", request("{}")); err == nil || !strings.Contains(err.Error(), "pgx.Tx or a *sql.Tx") {
			t.Errorf("SubmitTx with a %T = %v", tx, err)
		}
	}
}

func TestEnqueueTxRefusesWhatNoServiceHasMade(t *testing.T) {
	suite.SkipUnlessLong(t)
	eachTx(t, func(t *testing.T, _ string, _ *postgres.Store, begin func() ownTx) {
		tx := begin()
		for name, spoil := range map[string]func(*queue.Job){
			"no endpoint":    func(j *queue.Job) { j.Endpoint = "" },
			"no end":         func(j *queue.Job) { j.Expires = 0 },
			"no start":       func(j *queue.Job) { j.Submitted, j.Queued = 0, 0 },
			"no timeout":     func(j *queue.Job) { j.ExecTimeout = 0 },
			"no retention":   func(j *queue.Job) { j.Retain = 0 },
			"an end already": func(j *queue.Job) { j.Status = queue.Completed },
			"no input":       func(j *queue.Job) { j.Input = nil },
			"a list":         func(j *queue.Job) { j.Input = []byte(`[1]`) },
			"half an input":  func(j *queue.Job) { j.Input = []byte(`{{{`) },
		} {
			j := newJob("a")
			spoil(&j)
			if err := tx.enqueue(newJob("b"), j); err == nil {
				t.Errorf("%s: the job was accepted", name)
			}
		}
		must(t, tx.enqueue(newJob("b")))
		must(t, tx.commit())
	})
}

// The pool of the program has settings, types and hooks of its own, and every connection of it in use.
func TestAStoreConnectsAsThePoolOfTheProgramDoes(t *testing.T) {
	suite.SkipUnlessLong(t)
	url := postgresql.Database(t)
	cfg, err := pgxpool.ParseConfig(url)
	must(t, err)
	password := cfg.ConnConfig.Password
	cfg.ConnConfig.Password, cfg.MaxConns = "of yesterday", 1
	cfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error { c.Password = password; return nil }
	dials := atomic.Int64{}
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return dial(ctx, network, address)
	}
	cfg.AfterConnect = func(context.Context, *pgx.Conn) error {
		if dials.Load() > 1 {
			return errors.New("this hook is for connections of the program")
		}
		return nil
	}
	db, err := pgxpool.NewWithConfig(t.Context(), cfg)
	must(t, err)
	defer db.Close()
	tx, err := db.Begin(t.Context()) // the only connection
	must(t, err)
	if _, err := postgres.Open(t.Context(), url, &postgres.Options{Pool: db}); !errors.Is(err, postgres.ErrURL) {
		t.Errorf("Open with a URL and a pool = %v, want ErrURL", err)
	}
	store, err := postgres.Open(t.Context(), "", &postgres.Options{Pool: db})
	must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	must(t, store.Endpoints().Create(t.Context(), &serverless.Endpoint{ID: "e", Name: "e"}))
	s := service(t, store.Jobs(), store.Endpoints())
	j, err := s.SubmitTx(t.Context(), tx, "alice", "e", request(`{}`))
	must(t, err)
	must(t, tx.Commit(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() {
		served <- s.Serve(ctx, "e", serverless.WorkerFunc(func(context.Context, *serverless.Task) ([]byte, error) { return []byte(`1`), nil }), nil)
	}()
	if ended, err := s.Wait(t.Context(), "alice", j.Ref, serverless.MaxWait); err != nil || ended.Status != serverless.Completed {
		t.Errorf("the job is %v, %v", ended.Status, err)
	}
	cancel()
	<-served
	if dials.Load() < 2 {
		t.Errorf("%d connections were made in the program's way", dials.Load())
	}
	must(t, db.Ping(t.Context()))
}
