package process

import (
	"context"
	"time"

	"github.com/podyard/podyard/internal/podhost"
	"github.com/podyard/podyard/pods"
)

// gigabyte is what Spec.Memory counts.
const gigabyte = 1 << 30

// sampleAge is how old the list of all processes may be that samples share: many pods
// are asked for at once, and to list is the costly part.
const sampleAge = 250 * time.Millisecond

// Sample implements pods.Sampler: the CPU time since the Sample before (the first time:
// since the start), and the memory that is resident, shared pages counted once for each
// process. There is none of a pod that does not run.
func (r *Runtime) Sample(_ context.Context, podID string) (pods.Sample, bool) {
	p := r.pods.Find(podID)
	if p == nil {
		return pods.Sample{}, false
	}
	p.mu.Lock()
	x, started := p.published, p.state.Started
	p.mu.Unlock()
	if x == nil || x.ended() {
		return pods.Sample{}, false
	}
	u, memory, ok := r.load.measure(x)
	if !ok {
		return pods.Sample{}, false
	}
	cores, limit := r.opts.Cores, r.opts.Memory
	if x.vcpu > 0 {
		cores = x.vcpu
	}
	if x.memory > 0 {
		limit = int64(x.memory) * gigabyte
	}
	s := pods.Sample{CPU: x.cpuLoad.Sample(u, started, cores)}
	if limit > 0 {
		s.Memory = podhost.Percent(float64(memory) / float64(limit))
	}
	return s, true
}
