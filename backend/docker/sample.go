package docker

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/podyard/podyard/internal/podhost"
	"github.com/podyard/podyard/pods"
)

// Sample implements pods.Sampler. CPU is the use since the previous Sample, or since the
// start at the first one. Memory leaves out the cache that the kernel can free. It returns
// false for a pod that does not run.
func (r *Runtime) Sample(ctx context.Context, podID string) (pods.Sample, bool) {
	p := r.pods.Find(podID)
	if p == nil {
		return pods.Sample{}, false
	}
	s, _ := p.currentState()
	if s.Phase != pods.PhaseHealthy && s.Phase != pods.PhaseStarting {
		return pods.Sample{}, false
	}
	st, err := p.stats(ctx)
	if err != nil {
		return pods.Sample{}, false
	}
	u := podhost.CPUUsage{At: st.Read, CPU: time.Duration(st.CPUStats.CPUUsage.TotalUsage)}
	if u.At.IsZero() {
		u.At = time.Now()
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
	got := pods.Sample{CPU: p.load.Sample(u, s.Started, max(cores, 1))}
	if memory > 0 {
		got.Memory = podhost.Percent(float64(workingSet(st.MemoryStats)) / float64(memory))
	}
	return got, true
}

func (p *pod) stats(ctx context.Context) (st container.StatsResponse, err error) {
	answer, err := p.r.api.ContainerStats(ctx, p.name(), client.ContainerStatsOptions{})
	if err != nil {
		return st, err
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	return st, json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(&st)
}

// workingSet returns the memory without the inactive file cache. Its name differs between
// cgroup v1 and v2.
func workingSet(m container.MemoryStats) uint64 {
	cache, ok := m.Stats["total_inactive_file"]
	if !ok {
		cache = m.Stats["inactive_file"]
	}
	return m.Usage - min(cache, m.Usage)
}
