package serverless_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/serverless"
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
				e.Scaling = serverless.Scaling{Type: serverless.RequestCount, Count: 2}
			}
			y := newYard(t, e)
			var refs []serverless.Ref
			for range 60 {
				chaos(t, y, r, &refs)
				time.Sleep(time.Duration(r.IntN(5000)) * time.Millisecond)
			}
			y.staff.mu.Lock()
			y.staff.room = 0
			most := y.staff.most
			y.staff.mu.Unlock()
			y.change(t, func(e *serverless.Endpoint) {
				e.Workers.Min, e.Workers.Max, e.Container.Image, e.Version = 0, 4, "works", e.Version+1
			})
			time.Sleep(5 * time.Minute)
			for _, ref := range refs {
				j, err := y.Get(t.Context(), "alice", ref)
				if err == nil && j.Status == serverless.InQueue && j.Flags&serverless.LowPriority != 0 {
					continue // no worker starts for it
				}
				if err != nil || j.Status != serverless.Completed && j.Reason != serverless.WorkersLost {
					why, _ := y.Why(t.Context(), "alice", ref)
					t.Errorf("seed %d: job %s is %v, %v: %s", seed, ref.ID, j.Status, err, why)
				}
			}
			if n := y.there(); n != 0 {
				t.Errorf("seed %d: %d workers are left without a job", seed, n)
			}
			if most > 6 {
				t.Errorf("seed %d: %d workers at once, and the maximum was never above 6", seed, most)
			}
		})
	}
}

// chaos does one thing to the yard.
func chaos(t *testing.T, y *yard, r *rand.Rand, refs *[]serverless.Ref) {
	t.Helper()
	switch r.IntN(12) {
	case 0, 1, 2, 3, 4:
		for range r.IntN(6) {
			*refs = append(*refs, y.submit(t, 1, r.IntN(5) == 0).Ref)
		}
	case 5, 6: // a worker dies
		y.staff.mu.Lock()
		var victim *hired
		for _, w := range y.staff.started {
			if h := y.staff.workers[w.ID]; h != nil && h.fw.State == serverless.FleetUp && r.IntN(2) == 0 {
				victim = h
			}
		}
		y.staff.mu.Unlock()
		if victim != nil {
			victim.kill()
		}
	case 7:
		y.change(t, func(e *serverless.Endpoint) {
			e.Container.Image = []string{"works", "works", "crash", "dies later"}[r.IntN(4)]
			e.Version++
		})
	case 8:
		y.change(t, func(e *serverless.Endpoint) {
			e.Workers.Max = r.IntN(7)
			e.Workers.Min = r.IntN(3)
		})
	case 9:
		y.staff.mu.Lock()
		y.staff.room = r.IntN(4)
		y.staff.mu.Unlock()
	case 10:
		y.stop()
		y.open(t, "secret")
	case 11:
		time.Sleep(time.Minute)
	}
}
