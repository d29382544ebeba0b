package ratelimit_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/podyard/podyard/ratelimit"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestHeadersAreTheStringsOfTheInterface(t *testing.T) {
	d := ratelimit.Decision{States: []ratelimit.State{
		{Name: "minute", Quota: 60, Window: time.Minute, Remaining: 0, Reset: 12},
		{Name: "hour", Quota: 3000, Window: time.Hour, Remaining: 2800, Reset: 1812},
		{Name: "day", Quota: 50000, Window: 24 * time.Hour, Remaining: 49500, Reset: 45012},
	}}
	if got, want := d.RateLimit(), `"minute";r=0;t=12, "hour";r=2800;t=1812, "day";r=49500;t=45012`; got != want {
		t.Errorf("RateLimit = %s\nwant        %s", got, want)
	}
	if got, want := d.RateLimitPolicy(), `"minute";q=60;w=60, "hour";q=3000;w=3600, "day";q=50000;w=86400`; got != want {
		t.Errorf("RateLimit-Policy = %s\nwant               %s", got, want)
	}
}

func TestHeadersAreStructuredFieldsThatSayWhatTheDecisionSays(t *testing.T) {
	w := ratelimit.NewWindows(ratelimit.Quotas{Minute: 2, Hour: 3, Day: 4})
	for i := range 6 {
		d := w.Take(start.Add(time.Duration(i)*17*time.Second+time.Millisecond), "u")
		if diff := cmp.Diff(d.States, parse(t, d.RateLimit(), d.RateLimitPolicy())); diff != "" {
			t.Errorf("request %d: the headers differ from the decision (-decision +headers):\n%s", i, diff)
		}
	}
}

// parse reads both headers as any client would.
func parse(t *testing.T, limit, policy string) (states []ratelimit.State) {
	t.Helper()
	limits, err := httpsfv.UnmarshalList([]string{limit})
	if err != nil {
		t.Fatalf("RateLimit %s: %v", limit, err)
	}
	policies, err := httpsfv.UnmarshalList([]string{policy})
	if err != nil {
		t.Fatalf("RateLimit-Policy %s: %v", policy, err)
	}
	if len(limits) != len(policies) {
		t.Fatalf("%d members in RateLimit, %d in RateLimit-Policy", len(limits), len(policies))
	}
	for i := range limits {
		l, p := limits[i].(httpsfv.Item), policies[i].(httpsfv.Item)
		if l.Value != p.Value {
			t.Errorf("member %d is %v in RateLimit and %v in RateLimit-Policy", i, l.Value, p.Value)
		}
		number := func(item httpsfv.Item, key string) int {
			v, ok := item.Params.Get(key)
			n, isInt := v.(int64)
			if !ok || !isInt {
				t.Errorf("member %v: %s = %v, want an integer", item.Value, key, v)
			}
			return int(n)
		}
		states = append(states, ratelimit.State{
			Name: l.Value.(string), Remaining: number(l, "r"), Reset: number(l, "t"),
			Quota: number(p, "q"), Window: time.Duration(number(p, "w")) * time.Second,
		})
	}
	return states
}

func TestDefaultsAreTheQuotasOfTheDecisions(t *testing.T) {
	d := ratelimit.NewWindows(ratelimit.Quotas{}).Take(start, "u")
	want := ratelimit.Decision{OK: true, States: []ratelimit.State{
		{Name: "minute", Quota: 600, Window: time.Minute, Remaining: 599, Reset: 60},
		{Name: "hour", Quota: 18000, Window: time.Hour, Remaining: 17999, Reset: 3600},
		{Name: "day", Quota: 200000, Window: 24 * time.Hour, Remaining: 199999, Reset: 86400},
	}}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("first request (-want +got):\n%s", diff)
	}
}

