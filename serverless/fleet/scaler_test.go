package fleet_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/fleet"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/workers"
)

func TestScalerStartsWorkersForJobsAndStopsThemWithout(t *testing.T) {
	w := newWorld(t, managed("e", 0, 3))
	w.waiting("e", 5)
	w.run(0)
	w.want("e", map[string]int{"starting": 1})
	w.run(time.Second)
	w.want("e", map[string]int{"starting": 3})
	want := fleet.WorkerSpec{
		Endpoint: "e", Owner: "alice", ID: "w001", Release: 1, Container: endpoints.Container{Image: "works", Disk: 5},
		Env: map[string]string{"AT": "http://jobs/e/w001"},
	}
	if diff := cmp.Diff(want, w.fleet.started[0]); diff != "" {
		t.Errorf("the first worker (-want +got):\n%s", diff)
	}
	w.run(bootTime)
	w.want("e", map[string]int{"idle": 3})
	w.waiting("e", 0)
	w.registry.busy("w002", "j")
	w.run(idleTime)
	w.want("e", map[string]int{"busy": 1})
	w.registry.busy("w002")
	w.run(idleTime)
	w.want("e", map[string]int{})
	if diff := cmp.Diff([]string{"w001 30s", "w003 30s", "w002 30s"}, w.fleet.stopped); diff != "" {
		t.Errorf("stopped (-want +got):\n%s", diff)
	}
	for id, u := range w.meter.last {
		if u.From.IsZero() || u.To.IsZero() || u.Owner != "alice" || u.VCPUs != 2 || u.Disk != 5 {
			t.Errorf("worker %s is metered as %+v, want a span of alice's", id, u)
		}
	}
	if len(w.meter.last) != 3 {
		t.Errorf("%d workers are metered, want 3", len(w.meter.last))
	}
}

func TestIdleScalerAsksForNoStep(t *testing.T) {
	w := newWorld(t, managed("e", 1, 3))
	w.run(time.Minute)
	before := w.steps
	w.run(24 * time.Hour)
	if n := w.steps - before; n > 2 {
		t.Errorf("%d steps in a day in which nothing happens", n)
	}
}

func TestJobsOfAnEndedWorkerAreChargedWhenItEndedByItself(t *testing.T) {
	for _, row := range []struct {
		name    string
		served  bool
		stopped bool
		want    string
		state   map[string]int // at the same instant
	}{
		{"it crashes at its first job", false, false, "w001 lost 1 signal 9", map[string]int{"failed": 1}},
		{"it dies after it has served", true, false, "w001 lost 1 signal 9", map[string]int{"starting": 1}},
		{"its host was asked to stop", false, true, "w001 released 1 signal 9", map[string]int{"starting": 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, managed("e", 1, 1))
			w.run(bootTime)
			w.registry.busy("w001", "j")
			w.run(0)
			w.want("e", map[string]int{"busy": 1})
			w.registry.set("w001", func(v *workers.View) { v.Served = row.served }) // just now
			w.fleet.exit("w001", "signal 9", row.stopped)
			w.run(0)
			if !slices.Equal(w.registry.released, []string{row.want}) {
				t.Errorf("its jobs: %v, want %s", w.registry.released, row.want)
			}
			w.want("e", row.state)
		})
	}
}

func TestWorkersThatFailAreTriedLessAndLessAndTheLastOneIsKeptForItsLog(t *testing.T) {
	w := newWorld(t, managed("e", 1, 4))
	for range 3 {
		w.run(bootTime)
		last := w.fleet.started[len(w.fleet.started)-1].ID
		w.fleet.exit(last, "exit code 1", false)
		w.run(0)
		w.want("e", map[string]int{"failed": 1})
		if s := w.only("e"); s.ID != last || s.Reason != "exit code 1" || s.Hidden {
			t.Errorf("kept is %+v, want %s, shown with its exit", s, last)
		}
		why := strings.Join(w.scaler.Explain("e", 0), "; ")
		if !strings.Contains(why, "a worker ended before it had done a job: exit code 1") {
			t.Errorf("Explain = %q, want the exit", why)
		}
		w.run(0)
		began := w.clock.Now()
		for n := len(w.fleet.started); len(w.fleet.started) == n && w.clock.Now().Sub(began) < time.Minute; {
			w.run(time.Second)
		}
	}
	if strings.Count(w.log.String(), "workers do not start") != 3 {
		t.Errorf("the log has not one line a failure:\n%s", w.log.String())
	}
	w.run(bootTime)
	w.want("e", map[string]int{"failed": 1, "idle": 1})
	w.run(time.Minute) // it is there for so long: its start was a success
	w.run(5 * time.Minute)
	w.want("e", map[string]int{"idle": 1})
}

