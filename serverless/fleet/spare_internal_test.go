package fleet

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/podyard/podyard/serverless/queue"
)

func TestLowestOfASpanIsThatOfAllItsSamples(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		span := time.Duration(rapid.IntRange(1, 30).Draw(t, "span")) * time.Millisecond
		var l lowerBounds
		var all []lowerBound
		now := queue.Instant(1000)
		for range rapid.IntRange(1, 60).Draw(t, "samples") {
			now += queue.Instant(rapid.IntRange(1, 5).Draw(t, "gap"))
			n := rapid.IntRange(0, 6).Draw(t, "n")
			all = append(all, lowerBound{now, n})
			l.add(now, n)
			if len(l) > 7 {
				t.Fatalf("%d bounds are kept of 7 values", len(l))
			}
			want := 0
			for i := range all {
				if all[i].since.Add(span) <= now { // the last such one decides
					want = all[i].n
				} else {
					want = min(want, all[i].n)
				}
			}
			if got := l.lowest(now, span); got != want {
				t.Fatalf("lowest = %d of %v in the last %v, want %d", got, all, span, want)
			}
		}
	})
}
