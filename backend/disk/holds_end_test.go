package disk

import (
	"fmt"
	"testing"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// endHolding has a worker hold the key of a job, which is then deleted.
func endHolding(t *testing.T, s *Store, ep, id, key string, now queue.Instant, d time.Duration) {
	t.Helper()
	j := newJob(id)
	j.Endpoint, j.Owner, j.Key = ep, "alice", key
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{j}))
	jobs, err := s.Jobs().Claim(t.Context(), now, []queue.Slot{{Endpoint: ep, Worker: "w", N: 1, Until: now + 60_000}}, nil)
	must(t, err)
	if len(jobs) != 1 {
		t.Fatalf("claimed %d", len(jobs))
	}
	res := [1]queue.Result{}
	must(t, s.Jobs().Apply(t.Context(), now, []queue.Op{{Ref: jobs[0].Ref, Kind: queue.OpFinish, Status: queue.Completed, Worker: "w", Token: jobs[0].Token, Hold: d}}, res[:]))
	must(t, res[0].Err)
	must(t, applyOne(t, s.Jobs(), queue.Op{Ref: jobs[0].Ref, Kind: queue.OpDelete}).Err)
}

func TestHoldsEndOnEndpointsThatNobodyAsksFor(t *testing.T) {
	s := memStore(t)
	for i := range 5 {
		endHolding(t, s, fmt.Sprint("gone", i), fmt.Sprint("j", i), "k", at, time.Millisecond)
	}
	for d := queue.Instant(1); d < 60; d++ {
		_, err := s.Jobs().Expire(t.Context(), at+d*24*3_600_000, 100)
		must(t, err)
	}
	s = reopen(t, s)
	_, err := s.Jobs().Expire(t.Context(), at+90*24*3_600_000, 100)
	must(t, err)
	if n := holdsOnDisk(t, s); n != 0 {
		t.Errorf("two months after the end of 5 holds of 1 ms there are %d records, want none", n)
	}
}

func TestAHoldIsKeptOverARestartBesideAThousandThatHaveEnded(t *testing.T) {
	s := memStore(t)
	var list []queue.Job
	for i := range queue.MaxHolds {
		j := newJob(fmt.Sprint("j", i))
		j.Owner, j.Key = "alice", fmt.Sprint("k", i)
		list = append(list, j)
	}
	must(t, s.Jobs().Enqueue(t.Context(), list))
	jobs, err := s.Jobs().Claim(t.Context(), at, []queue.Slot{{Endpoint: "echo", Worker: "w", N: len(list), Until: at + 600_000}}, nil)
	must(t, err)
	if len(jobs) != len(list) {
		t.Fatal(len(jobs))
	}
	endHolding(t, s, "echo", "late", "live", at, 10*time.Hour)
	now := at
	for _, j := range jobs { // each holds for 1 ms, one after the other
		now += 5
		res := [1]queue.Result{}
		must(t, s.Jobs().Apply(t.Context(), now, []queue.Op{{Ref: j.Ref, Kind: queue.OpFinish, Status: queue.Completed, Worker: "w", Token: j.Token, Hold: time.Millisecond}}, res[:]))
		must(t, res[0].Err)
	}
	j := newJob("next")
	j.Owner, j.Key = "alice", "live"
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{j}))
	s = reopen(t, s)
	st, err := s.Jobs().Stats(t.Context(), now+1, "echo", nil)
	must(t, err)
	if st.Blocked != 1 {
		t.Errorf("after a reopening: ready %d blocked %d, want 0, 1", st.Ready, st.Blocked)
	}
}
