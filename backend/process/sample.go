package process

import (
	"context"
	"sync"
	"time"

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
	p := r.find(podID)
	if p == nil {
		return pods.Sample{}, false
	}
	p.mu.Lock()
	x, started := p.live, p.state.Started
	p.mu.Unlock()
	if x == nil || x.ended() {
		return pods.Sample{}, false
	}
	u, ok := r.load.measure(x)
	if !ok {
		return pods.Sample{}, false
	}
	cores, memory := r.opts.Cores, r.opts.Memory
	if x.vcpu > 0 {
		cores = x.vcpu
	}
	if x.memory > 0 {
		memory = int64(x.memory) * gigabyte
	}
	s := pods.Sample{CPU: x.busy.percent(u, started, cores)}
	if memory > 0 {
		s.Memory = percent(float64(u.memory) / float64(memory))
	}
	return s, true
}

// A usage is what a pod uses at an instant.
type usage struct {
	at     time.Time
	cpu    time.Duration // since the start
	memory int64
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
	if b.last.at.IsZero() {
		b.last.at = started
	}
	wall := u.at.Sub(b.last.at)
	if wall < sampleAge/2 {
		return b.load // too little to tell from
	}
	b.load = percent(float64(u.cpu-b.last.cpu) / float64(wall) / float64(cores))
	b.last = u
	return b.load
}

// percent is of a share, within 0 and 100: a pod is not held to its limits here.
func percent(share float64) int {
	return int(max(0, min(100, 100*share+0.5)))
}
