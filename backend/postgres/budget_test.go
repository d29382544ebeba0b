package postgres_test

import (
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
