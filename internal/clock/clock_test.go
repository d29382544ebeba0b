package clock_test

import (
	"context"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/clock"
)

type hourly struct {
	at time.Time
	n  int
}

func (e *hourly) Step(_ context.Context, now time.Time) (time.Time, error) {
	for !e.at.After(now) {
		e.n++
		e.at = e.at.Add(time.Hour)
	}
	return e.at, nil
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestAdvanceStopsAtEveryDueInstantAndAtTheTarget(t *testing.T) {
	m := clock.NewManual(start)
	e := &hourly{at: start.Add(time.Hour)}
	ctx, cancel := clock.WithDeadline(t.Context(), m, start.Add(48*time.Hour))
	defer cancel()
	if err := m.Advance(t.Context(), 7*24*time.Hour, e); err != nil {
		t.Fatal(err)
	}
	if e.n != 168 {
		t.Errorf("steps at due instants = %d, want 168", e.n)
	}
	if context.Cause(ctx) != context.DeadlineExceeded {
		t.Errorf("cause of the context = %v, want the deadline", context.Cause(ctx))
	}
	if got, want := m.Now(), start.Add(168*time.Hour); !got.Equal(want) {
		t.Errorf("Now = %v, want %v", got, want)
	}
}

func TestManualTimersRunInOrderAndStoppedOnesNever(t *testing.T) {
	m := clock.NewManual(start)
	var got []string
	add := func(name string, d time.Duration) func() bool {
		return m.AfterFunc(start.Add(d), func() { got = append(got, name) })
	}
	add("second", 2*time.Second)
	add("first", time.Second)
	add("second, registered later", 2*time.Second)
	stop := add("never", time.Second)
	add("past", 0)
	if !stop() || stop() {
		t.Error("stop reports true once, when it prevented the call")
	}
	if err := m.Advance(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	want := []string{"past", "first", "second", "second, registered later"}
	if len(got) != len(want) {
		t.Fatalf("ran %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("ran %q, want %q", got, want)
		}
	}
}

func TestNextIsTheFirstTimerThatIsLeft(t *testing.T) {
	m := clock.NewManual(start)
	if got := m.Next(); !got.IsZero() {
		t.Errorf("Next without timers = %v, want zero", got)
	}
	m.AfterFunc(start.Add(time.Hour), func() {})
	stop := m.AfterFunc(start.Add(time.Minute), func() {})
	if got, want := m.Next(), start.Add(time.Minute); !got.Equal(want) {
		t.Errorf("Next = %v, want %v", got, want)
	}
	stop()
	if got, want := m.Next(), start.Add(time.Hour); !got.Equal(want) {
		t.Errorf("Next after the first was stopped = %v, want %v", got, want)
	}
}
