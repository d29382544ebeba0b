package process

import (
	"cmp"
	"context"
	"runtime"

	"github.com/podyard/podyard/internal/podhost"
	"github.com/podyard/podyard/pods"
)

// gigabyte is the unit of Spec.Memory.
const gigabyte = 1 << 30

// Sample implements pods.Sampler: the CPU time since the previous Sample (or since the start),
// and the resident memory, where shared pages count once for each process. A pod that does not
// run has none.
func (r *Runtime) Sample(_ context.Context, podID string) (pods.Sample, bool) {
	p := r.pods.Find(podID)
	if p == nil {
		return pods.Sample{}, false
	}
	p.mu.Lock()
	x, started := p.published, p.state.Started
	p.mu.Unlock()
	if x == nil || x.Over() {
		return pods.Sample{}, false
	}
	u, memory, ok := r.load.Measure(x.Proc)
	if !ok {
		return pods.Sample{}, false
	}
	cores, limit := cmp.Or(x.vcpu, runtime.NumCPU()), int64(x.memory)*gigabyte
	if limit == 0 {
		limit = podhost.MachineMemory()
	}
	s := pods.Sample{CPU: x.cpuLoad.Sample(u, started, cores)}
	if limit > 0 {
		s.Memory = podhost.Percent(float64(memory) / float64(limit))
	}
	return s, true
}