func TestRefusedRequestNamesTheWindowAndIsChargedToNone(t *testing.T) {
	w := ratelimit.NewWindows(ratelimit.Quotas{Minute: 1, Hour: 2, Day: 9})
	w.Take(start, "u")
	refused := w.Take(start.Add(48500*time.Millisecond), "u")
	want := ratelimit.Decision{
		Exceeded: "minute", Detail: "rate limit exceeded for the minute window", RetryAfter: 12,
		States: []ratelimit.State{
			{Name: "minute", Quota: 1, Window: time.Minute, Remaining: 0, Reset: 12},
			{Name: "hour", Quota: 2, Window: time.Hour, Remaining: 1, Reset: 3552},
			{Name: "day", Quota: 9, Window: 24 * time.Hour, Remaining: 8, Reset: 86352},
		},
	}
	if diff := cmp.Diff(want, refused); diff != "" {
		t.Errorf("second request of the minute (-want +got):\n%s", diff)
	}
	if d := w.Take(start.Add(time.Minute), "u"); !d.OK {
		t.Errorf("after the minute: %s: the refused request was charged to the hour", d.Detail)
	}
}

func TestOtherQuotasCountWhatWasCounted(t *testing.T) {
	w := ratelimit.NewWindows(ratelimit.Quotas{Minute: 5})
	for range 3 {
		w.Take(start, "u")
	}
	w.SetQuotas(ratelimit.Quotas{Minute: 2})
	if d := w.Take(start, "u"); d.OK || d.Exceeded != "minute" || d.States[0].Remaining != 0 {
		t.Errorf("the fourth request under a quota of 2 = %+v, want a refusal with nothing left", d)
	}
	w.SetQuotas(ratelimit.Quotas{Minute: 4})
	if d := w.Take(start, "u"); !d.OK || d.States[0].Remaining != 0 {
		t.Errorf("the fourth request under a quota of 4 = %+v, want the last", d)
	}
}

func TestOfSeveralFullWindowsTheOneThatFreesLastIsNamed(t *testing.T) {
	w := ratelimit.NewWindows(ratelimit.Quotas{Minute: 1, Hour: 1, Day: 9})
	w.Take(start, "u")
	d := w.Take(start.Add(time.Second), "u")
	if d.Exceeded != "hour" || d.RetryAfter != 3599 {
		t.Errorf("minute and hour are full: exceeded %q, retry after %d; want hour, 3599", d.Exceeded, d.RetryAfter)
	}
}

func TestWindowsOfOneUserAreNotThoseOfAnother(t *testing.T) {
	w := ratelimit.NewWindows(ratelimit.Quotas{Minute: 1})
	for _, user := range []string{"a", "b"} {
		if d := w.Take(start, user); !d.OK {
			t.Errorf("first request of %s: %s", user, d.Detail)
		}
	}
	if d := w.Take(start, "a"); d.OK {
		t.Error("second request of a passed a quota of one")
	}
}

func TestRequestWithAnEarlierTimeCountsInTheWindowThatHasBegun(t *testing.T) {
	w := ratelimit.NewWindows(ratelimit.Quotas{Minute: 2})
	w.Take(start, "u")
	if d := w.Take(start.Add(-time.Millisecond), "u"); !d.OK || d.States[0].Remaining != 0 || d.States[0].Reset != 60 {
		t.Errorf("a request that read the clock a moment earlier: %+v", d)
	}
	if d := w.Take(start.Add(-time.Second), "u"); d.OK {
		t.Error("a request from a second before the window passed a full one")
	}
}

