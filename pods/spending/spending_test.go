package spending_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/pods/spending"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
)

const alice = "alice"

var start = time.Date(2026, time.November, 10, 12, 0, 0, 0, time.UTC)

// A wall is a clock that was set.
type wall struct {
	*clock.Manual
	by time.Duration
}

func (w *wall) Now() time.Time { return w.Manual.Now().Add(w.by) }

// A world is a server with pods at a dollar an hour for each GPU, and stores that others may share.
type world struct {
	t       *testing.T
	clock   *clock.Manual
	wall    *wall // of what is spent
	stores  *memory.Pods
	billed  billing.Store
	runtime *memory.Runtime
	limits  *budget.Set
	changed int
	storage catalog.StoragePrices

	pods     *pods.Service
	billing  *billing.Service
	spending *spending.Service
}

func newWorld(t *testing.T, c budget.Cost) *world {
	w := &world{t: t, clock: clock.NewManual(start), stores: memory.NewPods(), billed: memory.NewBilling(), limits: budget.NewSet(budget.Users{Cost: c})}
	w.wall = &wall{Manual: w.clock}
	w.runtime = memory.NewRuntime(&memory.RuntimeOptions{Clock: w.clock})
	w.open(1)
	return w
}

// open makes the services over the stores, as a server does that starts.
func (w *world) open(seed byte) {
	w.t.Helper()
	offered := catalog.Sample()
	offered.Storage = w.storage
	for i := range offered.GPUs {
		offered.GPUs[i].Price = catalog.GPUPrice{Secure: 1, Community: 1, Serverless: 1}
	}
	w.billing = billing.New(w.billed, w.wall)
	var err error
	w.pods, err = pods.New(w.stores, offered, pods.SimulatedHosts(offered, w.runtime), &pods.Options{
		Clock: w.clock, Rand: rand.NewChaCha8([32]byte{seed}), Meter: w.billing,
		Afford: func(ctx context.Context, owner string, more float64, start func() error) error {
			return w.spending.Afford(ctx, owner, more, start)
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.spending = spending.New(spending.Options{Budgets: w.limits, Billing: w.billing, Pods: w.pods, Clock: w.wall, Changed: func() { w.changed++ }})
}

// again is another server over the same stores, at the same time.
func (w *world) again(seed byte) *world {
	next := *w
	next.open(seed)
	return &next
}

func (w *world) advance(d time.Duration, others ...clock.Stepper) {
	w.t.Helper()
	if err := w.clock.Advance(w.t.Context(), d, append([]clock.Stepper{w.pods, w.spending}, others...)...); err != nil {
		w.t.Fatal(err)
	}
}

func request(gpus int) pods.CreateRequest {
	return pods.CreateRequest{Name: "p", Image: "img", GPU: &pods.GPURequest{ID: "NVIDIA GeForce RTX 4090", Count: &gpus}}
}

func (w *world) create(r pods.CreateRequest) *pods.Pod {
	w.t.Helper()
	p, err := w.pods.Create(w.t.Context(), alice, r)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) get(id string) *pods.Pod {
	w.t.Helper()
	p, err := w.pods.Get(w.t.Context(), alice, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// told are the lines about the budget in the log of a pod, with when they came. The reason of a stop is
// there when it is asked for, and when it is done.
func (w *world) told(id string) (lines []string) {
	last := ""
	for _, l := range w.get(id).Journal {
		if strings.Contains(l.Text, "costPerMonth") && l.Text != last {
			lines = append(lines, l.At.Sub(start).Round(time.Minute).String()+" "+l.Text)
			last = l.Text
		}
	}
	return lines
}

const (
	dayLine  = "the budget costPerMonth of its owner is used up within a day, about 2026-11-12 14:00 UTC, and then it is stopped: 26.00 of 50.00 USD are spent, at 1.00 USD an hour now"
	hourLine = "the budget costPerMonth of its owner is used up within an hour, about 2026-11-12 14:00 UTC, and then it is stopped: 49.00 of 50.00 USD are spent, at 1.00 USD an hour now"
	stopLine = "stopped because the budget costPerMonth of its owner is used up: 50.00 of 50.00 USD of November 2026 are spent"
)

// wantTold checks the lines about a budget of 50 USD that one pod uses up.
func (w *world) wantTold(what, id string) {
	w.t.Helper()
	want := []string{"26h0m0s " + dayLine, "49h0m0s " + hourLine, "50h0m0s " + stopLine}
	if diff := cmp.Diff(want, w.told(id)); diff != "" {
		w.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestPodsAreWarnedAndStoppedWhenTheBudgetOfTheMonthIsUsedUp(t *testing.T) {
	w := newWorld(t, budget.Cost{PerMonth: 50})
	r := request(1)
	r.Mounts = pods.Mounts{Persistent: &pods.PersistentMount{Size: 10, Path: "/data"}}
	p := w.create(r)
	if _, err := w.pods.Update(t.Context(), alice, p.ID, pods.UpdateRequest{Locked: new(true)}); err != nil {
		t.Fatal(err)
	}
	w.advance(49*time.Hour + 59*time.Minute)
	if got := w.get(p.ID); got.Status() != pods.Running {
		t.Fatalf("a minute before the end it is %s", got.Status())
	}
	w.advance(3 * time.Minute)
	got := w.get(p.ID)
	if got.Status() != pods.Exited || !got.Locked || len(got.Placement.Claims) > 0 || got.Placement.Host == "" || got.Config.Mounts.Persistent == nil {
		t.Errorf("it is %s, locked %t, with %d claims on %q: want it stopped and locked, with its disk on its host", got.Status(), got.Locked, len(got.Placement.Claims), got.Placement.Host)
	}
	w.wantTold("in its log", p.ID)

	for _, what := range []func() error{
		func() error { _, err := w.pods.Create(t.Context(), alice, request(1)); return err },
		func() error { _, err := w.pods.Act(t.Context(), alice, p.ID, pods.Start); return err },
	} {
		if err := what(); problem.KindOf(err) != problem.TooManyRequests || !strings.Contains(err.Error(), "the budget costPerMonth is used up") {
			t.Errorf("a start in the same month: %v", err)
		}
	}
	w.advance(budget.NextMonth(start).Sub(w.clock.Now()) - time.Second)
	if _, err := w.pods.Act(t.Context(), alice, p.ID, pods.Start); problem.KindOf(err) != problem.TooManyRequests {
		t.Errorf("in the last second of the month: %v", err)
	}
	w.advance(time.Second)
	if _, err := w.pods.Act(t.Context(), alice, p.ID, pods.Start); err != nil {
		t.Errorf("in the next month: %v", err)
	}
	if w.advance(time.Minute); w.get(p.ID).Status() != pods.Running {
		t.Errorf("in the next month it is %s", w.get(p.ID).Status())
	}
}

func TestARestartInTheMiddleRepeatsNoWarningAndForgetsNothing(t *testing.T) {
	w := newWorld(t, budget.Cost{PerMonth: 50})
	p := w.create(request(1))
	for i, at := range []time.Duration{10 * time.Hour, 26*time.Hour + time.Minute, 49*time.Hour + time.Minute, 49*time.Hour + 59*time.Minute} {
		w.advance(at - w.clock.Now().Sub(start))
		w = w.again(byte(i + 2))
	}
	w.advance(3 * time.Minute)
	w.wantTold("over four restarts", p.ID)
	if got := w.get(p.ID); got.Status() != pods.Exited {
		t.Errorf("it is %s, want it stopped", got.Status())
	}
}

func TestSeveralServersDoWhatOneDoes(t *testing.T) {
	w := newWorld(t, budget.Cost{PerMonth: 50})
	p := w.create(request(1))
	other := w.again(2)
	w.advance(51*time.Hour, other.spending)
	w.wantTold("with two servers", p.ID)
	if got := w.get(p.ID); got.Status() != pods.Exited {
		t.Errorf("it is %s, want it stopped", got.Status())
	}
}

// A jumped clock is one that was set: what was used goes by it, as in the reports of billing.
func TestAClockThatJumpsStopsWhatIsOverAndRepeatsNothing(t *testing.T) {
	w := newWorld(t, budget.Cost{PerMonth: 50})
	p := w.create(request(1))
	w.advance(27 * time.Hour)
	w.wall.by = 33 * time.Hour
	w.advance(time.Minute)
	if got := w.get(p.ID); got.Status() != pods.Exited || len(w.told(p.ID)) != 2 {
		t.Errorf("after a jump forward it is %s, and was told %v", got.Status(), w.told(p.ID))
	}
	before := len(w.get(p.ID).Journal)
	w.wall.by = -10 * time.Hour
	w.advance(time.Hour)
	if got := w.get(p.ID); got.Status() != pods.Exited || len(got.Journal) != before {
		t.Errorf("after a jump back it is %s, with %d lines more in its log", got.Status(), len(got.Journal)-before)
	}
}

func TestWhatRunsAtOnceStaysInTheBudgetOfAnHour(t *testing.T) {
	w := newWorld(t, budget.Cost{PerHour: 3})
	var all sync.WaitGroup
	errs := make(chan error, 20)
	for range cap(errs) {
		all.Go(func() {
			_, err := w.pods.Create(t.Context(), alice, request(1))
			errs <- err
		})
	}
	all.Wait()
	close(errs)
	made := 0
	for err := range errs {
		var full *budget.CostError
		switch {
		case err == nil:
			made++
		case !errors.As(err, &full) || full.Name != budget.CostPerHour || full.RetryAfter() != 0:
			t.Errorf("got %v", err)
		}
	}
	if made != 3 {
		t.Errorf("%d pods of a dollar were made with 3 dollars", made)
	}
	if _, err := w.pods.Create(t.Context(), "bob", request(1)); err != nil {
		t.Errorf("another user: %v", err)
	}
	list, _ := w.pods.List(t.Context(), alice)
	w.advance(time.Minute)
	if _, err := w.pods.Act(t.Context(), alice, list[0].ID, pods.Restart); err != nil {
		t.Errorf("a restart of what runs: %v", err)
	}
	if _, err := w.pods.Act(t.Context(), alice, list[0].ID, pods.Stop); err != nil {
		t.Fatal(err)
	}
	w.advance(time.Minute)
	cluster := pods.CreateClusterRequest{Name: "c", Type: pods.TrainingCluster, GPUType: "NVIDIA H100 80GB HBM3", GPUs: 1, Size: 2, Pod: pods.CreateRequest{Image: "img"}}
	if _, err := w.pods.CreateCluster(t.Context(), alice, cluster); problem.KindOf(err) != problem.TooManyRequests {
		t.Errorf("a cluster of two dollars with one left: %v", err)
	}
	w.create(request(1))
	if _, err := w.pods.Act(t.Context(), alice, list[0].ID, pods.Start); problem.KindOf(err) != problem.TooManyRequests {
		t.Errorf("a start of a stopped pod with nothing left: %v", err)
	}
	w.limits.Replace(budget.Users{Cost: budget.Cost{PerHour: 6}})
	if _, err := w.pods.CreateCluster(t.Context(), alice, cluster); err != nil {
		t.Errorf("with a larger budget: %v", err)
	}
}

func TestWorkersCountAndMayNotRunOnceTheBudgetOfTheMonthIsUsedUp(t *testing.T) {
	w := newWorld(t, budget.Cost{PerMonth: 50})
	use := pods.Usage{Owner: alice, ID: "e", Part: "w1", From: start, GPU: 5}
	observe := func() {
		if err := w.billing.Observe(t.Context(), pods.WorkerUsage, w.clock.Now(), []pods.Usage{use}); err != nil {
			t.Fatal(err)
		}
	}
	spent := func(want string, until time.Time) {
		t.Helper()
		why, at, err := w.spending.Spent(t.Context(), alice)
		if err != nil || !strings.Contains(why, want) || (why == "") != (want == "") || !at.Equal(until) {
			t.Errorf("after %v: %q until %v, %v; want %q until %v", w.clock.Now().Sub(start), why, at, err, want, until)
		}
	}
	observe()
	w.advance(10*time.Hour - time.Minute)
	observe()
	spent("", time.Time{})
	w = w.again(2) // a server that has observed nothing yet
	w.advance(time.Minute + time.Second)
	spent("costPerMonth", budget.NextMonth(start))
	if w.changed != 1 {
		t.Errorf("the scaler was woken %d times", w.changed)
	}
	if _, err := w.pods.Create(t.Context(), alice, request(1)); problem.KindOf(err) != problem.TooManyRequests {
		t.Errorf("a pod: %v", err)
	}
	w.limits.Replace(budget.Users{Cost: budget.Cost{PerMonth: 60}})
	spent("", time.Time{})
	w.limits.Replace(budget.Users{Cost: budget.Cost{PerMonth: 50}})
	spent("costPerMonth", budget.NextMonth(start))
	w.advance(budget.NextMonth(start).Sub(w.clock.Now()))
	spent("", time.Time{})
}

func TestADiskThatGrowsIsRefusedPastTheBudgetOfAnHour(t *testing.T) {
	w := newWorld(t, budget.Cost{PerHour: 2})
	w.storage.Disk = 730 // a dollar an hour for each GB
	w.open(2)
	r := request(1)
	r.Disk = new(1)
	p := w.create(r)
	w.advance(time.Minute)
	if _, err := w.pods.Update(t.Context(), alice, p.ID, pods.UpdateRequest{Disk: new(2)}); err != nil {
		t.Fatal(err)
	}
	for _, a := range []pods.Action{pods.Restart, pods.Reset} {
		before := w.get(p.ID)
		if _, err := w.pods.Act(t.Context(), alice, p.ID, a); problem.KindOf(err) != problem.TooManyRequests || !strings.Contains(err.Error(), "costPerHour") {
			t.Errorf("%s with a disk of a dollar an hour more: %v", a, err)
		}
		if diff := cmp.Diff(before, w.get(p.ID)); diff != "" {
			t.Errorf("a %s that is refused changes the pod (-before +after):\n%s", a, diff)
		}
	}
	w.limits.Replace(budget.Users{Cost: budget.Cost{PerHour: 3}})
	if _, err := w.pods.Act(t.Context(), alice, p.ID, pods.Restart); err != nil {
		t.Errorf("within the budget: %v", err)
	}
}
