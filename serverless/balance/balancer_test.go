package balance_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/serverless/balance"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/fleet"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/workers"
)

// A world has a Balancer whose workers answer health checks as the test says.
type world struct {
	*balance.Balancer
	t *testing.T

	mu      sync.Mutex
	status  map[string]int // of checks, by worker; 0: no answer
	checks  map[string]int
	changes int
	list    []fleet.Status
}

func bubble(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, status: map[string]int{}, checks: map[string]int{}}
		w.Balancer = balance.New(balance.Options{
			Clock: clock.System{}, Prober: w, Address: func(k workers.Key, port int) (string, bool) { return fmt.Sprint(k.ID, ":", port), true },
			Changed: func(string) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.changes++
			},
		})
		defer w.Close()
		f(w)
	})
}

// Probe implements balance.Prober.
func (w *world) Probe(_ context.Context, address, path string) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id, port, _ := strings.Cut(address, ":")
	if port != "81" || path != "/ok" {
		w.t.Errorf("a check of %s%s", address, path)
	}
	w.checks[id]++
	if w.status[id] == 0 {
		return 0, errors.New("connection refused")
	}
	return w.status[id], nil
}

var web = &endpoints.Endpoint{ID: "web", Type: endpoints.LoadBalancerType, Container: endpoints.Container{
	Env: map[string]string{"PORT": "80", "PORT_HEALTH": "81", "HEALTH_CHECK_PATH": "/ok"},
}}

// start adds workers that answer checks with a status.
func (w *world) start(status int, ids ...queue.WorkerID) {
	for _, id := range ids {
		w.set(id, status)
		w.list = append(w.list, fleet.Status{Instance: fleet.Instance{Endpoint: "web", ID: id, State: fleet.InstanceRunning}, State: fleet.Starting})
	}
	w.Sync(w.t.Context(), web, w.list)
	synctest.Wait()
}

func (w *world) set(id queue.WorkerID, status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status[string(id)] = status
}

// acquire returns the id of the worker and its lease, or "" if there was none within d.
func (w *world) acquire(d time.Duration, a balance.Affinity) (string, *balance.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	l, err := w.Acquire(ctx, "web", a)
	if err != nil {
		if !errors.Is(err, balance.ErrNoWorkers) {
			w.t.Errorf("Acquire = %v", err)
		}
		return "", nil
	}
	return string(l.Target().Worker.ID), l
}

// now acquires without a wait and releases at once.
func (w *world) now() string {
	id, l := w.acquire(time.Nanosecond, balance.Affinity{})
	if l != nil {
		l.Release()
	}
	return id
}

func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestWhatAnAnswerToACheckMeans(t *testing.T) {
	for status, want := range map[int]balance.Health{200: balance.Healthy, 204: balance.Starting, 201: balance.Unhealthy, 302: balance.Unhealthy, 404: balance.Unhealthy, 500: balance.Unhealthy, 0: balance.Unhealthy} {
		if got := balance.HealthOf(status, nil); got != want {
			t.Errorf("HealthOf(%d) = %d, want %d", status, got, want)
		}
	}
	if got := balance.HealthOf(200, errors.New("cut off")); got != balance.Unhealthy {
		t.Errorf("a check that fails = %d", got)
	}
}

func TestAWorkerIsInRotationWhileItIsHealthy(t *testing.T) {
	bubble(t, func(w *world) {
		w.start(204, "a")
		if got := w.now(); got != "" || len(w.List("web")) != 0 {
			t.Errorf("a starting worker gets a request: %q, and is listed: %v", got, w.List("web"))
		}
		w.set("a", 200)
		advance(time.Second)
		if got := w.now(); got != "a" {
			t.Errorf("a healthy worker gets none: %q", got)
		}
		for _, status := range []int{500, 204, 0} {
			w.set("a", status)
			advance(6 * time.Second)
			if got := w.now(); got != "" {
				t.Errorf("after a check with %d it gets a request", status)
			}
			if v, ok := w.View(workers.Key{Endpoint: "web", ID: "a"}); !ok || v.Unhealthy != "" {
				t.Errorf("after a check with %d it is %v %v", status, v, ok)
			}
			w.set("a", 200)
			advance(time.Second)
			if got := w.now(); got != "a" {
				t.Errorf("it does not come back after %d", status)
			}
		}
	})
}

