package postgres_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
)

func wantFull(t *testing.T, what string, err error, b budget.Budget, used int64) {
	t.Helper()
	var full *budget.Error
	if !errors.As(err, &full) || full.Budget != b || full.Used != used {
		t.Errorf("%s = %v, want that %s is full with %d used", what, err, b, used)
	}
}

func volumeOf(owner, id string) volumes.Volume {
	return volumes.Volume{ID: id, Owner: owner, Name: "n", Size: 10, DataCenter: "d", Created: time.Unix(1, 0).UTC()}
}

func TestRecordsAreBudgetsOfTheirUserAtAllServers(t *testing.T) {
	eachCount(t, func(t *testing.T, fresh func(t *testing.T) turns) {
		s := fresh(t)
		set := budget.NewSet(budget.Users{Limits: budget.Limits{Volumes: 2, Pods: 2, PodEnvBytes: 20, SSHKeys: 1}, Exempt: []string{"root"}})
		for _, one := range s.list {
			one.Limit(set)
		}
		ctx := t.Context()
		for i := range 3 {
			err := s.next().Volumes().Create(ctx, volumeOf("alice", fmt.Sprint("a", i)))
			if i < 2 && err != nil {
				t.Fatal(err)
			} else if i == 2 {
				wantFull(t, "a third volume", err, budget.Volumes, 2)
			}
			if err := s.next().Volumes().Create(ctx, volumeOf("root", fmt.Sprint("r", i))); err != nil {
				t.Errorf("a user without limits: %v", err)
			}
		}
		if err := s.next().Volumes().Delete(ctx, "a0"); err != nil {
			t.Fatal(err)
		}
		if err := s.next().Volumes().Create(ctx, volumeOf("alice", "a3")); err != nil {
			t.Errorf("after one was deleted: %v", err)
		}

		pod := &pods.Pod{ID: "p", Owner: "alice", Name: "12345", Config: pods.Config{Env: map[string]string{"A": "45678901"}}}
		if err := s.next().Pods().Create(ctx, pod); err != nil {
			t.Fatal(err)
		}
		_, err := s.next().Pods().Update(ctx, "p", func(p *pods.Pod) error { p.Config.Env["B"] = "123456"; return nil })
		wantFull(t, "a larger environment", err, budget.PodEnvBytes, 14)
		if p, err := s.next().Pods().Update(ctx, "p", func(p *pods.Pod) error { p.Config.Env["B"] = "12345"; return nil }); err != nil || len(p.Config.Env) != 2 {
			t.Errorf("one that fits: %v", err)
		}
		if err := s.next().SSHKeys().SetSSHKeys(ctx, "alice", []string{"k"}); err != nil {
			t.Fatal(err)
		}
		wantFull(t, "a second key", s.next().SSHKeys().SetSSHKeys(ctx, "alice", []string{"k", "l"}), budget.SSHKeys, 1)

		want := budget.Usage{}
		want[budget.Volumes], want[budget.Pods], want[budget.PodEnvBytes], want[budget.SSHKeys] = 2, 1, 20, 1
		got, err := s.next().Usage(ctx, "alice")
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("Usage: %v (-want +got):\n%s", err, diff)
		}
		if users, err := s.next().Users(ctx); err != nil || !cmp.Equal(users, []string{"alice", "root"}) {
			t.Errorf("Users = %q, %v", users, err)
		}
	})
}