func TestAWorkerOfACrashLoopIsTriedAgainAfterFiveMinutesAtLastAndHoldsNoRoomInBetween(t *testing.T) {
	w := newWorld(t, managed("e", 1, 4))
	for range 10 {
		w.run(bootTime)
		n := len(w.fleet.started)
		w.fleet.exit(w.fleet.started[n-1].ID, "exit code 1", false)
		w.run(0)
		for w.run(0); len(w.fleet.started) == n; w.run(time.Second) {
			if s := w.states("e"); s["failed"] != 1 || len(s) != 1 {
				t.Fatalf("while it pauses the workers are %v, want the dead one only", s)
			}
		}
	}
	w.run(bootTime)
	w.fleet.exit(w.fleet.started[len(w.fleet.started)-1].ID, "exit code 2", false)
	w.run(time.Second)
	got, ok := w.scaler.Trouble("e")
	if !ok || got.Fails != 11 || got.Reason != "a worker ended before it had done a job: exit code 2" || got.Unborn {
		t.Errorf("Trouble = %+v, %v, want 11 failures, the last with code 2", got, ok)
	}
	if pause := got.Next.Time().Sub(w.clock.Now()); pause < 4*time.Minute || pause > 5*time.Minute {
		t.Errorf("the next try is in %v, want almost five minutes", pause)
	}
	if why := strings.Join(w.scaler.Explain("e", 0), "; "); !strings.Contains(why, "workers of this endpoint fail: a worker ended before it had done a job: exit code 2; next try in 4m5") {
		t.Errorf("Explain = %q, want the failure and the next try", why)
	}
	w.change("e", func(e *endpoints.Endpoint) { e.Version = 2 })
	w.run(time.Second)
	if x, ok := w.scaler.Trouble("e"); ok {
		t.Errorf("a new release begins with %+v", x)
	}
}

func TestFleetWithoutCapacityIsAskedAgain(t *testing.T) {
	w := newWorld(t, managed("e", 3, 3))
	w.fleet.full = 1
	w.change("e", func(e *endpoints.Endpoint) { e.Version = 2 })
	w.run(time.Second / 2)
	for _, s := range w.scaler.Workers("e") {
		if s.State == fleet.Throttled && s.Reason != "there is no capacity for a worker" {
			t.Errorf("a throttled worker says %q", s.Reason)
		}
	}
	if n := w.states("e")["throttled"]; n == 0 {
		t.Fatalf("workers are %v, want some that are throttled", w.states("e"))
	}
	w.fleet.full = 0
	w.run(2 * time.Minute)
	w.want("e", map[string]int{"idle": 3})
	asked := map[queue.WorkerID]bool{}
	for _, s := range w.fleet.started[3:] { // those of the first release were there
		asked[s.ID] = true
	}
	if len(asked) != 3 {
		t.Errorf("the fleet was asked for %d workers, want three: those that wait for capacity go first", len(asked))
	}
}

func TestEndpointsThatWaitForRoomAreWokenInTurn(t *testing.T) {
	w := newWorld(t, managed("a", 1, 1))
	w.fleet.full = 1
	for _, id := range []string{"z", "m", "c"} { // z waits longest
		w.run(time.Minute)
		w.endpoints[id], w.stats[id] = managed(id, 1, 1), &queue.Stats{}
		w.scaler.Resync()
	}
	w.run(time.Minute)
	got := []string{}
	for range 3 {
		w.run(300 * time.Millisecond) // somewhere within the pauses of those that wait
		for _, i := range w.fleet.instances {
			if i.State != fleet.InstanceEnded {
				w.fleet.exit(i.ID, "exit code 1", false) // its endpoint starts another one as soon as it may
			}
		}
		w.run(time.Second)
		for _, i := range w.fleet.instances {
			if i.State != fleet.InstanceEnded {
				got = append(got, i.Endpoint)
			}
		}
		w.run(bootTime)
	}
	if want := []string{"z", "m", "c"}; !slices.Equal(got, want) {
		t.Errorf("a second after each end of a worker these had the place: %v, want %v, in the order in which they began to wait", got, want)
	}
}