func TestAWorkerWithoutASuccessfulCheckForEightMinutesIsReplaced(t *testing.T) {
	bubble(t, func(w *world) {
		w.start(200, "a", "b")
		w.set("a", 500)
		advance(balance.DeadTime - time.Second)
		for _, v := range w.List("web") {
			if v.Unhealthy != "" {
				t.Errorf("%s is reported too early", v.ID)
			}
		}
		advance(7 * time.Second)
		list := w.List("web")
		if len(list) != 2 || list[0].Unhealthy == "" || list[1].Unhealthy != "" {
			t.Errorf("after 8 minutes: %v", list)
		}
	})
}

func TestFewestRequestsFirstThenInTurn(t *testing.T) {
	bubble(t, func(w *world) {
		w.start(200, "a", "b", "c")
		var got []string
		var leases []*balance.Lease
		for range 6 {
			id, l := w.acquire(time.Nanosecond, balance.Affinity{})
			got, leases = append(got, id), append(leases, l)
		}
		if !slices.Equal(got, []string{"a", "b", "c", "a", "b", "c"}) {
			t.Errorf("the choice is %v", got)
		}
		if d := w.Demand("web"); d.Running != 6 || d.Waiting != 0 || w.Busy("web") != 3 {
			t.Errorf("demand is %v, %d busy", d, w.Busy("web"))
		}
		leases[1].Release()
		leases[1].Release() // has no effect
		if got := w.now(); got != "b" {
			t.Errorf("the worker with the fewest requests is b, not %s", got)
		}
		for _, l := range leases {
			l.Release()
		}
		if d := w.Demand("web"); d.Running != 0 {
			t.Errorf("after all, %d run", d.Running)
		}
	})
}

func TestRequestsThatWaitAreServedInTheirOrder(t *testing.T) {
	bubble(t, func(w *world) {
		got := make(chan string, 10)
		for i := range 5 {
			go func() {
				_, l := w.acquire(time.Hour, balance.Affinity{})
				time.Sleep(time.Duration(i) * time.Nanosecond) // shows who was first
				got <- fmt.Sprint(i)
				l.Release()
			}()
			advance(time.Second)
		}
		since := queue.At(time.Now().Add(-5 * time.Second))
		if d := w.Demand("web"); d.Waiting != 5 || d.Oldest != since {
			t.Errorf("demand is %v, want 5 since %v", d, since)
		}
		w.start(200, "a")
		for i := range 5 {
			if id := <-got; id != fmt.Sprint(i) {
				t.Errorf("request %s comes at place %d", id, i)
			}
		}
	})
}

func TestARequestGivesUpWhenItsContextEnds(t *testing.T) {
	bubble(t, func(w *world) {
		begin := time.Now()
		if id, _ := w.acquire(time.Minute, balance.Affinity{}); id != "" || time.Since(begin) != time.Minute {
			t.Errorf("got %q after %v", id, time.Since(begin))
		}
		if d := w.Demand("web"); d.Waiting != 0 {
			t.Errorf("it still waits: %v", d)
		}
		ended := make(chan error)
		go func() {
			_, err := w.Acquire(w.t.Context(), "web", balance.Affinity{})
			ended <- err
		}()
		synctest.Wait()
		w.Forget("web")
		if err := <-ended; !errors.Is(err, endpoints.ErrNotFound) {
			t.Errorf("after the endpoint was deleted: %v", err)
		}
	})
}

func TestAffinity(t *testing.T) {
	bubble(t, func(w *world) {
		w.start(200, "a", "b")
		w.start(204, "c")
		for _, test := range []struct {
			affinity balance.Affinity
			wait     time.Duration
			want     string
			took     time.Duration
		}{
			{balance.Affinity{Worker: "b"}, time.Minute, "b", 0},
			{balance.Affinity{Worker: "b", Strict: true}, time.Minute, "b", 0},
			{balance.Affinity{Worker: "gone"}, time.Minute, "a", 0},
			{balance.Affinity{Worker: "gone", Strict: true}, time.Minute, "", 0},
			{balance.Affinity{Worker: "c", Strict: true}, time.Minute, "", time.Minute}, // it may become healthy
		} {
			begin := time.Now()
			id, l := w.acquire(test.wait, test.affinity)
			if id != test.want || time.Since(begin) != test.took {
				t.Errorf("%v gets %q after %v, want %q after %v", test.affinity, id, time.Since(begin), test.want, test.took)
			}
			if l != nil {
				l.Release()
			}
		}
		ended := make(chan string)
		go func() {
			id, _ := w.acquire(time.Hour, balance.Affinity{Worker: "c", Strict: true})
			ended <- id
		}()
		synctest.Wait()
		w.Remove(workers.Key{Endpoint: "web", ID: "c"})
		if id := <-ended; id != "" {
			t.Errorf("a wait for a worker that goes gets %q", id)
		}
	})
}

