package disk

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/serverless/queue"
)

// afterKill returns the state of a job that a store has after its process was killed: it has what was
// given to the file system, synced or not.
func afterKill(t *testing.T, mem *vfs.MemFS, ref queue.Ref) queue.State {
	t.Helper()
	s, err := Open(t.Context(), "store", inMemory(cloned(t, mem)))
	must(t, err)
	defer func() { must(t, s.Close()) }()
	return getJob(t, s.Jobs(), ref).State
}

// Nobody waits for the sync of a claim, of a renewal or of a chunk. All the same the file system has
// them within 200 ms, without another change of the store.
func TestAChangeThatIsNotSyncedSurvivesTheEndOfTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		s := openForTest(t, "store", inMemory(mem))
		j := newJob("a")
		must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{j}))
		c := claimOne(t, s.Jobs(), "w")
		op := queue.Op{Ref: j.Ref, Worker: "w", Token: c.Token, Until: at + 60_000, Payload: []byte("x")}
		for _, step := range []struct {
			what string
			kind queue.OpKind
			ok   func(queue.State) bool
		}{
			{"a claim", 0, func(s queue.State) bool { return s.Status == queue.InProgress && s.Token == c.Token }},
			{"a renewal", queue.OpRenew, func(s queue.State) bool { return s.LeaseUntil == at+60_000 }},
			{"a chunk", queue.OpChunk, func(s queue.State) bool { return s.Chunks == 1 }},
			{"a chunk soon after", queue.OpChunk, func(s queue.State) bool { return s.Chunks == 2 }},
			{"a release", queue.OpRelease, func(s queue.State) bool { return s.Status == queue.InQueue }},
		} {
			if op.Kind = step.kind; op.Kind != 0 {
				must(t, applyOne(t, s.Jobs(), op).Err)
			}
			if !strings.HasSuffix(step.what, "chunk") { // the next change follows at once
				time.Sleep(200 * time.Millisecond)
				synctest.Wait()
				if got := afterKill(t, mem, j.Ref); !step.ok(got) {
					t.Errorf("200 ms after %s and a kill the job is %+v", step.what, got)
				}
			}
		}
	})
}

// harmDir is the environment variable that makes this program a server with a job whose handler ends
// the process.
const harmDir = "PODYARD_DISK_HARM"

// runHarm runs the jobs of a store one after the other.
func runHarm(ctx context.Context, dir string) error {
	s, err := Open(ctx, dir, &Options{Ballast: -1, WorkerGone: func(queue.WorkerID) bool { return true }})
	if err != nil {
		return err
	}
	for {
		jobs, err := s.Jobs().Claim(ctx, at+1, []queue.Slot{{Endpoint: "echo", Worker: "w", N: 1, Until: at + 60_000}}, nil)
		if err != nil || len(jobs) == 0 {
			return err
		}
		fmt.Println("runs", jobs[0].ID)
		if jobs[0].ID == "harmful" {
			os.Exit(1)
		}
		op := queue.Op{Ref: jobs[0].Ref, Kind: queue.OpFinish, Status: queue.Completed, Worker: "w", Token: jobs[0].Token, Payload: []byte("1")}
		if err := s.Jobs().Apply(ctx, at+2, []queue.Op{op}, make([]queue.Result, 1)); err != nil {
			return err
		}
	}
}

// The handler of a job ends the process at once, before anybody syncs its claim.
func TestAHandlerThatEndsItsProcessIsHarmfulAfterTenRuns(t *testing.T) {
	dir := t.TempDir()
	s := openForTest(t, dir, &Options{Ballast: -1})
	harmful, innocent := newJob("harmful"), newJob("innocent")
	harmful.Expires, innocent.Expires = queue.At(time.Now().Add(time.Hour)), queue.At(time.Now().Add(time.Hour))
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{harmful, innocent}))
	must(t, s.Close())
	runs := 0
	for range 2 * queue.MaxRestarts {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), harmDir+"="+dir)
		out, err := cmd.CombinedOutput()
		if strings.Contains(string(out), "error") {
			t.Fatalf("%s", out)
		}
		if runs += strings.Count(string(out), "runs harmful"); err == nil {
			break
		}
	}
	s = openForTest(t, dir, &Options{Ballast: -1})
	if j := getJob(t, s.Jobs(), harmful.Ref); runs != queue.MaxRestarts || j.Status != queue.Failed || j.Reason != queue.TooManyRestarts {
		t.Errorf("after %d runs the harmful job is %v for reason %v, want FAILED as harmful after %d", runs, j.Status, j.Reason, queue.MaxRestarts)
	}
	if j := getJob(t, s.Jobs(), innocent.Ref); j.Status != queue.Completed {
		t.Errorf("the job behind it is %v", j.Status)
	}
}
