package postgres_test

import (
	"errors"
	"testing"

	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/queue"
)

// unique returns a job that has a key while it is active.
func unique(id string) queue.Job {
	j := newJob(id)
	j.Unique = queue.Unique{Key: "k", While: queue.WhileActive}
	return j
}

// A key that an open transaction has taken is waited for: until its end, or for a bounded time. Jobs
// without the key do not wait.
func TestAKeyOfAnOpenTransactionIsWaitedFor(t *testing.T) {
	suite.SkipUnlessLong(t)
	eachTx(t, func(t *testing.T, url string, s *postgres.Store, begin func() ownTx) {
		gone := begin()
		must(t, gone.enqueue(unique("a")))
		if err := s.Jobs().Enqueue(t.Context(), []queue.Job{unique("b")}); !errors.Is(err, queue.ErrKeyTaken) {
			t.Errorf("Enqueue beside an open transaction = %v, want ErrKeyTaken", err)
		}
		other := beginPgx(t, url, s)() // begin has one connection
		if err := other.enqueue(unique("c")); !errors.Is(err, queue.ErrKeyTaken) {
			t.Errorf("a second open transaction = %v, want ErrKeyTaken", err)
		}
		must(t, other.enqueue(newJob("d"))) // it goes on
		must(t, other.commit())
		waits := make(chan error, 1)
		go func() {
			err := error(queue.ErrKeyTaken)
			for errors.Is(err, queue.ErrKeyTaken) { // the machine may be slow
				err = s.Jobs().Enqueue(t.Context(), []queue.Job{unique("e")})
			}
			waits <- err
		}()
		must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("f")}))
		must(t, gone.rollback())
		must(t, <-waits)

		kept := begin()
		if err := kept.enqueue(unique("g")); !errors.Is(err, &queue.TakenError{Ref: unique("e").Ref}) {
			t.Errorf("a key of a job that is there = %v, want TakenError", err)
		}
		must(t, kept.commit())
		wantStats(t, s.Jobs(), 3)
	})
}

// The database ends the connection of the first call that takes a key, before its commit: the call is
// made again.
func TestAUniqueJobIsAddedAgainAfterACutConnection(t *testing.T) {
	url := postgresql.Database(t)
	s := openURL(t, url)
	execute(t, url, `CREATE SEQUENCE taken; CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF nextval('taken') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NEW; END $$;
		CREATE TRIGGER t BEFORE INSERT ON podyard.job_keys FOR EACH ROW EXECUTE FUNCTION cut()`)
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{unique("a")}))
	var taken int
	must(t, connect(t, url).QueryRow(t.Context(), `SELECT last_value FROM taken`).Scan(&taken))
	if taken != 2 {
		t.Errorf("the key was taken %d times, want 2: this shows nothing", taken)
	}
	if err := s.Jobs().Enqueue(t.Context(), []queue.Job{unique("b")}); !errors.Is(err, &queue.TakenError{Ref: unique("a").Ref}) {
		t.Errorf("Enqueue of the same key = %v, want TakenError", err)
	}
	wantStats(t, s.Jobs(), 1)
}

// The row of a key goes with its job.
func TestTheKeyOfAJobGoesWithIt(t *testing.T) {
	url := postgresql.Database(t)
	s := openURL(t, url)
	j := unique("a")
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{j}))
	keys := func() (n int) {
		must(t, connect(t, url).QueryRow(t.Context(), `SELECT count(*) FROM podyard.job_keys`).Scan(&n))
		return n
	}
	if n := keys(); n != 1 {
		t.Fatalf("%d keys, want 1", n)
	}
	got, err := s.Jobs().Get(t.Context(), instant, j.Ref)
	must(t, err)
	now := got.Expires
	for range 3 { // it ends, and is removed
		now, err = s.Jobs().Expire(t.Context(), now, 10)
		must(t, err)
		if now == 0 {
			break
		}
	}
	if _, err := s.Jobs().Get(t.Context(), instant, j.Ref); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("Get = %v, want ErrNotFound: this shows nothing", err)
	}
	if n := keys(); n != 0 {
		t.Errorf("%d keys of jobs that are gone", n)
	}
}
