package disk

import (
	"fmt"
	"math"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/serverless/queue"
)

// nearEdge moves the token counters to the end of their epoch, with two tokens left.
func nearEdge(s *Store) {
	q := &s.current.Load().jobs
	q.mu.Lock()
	defer q.mu.Unlock()
	q.token = q.token>>32<<32 + math.MaxUint32 - 2
	q.outbox.token = q.outbox.token>>32<<32 + math.MaxUint32 - 2
}

// When claims use up an epoch, they continue in the next one. That epoch is durable before a
// worker sees one of its tokens. So no token is issued twice after a power failure, although
// the last claims are lost.
func TestNoTokenOfAClaimIsIssuedTwiceWhenAnEpochIsUsedUp(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := openForTest(t, "store", inMemory(fs))
	var jobs []queue.Job
	for i := range 20 {
		jobs = append(jobs, newJob(fmt.Sprint(i)))
	}
	must(t, s.Jobs().Enqueue(t.Context(), jobs))
	nearEdge(s)
	seen := map[queue.Token]bool{}
	claim := func(s *Store, n int) {
		t.Helper()
		for range n {
			token := claimOne(t, s.Jobs(), "w").Token
			if seen[token] {
				t.Errorf("token %#x was issued twice", token)
			}
			seen[token] = true
		}
	}
	first := s.current.Load().meta.epoch
	claim(s, 5)
	after := openForTest(t, "store", inMemory(fs.CrashClone(vfs.CrashCloneCfg{})))
	if got := after.current.Load().meta.epoch; got != first+2 {
		t.Errorf("the next opening has epoch %d, want %d: the one between was begun", got, first+2)
	}
	claim(after, 10)
}

func TestNoTokenOfADeliveryIsIssuedTwiceWhenAnEpochIsUsedUp(t *testing.T) {
	s := openForTest(t, "store", inMemory(vfs.NewCrashableMem()))
	for i := range 5 {
		must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{jobWithWebhook(fmt.Sprint(i))}))
		j := claimOne(t, s.Jobs(), "w")
		finish(t, s.Jobs(), &j, "1")
	}
	nearEdge(s)
	seen := map[queue.Token]bool{}
	for range 2 {
		for _, d := range deliveries(t, s) {
			if seen[d.Token] {
				t.Errorf("token %#x was issued twice", d.Token)
			}
			seen[d.Token] = true
		}
		s = reopen(t, s)
	}
	if len(seen) != 10 {
		t.Errorf("%d tokens for five deliveries of two openings, want 10", len(seen))
	}
}