func TestServersThatSubmitAtOnceDoNotGoOverABudgetTogether(t *testing.T) {
	eachCount(t, func(t *testing.T, fresh func(t *testing.T) turns) {
		s := fresh(t)
		set := budget.NewSet(budget.Users{Named: map[string]budget.Limits{"alice": {Jobs: 40}, "bob": {JobBytes: 100}}})
		for _, one := range s.list {
			one.Limit(set)
		}
		var made, refused [2]atomic.Int64
		suite.Together(60, func(i int) {
			j := newJob(fmt.Sprint("j", i))
			j.Owner, j.Input = [...]string{"alice", "bob"}[i%2], []byte(`{"a":1234}`)
			jobs := []queue.Job{j, j}
			jobs[1].ID += "b"
			switch err := s.next().Jobs().Enqueue(t.Context(), jobs); {
			case err == nil:
				made[i%2].Add(2)
			case errors.As(err, new(*budget.Error)):
				refused[i%2].Add(2)
			default:
				t.Error(err)
			}
		})
		if made[0].Load() != 40 || refused[0].Load() != 20 || made[1].Load() != 10 || refused[1].Load() != 50 {
			t.Errorf("%d and %d jobs were made, %d and %d refused; want 40 and 10 made", made[0].Load(), made[1].Load(), refused[0].Load(), refused[1].Load())
		}
		// A user without limits, and one with room, are not held up by one who has none.
		carol := newJob("c")
		carol.Owner = "carol"
		must(t, s.next().Jobs().Enqueue(t.Context(), []queue.Job{carol}))
		u, err := s.next().Usage(t.Context(), "alice")
		if err != nil || u[budget.Jobs] != 40 || u[budget.QueuedJobs] != 40 || u[budget.JobBytes] != 400 {
			t.Errorf("alice holds %v, %v", u, err)
		}
	})
}

func TestARefusedCallThatSharesATransactionWithARepeatedOneIsRefused(t *testing.T) {
	s := openURL(t, postgresql.Database(t))
	s.Limit(budget.NewSet(budget.Users{Named: map[string]budget.Limits{"alice": {Jobs: 1}}}))
	of := func(owner, id string) []queue.Job {
		j := newJob(id)
		j.Owner = owner
		return []queue.Job{j}
	}
	must(t, s.Jobs().Enqueue(t.Context(), of("alice", "first")))
	must(t, s.Jobs().Enqueue(t.Context(), of("bob", "there")))
	errs := s.Jobs().EnqueueTogether(t.Context(), of("alice", "more"), of("bob", "there"), of("bob", "new"))
	wantFull(t, "a call of alice", errs[0], budget.Jobs, 1)
	if !errors.Is(errs[1], queue.ErrExists) || errs[2] != nil {
		t.Errorf("calls of bob = %v and %v, want ErrExists for what is there, and a new job", errs[1], errs[2])
	}
}

func TestAUserWhoHasReachedALimitElsewhereIsRefused(t *testing.T) {
	suite.SkipUnlessLong(t)
	url := postgresql.Database(t)
	s := openURL(t, url)
	s.Limit(budget.NewSet(budget.Users{Limits: budget.Limits{Jobs: 1_000_000}}))
	enqueue := func(id string) error {
		j := newJob(id)
		j.Owner = "alice"
		return s.Jobs().Enqueue(t.Context(), []queue.Job{j})
	}
	must(t, enqueue("first"))
	execute(t, url, `INSERT INTO podyard.job_holdings (owner, slot, jobs, queued, bytes, deliveries, dead) VALUES ('alice', 77, 1000000, 0, 0, 0, 0)`)
	if err := enqueue("second"); !errors.As(err, new(*budget.Error)) {
		t.Errorf("a submit ended with %v after another server has filled the budget, want that it is full", err)
	}
}

