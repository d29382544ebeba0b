package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/queue"
)

func waiting(t *testing.T, q *postgres.Jobs, id queue.JobID) queue.Ref {
	t.Helper()
	ref := queue.Ref{Endpoint: "e", ID: id}
	must(t, q.Enqueue(t.Context(), []queue.Job{{
		Ref: ref, Owner: "u", Input: []byte("1"),
		State: queue.State{Submitted: 1, Queued: 1, Expires: 1e12, Terms: queue.Terms{ExecTimeout: time.Minute, Retain: time.Hour}},
	}}))
	return ref
}

func claimOne(ctx context.Context, q *postgres.Jobs) ([]queue.Job, error) {
	return q.Claim(ctx, 2, []queue.Slot{{Endpoint: "e", Worker: "w", N: 1, Until: 60_000}}, nil)
}

// The commit of a claim is cut off: the server cannot know whether it was made. The caller gets the
// job either way, once, and no delivery is counted that it did not get.
func TestAClaimWhoseCommitIsCutOffIsUndoneAndMadeAgain(t *testing.T) {
	suite.SkipUnlessLong(t)
	for _, arrives := range []bool{false, true} {
		t.Run(fmt.Sprint("the commit arrives: ", arrives), func(t *testing.T) {
			// Statements without names, so that the cutter sees the commit.
			c, through := newCutter(t, postgresql.Database(t)+"&default_query_exec_mode=cache_describe", arrives)
			q := openURL(t, through).Jobs()
			waiting(t, q, "first")
			_, err := claimOne(t.Context(), q) // the statements are described
			must(t, err)
			ref := waiting(t, q, "second")
			c.armed.Store(true)
			jobs, err := claimOne(t.Context(), q)
			if err != nil || len(jobs) != 1 || jobs[0].Ref != ref || jobs[0].Deliveries != 1 {
				t.Fatalf("Claim = %v, %v, want the second job with one delivery", jobs, err)
			}
			if c.armed.Load() {
				t.Fatal("no commit was cut off: this shows nothing")
			}
			ops := []queue.Op{{Ref: ref, Kind: queue.OpFinish, Status: queue.Completed, Worker: "w", Token: jobs[0].Token}}
			res := make([]queue.Result, 1)
			if err := q.Apply(t.Context(), 3, ops, res); err != nil || res[0].Err != nil || res[0].State.Status != queue.Completed {
				t.Errorf("the worker cannot end the job: %v, %+v", err, res)
			}
		})
	}
}

// Nobody has the jobs of a claim whose caller has given up, so they return to the queue, and the same
// worker may have them.
func TestTheJobsOfAClaimThatWasGivenUpReturnToTheQueue(t *testing.T) {
	suite.SkipUnlessLong(t)
	url := postgresql.Database(t)
	q := openURL(t, url).Jobs()
	ref := waiting(t, q, "a")
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	_, err = conn.Exec(t.Context(), "BEGIN; LOCK TABLE podyard.job_ready IN ACCESS EXCLUSIVE MODE")
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if jobs, err := claimOne(ctx, q); !errors.Is(err, context.DeadlineExceeded) || len(jobs) > 0 {
		t.Fatalf("Claim = %v, %v, want that it gives up", jobs, err)
	}
	_, err = conn.Exec(t.Context(), "ROLLBACK")
	must(t, err)
	eventually(t, func() error {
		jobs, err := claimOne(t.Context(), q)
		switch {
		case err == nil && len(jobs) == 0:
			return errors.New("no job yet")
		case err == nil && (jobs[0].Ref != ref || jobs[0].Deliveries != 1 || uint32(jobs[0].Token) != 2):
			t.Errorf("the second claim is %+v, want one with the second token and one delivery", jobs[0].State)
		}
		return err
	})
}
