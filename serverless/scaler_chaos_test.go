package serverless_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/fleet"
	"github.com/podyard/podyard/serverless/queue"
)

// TestWhateverHappensToWorkersTheirJobsEnd has workers die, the fleet be full or refuse,
// releases and limits change and the service be restarted, in an order that a seed
// decides, and then waits for what must hold all the same.
func TestWhateverHappensToWorkersTheirJobsEnd(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			e := image("works", 0, 4)
			if seed%2 == 1 {
				e.Scaling = endpoints.Scaling{Type: endpoints.RequestCount, Count: 2}
			}
			svc := newScaledService(t, e)
			var refs []serverless.Ref
			for range 60 {
				chaos(t, svc, r, &refs)
				time.Sleep(time.Duration(r.IntN(5000)) * time.Millisecond)
			}
			svc.fleet.mu.Lock()
			svc.fleet.room = 0
			most := svc.fleet.most
			svc.fleet.mu.Unlock()
			svc.change(t, func(e *serverless.Endpoint) {
				e.Workers.Min, e.Workers.Max, e.Container.Image, e.Version = 0, 4, "works", e.Version+1
			})
			time.Sleep(5 * time.Minute)
			for _, ref := range refs {
				j, err := svc.Get(t.Context(), "alice", ref)
				if err == nil && j.Status == serverless.InQueue && j.Flags&queue.LowPriority != 0 {
					continue // no worker starts for it
				}
				if err != nil || j.Status != serverless.Completed && j.Reason != queue.WorkersLost {
					why, _ := svc.Why(t.Context(), "alice", ref)
					t.Errorf("seed %d: job %s is %v, %v: %s", seed, ref.ID, j.Status, err, why)
				}
			}
			if n := svc.there(); n != 0 {
				t.Errorf("seed %d: %d workers are left without a job", seed, n)
			}
			if most > 6 {
				t.Errorf("seed %d: %d workers at once, and the maximum was never above 6", seed, most)
			}
		})
	}
}

// chaos does one thing to the service.
func chaos(t *testing.T, svc *scaledService, r *rand.Rand, refs *[]serverless.Ref) {
	t.Helper()
	switch r.IntN(12) {
	case 0, 1, 2, 3, 4:
		for range r.IntN(6) {
			*refs = append(*refs, svc.submit(t, 1, r.IntN(5) == 0).Ref)
		}
	case 5, 6: // a worker dies
		svc.fleet.mu.Lock()
		var victim *goroutineWorker
		for _, w := range svc.fleet.started {
			if h := svc.fleet.workers[w.ID]; h != nil && h.fw.State == fleet.InstanceRunning && r.IntN(2) == 0 {
				victim = h
			}
		}
		svc.fleet.mu.Unlock()
		if victim != nil {
			victim.kill()
		}
	case 7:
		svc.change(t, func(e *serverless.Endpoint) {
			e.Container.Image = []string{"works", "works", "crash", "dies later"}[r.IntN(4)]
			e.Version++
		})
	case 8:
		svc.change(t, func(e *serverless.Endpoint) {
			e.Workers.Max = r.IntN(7)
			e.Workers.Min = r.IntN(3)
		})
	case 9:
		svc.fleet.mu.Lock()
		svc.fleet.room = r.IntN(4)
		svc.fleet.mu.Unlock()
	case 10:
		svc.stop()
		svc.open(t, "secret")
	case 11:
		time.Sleep(time.Minute)
	}
}