func TestReleaseIsTriedAtOnceWhateverFailedBefore(t *testing.T) {
	w := newWorld(t, managed("e", 1, 1))
	for range 5 {
		w.fleet.exit(w.fleet.started[len(w.fleet.started)-1].ID, "exit code 1", false)
		for n := len(w.fleet.started); len(w.fleet.started) == n; {
			w.run(time.Second)
		}
	}
	w.fleet.exit(w.fleet.started[len(w.fleet.started)-1].ID, "exit code 1", false)
	w.run(0)
	n := len(w.fleet.started)
	w.change("e", func(e *endpoints.Endpoint) { e.Version = 2 })
	w.run(0)
	if len(w.fleet.started) != n+1 {
		t.Error("a release waits for the pause of the one before")
	}
}

func TestEndpointsOfWhoHasSpentItAllHaveNoWorkersUntilTheyMayAgain(t *testing.T) {
	shared := managed("shared", 1, 1)
	shared.Owner = ""
	w := newWorld(t, managed("e", 2, 3), shared)
	w.run(time.Minute)
	w.want("e", map[string]int{"idle": 2})
	until := w.clock.Now().Add(time.Hour)
	w.spent = func(owner string) (string, time.Time) {
		if owner == "alice" && w.clock.Now().Before(until) {
			return "the money is spent", until
		}
		return "", time.Time{}
	}
	w.scaler.Resync()
	w.waiting("e", 5)
	w.run(time.Hour - time.Second)
	w.want("e", map[string]int{})
	w.want("shared", map[string]int{"idle": 1})
	if why := w.scaler.Explain("e", queue.At(until.Add(-time.Hour))); !slices.Contains(why, "the money is spent") {
		t.Errorf("Explain = %q, want that the money is spent", why)
	}
	w.run(time.Minute)
	if w.states("e")["idle"] == 0 {
		t.Errorf("workers are %v after the end, want that they start again by themselves", w.states("e"))
	}
}

func TestUnmanagedEndpointIsNotReconciledForItsJobs(t *testing.T) {
	e := managed("e", 0, 1)
	e.Container.Image = ""
	w := newWorld(t, e)
	w.waiting("e", 1)
	w.run(0)
	before := w.woken
	w.waiting("e", 2)
	if w.woken != before {
		t.Error("a job of an endpoint without an image makes the scaler step")
	}
}

// TestAnEndedWorkerIsMeteredOnce is about what the meter has kept.
func TestAnEndedWorkerIsMeteredOnce(t *testing.T) {
	w := newWorld(t, managed("e", 1, 1))
	for range 3 {
		w.run(2 * time.Minute)
		w.fleet.exit(w.fleet.started[len(w.fleet.started)-1].ID, "signal 9", false)
	}
	w.run(time.Minute)
	if len(w.meter.ended) != 3 {
		t.Errorf("ended workers: %v, want three", w.meter.ended)
	}
	for id, n := range w.meter.ended {
		if n != 1 {
			t.Errorf("the end of %s was told %d times", id, n)
		}
	}
}

