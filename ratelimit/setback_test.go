package ratelimit_test

import (
	"testing"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/ratelimit"
)

// A clock that was an hour ahead is set right inside a process. Who had used up a quota or a rate
// is not refused until the clock has caught up.
func TestAClockThatIsSetBackRefusesNobodyUntilItHasCaughtUp(t *testing.T) {
	ahead := noon.Add(time.Hour)
	take := map[string]func(now time.Time) ratelimit.Decision{}

	alone := ratelimit.NewWindows(ratelimit.Quotas{Minute: 10})
	take["a quota of one server"] = func(now time.Time) ratelimit.Decision {
		return alone.TakeContext(t.Context(), now, "alice")
	}
	shared := ratelimit.NewWindows(ratelimit.Quotas{Minute: 10})
	shared.Shared(memory.NewServers())
	take["a quota of several servers"] = func(now time.Time) ratelimit.Decision {
		return shared.TakeContext(t.Context(), now, "alice")
	}
	rates := ratelimit.NewRates(0)
	key := ratelimit.Key{User: "alice", Endpoint: "echo", Operation: ratelimit.Requests}
	take["a rate"] = func(now time.Time) ratelimit.Decision {
		pass, d := rates.Acquire(now, key, 0)
		if d.OK {
			pass.Release()
		}
		return d
	}

	for name, take := range take {
		passed := 0
		for range 20 {
			if take(ahead).OK {
				passed++
			}
		}
		if passed != 10 {
			t.Errorf("%s of 10: %d passed before the step", name, passed)
		}
		if d := take(ahead.Add(-time.Millisecond)); d.OK {
			t.Errorf("%s: a caller who has read the clock a millisecond before the others passes: %+v", name, d)
		}
		for i := range 10 {
			if d := take(noon.Add(time.Duration(i) * time.Millisecond)); !d.OK {
				t.Errorf("%s: request %d after the clock was set back by an hour is refused: %+v", name, i+1, d)
			}
		}
		if d := take(noon.Add(10 * time.Millisecond)); d.OK {
			t.Errorf("%s counts no more after the step: %+v", name, d)
		}
	}
}
