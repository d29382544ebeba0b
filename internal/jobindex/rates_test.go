package jobindex

import (
	"fmt"
	"testing"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// Keys are free text: who starts a job of another key each time has buckets that last for as long as the rate says,
// also when the jobs are deleted.
func TestBucketsOfAUserAreBoundedAndOthersKeepTheirs(t *testing.T) {
	x := New()
	x.mostBuckets = 10
	rules := &queue.Rules{PerKeyRate: queue.Rate{Limit: 1, Per: 30 * 24 * time.Hour}}
	seq := uint64(0)
	begin := func(user, key string) (started bool) {
		seq++
		i, _ := x.Add(queue.Ref{Endpoint: "e", ID: queue.JobID(fmt.Sprint(seq))}, user, key, 0)
		s := queue.State{Seq: seq, Queued: queue.Instant(seq), Expires: 1 << 50}
		x.Show(i, &s)
		started = x.NextReady(queue.Instant(seq), &queue.Slot{Endpoint: "e", Rules: rules}) == i
		s.Status, s.Started = queue.InProgress, queue.Instant(seq)
		x.Commit(i, &s, queue.Put)
		x.Commit(i, &s, queue.Delete)
		return started
	}
	if !begin("quiet", "k") {
		t.Fatal("the first job of a key does not start")
	}
	for n := range 1000 {
		if !begin("rude", fmt.Sprint("k", n)) {
			t.Fatalf("the first job of key %d does not start", n)
		}
		if n == 0 && begin("rude", "k0") {
			t.Error("a second job of a key starts")
		}
	}
	if n := len(x.listOf("e").order.list); n > 11 {
		t.Errorf("there are %d buckets of two users, want at most 10 and 1", n)
	}
	if begin("quiet", "k") {
		t.Error("a second job of another user's key starts: its bucket is gone")
	}
	if begin("rude", "k999") {
		t.Error("a second job of the newest key starts: its bucket is gone")
	}
}
