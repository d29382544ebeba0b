package disk

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// commits counts the changes of commits.
type commits struct{ changes atomic.Int64 }

func (c *commits) StoreCommitted(took time.Duration, changes int) {
	if took >= 0 {
		c.changes.Add(int64(changes))
	}
}

func TestMovesOfTheOpeningAndOfTimeAreReported(t *testing.T) {
	s := memStore(t)
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("a"), newJob("b")}))
	claimOne(t, s.Jobs(), "local")
	must(t, s.Close()) // so that nothing reads its options any more
	s.opts.WorkerGone = func(w queue.WorkerID) bool { return w == "local" }
	s.opts.Clock = frozenClock{at.Time().Add(5 * time.Millisecond)}
	seen := &commits{}
	s.opts.Observer = seen
	s = openForTest(t, s.dir, &s.opts)
	var got []queue.OpKind
	s.Jobs().Report(func(list []queue.Moved) {
		for _, m := range list {
			got = append(got, m.Kind)
		}
	})
	if want := []queue.OpKind{queue.OpRecover}; !slices.Equal(got, want) {
		t.Errorf("at the opening %v is reported, want %v", got, want)
	}
	claimOne(t, s.Jobs(), "w")
	if _, err := s.Jobs().Expire(t.Context(), at+3_600_000, 10); err != nil {
		t.Fatal(err)
	}
	if n, _, err := s.Jobs().Purge(t.Context(), at+3_600_000, queue.PurgeQuery{Endpoint: "echo", UpTo: 1 << 40, Limit: 10}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if want := []queue.OpKind{queue.OpRecover, queue.OpTick, queue.OpPurge}; !slices.Equal(got, want) {
		t.Errorf("%v is reported, want %v", got, want)
	}
	if seen.changes.Load() < 3 || s.Size() == 0 || s.Damages() != 0 {
		t.Errorf("%d changes are seen, the size is %d, damages are %d", seen.changes.Load(), s.Size(), s.Damages())
	}
}

func TestTheLoadOfAStoreIsCounted(t *testing.T) {
	s := memStore(t)
	low, hooked := newJob("a"), newJob("b")
	low.Flags, hooked.Flags, hooked.Webhook = queue.LowPriority, queue.HasWebhook, "https://receiver.example/hook"
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{low, hooked}))
	n, err := s.Jobs().Priorities(t.Context(), "echo")
	if err != nil || n != [11]int64{0: 1, 10: 1} {
		t.Errorf("Priorities = %v, %v", n, err)
	}
	j := claimOne(t, s.Jobs(), "w")
	applyOne(t, s.Jobs(), queue.Op{Ref: j.Ref, Kind: queue.OpChunk, Worker: "w", Payload: []byte("12345")})
	applyOne(t, s.Jobs(), queue.Op{Ref: queue.Ref{Endpoint: "echo", ID: "b"}, Kind: queue.OpCancel})
	want := queue.Load{Undrained: 5, Deliveries: 1, OldestDelivery: at + 2}
	if l, err := s.Jobs().Load(t.Context()); l != want || err != nil {
		t.Errorf("Load = %+v, %v, want %+v", l, err, want)
	}
	s = reopen(t, s)
	if l, err := s.Jobs().Load(t.Context()); l != want || err != nil {
		t.Errorf("after a new opening Load = %+v, %v, want %+v", l, err, want)
	}
}
