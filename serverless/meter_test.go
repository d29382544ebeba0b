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
	"github.com/podyard/podyard/serverless/fleet"
)

// A recordingMeter is a Meter that keeps what it is told, and fails while told to.
type recordingMeter struct {
	mu    sync.Mutex
	err   error
	calls []time.Time
	uses  map[serverless.WorkerID]fleet.WorkerUse // the last word on each
	open  []serverless.WorkerID                   // those of the last call that go on
}

func (m *recordingMeter) Observe(_ context.Context, at time.Time, uses []fleet.WorkerUse) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, at)
	if m.err != nil {
		return m.err
	}
	if m.uses == nil {
		m.uses = map[serverless.WorkerID]fleet.WorkerUse{}
	}
	m.open = nil
	for _, u := range uses {
		m.uses[u.Worker] = u
		if u.To.IsZero() {
			m.open = append(m.open, u.Worker)
		}
	}
	slices.Sort(m.open)
	return nil
}

func (m *recordingMeter) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// all is the last word on each worker, by when it began.
func (m *recordingMeter) all() (list []fleet.WorkerUse) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range m.uses {
		list = append(list, u)
	}
	slices.SortFunc(list, func(a, b fleet.WorkerUse) int {
		return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Worker, b.Worker))
	})
	return list
}

func (m *recordingMeter) running() []serverless.WorkerID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.open)
}

func TestAWorkerIsMeteredFromWhenTheFleetHasItUntilItIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		e := image("works", 1, 1)
		e.Container.Disk = 7
		svc := newScaledService(t, e)
		time.Sleep(10 * time.Second)
		list := svc.meter.all()
		if len(list) != 1 {
			t.Fatalf("%d workers are metered, want 1", len(list))
		}
		want := fleet.WorkerUse{
			Endpoint: "e", Worker: svc.first().ID, Owner: "alice", From: list[0].From, CPU: "cpu5c", VCPUs: 2, Disk: 7,
		}
		if diff := gocmp.Diff(want, list[0]); diff != "" {
			t.Errorf("while it is there (-want +got):\n%s", diff)
		}
		if d := list[0].From.Sub(began); d != 50*time.Millisecond {
			t.Errorf("it begins after %v, want the 50 ms in which the fleet took it on", d)
		}
		time.Sleep(time.Hour)
		stopped := time.Now()
		svc.change(t, func(e *serverless.Endpoint) { e.Workers.Min, e.Workers.Max = 0, 0 })
		time.Sleep(time.Minute)
		list = svc.meter.all()
		if d := list[0].To.Sub(stopped); len(list) != 1 || d < 0 || d > 15*time.Second {
			t.Errorf("%d workers, the first one ends %v after it was one too many, want one and soon", len(list), d)
		}
		if on := svc.meter.running(); len(on) != 0 {
			t.Errorf("%v go on in the end, want none", on)
		}
		svc.meter.mu.Lock()
		n := len(svc.meter.calls)
		svc.meter.mu.Unlock()
		if n < 60 || n > 70 {
			t.Errorf("the meter was called %d times in an hour, want once a minute and at each change", n)
		}
	})
}

func TestAWorkerThatDiesIsMeteredUntilThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("works", 1, 1))
		time.Sleep(time.Minute)
		died := time.Now()
		svc.fleet.mu.Lock()
		h := svc.fleet.workers[svc.fleet.started[0].ID]
		svc.fleet.mu.Unlock()
		h.kill()
		time.Sleep(10 * time.Second)
		list := svc.meter.all()
		if len(list) != 2 || !list[0].To.Equal(died) || !list[1].To.IsZero() || !list[1].From.After(died) {
			t.Errorf("metered are %+v, want one until %v and the next one from then on", list, died)
		}
	})
}

func TestUsesThatTheMeterRefusesAreReportedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("works", 1, 1))
		time.Sleep(10 * time.Second)
		svc.meter.fail(errors.New("the disk is full"))
		svc.change(t, func(e *serverless.Endpoint) { e.Workers.Min, e.Workers.Max = 0, 0 })
		time.Sleep(30 * time.Second)
		if list := svc.meter.all(); len(list) != 1 || !list[0].To.IsZero() {
			t.Errorf("metered are %+v, want one that goes on", list)
		}
		if n := strings.Count(svc.log.String(), "the disk is full"); n < 2 || n > 40 {
			t.Errorf("%d lines say so in 30 s, want some", n)
		}
		svc.meter.fail(nil)
		time.Sleep(2 * time.Second)
		if list := svc.meter.all(); len(list) != 1 || list[0].To.IsZero() || time.Since(list[0].To) < 10*time.Second {
			t.Errorf("metered are %+v, want one that ended when it did", list)
		}
	})
}

func TestAServiceThatComesAfterAnotherMetersWhatItFinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("works", 3, 3))
		time.Sleep(10 * time.Second)
		before := svc.meter.running()
		stopped := time.Now()
		svc.stop()
		if at := svc.meter.calls[len(svc.meter.calls)-1]; len(before) != 3 || !at.Equal(stopped) {
			t.Errorf("%d workers go on, told last at %v, want three at the end, %v", len(before), at, stopped)
		}
		time.Sleep(time.Hour)
		svc.fleet.mu.Lock()
		svc.fleet.workers[before[0]].cancel()
		delete(svc.fleet.workers, before[0])
		svc.fleet.workers[before[1]].kill()
		svc.fleet.mu.Unlock()
		synctest.Wait()
		svc.open(t, "secret")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		on := svc.meter.running()
		if slices.Contains(on, before[0]) || slices.Contains(on, before[1]) || !slices.Contains(on, before[2]) {
			t.Errorf("%v go on, want of %v the one that is left", on, before)
		}
		for _, id := range before[:2] {
			if u := svc.meter.uses[id]; !u.To.IsZero() {
				t.Errorf("one that ended while nobody looked is metered until %v, want that nobody says", u.To)
			}
		}
		if u := svc.meter.uses[before[2]]; u.Owner != "alice" || u.VCPUs != 2 {
			t.Errorf("the one that was found is %+v, want alice's", u)
		}
	})
}
