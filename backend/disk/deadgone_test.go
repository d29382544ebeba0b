package disk

import (
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/serverless/queue"
)

func TestADeadLetterWhoseJobHasCompletedStaysAwayAfterAStart(t *testing.T) {
	fs := vfs.NewMem()
	s := openForTest(t, "store", inMemory(fs))
	j := newJob("a")
	j.DeadLetter = 24 * time.Hour
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{j}))
	apply := func(op queue.Op) {
		t.Helper()
		op.Ref = j.Ref
		res := make([]queue.Result, 1)
		must(t, s.Jobs().Apply(t.Context(), at, []queue.Op{op}, res))
		must(t, res[0].Err)
	}
	run := func(status queue.Status) {
		t.Helper()
		slots := []queue.Slot{{Endpoint: "echo", Worker: "w", N: 1, Until: at + 30_000}}
		if jobs, err := s.Jobs().Claim(t.Context(), at, slots, nil); err != nil || len(jobs) != 1 {
			t.Fatalf("Claim = %d jobs, %v", len(jobs), err)
		}
		apply(queue.Op{Kind: queue.OpFinish, Worker: "w", Status: status, Payload: []byte(`1`)})
	}
	run(queue.Failed)
	if _, err := s.Jobs().DeadLetter(t.Context(), at, j.Ref); err != nil {
		t.Fatalf("DeadLetter of the failure = %v", err)
	}
	apply(queue.Op{Kind: queue.OpRetry})
	run(queue.Completed)
	for _, when := range []string{"at once", "after a start"} {
		if _, err := s.Jobs().DeadLetter(t.Context(), at, j.Ref); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("%s: DeadLetter = %v, want ErrNotFound", when, err)
		}
		if got, err := s.Jobs().Get(t.Context(), at, j.Ref); err != nil || string(got.Input) != string(j.Input) {
			t.Errorf("%s: the input of the job is %q, %v", when, got.Input, err)
		}
		must(t, s.Close())
		s = openForTest(t, "store", inMemory(fs))
	}
}
