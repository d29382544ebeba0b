package postgres_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/queue"
)

// An ownTx is a transaction of a caller.
type ownTx struct {
	tx               any                   // for a Service
	insert           func(id string) error // into the caller's own table
	enqueue          func(jobs ...queue.Job) error
	commit, rollback func() error
}

// eachTx runs a test with transactions of pgx and of database/sql.
func eachTx(t *testing.T, test func(t *testing.T, url string, s *postgres.Store, begin func() ownTx)) {
	t.Helper()
	for name, open := range map[string]func(*testing.T, string, *postgres.Store) func() ownTx{"EnqueueTx": beginPgx, "EnqueueSQL": beginSQL} {
		t.Run(name, func(t *testing.T) {
			url := postgresql.Database(t)
			s := openURL(t, url)
			execute(t, url, `CREATE TABLE orders (id text PRIMARY KEY)`)
			test(t, url, s, open(t, url, s))
		})
	}
}

func beginPgx(t *testing.T, url string, s *postgres.Store) func() ownTx {
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return func() ownTx {
		tx, err := conn.Begin(t.Context())
		must(t, err)
		return ownTx{
			tx: tx,
			insert: func(id string) error {
				_, err := tx.Exec(t.Context(), `INSERT INTO orders VALUES ($1)`, id)
				return err
			},
			enqueue: func(jobs ...queue.Job) error { return s.Jobs().EnqueueTx(t.Context(), tx, jobs...) },
			commit:  func() error { return tx.Commit(t.Context()) }, rollback: func() error { return tx.Rollback(t.Context()) },
		}
	}
}

func beginSQL(t *testing.T, url string, s *postgres.Store) func() ownTx {
	db, err := sql.Open("pgx", url)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return func() ownTx {
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		return ownTx{
			tx: tx,
			insert: func(id string) error {
				_, err := tx.ExecContext(t.Context(), `INSERT INTO orders VALUES ($1)`, id)
				return err
			},
			enqueue: func(jobs ...queue.Job) error { return s.Jobs().EnqueueSQL(t.Context(), tx, jobs...) },
			commit:  tx.Commit, rollback: tx.Rollback,
		}
	}
}

func wantStats(t *testing.T, q *postgres.Jobs, queued int) {
	t.Helper()
	st, err := q.Stats(t.Context(), instant, "e", nil)
	if err != nil || int(st.Queued) != queued || int(st.Ready) != queued {
		t.Errorf("Stats = %+v, %v, want %d jobs", st, err, queued)
	}
}

func TestJobsAreThereExactlyIfTheTransactionOfTheirCallerIs(t *testing.T) {
	suite.SkipUnlessLong(t)
	eachTx(t, func(t *testing.T, _ string, s *postgres.Store, begin func() ownTx) {
		gone := begin()
		must(t, gone.enqueue(newJob("a")))
		must(t, gone.rollback())
		if _, err := s.Jobs().Get(t.Context(), instant, newJob("a").Ref); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("Get after a rollback = %v, want ErrNotFound", err)
		}
		kept := begin()
		must(t, kept.enqueue(newJob("a"), newJob("b")))
		if got := claim(t, s.Jobs(), instant, "w", 1, nil); len(got) > 0 {
			t.Errorf("a job was claimed before the commit")
		}
		must(t, kept.enqueue())
		must(t, kept.insert("kept"))
		must(t, kept.commit())
		twice := begin()
		if err := twice.enqueue(newJob("c"), newJob("a")); !errors.Is(err, queue.ErrExists) {
			t.Errorf("an id that is taken = %v, want ErrExists", err)
		}
		if err := twice.enqueue(queue.Job{}); err == nil {
			t.Error("a job without an id was accepted")
		}
		must(t, twice.insert("twice")) // the transaction goes on
		must(t, twice.commit())
		wantStats(t, s.Jobs(), 2)
		for range 2 { // a sweep folds the counters of the transaction
			_, err := s.Jobs().Expire(t.Context(), instant, 1)
			must(t, err)
		}
		wantStats(t, s.Jobs(), 2)
		finish(t, s.Jobs(), claim(t, s.Jobs(), instant, "w", 5, nil)...)
	})
}

func TestATransactionMayAddManyJobsWithAnyBytes(t *testing.T) {
	suite.SkipUnlessLong(t)
	eachTx(t, func(t *testing.T, _ string, s *postgres.Store, begin func() ownTx) {
		var jobs []queue.Job
		odd := "a\x00b\xff'\"\\{},NULL"
		for i := range 1200 {
			j := newJob(fmt.Sprint(odd, i))
			j.Owner, j.Key, j.Webhook, j.Input, j.Extra = odd, odd, "https://"+odd, []byte(`{"a":"\\u0000'{},NULL"}`), []byte(odd)
			jobs = append(jobs, j)
		}
		tx := begin()
		must(t, tx.enqueue(jobs...))
		must(t, tx.commit())
		for i := 1; i < len(jobs); i++ {
			if jobs[i].Seq <= jobs[i-1].Seq {
				t.Fatalf("the numbers of job %d and the one before are %d and %d", i, jobs[i].Seq, jobs[i-1].Seq)
			}
		}
		wantStats(t, s.Jobs(), len(jobs))
		got, err := s.Jobs().Get(t.Context(), instant, jobs[7].Ref)
		if err != nil || got.Owner != odd || got.Key != odd || !bytes.Equal(got.Input, jobs[7].Input) || string(got.Extra) != odd || got.Webhook != jobs[7].Webhook {
			t.Errorf("Get = %+v, %v", got, err)
		}
		finish(t, s.Jobs(), claim(t, s.Jobs(), instant, "w", 1, nil)...)
	})
}

