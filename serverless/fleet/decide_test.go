package fleet_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/fleet"
	"github.com/podyard/podyard/serverless/queue"
)

// t0 is when every story here begins.
const t0 queue.Instant = 1_000_000

func after(d time.Duration) queue.Instant { return t0.Add(d) }

func delayed(lo, hi int, delay time.Duration) *endpoints.Endpoint {
	return &endpoints.Endpoint{
		ID: "e", Workers: endpoints.WorkerLimits{Min: lo, Max: hi},
		Scaling: endpoints.Scaling{Type: endpoints.QueueDelay, Delay: delay},
	}
}

func cordoned(c endpoints.Cordon) *endpoints.Endpoint {
	e := delayed(1, 9, 4*time.Second)
	e.Cordon = c
	return e
}

func counted(lo, hi, count int) *endpoints.Endpoint {
	return &endpoints.Endpoint{
		ID: "e", Workers: endpoints.WorkerLimits{Min: lo, Max: hi},
		Scaling: endpoints.Scaling{Type: endpoints.RequestCount, Count: count},
	}
}

func starting(id string) fleet.WorkerView {
	return fleet.WorkerView{ID: queue.WorkerID(id), State: fleet.Starting, Started: t0}
}

func idle(id string, since queue.Instant) fleet.WorkerView {
	return fleet.WorkerView{ID: queue.WorkerID(id), State: fleet.Idle, IdleSince: since, Started: t0}
}

func busy(id string) fleet.WorkerView {
	return fleet.WorkerView{ID: queue.WorkerID(id), State: fleet.Busy, Started: t0}
}

func draining(id string) fleet.WorkerView {
	return fleet.WorkerView{ID: queue.WorkerID(id), State: fleet.Draining, Started: t0}
}

func stale(w fleet.WorkerView) fleet.WorkerView {
	w.Stale = true
	return w
}

func ids(list ...queue.WorkerID) []queue.WorkerID { return list }

