package jobindex

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/podyard/podyard/serverless/queue"
)

// A wheelModel is a wheel as a map with linear scans.
type wheelModel map[uint32]queue.Instant

// due returns the records that are due at now, in ascending order.
func (m wheelModel) due(now queue.Instant) (list []uint32) {
	for i, at := range m {
		if at <= now {
			list = append(list, i)
		}
	}
	slices.Sort(list)
	return list
}

func (m wheelModel) next() (next queue.Instant) {
	for _, at := range m {
		if next == 0 || at < next {
			next = at
		}
	}
	return next
}

// turnWheel removes all records that are due at now from the wheel, as Expire does.
func turnWheel(w *wheel, now queue.Instant) (list []uint32) {
	for now >= w.now {
		i := w.due(now)
		if i == 0 {
			break
		}
		if at := w.t.timer(i).armed; at > now {
			w.add(i, at)
			continue
		}
		list = append(list, i)
	}
	slices.Sort(list)
	return list
}

// A record leaves the wheel at its instant, not earlier and not later, also if time jumps.
func TestTheWheelIsOnTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spin(t, rapid.IntRange(1, 80).Draw(t, "steps"), func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "draw") })
	})
	for seed := range uint64(20) {
		t.Logf("seed %d", seed)
		spin(t, 3_000, rand.New(rand.NewPCG(seed, 0)).IntN)
	}
}

// fatal is what *testing.T and *rapid.T share.
type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
}

func spin(t fatal, steps int, n func(int) int) {
	t.Helper()
	records := &records{}
	records.init()
	var w wheel
	w.init(records)
	now := queue.Instant(1_780_000_000_000)
	m := wheelModel{}
	var in []uint32
	for range steps {
		// From a millisecond to past the year 2109, where 42 bits end.
		span := queue.Instant(n(1 << (1 + n(44))))
		switch n(9) {
		case 0, 1, 2:
			i := records.alloc()
			m[i] = now + span - queue.Instant(n(3))
			w.add(i, m[i])
			in = append(in, i)
		case 3:
			if len(in) == 0 {
				continue
			}
			at := n(len(in))
			if _, there := m[in[at]]; there {
				w.remove(in[at])
				delete(m, in[at])
			}
			in = slices.Delete(in, at, at+1)
		case 4:
			now += span
		case 5:
			now += span % 100
		case 6:
			now = max(now, w.next()) // to the very instant that is promised
		case 7:
			now = max(now-span, 0)
			w.rewind(now)
		default:
			want := m.due(now)
			if got := turnWheel(&w, now); !slices.Equal(got, want) {
				t.Fatalf("at %d the wheel gives %d records, want %d that are due", now, len(got), len(want))
			}
			for _, i := range want {
				delete(m, i)
			}
			if got, want := w.next(), m.next(); (got == 0) != (want == 0) || got > want || got != 0 && got <= now {
				t.Fatalf("next = %d at %d, want one that is later, and not later than %d", got, now, want)
			}
		}
	}
}
