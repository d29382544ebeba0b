package memory_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
)

// BenchmarkSimulatedPods creates pods from eight goroutines while the loop brings them to
// RUNNING. It measures the memory of 100,000 pods and the time to list the ten pods of a user.
// Run it with -benchtime=100000x.
func BenchmarkSimulatedPods(b *testing.B) {
	store := memory.NewPods()
	rt := memory.NewRuntime(&memory.RuntimeOptions{Scripts: []memory.Script{{Image: "*", Stages: []memory.Stage{
		{Phase: pods.PhasePulling},
		{Phase: pods.PhaseStarting, After: 10 * time.Millisecond},
		{Phase: pods.PhaseHealthy, After: 10 * time.Millisecond},
	}}}})
	c := catalog.Local(1<<20, 1<<30)
	host := pods.Host{ID: "big", DataCenter: catalog.LocalDataCenter, Runtime: rt, VCPU: map[string]int{catalog.HostFlavor: 1 << 24}}
	s, err := pods.New(store, c, []pods.Host{host}, nil)
	if err != nil {
		b.Fatal(err)
	}
	before := heap()
	ctx, cancel := context.WithCancel(b.Context())
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	var mu sync.Mutex
	up, all := make(map[string]bool), make(chan struct{})
	rt.Notify(func(st pods.ContainerState) {
		mu.Lock()
		defer mu.Unlock()
		if st.Phase == pods.PhaseHealthy && !up[st.PodID] {
			up[st.PodID] = true
			if len(up) == b.N {
				close(all)
			}
		}
	})
	background.Go(func() { _ = s.Run(ctx) })

	b.ResetTimer()
	create(ctx, b, s, b.N)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
	<-all
	settle(ctx, b, s, b.N)
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "running/s")
	mu.Lock()
	clear(up)
	mu.Unlock()
	b.ReportMetric(float64(heap()-before)/float64(b.N), "B/pod")

	const lists = 1000
	began := time.Now()
	for i := range lists {
		if _, err := s.List(ctx, user(i%max(1, b.N/10))); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(time.Since(began).Microseconds())/lists, "µs/list")
}

func user(i int) string { return fmt.Sprintf("user%d", i) }

// create makes n pods, ten for each user, from eight goroutines.
func create(ctx context.Context, b *testing.B, s *pods.Service, n int) {
	var callers sync.WaitGroup
	for c := range 8 {
		callers.Go(func() {
			for i := c; i < n; i += 8 {
				_, err := s.Create(ctx, user(i/10), pods.CreateRequest{
					Name: "p", Image: "img", CPU: &pods.CPURequest{ID: catalog.HostFlavor, VCPU: 2},
					Env: map[string]string{"A": "b"}, Ports: []string{"8080/http"},
				})
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
}

// settle waits until the loop has stored that the pods run.
func settle(ctx context.Context, b *testing.B, s *pods.Service, n int) {
	for i := range (n + 9) / 10 {
		for {
			list, err := s.List(ctx, user(i))
			if err != nil {
				b.Fatal(err)
			}
			if !slices.ContainsFunc(list, func(p *pods.Pod) bool { return p.Status() != pods.Running }) {
				break
			}
			time.Sleep(time.Millisecond) // so that the loop has the processors
		}
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
