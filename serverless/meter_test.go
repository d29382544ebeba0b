package serverless_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/serverless"
)

// A tally is a Meter that keeps what it is told, and fails while told to.
type tally struct {
	mu    sync.Mutex
	err   error
	calls []time.Time
	uses  map[serverless.WorkerID]serverless.WorkerUse // the last word on each
	on    []serverless.WorkerID                        // those of the last call that go on
}

func (m *tally) Observe(_ context.Context, at time.Time, uses []serverless.WorkerUse) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, at)
	if m.err != nil {
		return m.err
	}
	if m.uses == nil {
		m.uses = map[serverless.WorkerID]serverless.WorkerUse{}
	}
	m.on = nil
	for _, u := range uses {
		m.uses[u.Worker] = u
		if u.To.IsZero() {
			m.on = append(m.on, u.Worker)
		}
	}
	slices.Sort(m.on)
	return nil
}

func (m *tally) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// all is the last word on each worker, by when it began.
func (m *tally) all() (list []serverless.WorkerUse) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range m.uses {
		list = append(list, u)
	}
	slices.SortFunc(list, func(a, b serverless.WorkerUse) int {
		return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Worker, b.Worker))
	})
	return list
}

func (m *tally) goOn() []serverless.WorkerID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.on)
}

func TestAWorkerIsMeteredFromWhenTheFleetHasItUntilItIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		e := image("works", 1, 1)
		e.Container.Disk = 7
		y := newYard(t, e)
		time.Sleep(10 * time.Second)
		list := y.meter.all()
		if len(list) != 1 {
			t.Fatalf("%d workers are metered, want 1", len(list))
		}
		want := serverless.WorkerUse{
			Endpoint: "e", Worker: y.first().ID, Owner: "alice", From: list[0].From, CPU: "cpu5c", VCPUs: 2, Disk: 7,
		}
		if diff := gocmp.Diff(want, list[0]); diff != "" {
			t.Errorf("while it is there (-want +got):\n%s", diff)
		}
		if d := list[0].From.Sub(began); d != 50*time.Millisecond {
			t.Errorf("it begins after %v, want the 50 ms in which the fleet took it on", d)
		}
		time.Sleep(time.Hour)
		stopped := time.Now()
		y.change(t, func(e *serverless.Endpoint) { e.Workers.Min, e.Workers.Max = 0, 0 })
		time.Sleep(time.Minute)
		list = y.meter.all()
		if d := list[0].To.Sub(stopped); len(list) != 1 || d < 0 || d > 15*time.Second {
			t.Errorf("%d workers, the first one ends %v after it was one too many, want one and soon", len(list), d)
		}
		if on := y.meter.goOn(); len(on) != 0 {
			t.Errorf("%v go on in the end, want none", on)
		}
		y.meter.mu.Lock()
		n := len(y.meter.calls)
		y.meter.mu.Unlock()
		if n < 60 || n > 70 {
			t.Errorf("the meter was called %d times in an hour, want once a minute and at each change", n)
		}
	})
}

func TestAWorkerThatDiesIsMeteredUntilThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, image("works", 1, 1))
		time.Sleep(time.Minute)
		died := time.Now()
		y.staff.mu.Lock()
		h := y.staff.workers[y.staff.started[0].ID]
		y.staff.mu.Unlock()
		h.kill()
		time.Sleep(10 * time.Second)
		list := y.meter.all()
		if len(list) != 2 || !list[0].To.Equal(died) || !list[1].To.IsZero() || !list[1].From.After(died) {
			t.Errorf("metered are %+v, want one until %v and the next one from then on", list, died)
		}
	})
}

func TestWhatTheMeterRefusesItIsToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, image("works", 1, 1))
		time.Sleep(10 * time.Second)
		y.meter.fail(errors.New("the disk is full"))
		y.change(t, func(e *serverless.Endpoint) { e.Workers.Min, e.Workers.Max = 0, 0 })
		time.Sleep(30 * time.Second)
		if list := y.meter.all(); len(list) != 1 || !list[0].To.IsZero() {
			t.Errorf("metered are %+v, want one that goes on", list)
		}
		if n := strings.Count(y.log.String(), "the disk is full"); n < 2 || n > 40 {
			t.Errorf("%d lines say so in 30 s, want some", n)
		}
		y.meter.fail(nil)
		time.Sleep(2 * time.Second)
		if list := y.meter.all(); len(list) != 1 || list[0].To.IsZero() || time.Since(list[0].To) < 10*time.Second {
			t.Errorf("metered are %+v, want one that ended when it did", list)
		}
	})
}

func TestAServiceThatComesAfterAnotherMetersWhatItFinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, image("works", 3, 3))
		time.Sleep(10 * time.Second)
		before := y.meter.goOn()
		stopped := time.Now()
		y.stop()
		if at := y.meter.calls[len(y.meter.calls)-1]; len(before) != 3 || !at.Equal(stopped) {
			t.Errorf("%d workers go on, told last at %v, want three at the end, %v", len(before), at, stopped)
		}
		time.Sleep(time.Hour)
		y.staff.mu.Lock()
		y.staff.workers[before[0]].cancel()
		delete(y.staff.workers, before[0])
		y.staff.workers[before[1]].kill()
		y.staff.mu.Unlock()
		synctest.Wait()
		y.open(t, "secret")
		time.Sleep(5 * time.Second)
		on := y.meter.goOn()
		if slices.Contains(on, before[0]) || slices.Contains(on, before[1]) || !slices.Contains(on, before[2]) {
			t.Errorf("%v go on, want of %v the one that is left", on, before)
		}
		for _, id := range before[:2] {
			if u := y.meter.uses[id]; !u.To.IsZero() {
				t.Errorf("one that ended while nobody looked is metered until %v, want that nobody says", u.To)
			}
		}
		if u := y.meter.uses[before[2]]; u.Owner != "alice" || u.VCPUs != 2 {
			t.Errorf("the one that was found is %+v, want alice's", u)
		}
	})
}