func TestQuotaIsExactUnderContention(t *testing.T) {
	w := ratelimit.NewWindows(ratelimit.Quotas{Minute: 500})
	var passed atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 100 {
				if w.Take(start, "u").OK {
					passed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if passed.Load() != 500 {
		t.Errorf("of 1600 requests at once %d passed, want the quota of 500", passed.Load())
	}
}

// model is windows written the plain way: every request that passed, in order.
type model struct {
	quota  int
	length time.Duration
	starts []time.Time // of windows
	passed []int       // in each
}

func (m *model) open(now time.Time) bool {
	n := len(m.starts)
	return n > 0 && now.Before(m.starts[n-1].Add(m.length))
}

func (m *model) full(now time.Time) bool { return m.open(now) && m.passed[len(m.passed)-1] >= m.quota }

func (m *model) charge(now time.Time) {
	if !m.open(now) {
		m.starts, m.passed = append(m.starts, now), append(m.passed, 0)
	}
	m.passed[len(m.passed)-1]++
}

func TestNoWindowPassesMoreThanItsQuota(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := ratelimit.Quotas{
			Minute: rapid.IntRange(1, 5).Draw(t, "minute"),
			Hour:   rapid.IntRange(1, 8).Draw(t, "hour"),
			Day:    rapid.IntRange(1, 12).Draw(t, "day"),
		}
		w := ratelimit.NewWindows(q)
		models := []*model{
			{quota: q.Minute, length: time.Minute}, {quota: q.Hour, length: time.Hour}, {quota: q.Day, length: 24 * time.Hour},
		}
		now := start
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			step := rapid.SampledFrom([]time.Duration{0, time.Millisecond, time.Second, 20 * time.Second, time.Minute, 25 * time.Minute, time.Hour, 9 * time.Hour})
			now = now.Add(step.Draw(t, "step"))
			d := w.Take(now, "u")
			full := false
			for _, m := range models {
				full = full || m.full(now)
			}
			if d.OK == full {
				t.Fatalf("request at %v: OK = %v, and a window is full: %v", now.Sub(start), d.OK, full)
			}
			if !d.OK {
				continue
			}
			for _, m := range models {
				m.charge(now)
			}
		}
		for i, m := range models {
			for j, n := range m.passed {
				if n > m.quota {
					t.Fatalf("window %d of %v passed %d requests, quota %d", j, models[i].length, n, m.quota)
				}
			}
		}
	})
}

func TestRequestPassesAfterRetryAfterAndNotASecondSooner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := ratelimit.NewWindows(ratelimit.Quotas{
			Minute: rapid.IntRange(1, 4).Draw(t, "minute"),
			Hour:   rapid.IntRange(1, 4).Draw(t, "hour"),
			Day:    rapid.IntRange(1, 4).Draw(t, "day"),
		})
		now := start
		var d ratelimit.Decision
		for d = w.Take(now, "u"); d.OK; d = w.Take(now, "u") {
			now = now.Add(time.Duration(rapid.IntRange(0, int(70*time.Second)).Draw(t, "step")))
		}
		wait := time.Duration(d.RetryAfter) * time.Second
		if early := w.Take(now.Add(wait-time.Second), "u"); early.OK {
			t.Fatalf("passed a second before Retry-After %d: the wait is longer than justified", d.RetryAfter)
		}
		if late := w.Take(now.Add(wait), "u"); !late.OK {
			t.Fatalf("refused %d s later, as Retry-After said: %s", d.RetryAfter, late.Detail)
		}
	})
}

func TestPeekSaysWhatTheNextRequestFindsAndCountsNothing(t *testing.T) {
	w := ratelimit.NewWindows(ratelimit.Quotas{Minute: 3, Hour: 9, Day: 99})
	want := func(when string, now time.Time, left, resets [3]int) {
		t.Helper()
		for range 2 {
			for i, s := range w.Peek(now, "u") {
				if s.Remaining != left[i] || s.Reset != resets[i] || s.Name == "" || s.Quota == 0 {
					t.Errorf("%s: window %d is %+v, want %d left and %d s", when, i, s, left[i], resets[i])
				}
			}
		}
	}
	want("at first", start, [3]int{3, 9, 99}, [3]int{60, 3600, 86400})
	for range 5 {
		w.Take(start, "u")
	}
	want("after 5 requests", start.Add(10*time.Second), [3]int{0, 6, 96}, [3]int{50, 3590, 86390})
	want("a minute later", start.Add(time.Minute), [3]int{3, 6, 96}, [3]int{60, 3540, 86340})
}
