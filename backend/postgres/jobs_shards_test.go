package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/backend/shard"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/queue"
)

// shardsOver returns databases as one queue. The first one is the control store, too.
func shardsOver(t *testing.T, urls []string) *shard.Queue {
	t.Helper()
	var first *postgres.Store
	o := shard.Options{Server: "one"}
	for i, url := range urls {
		s := openURL(t, url)
		if i == 0 {
			first = s
		}
		o.Shards = append(o.Shards, shard.Shard{Name: fmt.Sprint("db", i), Jobs: s.Jobs()})
	}
	o.Control = first.Servers()
	q, err := shard.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func threeDatabases(t *testing.T) []string {
	t.Helper()
	return []string{postgresql.Database(t), postgresql.Database(t), postgresql.Database(t)}
}

func TestJobsOfThreeShards(t *testing.T) {
	suite.SkipUnlessLong(t)
	urls := threeDatabases(t)
	runJobCases(t, longest(), func(t *testing.T) queue.JobQueue {
		for _, url := range urls {
			empty(t, url)
		}
		return shardsOver(t, urls)
	})
}

func TestAnEndpointMovesToAnotherDatabase(t *testing.T) {
	q := shardsOver(t, threeDatabases(t))
	now := queue.At(time.Now())
	submit := func(id queue.JobID) {
		t.Helper()
		j := queue.Job{
			Ref: queue.Ref{Endpoint: "echo", ID: id}, Owner: "u", Input: []byte(`{}`),
			State: queue.State{Submitted: now, Queued: now, Expires: now + 86_400_000, Terms: queue.Terms{ExecTimeout: time.Minute, Retain: time.Minute}},
		}
		if err := q.Enqueue(t.Context(), []queue.Job{j}); err != nil {
			t.Fatal(err)
		}
	}
	move := func(to string) {
		t.Helper()
		if err := q.Move(t.Context(), "echo", to); err != nil {
			t.Fatal(err)
		}
	}
	move("db1")
	submit("1")
	move("db2")
	submit("2")
	jobs, err := q.Claim(t.Context(), now, []queue.Slot{{Endpoint: "echo", Worker: "w", N: 5, Until: now + 30_000}}, nil)
	if err != nil || len(jobs) != 2 || jobs[0].ID != "1" || jobs[1].ID != "2" || jobs[0].Seq >= jobs[1].Seq {
		t.Fatalf("Claim = %d jobs, %v, want 1 and 2", len(jobs), err)
	}
	for i := range jobs {
		res := []queue.Result{{}}
		op := queue.Op{Ref: jobs[i].Ref, Kind: queue.OpFinish, Worker: "w", Token: jobs[i].Token, Status: queue.Completed, Payload: []byte("1")}
		if err := q.Apply(t.Context(), now, []queue.Op{op}, res); err != nil || res[0].Err != nil {
			t.Errorf("OpFinish of %s = %v, %v", jobs[i].ID, err, res[0].Err)
		}
	}
	if s, err := q.Stats(t.Context(), now, "echo", nil); err != nil || s.Completed != 2 {
		t.Errorf("Stats = %+v, %v, want 2 completed", s, err)
	}
}
