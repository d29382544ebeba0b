package disk

import (
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/serverless/queue"
)

// A leased webhook is sent again with the same id after the store was opened again or
// recovered. The result of the first attempt is not recorded. Earlier recorded attempts stay.
func TestWebhooksOnTheirWayAreSentAgainAfterAnOpening(t *testing.T) {
	for _, c := range []struct {
		name  string
		again func(t *testing.T, s *Store, f *failingFS) *Store
	}{
		{"opened again", func(t *testing.T, s *Store, _ *failingFS) *Store { return reopen(t, s) }},
		{"recovered", func(t *testing.T, s *Store, f *failingFS) *Store {
			eio := error(syscall.EIO)
			f.sync.Store(&eio)
			if err := s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("lost")}); err == nil {
				t.Fatal("Enqueue on a failing disk = nil")
			}
			f.sync.Store(nil)
			must(t, s.Recover(t.Context()))
			return s
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := failingDisk(vfs.NewCrashableMem())
			s := openForTest(t, "store", inMemory(f))
			ctx := t.Context()
			must(t, s.Jobs().Enqueue(ctx, []queue.Job{jobWithWebhook("a")}))
			j := claimOne(t, s.Jobs(), "w")
			finish(t, s.Jobs(), &j, "1")
			record := func(d queue.Delivery, next queue.Instant) {
				t.Helper()
				must(t, s.Jobs().Record(ctx, []queue.Attempt{{Ref: d.Job.Ref, DeliveryID: d.ID, Token: d.Token, At: at + 10, Next: next, Status: 500}}))
			}
			lease := func() queue.Delivery {
				t.Helper()
				ds := deliveries(t, s)
				if len(ds) != 1 {
					t.Fatalf("Deliveries gave %d, want 1", len(ds))
				}
				return ds[0]
			}
			record(lease(), at+10)
			first := lease()
			if n := len(deliveries(t, s)); n != 0 {
				t.Errorf("Deliveries gave %d beside a lease, want none", n)
			}
			s = c.again(t, s, f)
			second := lease()
			if second.ID != first.ID || second.Token == first.Token || second.Tries != 1 {
				t.Errorf("delivery %q under %x after %d tries, want %q under another token than %x after 1", second.ID, second.Token, second.Tries, first.ID, first.Token)
			}
			record(first, 0)
			if as, err := s.Jobs().Attempts(ctx, j.Ref); err != nil || len(as) != 1 {
				t.Errorf("Attempts under a lease of before = %+v, %v, want the one of before", as, err)
			}
			record(second, 0)
			s = c.again(t, s, f)
			if n := len(deliveries(t, s)); n != 0 {
				t.Errorf("Deliveries gave %d when it is settled, want none", n)
			}
			if as, err := s.Jobs().Attempts(ctx, j.Ref); err != nil || len(as) != 2 {
				t.Errorf("Attempts = %+v, %v, want 2", as, err)
			}
		})
	}
}