func TestDecideFollowsTheRuleOfTheEndpoint(t *testing.T) {
	now := after(time.Minute)
	ago := func(d time.Duration) queue.Instant { return now.Add(-d) }
	jobs := func(n int64, oldest time.Duration) fleet.Demand {
		return fleet.Demand{Queued: n, Oldest: ago(oldest)}
	}
	type views = []fleet.WorkerView
	type decision = fleet.Decision
	slow := delayed(0, 1, time.Minute)
	lazy := delayed(0, 3, 4*time.Second)
	lazy.Workers.Idle = time.Minute
	for _, c := range []struct {
		name string
		e    *endpoints.Endpoint
		d    fleet.Demand
		ws   views
		b    fleet.Backoff
		want decision
	}{
		{"nothing to do, nobody there", delayed(0, 3, 4*time.Second), fleet.Demand{}, nil, fleet.Backoff{},
			decision{Reason: "no job waits"}},
		{"the first job starts the first worker without the delay", delayed(0, 3, 4*time.Second), jobs(5, 0), nil, fleet.Backoff{},
			decision{Want: 1, Start: 1, Next: now.Add(4 * time.Second), Reason: "the first worker starts for the first job"}},
		{"within the delay the others wait", delayed(0, 3, 4*time.Second), jobs(5, 3*time.Second), views{starting("a")}, fleet.Backoff{},
			decision{Want: 1, Next: now.Add(time.Second), Reason: "more jobs wait than workers are free, and none has waited for 4s"}},
		{"after the delay there are enough at once", delayed(0, 9, 4*time.Second), jobs(5, 4*time.Second), views{starting("a"), busy("b")}, fleet.Backoff{},
			decision{Want: 6, Start: 4, Reason: "a job has waited for 4s: there is to be a worker for each that waits"}},
		{"and never more than the maximum", delayed(0, 3, 4*time.Second), jobs(1000, time.Hour), views{starting("a"), busy("b")}, fleet.Backoff{},
			decision{Want: 3, Start: 1, Reason: "a job has waited for 4s: there is to be a worker for each that waits"}},
		{"at the maximum nothing starts", delayed(0, 2, 4*time.Second), jobs(9, time.Hour), views{starting("a"), busy("b")}, fleet.Backoff{},
			decision{Want: 2, Reason: "the maximum of 2 workers is reached"}},
		{"one that is to end takes the room until it has", delayed(0, 2, 4*time.Second), jobs(9, time.Hour), views{draining("a"), busy("b")}, fleet.Backoff{},
			decision{Want: 2, Reason: "the maximum of 2 workers is reached, those that are to end included"}},
		{"jobs that a free worker takes start none", delayed(0, 9, 4*time.Second), jobs(2, 5*time.Second), views{idle("a", ago(0)), starting("b")}, fleet.Backoff{},
			decision{Want: 2, Reason: "a free worker takes each job that waits"}},
		{"jobs of low priority start none", delayed(0, 9, 4*time.Second), fleet.Demand{Low: 7}, nil, fleet.Backoff{},
			decision{Reason: "jobs of low priority start no worker"}},
		{"low priority starts none by count either", counted(0, 9, 1), fleet.Demand{Low: 7, Running: 3}, views{busy("a")}, fleet.Backoff{},
			decision{Want: 1, Reason: "no job waits"}},
		{"request count rounds up", counted(0, 9, 4), fleet.Demand{Queued: 6, Running: 3, Oldest: now}, views{busy("a")}, fleet.Backoff{},
			decision{Want: 3, Start: 2, Reason: "there is to be a worker for every 4 queued or running jobs"}},
		{"request count is satisfied", counted(0, 9, 4), fleet.Demand{Queued: 6, Running: 2, Oldest: now}, views{busy("a"), busy("b")}, fleet.Backoff{},
			decision{Want: 2, Reason: "there is a worker for every 4 queued or running jobs"}},
		{"who has spent it all has no workers", delayed(1, 9, 4*time.Second), fleet.Demand{Queued: 7, Oldest: ago(time.Minute), Spent: "the money is spent", SpentUntil: now.Add(time.Hour)}, views{busy("a"), idle("b", t0)}, fleet.Backoff{},
			decision{Drain: ids("a"), Stop: ids("b"), Reason: "the money is spent", Next: now.Add(time.Hour)}},
		{"the minimum is there without jobs", delayed(2, 3, 4*time.Second), fleet.Demand{}, views{busy("a")}, fleet.Backoff{},
			decision{Want: 2, Start: 1, Reason: "the minimum is 2 workers"}},
		{"the minimum stays, however idle", delayed(1, 3, 4*time.Second), fleet.Demand{}, views{idle("a", t0), idle("b", t0+1)}, fleet.Backoff{},
			decision{Want: 1, Stop: ids("a"), Reason: "workers that no job has needed for 10s end; no job waits"}},
		{"an idle worker stays for its timeout", delayed(0, 3, 4*time.Second), fleet.Demand{}, views{idle("a", ago(4*time.Second))}, fleet.Backoff{},
			decision{Want: 1, Next: now.Add(6 * time.Second), Reason: "no job waits"}},
		{"which the endpoint sets", lazy, fleet.Demand{}, views{idle("a", t0), idle("b", t0+1)}, fleet.Backoff{},
			decision{Want: 1, Stop: ids("a"), Next: now + 1, Reason: "workers that no job has needed for 1m0s end; no job waits"}},
		{"as many as were spare all the time end, though jobs went round", delayed(1, 9, 4*time.Second), fleet.Demand{Running: 1, Spare: 2},
			views{idle("a", ago(time.Second)), busy("b"), idle("c", ago(3*time.Second)), idle("d", ago(2*time.Second))}, fleet.Backoff{},
			decision{Want: 2, Stop: ids("c", "d"), Next: now.Add(9 * time.Second), Reason: "workers that no job has needed for 10s end; no job waits"}},
		{"idle ones that jobs need stay", delayed(0, 3, 4*time.Second), jobs(1, 0), views{idle("a", t0), idle("b", t0+1)}, fleet.Backoff{},
			decision{Want: 1, Stop: ids("a"), Reason: "workers that no job has needed for 10s end; a free worker takes each job that waits"}},
		{"one that takes no job is no help", delayed(0, 3, 4*time.Second), jobs(1, 20*time.Second), views{idle("a", ago(10*time.Second))}, fleet.Backoff{},
			decision{Want: 1, Start: 1, Stop: ids("a"), Reason: "workers that no job has needed for 10s end; a job has waited for 4s: there is to be a worker for each that waits"}},
		{"nor among the minimum, where it is replaced", delayed(1, 1, 4*time.Second), jobs(1, 20*time.Second), views{idle("a", ago(10*time.Second))}, fleet.Backoff{},
			decision{Want: 1, Stop: ids("a"), Reason: "an idle worker that takes no job is replaced; the maximum of 1 worker is reached, those that are to end included"}},
		{"but it has as long as the delay", slow, jobs(1, 50*time.Second), views{idle("a", ago(5*time.Second))}, fleet.Backoff{},
			decision{Want: 1, Reason: "a free worker takes each job that waits"}},
		{"an old release is replaced, busy workers after their job", delayed(1, 4, 4*time.Second), fleet.Demand{Running: 1},
			views{stale(idle("a", now)), stale(starting("b")), stale(busy("c"))}, fleet.Backoff{},
			decision{Want: 1, Start: 1, Stop: ids("a", "b"), Drain: ids("c"), Reason: "workers of an older release are replaced; the minimum is 1 worker"}},
		{"a maximum of 0 is a pause", delayed(0, 0, 4*time.Second), jobs(4, time.Hour), views{idle("a", now), busy("b"), starting("c"), stale(busy("d"))}, fleet.Backoff{},
			decision{Stop: ids("c", "a"), Drain: ids("d", "b"), Reason: "the endpoint is paused: its maximum is 0 workers"}},
		{"a cordoned endpoint starts none and keeps what it has", cordoned(endpoints.Cordoned), jobs(4, time.Hour), views{idle("a", now), busy("b"), starting("c"), stale(busy("d"))}, fleet.Backoff{},
			decision{Want: 3, Drain: ids("d"), Reason: "workers of an older release are replaced; an operator has cordoned the endpoint: no worker is started"}},
		{"a drained endpoint has none in the end", cordoned(endpoints.Drained), jobs(4, time.Hour), views{idle("a", now), busy("b"), starting("c"), stale(busy("d"))}, fleet.Backoff{},
			decision{Stop: ids("c", "a"), Drain: ids("d", "b"), Reason: "an operator has drained the endpoint: its workers end, and none is started"}},
		{"a lower maximum ends those that do least", delayed(0, 1, 4*time.Second), fleet.Demand{Running: 2}, views{busy("a"), idle("b", now), busy("c"), starting("d")}, fleet.Backoff{},
			decision{Want: 1, Stop: ids("d", "b"), Drain: ids("a"), Reason: "there are more workers than the maximum of 1 worker; no job waits"}},
		{"after a failure nothing starts for a while", delayed(2, 4, 4*time.Second), fleet.Demand{}, nil,
			fleet.Backoff{Fails: 3, Until: now.Add(2 * time.Second), Reason: "exit code 1"},
			decision{Want: 2, Next: now.Add(2 * time.Second), Reason: "exit code 1"}},
		{"then one is tried", delayed(2, 4, 4*time.Second), fleet.Demand{}, nil,
			fleet.Backoff{Fails: 3, Until: now, Reason: "exit code 1"},
			decision{Want: 2, Start: 1, Reason: "exit code 1; one worker is tried"}},
		{"and no other until it has done a job", delayed(2, 4, 4*time.Second), fleet.Demand{}, views{starting("a")},
			fleet.Backoff{Fails: 3, Until: now, Reason: "exit code 1"},
			decision{Want: 2, Reason: "exit code 1; one worker is tried"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.want.At = now
			if diff := cmp.Diff(c.want, fleet.Decide(now, c.e, c.d, c.ws, c.b)); diff != "" {
				t.Errorf("Decide (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPausesDoubleUpToFiveMinutesAndOneAttemptCountsOnce(t *testing.T) {
	var b fleet.Backoff
	var got []int64
	now := t0
	for range 11 {
		started := now + 1
		now += 10
		b = b.After(now, started, false, "exit code 1")
		b = b.After(now+5, started, false, "exit code 1") // started together with the first
		got = append(got, int64(b.Until-now)/1000)
		now = b.Until
	}
	if diff := cmp.Diff([]int64{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300}, got); diff != "" {
		t.Errorf("pauses in seconds (-want +got):\n%s", diff)
	}
}

func TestALackOfRoomBetweenTwoCrashesNeitherForgetsNorCountsAsOne(t *testing.T) {
	now, b := t0, fleet.Backoff{}
	fail := func(noCapacity bool, reason string) time.Duration {
		now = now.Add(time.Hour)
		b = b.After(now, now-1, noCapacity, reason)
		return b.Until.Sub(now)
	}
	for range 5 {
		fail(false, "exit code 1")
	}
	for range 7 {
		if pause := fail(true, "no room"); pause != 10*time.Second || b.Reason != "no room" {
			t.Errorf("without room the pause is %v for %q", pause, b.Reason)
		}
	}
	if pause := fail(false, "exit code 2"); pause != 32*time.Second || b.Crashes() != 6 || b.Crash.Reason != "exit code 2" {
		t.Errorf("the sixth crash makes a pause of %v, %+v, want 32 s", pause, b)
	}
}

// fleetViews draws workers of an endpoint.
func fleetViews(t *rapid.T, now queue.Instant) []fleet.WorkerView {
	n := rapid.IntRange(0, 12).Draw(t, "workers")
	ws := make([]fleet.WorkerView, n)
	for i := range ws {
		w := fleet.WorkerView{
			ID:      queue.WorkerID(fmt.Sprintf("w%d", i)),
			State:   fleet.State(rapid.IntRange(0, int(fleet.Gone)).Draw(t, "state")),
			Stale:   rapid.IntRange(0, 3).Draw(t, "stale") == 0,
			Started: now - queue.Instant(rapid.Int64Range(0, 100_000).Draw(t, "age")),
		}
		if w.State == fleet.Idle {
			w.IdleSince = now - queue.Instant(rapid.Int64Range(0, 100_000).Draw(t, "idle"))
		}
		ws[i] = w
	}
	return ws
}

func TestNoDecisionBreaksTheLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := t0.Add(time.Hour)
		e := delayed(rapid.IntRange(0, 5).Draw(t, "min"), rapid.IntRange(0, 10).Draw(t, "max"), 4*time.Second)
		if rapid.Bool().Draw(t, "count") {
			e.Scaling = endpoints.Scaling{Type: endpoints.RequestCount, Count: rapid.IntRange(1, 5).Draw(t, "per")}
		}
		d := fleet.Demand{
			Queued: rapid.Int64Range(0, 30).Draw(t, "queued"), Low: rapid.Int64Range(0, 3).Draw(t, "low"),
			Running: rapid.Int64Range(0, 30).Draw(t, "running"), Spare: rapid.IntRange(0, 3).Draw(t, "spare"),
		}
		if d.Queued > 0 {
			d.Oldest = now - queue.Instant(rapid.Int64Range(0, 50_000).Draw(t, "wait"))
		}
		var b fleet.Backoff
		if rapid.IntRange(0, 3).Draw(t, "failing") == 0 {
			b = fleet.Backoff{Fails: 1, Until: now + queue.Instant(rapid.Int64Range(-5, 5).Draw(t, "pause")), Reason: "exit code 1"}
		}
		ws := fleetViews(t, now)
		got := fleet.Decide(now, e, d, ws, b)

		there, fresh := 0, 0
		byID := map[queue.WorkerID]fleet.WorkerView{}
		for _, w := range ws {
			byID[w.ID] = w
			if w.State.HasProcess() {
				there++
			}
			if w.State.TakesJobs() && !w.Stale {
				fresh++
			}
		}
		stays := fresh
		seen := map[queue.WorkerID]bool{}
		for i, id := range slices.Concat(got.Stop, got.Drain) {
			w, ok := byID[id]
			switch drain := i >= len(got.Stop); {
			case !ok || seen[id]:
				t.Fatalf("%q is ended twice or is not there", id)
			case !w.State.TakesJobs():
				t.Fatalf("%q is ended although it ends already", id)
			case drain != (w.State == fleet.Busy):
				t.Fatalf("%q is %v: only workers with a job are drained, only others stopped", id, w.State)
			}
			seen[id] = true
			if !w.Stale {
				stays--
			}
		}
		lo := min(e.Workers.Min, e.Workers.Max)
		switch {
		case got.Start < 0 || got.Start > 0 && there+got.Start > e.Workers.Max:
			t.Fatalf("Start = %d with %d there, and the maximum is %d", got.Start, there, e.Workers.Max)
		case stays > e.Workers.Max:
			t.Fatalf("%d workers stay, and the maximum is %d", stays, e.Workers.Max)
		case b.Fails == 0 && stays+got.Start < lo && there+got.Start < e.Workers.Max:
			t.Fatalf("%d workers stay and start, the minimum is %d, and there is room", stays+got.Start, lo)
		case got.Want < lo || got.Want > e.Workers.Max:
			t.Fatalf("Want = %d, the limits are %d and %d", got.Want, lo, e.Workers.Max)
		case got.Start > 0 && now < b.Until:
			t.Fatal("a worker is started during a pause")
		case got.Next != 0 && got.Next <= now:
			t.Fatalf("Next = %d, not after %d", got.Next, now)
		case got.Reason == "":
			t.Fatal("a decision without a reason")
		}
		for _, w := range ws {
			if w.Stale && w.State.TakesJobs() && !seen[w.ID] {
				t.Fatalf("%q of an older release stays", w.ID)
			}
		}
	})
}

// A simulation is an endpoint whose workers start in boot, end in grace and run each job
// in work. Decisions are made once a tick.
type simulation struct {
	e                 *endpoints.Endpoint
	boot, grace, work time.Duration

	now     queue.Instant
	queue   []queue.Instant // when each job came
	workers []*simulated
	n       int
	starts  int
	stops   int
	done    int
	peak    int // workers at once
}

type simulated struct {
	view  fleet.WorkerView
	until queue.Instant // end of the phase; 0: open
}

// settle moves workers on to now and gives jobs out, in order.
func (s *simulation) settle() {
	for _, w := range s.workers {
		if w.until == 0 || w.until > s.now {
			continue
		}
		switch w.view.State {
		case fleet.Busy:
			s.done++
			fallthrough
		case fleet.Starting:
			w.view.State, w.view.IdleSince = fleet.Idle, w.until
		case fleet.Draining:
			w.view.State = fleet.Ended
		}
		w.until = 0
	}
	s.workers = slices.DeleteFunc(s.workers, func(w *simulated) bool { return w.view.State == fleet.Ended })
	for _, w := range s.workers {
		if w.view.State == fleet.Idle && len(s.queue) > 0 {
			s.queue = s.queue[1:]
			w.view.State, w.until = fleet.Busy, s.now.Add(s.work)
		}
	}
}

// tick decides and acts.
func (s *simulation) tick(t *testing.T) fleet.Decision {
	t.Helper()
	d := fleet.Demand{Queued: int64(len(s.queue))}
	if len(s.queue) > 0 {
		d.Oldest = s.queue[0]
	}
	views := make([]fleet.WorkerView, len(s.workers))
	for i, w := range s.workers {
		views[i] = w.view
		if w.view.State == fleet.Busy {
			d.Running++
		}
	}
	got := fleet.Decide(s.now, s.e, d, views, fleet.Backoff{})
	for _, w := range s.workers {
		if slices.Contains(got.Stop, w.view.ID) {
			w.view.State, w.until = fleet.Draining, s.now.Add(s.grace)
			s.stops++
		}
	}
	for range got.Start {
		s.n++
		s.starts++
		id := queue.WorkerID(fmt.Sprintf("w%06d", s.n))
		s.workers = append(s.workers, &simulated{
			fleet.WorkerView{ID: id, State: fleet.Starting, Started: s.now}, s.now.Add(s.boot),
		})
	}
	s.peak = max(s.peak, len(s.workers))
	return got
}

func TestAThousandJobsAtOnceHaveAllWorkersOneTickAfterTheDelay(t *testing.T) {
	s := &simulation{e: delayed(0, 10, 4*time.Second), boot: 2 * time.Second, grace: time.Second, work: 5 * time.Second, now: t0}
	for range 1000 {
		s.queue = append(s.queue, t0)
	}
	var full queue.Instant
	for ; s.done < 1000; s.now = s.now.Add(time.Second) {
		s.settle()
		s.tick(t)
		if full == 0 && len(s.workers) == 10 {
			full = s.now
		}
		if full != 0 && len(s.queue) > 0 && len(s.workers) != 10 {
			t.Fatalf("at %v %d workers, want 10 as long as jobs wait", (s.now - t0), len(s.workers))
		}
		if s.now > after(time.Hour) {
			t.Fatalf("%d jobs done in an hour", s.done)
		}
	}
	if want := after(5 * time.Second); full == 0 || full > want {
		t.Errorf("all workers at %v ms, want at %v", full-t0, want-t0)
	}
	// The delay, one tick, a start, and a hundred jobs one after the other.
	if want := after(7*time.Second + 100*5*time.Second); s.now > want.Add(time.Second) {
		t.Errorf("done after %v ms, want %v", s.now-t0, want-t0)
	}
	if s.starts != 10 {
		t.Errorf("starts = %d, want 10", s.starts)
	}
	for range 12 {
		s.settle()
		s.tick(t)
		s.now = s.now.Add(time.Second)
	}
	s.settle()
	if len(s.workers) != 0 {
		t.Errorf("%d workers stay without a job, want none", len(s.workers))
	}
}

// sine runs a load that goes up and down between 0 and 2*mean jobs a second.
func (s *simulation) sine(t *testing.T, mean float64, period, span time.Duration) {
	t.Helper()
	owed := 0.0
	for end := s.now.Add(span); s.now < end; s.now = s.now.Add(time.Second) {
		at := float64(s.now-t0) / float64(period.Milliseconds())
		for owed += mean * (1 - math.Cos(2*math.Pi*at)); owed >= 1; owed-- {
			s.queue = append(s.queue, s.now)
		}
		s.settle()
		got := s.tick(t)
		if got.Start > 0 && len(got.Stop) > 0 {
			t.Fatalf("at %v workers are started and stopped: %+v", s.now-t0, got)
		}
		if len(s.workers) > s.e.Workers.Max || s.now > t0 && len(s.workers) < s.e.Workers.Min {
			t.Fatalf("at %v %d workers, the limits are %+v", s.now-t0, len(s.workers), s.e.Workers)
		}
	}
}

func TestWorkersFollowAWaveWithoutFlapping(t *testing.T) {
	for name, e := range map[string]*endpoints.Endpoint{
		"queue delay":   delayed(1, 60, 4*time.Second),
		"request count": counted(1, 60, 1),
	} {
		t.Run(name, func(t *testing.T) {
			s := &simulation{e: e, boot: 3 * time.Second, grace: time.Second, work: 5 * time.Second, now: t0}
			const waves = 6
			s.sine(t, 4, 10*time.Minute, waves*10*time.Minute)
			// Up by the height of the wave and down again is what the load asks for.
			if got, limit := s.starts+s.stops, waves*2*s.peak*3/2; got > limit {
				t.Errorf("starts and stops = %d, want at most %d for %d waves as high as %d", got, limit, waves, s.peak)
			}
			if s.peak < 40 {
				t.Errorf("%d workers at the crest, want the 40 that it keeps busy", s.peak)
			}
			t.Logf("starts %d, stops %d, most %d, done %d", s.starts, s.stops, s.peak, s.done)
		})
	}
}

func TestDecideIsFastForADayOfLoad(t *testing.T) {
	s := &simulation{e: delayed(0, 10, 4*time.Second), boot: 20 * time.Second, grace: time.Second, work: 5 * time.Second, now: t0}
	began := time.Now()
	s.sine(t, 0.3, 24*time.Hour, 24*time.Hour)
	t.Logf("%v for %d jobs, starts %d, most %d", time.Since(began), s.done, s.starts, s.peak)
	if s.done < 25_000 {
		t.Errorf("%d jobs done in a day, want the 25,920 that came, or nearly", s.done)
	}
}

func TestReasonsAreSentencesWithoutVaryingNumbers(t *testing.T) {
	e := delayed(0, 3, 4*time.Second)
	ws := []fleet.WorkerView{busy("a"), busy("b"), busy("c")}
	var first string
	for n := range int64(5) {
		now := after(time.Minute).Add(time.Duration(n) * time.Second)
		got := fleet.Decide(now, e, fleet.Demand{Queued: 5 + n, Running: 3, Oldest: t0}, ws, fleet.Backoff{})
		if first == "" {
			first = got.Reason
		}
		if got.Reason != first || strings.HasSuffix(first, ".") {
			t.Errorf("reason = %q, want %q as long as nothing changes", got.Reason, first)
		}
	}
}
