package docker

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/podyard/podyard/pods"
)

// sampleAge is how near two samples may be to tell a load.
const sampleAge = 250 * time.Millisecond

// Sample implements pods.Sampler: the CPU time since the Sample before (the first time:
// since the start), and the memory less what the kernel gives back at need. There is none
// of a pod that does not run.
func (r *Runtime) Sample(ctx context.Context, podID string) (pods.Sample, bool) {
	p := r.find(podID)
	if p == nil {
		return pods.Sample{}, false
	}
	s, _ := p.seen()
	if s.Phase != pods.Up && s.Phase != pods.Coming {
		return pods.Sample{}, false
	}
	st, err := p.stats(ctx)
	if err != nil {
		return pods.Sample{}, false
	}
	u := usage{at: st.Read, cpu: time.Duration(st.CPUStats.CPUUsage.TotalUsage)}
	if u.at.IsZero() {
		u.at = time.Now()
	}
	cores, memory := r.engine.cores, r.engine.memory
	p.mu.Lock()
	if p.limits.VCPU > 0 {
		cores = min(p.limits.VCPU, max(cores, 1))
	}
	if p.limits.Memory > 0 {
		memory = int64(p.limits.Memory) * gigabyte
	}
	p.mu.Unlock()
	got := pods.Sample{CPU: p.load.percent(u, s.Started, max(cores, 1))}
	if memory > 0 {
		got.Memory = percent(float64(working(st.MemoryStats)) / float64(memory))
	}
	return got, true
}

func (p *pod) stats(ctx context.Context) (st container.StatsResponse, err error) {
	answer, err := p.r.api.ContainerStats(ctx, p.name(), client.ContainerStatsOptions{})
	if err != nil {
		return st, err
	}
	defer func() { _ = answer.Body.Close() }() // it is only read
	return st, json.NewDecoder(answer.Body).Decode(&st)
}

// working is memory without the cache, which control groups of the first and the second
// version count under different names.
func working(m container.MemoryStats) uint64 {
	cache, ok := m.Stats["total_inactive_file"]
	if !ok {
		cache = m.Stats["inactive_file"]
	}
	return m.Usage - min(cache, m.Usage)
}

// A usage is what a pod has used at an instant.
type usage struct {
	at  time.Time
	cpu time.Duration // since the start
}

// A busyness is the load of a processor between the two latest samples.
type busyness struct {
	mu   sync.Mutex
	last usage
	load int
}

func (b *busyness) percent(u usage, started time.Time, cores int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last.at.Before(started) {
		b.last = usage{at: started}
	}
	wall := u.at.Sub(b.last.at)
	if wall < sampleAge/2 {
		return b.load // too little to tell from
	}
	b.load = percent(float64(u.cpu-b.last.cpu) / float64(wall) / float64(cores))
	b.last = u
	return b.load
}

// percent is of a share, within 0 and 100.
func percent(share float64) int {
	return int(max(0, min(100, 100*share+0.5)))
}
