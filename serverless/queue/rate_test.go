package queue_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// mostInAnyWindow fails if in a window of t more than Limit + Limit*t/Per of the sorted starts are.
func mostInAnyWindow(t *testing.T, r queue.Rate, starts []queue.Instant) {
	t.Helper()
	per := r.Per.Milliseconds()
	for i := range starts {
		for k := i; k < len(starts); k++ {
			n, span := int64(k-i+1), int64(starts[k]-starts[i])
			if (n-int64(r.Limit))*per > int64(r.Limit)*span {
				t.Fatalf("%d starts in %d ms, want at most %d + %d*%d/%d", n, span, r.Limit, r.Limit, span, per)
			}
		}
	}
}

func TestNoWindowHasMoreStartsThanTheRate(t *testing.T) {
	for seed := range uint64(300) {
		draw := rand.New(rand.NewPCG(seed, 59))
		r := queue.Rate{Limit: 1 + draw.IntN(20), Per: time.Duration(1000+draw.IntN(5000)) * time.Millisecond}
		now, b := queue.Instant(1_780_000_000_000), queue.Bucket(0)
		var starts []queue.Instant
		for range 300 {
			switch draw.IntN(4) {
			case 0:
				now += queue.Instant(draw.IntN(2000))
			case 1:
				if next := b.Next(r, now); next > 0 {
					now = next
				}
			}
			before := b.Room(r, now)
			if before > 0 {
				b = b.Start(r, now)
				starts = append(starts, now)
				if got := b.Room(r, now); got > before-1 || got < before-1 {
					t.Fatalf("seed %d: room %d after a start, and %d before", seed, got, before)
				}
			} else if at := b.Next(r, now); b.Room(r, at) != 1 || b.Room(r, at-1) != 0 && at-1 > now {
				t.Fatalf("seed %d: Next = %d from %d, with room %d then and %d before", seed, at, now, b.Room(r, at), b.Room(r, at-1))
			}
			if n := len(starts); draw.IntN(5) == 0 && n > 0 { // one of the last was none
				i := n - 1 - draw.IntN(min(n, 3))
				b = b.GiveBack(r, starts[i], now)
				starts = slices.Delete(starts, i, i+1)
			}
		}
		mostInAnyWindow(t, r, starts)
	}
}

func TestAStartThatWasNoneLeavesRoomForAnother(t *testing.T) {
	r, now := queue.Rate{Limit: 2, Per: time.Hour}, queue.Instant(1_780_000_000_000)
	b := queue.Bucket(0).Start(r, now).Start(r, now)
	if n := b.Room(r, now); n != 0 {
		t.Errorf("room %d after all starts, want 0", n)
	}
	if n := b.GiveBack(r, now, now).Room(r, now); n != 1 {
		t.Errorf("room %d after one was given back, want 1", n)
	}
}

func TestABucketIsNeverEmptierThanItsRate(t *testing.T) {
	r, now := queue.Rate{Limit: 3, Per: 3 * time.Second}, queue.Instant(1_780_000_000_000)
	b := queue.Bucket(0).Start(r, now)
	if at := b.Next(r, now-3_600_000); at != now-3_600_000+1000 {
		t.Errorf("after the clock was set back by an hour there is room in %d ms, want 1000", at-(now-3_600_000))
	}
	slow := queue.Rate{Limit: 1, Per: time.Hour}
	if at := queue.Bucket(0).Start(slow, now).Next(r, now); at > now+1000 {
		t.Errorf("under a faster rate there is room in %d ms, want at most 1000", at-now)
	}
}

func TestBucketsKeepTheirRoomAtTheEndsOfTime(t *testing.T) {
	r := queue.Rate{Limit: queue.MaxRateLimit, Per: queue.MaxRatePer}
	for _, now := range []queue.Instant{0, -1, 1, 1 << 62} {
		if n := queue.Bucket(0).Start(r, now).Room(r, now); n != r.Limit-1 {
			t.Errorf("room %d after one start at %d, want %d", n, now, r.Limit-1)
		}
	}
}
