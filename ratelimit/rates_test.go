package ratelimit_test

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/podyard/podyard/ratelimit"
)

func TestLimitsAreTheTableOfTheInterface(t *testing.T) {
	want := []ratelimit.Limit{
		{Operation: ratelimit.RunSync, Name: "runsync", Requests: 2000, Concurrent: 400},
		{Operation: ratelimit.Run, Name: "run", Requests: 1000, Concurrent: 200},
		{Operation: ratelimit.Status, Name: "status", Requests: 2000, Concurrent: 400},
		{Operation: ratelimit.Stream, Name: "stream", Requests: 2000, Concurrent: 400},
		{Operation: ratelimit.Cancel, Name: "cancel", Requests: 100, Concurrent: 20},
		{Operation: ratelimit.PurgeQueue, Name: "purge-queue", Requests: 2, Concurrent: 0},
		{Operation: ratelimit.OpenAI, Name: "openai", Requests: 2000, Concurrent: 400},
		{Operation: ratelimit.Requests, Name: "requests", Requests: 10, Concurrent: 2},
		{Operation: ratelimit.Schedules, Name: "schedules", Requests: 100, Concurrent: 20},
		{Operation: ratelimit.Actions, Name: "actions", Requests: 10, Concurrent: 2},
		{Operation: ratelimit.Events, Name: "events", Requests: 20, Concurrent: 20},
		{Operation: ratelimit.Batches, Name: "batch", Requests: 100, Concurrent: 20},
	}
	if diff := cmp.Diff(want, ratelimit.Limits()); diff != "" {
		t.Errorf("Limits (-want +got):\n%s", diff)
	}
	ratelimit.Limits()[0].Requests = 1
	if ratelimit.Limits()[0].Requests != 2000 {
		t.Error("a caller of Limits changed the table")
	}
}

func TestEveryOperationPassesItsLimitAtOnceAndNotOneMore(t *testing.T) {
	for _, l := range ratelimit.Limits() {
		r := ratelimit.NewRates(0)
		c := keyFor(l.Operation)
		for i := range l.Requests {
			pass, d := r.Acquire(start, c, 0)
			if !d.OK {
				t.Fatalf("%s: request %d of %d: %s", l.Name, i+1, l.Requests, d.Detail)
			}
			pass.Release()
		}
		if _, d := r.Acquire(start, c, 0); d.OK {
			t.Errorf("%s: request %d passed", l.Name, l.Requests+1)
		}
		if _, d := r.Acquire(start.Add(ratelimit.Period), c, 0); !d.OK {
			t.Errorf("%s: refused after %v: %s", l.Name, ratelimit.Period, d.Detail)
		}
	}
}

func TestRefusalHasTheHeadersOfItsOperation(t *testing.T) {
	r := ratelimit.NewRates(0)
	d := exhaust(r, keyFor(ratelimit.Run), 0)
	if got, want := d.RateLimit(), `"run";r=0;t=1`; got != want {
		t.Errorf("RateLimit = %s, want %s", got, want)
	}
	if got, want := d.RateLimitPolicy(), `"run";q=1000;w=10`; got != want {
		t.Errorf("RateLimit-Policy = %s, want %s", got, want)
	}
	if want := "rate limit exceeded for run: 1000 requests per 10 s"; d.Exceeded != "run" || d.RetryAfter != 1 || d.Detail != want {
		t.Errorf("refusal = %q, %d, %q; want run, 1, %q", d.Exceeded, d.RetryAfter, d.Detail, want)
	}
	parse(t, d.RateLimit(), d.RateLimitPolicy())
}

func TestSlowBucketSaysHowLongToWait(t *testing.T) {
	r := ratelimit.NewRates(0)
	c := keyFor(ratelimit.PurgeQueue)
	d := exhaust(r, c, 0)
	if d.RetryAfter != 5 || d.RateLimit() != `"purge-queue";r=0;t=5` {
		t.Errorf("two in 10 s, both used: retry after %d, %s; want 5 s, when one is back", d.RetryAfter, d.RateLimit())
	}
	if _, d := r.Acquire(start.Add(4*time.Second), c, 0); d.OK || d.RetryAfter != 1 {
		t.Errorf("a second before: OK %v, retry after %d", d.OK, d.RetryAfter)
	}
	if _, d := r.Acquire(start.Add(5*time.Second), c, 0); !d.OK {
		t.Errorf("after the wait: %s", d.Detail)
	}
}

func TestLimitIsTheHigherOfTheTableAndTheWorkers(t *testing.T) {
	for _, row := range []struct{ perWorker, workers, want int }{
		{0, 1000, 1000}, {100, 0, 1000}, {100, 10, 1000}, {100, 11, 1100}, {300, 4, 1200},
	} {
		r := ratelimit.NewRates(row.perWorker)
		d := exhaust(r, keyFor(ratelimit.Run), row.workers)
		if got := d.States[0].Quota; got != row.want {
			t.Errorf("%d workers of %d requests: limit %d, want %d", row.workers, row.perWorker, got, row.want)
		}
	}
}

