package postgres_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless/queue"
)

func run(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", filepath.Base(program), err, out)
	}
}

// The commands are those of docs/postgres.md.
func TestACopyOfPgDumpIsRestored(t *testing.T) {
	suite.SkipUnlessLong(t)
	url, restored := postgresql.Database(t), postgresql.Empty(t)
	s := openURL(t, url)
	ctx := t.Context()
	must(t, s.Registries().Create(ctx, registries.Registry{ID: "r", Owner: "al\x00ice"}, registries.Credential{Username: "u", Password: "pw"}))
	pod := &pods.Pod{ID: "p", Owner: "alice", Placement: pods.Placement{Claims: []pods.Claim{{Resource: "gpu", Units: 1, Limit: 1}}}}
	must(t, s.Pods().Create(ctx, pod))
	job := queue.Job{Ref: queue.Ref{Endpoint: "e", ID: "j"}, Owner: "alice", Input: []byte("1"), Extra: []byte("2"), State: queue.State{Status: queue.InQueue, Queued: 1, Expires: 1 << 40}}
	must(t, s.Jobs().Enqueue(ctx, []queue.Job{job}))
	dump := filepath.Join(t.TempDir(), "podyard.dump")
	run(t, postgresql.Program(t, "pg_dump"), "--format=custom", "--schema=podyard", "--file="+dump, url)
	run(t, postgresql.Program(t, "pg_restore"), "--exit-on-error", "--dbname="+restored, dump)

	s = openURL(t, restored)
	_, c, err := s.Registries().Get(ctx, "r")
	if err != nil || c.Password != "pw" {
		t.Errorf("the credential is %q, %v", string(c.Password), err)
	}
	if n, err := s.Pods().Claimed(ctx, "gpu"); n != 1 || err != nil {
		t.Errorf("claimed = %d, %v, want 1", n, err)
	}
	got, err := s.Jobs().Claim(ctx, 2, []queue.Slot{{Endpoint: "e", Worker: "w", N: 1, Until: 1000}}, nil)
	if err != nil || len(got) != 1 || string(got[0].Input) != "1" || string(got[0].Extra) != "2" {
		t.Errorf("Claim = %+v, %v", got, err)
	}
	job.Ref.ID = "k" // numbers continue after those of the copy
	must(t, s.Jobs().Enqueue(ctx, []queue.Job{job}))
}