func TestStartThatWasCutOffIsMadeAgain(t *testing.T) {
	w := newWorld(t, managed("e", 0, 1))
	w.waiting("e", 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.scaler.Step(ctx, w.now())
	w.want("e", map[string]int{"launching": 1})
	w.run(bootTime)
	w.want("e", map[string]int{"idle": 1})
	if len(w.fleet.started) != 1 || w.fleet.started[0].ID != "w001" {
		t.Errorf("started are %v, want the same worker once", w.fleet.started)
	}
}

func TestFleetThatFailsToStartAWorkerIsAskedToStopIt(t *testing.T) {
	w := newWorld(t)
	w.fleet.refuse = errors.New("the engine's socket /run/secret is gone")
	w.endpoints["e"], w.stats["e"] = managed("e", 1, 1), &queue.Stats{}
	w.scaler.Resync()
	w.run(0)
	if !slices.Equal(w.fleet.stopped, []string{"w001 1s"}) {
		t.Errorf("stopped: %v, want the worker that may have been started", w.fleet.stopped)
	}
	if why := strings.Join(w.scaler.Explain("e", 0), "; "); !strings.Contains(why, "could not be started") || strings.Contains(why, "/run/secret") {
		t.Errorf("Explain = %q", why)
	}
}

func TestScalerThatComesAfterAnotherAdoptsOrReplacesWorkers(t *testing.T) {
	for _, adopt := range []bool{true, false} {
		w := newWorld(t, managed("e", 2, 2))
		w.run(bootTime)
		began := w.fleet.started[0]
		w.registry.views = map[workers.Key]*workers.View{} // it is the process's
		w.open(adopt)
		if adopt {
			w.want("e", map[string]int{"starting": 2})
			for _, s := range w.fleet.started {
				w.registry.join(workers.Key{Endpoint: "e", ID: s.ID})
			}
		}
		w.run(time.Minute)
		w.want("e", map[string]int{"idle": 2})
		kept := slices.ContainsFunc(w.scaler.Workers("e"), func(s fleet.Status) bool { return s.ID == began.ID })
		if kept != adopt {
			t.Errorf("adopt %v: the worker of the earlier process was kept: %v", adopt, kept)
		}
	}
}

func TestWorkerThatVanishesIsReplaced(t *testing.T) {
	w := newWorld(t, managed("e", 1, 1))
	w.run(2 * time.Minute)
	w.registry.busy("w001", "j")
	delete(w.fleet.instances, "w001")
	w.fleet.heard(fleet.Instance{Endpoint: "e", ID: "unheard"}) // which makes the scaler look
	w.run(0)
	if !slices.Equal(w.registry.released, []string{"w001 lost 1 it is no longer there"}) {
		t.Errorf("its jobs: %v, want that they are lost", w.registry.released)
	}
	w.run(bootTime)
	w.want("e", map[string]int{"idle": 1})
}

func TestWorkerThatNeverComesOrIsNotHeardOfIsReplaced(t *testing.T) {
	w := newWorld(t, managed("e", 1, 1))
	w.run(bootTime)
	w.registry.Remove(workers.Key{Endpoint: "e", ID: "w001"})
	w.scaler.Wake("e")
	w.fleet.silent = true
	w.run(0)
	if !slices.Equal(w.fleet.stopped, []string{"w001 1s"}) {
		t.Errorf("stopped: %v, want the one that is not heard of", w.fleet.stopped)
	}
	w.run(3 * time.Second)
	w.want("e", map[string]int{"starting": 1})
	w.run(16 * time.Minute)
	if !slices.Contains(w.fleet.stopped, "w002 1s") {
		t.Errorf("stopped: %v, want the one that never came", w.fleet.stopped)
	}
	if why := strings.Join(w.scaler.Explain("e", 0), "; "); !strings.Contains(why, "it never came for a job") {
		t.Errorf("Explain = %q", why)
	}
}

// Its pings say that it lives, and nothing more: a worker whose command serves an API, for example.
func TestWorkerThatOnlyPingsIsStartingAndThenReplaced(t *testing.T) {
	w := newWorld(t, managed("e", 1, 1))
	w.fleet.silent = true
	w.run(3 * time.Second)
	k := workers.Key{Endpoint: "e", ID: "w001"}
	w.registry.views[k] = &workers.View{ID: k.ID, IdleSince: w.now(), Starting: true}
	w.scaler.Wake("e")
	w.run(14 * time.Minute)
	w.want("e", map[string]int{"starting": 1})
	w.run(time.Minute)
	if !slices.Contains(w.fleet.stopped, "w001 1s") {
		t.Errorf("stopped: %v, want the one that never came", w.fleet.stopped)
	}
	if why := strings.Join(w.scaler.Explain("e", 0), "; "); !strings.Contains(why, "it never came for a job") {
		t.Errorf("Explain = %q", why)
	}
}

func TestUnhealthyWorkerIsReplaced(t *testing.T) {
	w := newWorld(t, managed("e", 1, 2))
	w.run(2 * time.Minute)
	w.registry.set("w001", func(v *workers.View) { v.Unhealthy, v.Draining = "gpu: 79 C", true })
	w.run(0)
	if !slices.Equal(w.fleet.stopped, []string{"w001 30s"}) {
		t.Errorf("stopped: %v, want the one that is not healthy", w.fleet.stopped)
	}
	w.run(bootTime)
	w.want("e", map[string]int{"idle": 1})
}

func TestUnresponsiveWorkerIsReplacedAndItsOtherJobsAreNotCharged(t *testing.T) {
	w := newWorld(t, managed("e", 1, 1))
	w.run(bootTime)
	w.registry.busy("w001", "j", "k")
	w.run(0)
	w.registry.unresponsive = []workers.Key{{Endpoint: "e", ID: "w001"}, {Endpoint: "e", ID: "somebody else's"}}
	w.run(0)
	w.registry.unresponsive = nil
	if !slices.Contains(w.registry.released, "w001 released 2 ") || !slices.Equal(w.fleet.stopped, []string{"w001 1s"}) {
		t.Errorf("its jobs: %v, stopped: %v", w.registry.released, w.fleet.stopped)
	}
}

func TestReleaseStopsIdleWorkersAtOnceAndBusyOnesAfterTheirJob(t *testing.T) {
	w := newWorld(t, managed("e", 2, 3))
	w.run(bootTime)
	w.registry.busy("w001", "j")
	w.run(0)
	w.change("e", func(e *endpoints.Endpoint) { e.Version = 2 })
	w.run(0)
	if v := w.registry.views[workers.Key{Endpoint: "e", ID: "w001"}]; v == nil || !v.Draining {
		t.Error("the busy worker still gets jobs")
	}
	w.run(bootTime)
	w.want("e", map[string]int{"draining": 1, "idle": 2})
	w.registry.busy("w001")
	w.run(0)
	w.want("e", map[string]int{"idle": 2})
}

// A registry forgets a worker that was not heard of, and the worker comes again.
func TestDrainingIsNotForgotten(t *testing.T) {
	w := newWorld(t, managed("e", 1, 1))
	w.run(bootTime)
	w.registry.busy("w001", "j")
	w.run(0)
	w.change("e", func(e *endpoints.Endpoint) { e.Version = 2 })
	w.run(0)
	w.registry.set("w001", func(v *workers.View) { v.Draining = false })
	w.run(0)
	w.want("e", map[string]int{"draining": 1})
	if v := w.registry.views[workers.Key{Endpoint: "e", ID: "w001"}]; !v.Draining {
		t.Error("a worker on its way out gets jobs again")
	}
}

func TestJobsAreChargedAlsoWhenTheQueueFailsAtFirst(t *testing.T) {
	w := newWorld(t, managed("e", 1, 1))
	w.run(2 * time.Minute)
	w.registry.busy("w001", "j")
	w.run(0)
	w.registry.refuse = errors.New("the disk is away")
	w.fleet.exit("w001", "signal 9", false)
	w.run(3 * time.Second)
	w.want("e", map[string]int{"lost": 1})
	w.registry.refuse = nil
	w.run(time.Second)
	if !slices.Equal(w.registry.released, []string{"w001 lost 1 signal 9"}) {
		t.Errorf("its jobs: %v, want that they are lost", w.registry.released)
	}
}

func TestEndpointThatIsPausedChangedOrGoneScalesToZero(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"paused":   func(w *world) { w.change("e", func(e *endpoints.Endpoint) { e.Workers.Min, e.Workers.Max = 0, 0 }) },
		"no image": func(w *world) { w.change("e", func(e *endpoints.Endpoint) { e.Container.Image = "" }) },
		"gone":     func(w *world) { delete(w.endpoints, "e"); w.scaler.Resync() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, managed("e", 2, 3), managed("f", 1, 1))
			w.run(bootTime)
			w.registry.busy("w001", "j")
			w.run(0)
			end(w)
			w.run(0)
			if name == "paused" {
				w.registry.busy("w001")
				w.run(0)
			}
			w.want("e", map[string]int{})
			w.want("f", map[string]int{"idle": 1})
		})
		t.Run(name+" with a failed worker", func(t *testing.T) {
			w := newWorld(t, managed("e", 1, 1))
			w.fleet.exit("w001", "exit code 1", false)
			w.run(0)
			end(w)
			w.run(7 * time.Minute)
			if n := len(w.fleet.instances); n != 0 {
				t.Errorf("the fleet keeps %d workers", n)
			}
		})
	}
}

