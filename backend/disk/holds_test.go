package disk

import (
	"testing"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// holdsOnDisk counts the records of holds.
func holdsOnDisk(t *testing.T, s *Store) (n int) {
	t.Helper()
	e, err := s.engine()
	must(t, err)
	must(t, each(e.db, []byte{keyHold}, func(_, _ []byte) error { n++; return nil }))
	return n
}

func TestAHoldIsThereAfterReopening(t *testing.T) {
	s := memStore(t)
	keyed := func(id string) queue.Job {
		j := newJob(id)
		j.Owner, j.Key = "alice", "k\xff"
		return j
	}
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{keyed("a"), keyed("b"), keyed("c")}))
	jobs, err := s.Jobs().Claim(t.Context(), at, []queue.Slot{{Endpoint: "echo", Worker: "w", N: 2, Until: at + 60_000}}, nil)
	must(t, err)
	for k, d := range []time.Duration{2 * time.Hour, time.Hour} {
		j, res := jobs[k], [1]queue.Result{}
		op := queue.Op{Ref: j.Ref, Kind: queue.OpFinish, Status: queue.Completed, Worker: "w", Token: j.Token, Hold: d}
		must(t, s.Jobs().Apply(t.Context(), at+queue.Instant(k), []queue.Op{op}, res[:]))
		must(t, res[0].Err)
		must(t, applyOne(t, s.Jobs(), queue.Op{Ref: j.Ref, Kind: queue.OpDelete}).Err)
	}
	until := at + 1 + 3_600_000
	for range 2 {
		s = reopen(t, s)
		st, err := s.Jobs().Stats(t.Context(), until-1, "echo", nil)
		if must(t, err); st.Ready != 0 || st.Blocked != 1 || st.Free != until {
			t.Errorf("after a reopening Ready, Blocked and Free = %d, %d, %d, want 0, 1, %d: the last hold counts", st.Ready, st.Blocked, st.Free, until)
		}
	}
	r, err := s.Check(t.Context())
	must(t, err)
	must(t, r.Err())
	st, err := s.Jobs().Stats(t.Context(), until, "echo", nil)
	if must(t, err); st.Ready != 1 || st.Free != 0 {
		t.Errorf("after the hold Ready and Free = %d, %d, want 1, 0", st.Ready, st.Free)
	}
	_, err = s.Jobs().Expire(t.Context(), until, 10)
	must(t, err)
	s = reopen(t, s)
	if n := holdsOnDisk(t, s); n != 0 {
		t.Errorf("%d records of holds are left after their end, want none", n)
	}
}