// keyed returns a job of a request with an Idempotency-Key.
func keyed(id string) queue.Job {
	j := newJob(id)
	request := idempotency.NewRequest("key", []string{"alice"}, []byte("body"))
	j.Creation = &idempotency.Record{Request: *request, ID: id, At: time.UnixMilli(int64(instant))}
	return j
}

func TestAnIdempotencyKeyIsPartOfTheTransactionOfItsCaller(t *testing.T) {
	suite.SkipUnlessLong(t)
	eachTx(t, func(t *testing.T, _ string, s *postgres.Store, begin func() ownTx) {
		gone := begin()
		must(t, gone.enqueue(keyed("a")))
		must(t, gone.rollback())
		kept := begin()
		must(t, kept.enqueue(keyed("b"), newJob("c")))
		must(t, kept.commit())
		if r, err := s.Jobs().FindKey(t.Context(), keyed("b").Creation.Key); err != nil || r.ID != "b" {
			t.Errorf("FindKey = %+v, %v, want b", r, err)
		}
		twice := begin()
		if err := twice.enqueue(newJob("d"), keyed("e")); !errors.Is(err, idempotency.ErrTaken) {
			t.Errorf("a key that is taken = %v, want ErrTaken", err)
		}
		must(t, twice.enqueue(newJob("f")))
		must(t, twice.commit())
		wantStats(t, s.Jobs(), 3)
	})
}

func TestTheCommitOfACallerWakesItsOwnServerAndOthers(t *testing.T) {
	suite.SkipUnlessLong(t)
	eachTx(t, func(t *testing.T, url string, s *postgres.Store, begin func() ownTx) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		events := make(chan queue.Event, 100)
		for _, q := range []*postgres.Jobs{s.Jobs(), openURL(t, url).Jobs()} {
			ready := make(chan struct{}, 100)
			go func() {
				_ = q.Watch(ctx, func(evs []queue.Event) {
					for _, e := range evs {
						if e.Kind == queue.EventGap {
							ready <- struct{}{}
							continue
						}
						events <- e
					}
				})
			}()
			for range 2 {
				<-ready // it listens
			}
		}
		tx := begin()
		must(t, tx.enqueue(newJob("a"), newJob("b")))
		must(t, tx.rollback())
		tx = begin()
		must(t, tx.enqueue(newJob("c"), newJob("d")))
		select {
		case e := <-events:
			t.Errorf("%+v before the commit", e)
		case <-time.After(50 * time.Millisecond):
		}
		must(t, tx.commit())
		for range 2 {
			if e := <-events; e != (queue.Event{Kind: queue.EventReady, Ref: queue.Ref{Endpoint: "e"}}) {
				t.Errorf("event %+v, want that a job is ready", e)
			}
		}
	})
}

// A caller's transaction may stay open for any time. Who repeats its Idempotency-Key waits for it, and nobody
// else does.
func TestAKeyOfAnOpenTransactionHoldsUpNobodyElse(t *testing.T) {
	url := postgresql.Database(t)
	q := openURL(t, url).Jobs()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	tx, err := conn.Begin(t.Context())
	must(t, err)
	key := idempotency.Record{Request: idempotency.Request{Key: idempotency.Digest{1}}, ID: "open", At: time.UnixMilli(int64(instant))}
	open, again := newJob("open"), newJob("again")
	open.Creation, again.Creation = &key, &key
	must(t, q.EnqueueTx(t.Context(), tx, open))
	errs := make(chan []error, 1)
	go func() { errs <- q.EnqueueTogether(t.Context(), []queue.Job{again}, []queue.Job{newJob("beside")}) }()
	eventually(t, func() error {
		_, err := q.Get(t.Context(), instant, newJob("beside").Ref)
		return err
	})
	for i := range 20 { // more than the lane makes at the same time
		submit(t, q, newJob(fmt.Sprint(i)))
	}
	must(t, tx.Commit(t.Context()))
	if got := <-errs; !errors.Is(got[0], idempotency.ErrTaken) || got[1] != nil {
		t.Errorf("the call with the same key = %v, and the one beside it = %v, want ErrTaken and nil", got[0], got[1])
	}
}

// A driver that knows nothing of this database gets texts and bytes.
func TestArraysAreTexts(t *testing.T) {
	for want, arg := range map[string]any{
		`{"\\x61ff","\\x",NULL}`: [][]byte{[]byte("a\xff"), {}, nil},
		`{-1,2}`:                 []int64{-1, 2},
		`{3}`:                    []int16{3},
		`{true,false}`:           []bool{true, false},
		`{}`:                     []int64{},
	} {
		if got := postgres.Literal(arg); got != want {
			t.Errorf("%v is %v, want %s", arg, got, want)
		}
	}
	if got := postgres.Literal(int64(5)); got != int64(5) {
		t.Errorf("a number is %v", got)
	}
}