func TestReportsOfWorkersAtSeveralServersDoNotGoOverABudgetTogether(t *testing.T) {
	eachCount(t, func(t *testing.T, fresh func(t *testing.T) turns) {
		const room, size = 5, 2000
		s := fresh(t)
		var jobs []queue.Job
		for i := range 4 * room {
			j := newJob(fmt.Sprint("j", i))
			j.Owner = "alice"
			must(t, s.next().Jobs().Enqueue(t.Context(), []queue.Job{j}))
			got, err := s.next().Jobs().Claim(t.Context(), instant, []queue.Slot{{Endpoint: j.Endpoint, Worker: "w", N: 1, Until: instant + 30_000}}, nil)
			must(t, err)
			jobs = append(jobs, got...)
		}
		used, err := s.next().Usage(t.Context(), "alice")
		must(t, err)
		set := budget.NewSet(budget.Users{Limits: budget.Limits{JobBytes: used[budget.JobBytes] + room*size + size - 1}})
		for _, one := range s.list {
			one.Limit(set)
		}
		var taken atomic.Int64
		suite.Together(len(jobs), func(i int) {
			op := queue.Op{Ref: jobs[i].Ref, Kind: queue.OpFinish, Status: queue.Completed, Worker: "w", Token: jobs[i].Token, Payload: bytes.Repeat([]byte("1"), size)}
			res := make([]queue.Result, 1)
			if err := s.next().Jobs().Apply(t.Context(), instant, []queue.Op{op}, res); err != nil {
				t.Error(err)
			} else if res[0].Err == nil {
				taken.Add(1)
			}
		})
		if taken.Load() != room {
			t.Errorf("%d results were taken, want %d", taken.Load(), room)
		}
	})
}

// A database that was filled by a version that did not count has its counts after the migration.
func TestTheMigrationCountsWhatUsersHoldAlready(t *testing.T) {
	suite.SkipUnlessLong(t)
	url := postgresql.Database(t)
	s := openURL(t, url)
	for i := range 4 {
		j := newJob(fmt.Sprint("j", i))
		j.Owner, j.Input, j.Webhook, j.Flags, j.DeadLetter, j.Extra = "alice", []byte(`{"a":1}`), "http://a", queue.HasWebhook, time.Hour, []byte(`{"s":1}`)
		must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{j}))
	}
	jobs, err := s.Jobs().Claim(t.Context(), instant, []queue.Slot{{Endpoint: "e", Worker: "w", N: 2, Until: instant + 30_000}}, nil)
	must(t, err)
	for i, op := range []queue.Op{{Kind: queue.OpChunk, Payload: []byte(`{"output":1}`)}, {Kind: queue.OpFinish, Status: queue.Failed, Error: "no"}} {
		op.Ref, op.Worker, op.Token = jobs[i].Ref, "w", jobs[i].Token
		must(t, s.Jobs().Apply(t.Context(), instant, []queue.Op{op}, make([]queue.Result, 1)))
	}
	want, err := s.Usage(t.Context(), "alice")
	must(t, err)
	_ = s.Close()
	execute(t, url, withoutLines+`
		DROP TABLE podyard.job_holdings; DROP INDEX podyard.uses_ended; ALTER TABLE podyard.job_outbox DROP COLUMN bytes; ALTER TABLE podyard.job_dead DROP COLUMN bytes;
		DELETE FROM podyard.migrations WHERE version >= 7`)
	got, err := openURL(t, url).Usage(t.Context(), "alice")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Usage: %v (-counted +migrated):\n%s", err, diff)
	}
}

func TestServersThatCreateAtOnceDoNotGoOverABudgetTogether(t *testing.T) {
	eachCount(t, func(t *testing.T, fresh func(t *testing.T) turns) {
		s := fresh(t)
		set := budget.NewSet(budget.Users{Limits: budget.Limits{Templates: 5}})
		for _, one := range s.list {
			one.Limit(set)
		}
		var made, refused atomic.Int64
		suite.Together(20, func(i int) {
			err := s.next().Templates().Create(t.Context(), templates.Template{ID: fmt.Sprint(i), Owner: "alice", Name: "n", Created: time.Unix(1, 0).UTC()})
			switch full := (*budget.Error)(nil); {
			case err == nil:
				made.Add(1)
			case errors.As(err, &full):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
		if made.Load() != 5 || refused.Load() != 15 {
			t.Errorf("%d templates were made and %d refused, want 5 and 15", made.Load(), refused.Load())
		}
	})
}