func TestADrainingWorkerKeepsItsRequestsForDrainTime(t *testing.T) {
	bubble(t, func(w *world) {
		w.start(200, "a")
		k := workers.Key{Endpoint: "web", ID: "a"}
		_, l := w.acquire(time.Second, balance.Affinity{})
		var ended atomic.Int32
		l.OnEnd(func() { ended.Add(1) })
		if !w.Drain(k) || w.Drain(workers.Key{Endpoint: "web", ID: "x"}) {
			t.Error("Drain reports the wrong workers")
		}
		if got := w.now(); got != "" {
			t.Errorf("a draining worker gets a request")
		}
		advance(balance.DrainTime - time.Second)
		if v, _ := w.View(k); ended.Load() != 0 || !v.Draining || v.Requests != 1 {
			t.Errorf("while it drains: ended %d, %v", ended.Load(), v)
		}
		advance(time.Second)
		if n := ended.Load(); n != 1 {
			t.Errorf("after %v the request is told to end %d times", balance.DrainTime, n)
		}
		late := 0
		l.OnEnd(func() { late++ })
		if late != 1 {
			t.Error("what is set after the end is not called")
		}
		l.Release()
		if v, _ := w.View(k); v.Requests != 0 {
			t.Errorf("%v", v)
		}
	})
}

func TestAnUnreachableWorkerLeavesTheRotationUntilItsNextCheck(t *testing.T) {
	bubble(t, func(w *world) {
		w.start(200, "a")
		_, l := w.acquire(time.Second, balance.Affinity{})
		w.set("a", 0)
		l.Unreachable()
		l.Release()
		synctest.Wait()
		if got := w.now(); got != "" {
			t.Error("an unreachable worker gets a request")
		}
		w.set("a", 200)
		advance(time.Second)
		if got := w.now(); got != "a" {
			t.Error("it does not come back")
		}
	})
}

func TestWorkersThatEndAreForgotten(t *testing.T) {
	bubble(t, func(w *world) {
		w.start(200, "a", "b")
		_, l := w.acquire(time.Second, balance.Affinity{Worker: "a"})
		ended := 0
		l.OnEnd(func() { ended++ })
		w.list[0].State = fleet.Lost
		w.Sync(w.t.Context(), web, w.list)
		if got := w.now(); got != "b" || ended != 1 || len(w.List("web")) != 1 {
			t.Errorf("after a worker was lost %q gets requests, %d requests have ended, %v", got, ended, w.List("web"))
		}
		if d := w.Demand("web"); d.Running != 1 {
			t.Errorf("a request that has not ended does not count: %v", d)
		}
		l.Release()
		checks := func() int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.checks["a"]
		}
		before := checks()
		advance(time.Minute)
		if checks() != before {
			t.Error("a worker that is gone is still checked")
		}
	})
}

func TestALocalWorkerLeavesWhenItsRequestsHaveEnded(t *testing.T) {
	dial := func(context.Context) (net.Conn, error) { return nil, errors.New("never called") }
	bubble(t, func(w *world) {
		l := w.JoinLocal("web", "a", dial)
		if l == nil || w.JoinLocal("web", "a", dial) != nil {
			t.Fatal("an id is given twice")
		}
		_, lease := w.acquire(time.Second, balance.Affinity{})
		ended := 0
		lease.OnEnd(func() { ended++ })
		time.AfterFunc(5*time.Second, lease.Release)
		begin := time.Now()
		l.Leave(w.t.Context(), 10*time.Second)
		if took := time.Since(begin); took != 5*time.Second || len(w.List("web")) != 0 {
			t.Errorf("it leaves after %v: %v", took, w.List("web"))
		}
		l = w.JoinLocal("web", "b", dial)
		_, lease = w.acquire(time.Second, balance.Affinity{})
		lease.OnEnd(func() { ended++ })
		begin = time.Now()
		l.Leave(w.t.Context(), 10*time.Second)
		if took := time.Since(begin); took != 11*time.Second || ended != 1 {
			t.Errorf("with a request that does not end: %v, %d endings", took, ended)
		}
		lease.Release()
	})
}