func TestLimitFollowsTheRatePerWorker(t *testing.T) {
	r := ratelimit.NewRates(0)
	r.SetPerWorker(300)
	if got := exhaust(r, keyFor(ratelimit.Run), 4).States[0].Quota; got != 1200 {
		t.Errorf("4 workers of 300 requests since just now: limit %d, want 1200", got)
	}
}

func TestLimitFollowsTheWorkers(t *testing.T) {
	r := ratelimit.NewRates(100)
	c := keyFor(ratelimit.Run)
	exhaust(r, c, 0)
	after := func(d time.Duration, workers int) int { return count(r, start.Add(d), c, workers) }
	if n := after(5*time.Second, 20); n != 500 {
		t.Errorf("5 s after the limit of 1000 was used, with 20 workers since just now: %d passed, want the 500 refilled", n)
	}
	if n := after(10*time.Second, 20); n != 1000 {
		t.Errorf("5 s later, at 2000 in 10 s: %d passed, want 1000", n)
	}
	if n := after(19*time.Second, 0); n != 1000 {
		t.Errorf("9 s later, the workers gone: %d passed, want the 1000 that the bucket holds again", n)
	}
}

func TestUsersEndpointsAndOperationsHaveLimitsOfTheirOwn(t *testing.T) {
	r := ratelimit.NewRates(0)
	base := ratelimit.Key{User: "u", Endpoint: "e", Operation: ratelimit.PurgeQueue}
	exhaust(r, base, 0)
	for _, change := range []func(*ratelimit.Key){
		func(c *ratelimit.Key) { c.User = "v" },
		func(c *ratelimit.Key) { c.Endpoint = "f" },
		func(c *ratelimit.Key) { c.Operation = ratelimit.Requests },
		func(c *ratelimit.Key) { c.User, c.Endpoint = "ue", "" },
	} {
		c := base
		change(&c)
		if _, d := r.Acquire(start, c, 0); !d.OK {
			t.Errorf("%+v is limited by what %+v used: %s", c, base, d.Detail)
		}
	}
}

func TestOperationsOutsideTheTableHaveNoLimit(t *testing.T) {
	r := ratelimit.NewRates(0)
	for _, o := range []ratelimit.Operation{ratelimit.Unlimited, 255} {
		for range 5000 {
			pass, d := r.Acquire(start, keyFor(o), 0)
			if !d.OK {
				t.Fatalf("%v: %s", o, d.Detail)
			}
			pass.Release()
		}
	}
}

func TestNoMoreThanTheConcurrencyIsInFlight(t *testing.T) {
	r := ratelimit.NewRates(1_000_000) // so that only concurrency limits
	c := keyFor(ratelimit.Cancel)
	var passes []*ratelimit.Permit
	for range 20 {
		p, d := r.Acquire(start, c, 1)
		if !d.OK {
			t.Fatal(d.Detail)
		}
		passes = append(passes, p)
	}
	p, d := r.Acquire(start, c, 1)
	want := ratelimit.Decision{
		Exceeded: "cancel", RetryAfter: 1, Detail: "concurrency limit exceeded for cancel: 20 requests at once",
		States: []ratelimit.State{{Name: "cancel", Quota: 1_000_000, Window: ratelimit.Period, Remaining: 999_980, Reset: 1}},
	}
	if diff := cmp.Diff(want, d); p != nil || diff != "" {
		t.Errorf("request 21 at once: pass %v (-want +got):\n%s", p, diff)
	}
	passes[0].Release()
	passes[0].Release() // counts once
	if _, d := r.Acquire(start, c, 1); !d.OK {
		t.Errorf("after one was released: %s", d.Detail)
	}
	if _, d := r.Acquire(start, c, 1); d.OK {
		t.Error("releasing one request twice made room for two")
	}
}

func TestRequestRefusedForConcurrencyIsNotChargedToTheBucket(t *testing.T) {
	r := ratelimit.NewRates(0)
	c := keyFor(ratelimit.Requests) // 10 in 10 s, 2 at once
	a, _ := r.Acquire(start, c, 0)
	b, _ := r.Acquire(start, c, 0)
	for range 50 {
		if _, d := r.Acquire(start, c, 0); d.OK {
			t.Fatal("three at once passed a limit of two")
		}
	}
	a.Release()
	b.Release()
	if n := count(r, start, c, 0); n != 8 {
		t.Errorf("%d more passed, want the 8 left of 10", n)
	}
}

func TestNilPermitCanBeReleased(*testing.T) {
	var p *ratelimit.Permit
	p.Release()
}