func TestWithoutAFleetAScalerDoesNothing(t *testing.T) {
	w := newWorld(t, managed("e", 1, 1))
	s := fleet.New(fleet.Options{Clock: w.clock, Registry: w.registry})
	s.Wake("e")
	s.Resync()
	s.Events([]queue.Event{{Kind: queue.EventGap}})
	s.Watch(t.Context())
	s.Close(t.Context())
	if next := s.Step(t.Context(), w.now()); next != 0 || s.Manages(w.endpoints["e"]) || s.Workers("e") != nil {
		t.Errorf("Step = %d, workers = %v", next, s.Workers("e"))
	}
}

// TestWhateverHappensTheNumberIsRight does to workers, the fleet and endpoints what a seed says,
// and then lets them settle.
func TestWhateverHappensTheNumberIsRight(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := newWorld(t, managed("e", 1, 4))
		w.fleet.most = 0
		for range 80 {
			disturb(w, r)
			w.run(time.Duration(r.IntN(3000)) * time.Millisecond)
		}
		if w.fleet.most > 6 {
			t.Errorf("seed %d: %d workers at once, and the maximum was never above 6", seed, w.fleet.most)
		}
		w.fleet.refuse, w.fleet.full, w.fleet.silent, w.registry.refuse, w.registry.unresponsive = nil, 0, false, nil, nil
		w.change("e", func(e *endpoints.Endpoint) { e.Workers.Min, e.Workers.Max, e.Version = 2, 4, e.Version+1 })
		w.waiting("e", 0)
		for k := range w.registry.views {
			w.registry.busy(k.ID)
		}
		w.run(30 * time.Minute)
		w.want("e", map[string]int{"idle": 2})
		if w.fleet.running() != 2 {
			t.Errorf("seed %d: %d processes run, want 2", seed, w.fleet.running())
		}
		if strings.Contains(w.log.String(), "does not allow") {
			t.Errorf("seed %d:\n%s", seed, w.log.String())
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// disturb does one thing to the world.
func disturb(w *world, r *rand.Rand) {
	var ids []queue.WorkerID
	for _, v := range w.registry.List("e") {
		ids = append(ids, v.ID)
	}
	pick := func(f func(queue.WorkerID)) {
		if len(ids) > 0 {
			f(ids[r.IntN(len(ids))])
		}
	}
	alive := func(f func(queue.WorkerID)) {
		pick(func(id queue.WorkerID) {
			if i := w.fleet.instances[id]; i != nil && i.State != fleet.InstanceEnded {
				f(id)
			}
		})
	}
	switch r.IntN(14) {
	case 0, 1:
		w.waiting("e", int64(r.IntN(6)))
	case 2:
		pick(func(id queue.WorkerID) { w.registry.busy(id, "j") })
	case 3:
		pick(func(id queue.WorkerID) { w.registry.busy(id) })
	case 4:
		alive(func(id queue.WorkerID) { w.fleet.exit(id, "signal 9", r.IntN(3) == 0) })
	case 5:
		alive(func(id queue.WorkerID) { delete(w.fleet.instances, id) })
	case 6:
		pick(func(id queue.WorkerID) { w.registry.Remove(workers.Key{Endpoint: "e", ID: id}); w.scaler.Wake("e") })
	case 7:
		pick(func(id queue.WorkerID) { w.registry.set(id, func(v *workers.View) { v.Draining = true }) })
	case 8:
		w.fleet.full = r.IntN(4)
	case 9:
		w.fleet.refuse = []error{nil, nil, errors.New("the engine is away")}[r.IntN(3)]
	case 10:
		w.change("e", func(e *endpoints.Endpoint) { e.Version++ })
	case 11:
		w.change("e", func(e *endpoints.Endpoint) { e.Workers.Max, e.Workers.Min = r.IntN(7), r.IntN(3) })
	case 12:
		w.registry.refuse = []error{nil, errors.New("the disk is away")}[r.IntN(2)]
	case 13:
		w.registry.unresponsive = nil
		pick(func(id queue.WorkerID) { w.registry.unresponsive = []workers.Key{{Endpoint: "e", ID: id}} })
	}
}
