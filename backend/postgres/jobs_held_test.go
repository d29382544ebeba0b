package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/queue"
)

// held returns a job that q has claimed and moves without reading it first.
func held(t *testing.T, q *postgres.Jobs) queue.Job {
	t.Helper()
	waiting(t, q, "a")
	jobs, err := claimOne(t.Context(), q)
	if err != nil || len(jobs) != 1 || !q.Knows(jobs[0].Ref) {
		t.Fatalf("Claim = %v, %v, want a job that is known", jobs, err)
	}
	return jobs[0]
}

func applyOne(t *testing.T, q *postgres.Jobs, j *queue.Job, op queue.Op) queue.Result {
	t.Helper()
	op.Ref, op.Worker, op.Token = j.Ref, j.Worker, j.Token
	res := make([]queue.Result, 1)
	must(t, q.Apply(t.Context(), 3, []queue.Op{op}, res))
	return res[0]
}

func TestAJobIsKnownWhileItRuns(t *testing.T) {
	suite.SkipUnlessLong(t)
	q := openURL(t, postgresql.Database(t)).Jobs()
	j := held(t, q)
	for _, op := range []queue.Op{{Kind: queue.OpRenew, Until: 70_000}, {Kind: queue.OpChunk, Payload: []byte(`{"output":1}`)}} {
		if res := applyOne(t, q, &j, op); res.Err != nil || res.Effect == 0 || !q.Knows(j.Ref) {
			t.Fatalf("Apply = %+v, want a move after which the job is known", res)
		}
	}
	if res := applyOne(t, q, &j, queue.Op{Kind: queue.OpFinish, Status: queue.Completed}); res.Err != nil || q.Knows(j.Ref) {
		t.Errorf("Apply = %+v, want a job that is not known any more", res)
	}
}

// What a server knows may be old: another one has moved the job since.
func TestAMoveOfAnotherServerIsSeenInAJobThatIsKnown(t *testing.T) {
	suite.SkipUnlessLong(t)
	finish := queue.Op{Kind: queue.OpFinish, Status: queue.Completed}
	chunk := queue.Op{Kind: queue.OpChunk, Payload: []byte(`{"output":1}`)}
	for name, c := range map[string]struct {
		there, here queue.Op
		want        error
	}{
		"it has ended":    {finish, finish, queue.ErrLeaseLost},
		"it was renewed":  {queue.Op{Kind: queue.OpRenew, Until: 90_000}, finish, nil},
		"it has a chunk":  {chunk, chunk, nil},
		"it was released": {queue.Op{Kind: queue.OpRelease}, finish, queue.ErrLeaseLost},
	} {
		t.Run(name, func(t *testing.T) {
			url := postgresql.Database(t)
			a, b := openURL(t, url).Jobs(), openURL(t, url).Jobs()
			j := held(t, a)
			if res := applyOne(t, b, &j, c.there); res.Err != nil {
				t.Fatalf("there: %+v", res)
			}
			res := applyOne(t, a, &j, c.here)
			if !errors.Is(res.Err, c.want) {
				t.Errorf("here: %+v, want the error %v", res, c.want)
			}
			if c.here.Kind == queue.OpChunk && res.State.Chunks != 2 {
				t.Errorf("the job has %d chunks, want 2", res.State.Chunks)
			}
		})
	}
}

// The comparison is one with the row as it is when the transaction that has it locked has ended.
func TestAJobThatIsKnownIsComparedAfterItWasLocked(t *testing.T) {
	suite.SkipUnlessLong(t)
	compareLocked(t, func(*postgres.Jobs, queue.Ref) {})
}

// A Store knows a bounded number of jobs: a claim may have it forget one while that is moved.
func TestAMoveIsRightOfAJobThatIsForgottenMeanwhile(t *testing.T) {
	suite.SkipUnlessLong(t)
	compareLocked(t, (*postgres.Jobs).Forget)
}

// compareLocked moves a job that is known, which another transaction has changed, and calls meanwhile
// before the end of that one.
func compareLocked(t *testing.T, meanwhile func(q *postgres.Jobs, ref queue.Ref)) {
	t.Helper()
	url := postgresql.Database(t)
	q := openURL(t, url).Jobs()
	j := held(t, q)
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	_, err = conn.Exec(t.Context(), "BEGIN; UPDATE podyard.jobs SET armed = 1234567")
	must(t, err)
	done := make(chan queue.Result)
	go func() { done <- applyOne(t, q, &j, queue.Op{Kind: queue.OpRenew, Until: 70_000}) }()
	eventually(t, func() error {
		var n int
		err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&n)
		if err == nil && n == 0 {
			err = errors.New("nobody waits for the lock")
		}
		return err
	})
	meanwhile(q, j.Ref)
	_, err = conn.Exec(t.Context(), "COMMIT")
	must(t, err)
	var armed int64
	select {
	case res := <-done:
		if res.Err != nil || res.State.LeaseUntil != 70_000 {
			t.Errorf("Apply = %+v, want a renewed lease", res)
		}
	case <-time.After(time.Minute):
		t.Fatal("Apply does not end")
	}
	must(t, conn.QueryRow(t.Context(), "SELECT armed FROM podyard.jobs").Scan(&armed))
	if want := int64(60_002); armed != want { // the end of its time to run, earlier than what was stored
		t.Errorf("the job is looked at at %d, want %d", armed, want)
	}
}

func TestAJobThatIsKnownEndsWithItsLastOutput(t *testing.T) {
	for name, before := range map[string][]byte{"no progress": nil, "an empty progress": {}, "a progress": []byte("1")} {
		q := openURL(t, postgresql.Database(t)).Jobs()
		j := held(t, q)
		if name != "no progress" {
			applyOne(t, q, &j, queue.Op{Kind: queue.OpProgress, Until: 70_000, Payload: before})
		}
		res := applyOne(t, q, &j, queue.Op{Kind: queue.OpFinish, Status: queue.Completed, Payload: []byte("2")})
		got, err := q.Get(t.Context(), 3, j.Ref)
		if res.Err != nil || err != nil || string(got.Output) != "2" || got.Status != queue.Completed {
			t.Errorf("%s: Apply = %v, and the job is %v with %q, %v", name, res.Err, got.Status, got.Output, err)
		}
	}
}