func TestBucketNeverPassesMoreThanItsSizeAndTheRefill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := rapid.SampledFrom([]ratelimit.Limit{
			{Operation: ratelimit.PurgeQueue, Requests: 2}, {Operation: ratelimit.Requests, Requests: 10},
		}).Draw(t, "limit")
		r := ratelimit.NewRates(0)
		c := keyFor(l.Operation)
		now, latest := start, time.Time{} // latest is the time of the bucket
		var passed []time.Time
		for range rapid.IntRange(1, 200).Draw(t, "requests") {
			// Callers read the clock before they are served, so it can step back a little.
			now = now.Add(time.Duration(rapid.Int64Range(int64(-50*time.Millisecond), int64(2*time.Second)).Draw(t, "step")))
			if now.After(latest) {
				latest = now
			}
			pass, d := r.Acquire(now, c, 0)
			if !d.OK {
				continue
			}
			pass.Release()
			passed = append(passed, latest)
		}
		perSecond := float64(l.Requests) / 10
		for i := range passed {
			for j := i; j < len(passed); j++ {
				most := float64(l.Requests) + perSecond*passed[j].Sub(passed[i]).Seconds()
				if n := j - i + 1; float64(n) > most+1e-6 {
					t.Fatalf("%d requests passed in %v, at most %v may", n, passed[j].Sub(passed[i]), math.Floor(most))
				}
			}
		}
	})
}

func TestRequestPassesWhenTheRefusalSaid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := ratelimit.NewRates(rapid.IntRange(0, 3).Draw(t, "per worker"))
		workers := rapid.IntRange(0, 9).Draw(t, "workers")
		c := keyFor(rapid.SampledFrom([]ratelimit.Operation{ratelimit.PurgeQueue, ratelimit.Requests}).Draw(t, "operation"))
		now := start
		for range 20 {
			pass, d := r.Acquire(now, c, workers)
			pass.Release()
			if !d.OK {
				now = now.Add(time.Duration(d.RetryAfter) * time.Second)
				if pass, d = r.Acquire(now, c, workers); !d.OK {
					t.Fatalf("refused after the wait it was told: %+v", d)
				}
				pass.Release()
			}
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "step")))
		}
	})
}

func TestGateIsOpenExactlyWhileThereIsRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := ratelimit.NewRates(1_000_000) // so that only concurrency limits
		l := rapid.SampledFrom([]ratelimit.Limit{
			{Operation: ratelimit.Requests, Concurrent: 2}, {Operation: ratelimit.Cancel, Concurrent: 20},
		}).Draw(t, "limit")
		now := start
		var held, released []*ratelimit.Permit
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, int(20*time.Second)).Draw(t, "step"))) // some forget idle callers
			switch what := rapid.IntRange(0, 3).Draw(t, "what"); {
			case what == 0 && len(held) > 0:
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				held[i].Release()
				released = append(released, held[i])
				held = slices.Delete(held, i, i+1)
			case what == 1 && len(released) > 0:
				released[rapid.IntRange(0, len(released)-1).Draw(t, "again")].Release()
			default:
				pass, d := r.Acquire(now, keyFor(l.Operation), 1)
				if d.OK != (len(held) < l.Concurrent) {
					t.Fatalf("with %d of %d in flight: OK = %v (%s)", len(held), l.Concurrent, d.OK, d.Detail)
				}
				if d.OK {
					held = append(held, pass)
				}
			}
		}
	})
}

func TestConcurrencyIsExactUnderContention(t *testing.T) {
	r := ratelimit.NewRates(1_000_000_000)
	c := keyFor(ratelimit.Cancel)
	var inFlight, most, passed atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 300 {
				pass, d := r.Acquire(start, c, 1)
				if !d.OK {
					continue
				}
				passed.Add(1)
				n := inFlight.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				runtime.Gosched() // so that others meet it in flight
				inFlight.Add(-1)
				go pass.Release()
				pass.Release()
			}
		})
	}
	wg.Wait()
	if most.Load() > 20 {
		t.Errorf("%d requests were in flight at once, limit 20", most.Load())
	}
	if passed.Load() == 0 {
		t.Error("nothing passed")
	}
	var held int
	for {
		if _, d := r.Acquire(start, c, 1); !d.OK {
			break
		}
		held++
	}
	if held != 20 {
		t.Errorf("when all were released %d fit, want 20: releases were lost or counted twice", held)
	}
}

func keyFor(o ratelimit.Operation) ratelimit.Key {
	return ratelimit.Key{User: "u", Endpoint: "e", Operation: o}
}

// count is how many requests pass at now, one after another.
func count(r *ratelimit.Rates, now time.Time, c ratelimit.Key, workers int) (n int) {
	for {
		pass, d := r.Acquire(now, c, workers)
		if !d.OK {
			return n
		}
		pass.Release()
		n++
	}
}

// exhaust uses the bucket up at start and returns the refusal.
func exhaust(r *ratelimit.Rates, c ratelimit.Key, workers int) ratelimit.Decision {
	count(r, start, c, workers)
	_, d := r.Acquire(start, c, workers)
	return d
}
