package memory

import (
	"context"
	"iter"
	"net/netip"
	"time"

	"github.com/podyard/podyard/pods"
)

// simLogMax is the number of lines of a simulated container that are kept.
const simLogMax = 1000

// A simLog is the output of a simulated container. The lock of its runtime guards it.
type simLog struct {
	lines  []pods.LogLine
	seq    uint64
	grown  chan struct{} // closed when lines are added or no more will be
	closed bool
}

func (l *simLog) add(at time.Time, text string) {
	l.seq++
	l.lines = append(l.lines, pods.LogLine{At: at, Seq: l.seq, Text: text})
	if n := len(l.lines); n > simLogMax {
		l.lines = l.lines[n-simLogMax:]
	}
	l.wake()
}

func (l *simLog) close() {
	l.closed = true
	l.wake()
}

func (l *simLog) wake() {
	if l.grown != nil {
		close(l.grown)
		l.grown = nil
	}
}

// since copies the lines after seq. more is closed when there may be more lines; it is nil
// when there will be none.
func (l *simLog) since(seq uint64) (list []pods.LogLine, more <-chan struct{}) {
	for _, line := range l.lines {
		if line.Seq > seq {
			list = append(list, line)
		}
	}
	if l.closed {
		return list, nil
	}
	if l.grown == nil {
		l.grown = make(chan struct{})
	}
	return list, l.grown
}

// Logs implements pods.LogReader.
func (r *Runtime) Logs(ctx context.Context, podID string, q pods.LogQuery) iter.Seq2[pods.LogLine, error] {
	return func(yield func(pods.LogLine, error) bool) {
		r.mu.Lock()
		c := r.containers[podID]
		r.mu.Unlock()
		if c == nil {
			return
		}
		lines, more, last := r.since(c, 0)
		lines = simCut(lines, q)
		for {
			for _, line := range lines {
				if !yield(line, nil) {
					return
				}
			}
			if !q.Follow || more == nil {
				return
			}
			select {
			case <-more:
			case <-ctx.Done():
				return
			}
			lines, more, last = r.since(c, last)
		}
	}
}

func (r *Runtime) since(c *simContainer, seq uint64) (list []pods.LogLine, more <-chan struct{}, last uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list, more = c.log.since(seq)
	return list, more, c.log.seq
}

// simCut returns the lines that q selects.
func simCut(lines []pods.LogLine, q pods.LogQuery) []pods.LogLine {
	for len(lines) > 0 && (lines[0].At.Before(q.After) || lines[0].At.Equal(q.After) && lines[0].Seq <= q.AfterSeq) {
		lines = lines[1:]
	}
	if q.Tail >= 0 && len(lines) > q.Tail {
		lines = lines[len(lines)-q.Tail:]
	}
	return lines
}

// Sample implements pods.Sampler. It follows the curves of the script; each pod starts at
// another point of them.
func (r *Runtime) Sample(_ context.Context, podID string) (pods.Sample, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[podID]
	if c == nil || c.state.Phase != pods.PhaseHealthy {
		return pods.Sample{}, false
	}
	d := r.clock.Now().Sub(c.state.Started)
	phase := float64(simHash(podID, r.seed)%1000) / 1000
	load := c.script.Load
	s := pods.Sample{CPU: load.CPU.At(d, phase), Memory: load.Memory.At(d, phase)}
	if c.spec.GPUType != "" {
		for i := range c.spec.GPUs {
			at := phase + float64(i)/8
			s.GPUs = append(s.GPUs, pods.GPUSample{Util: load.GPU.At(d, at), MemoryUtil: load.GPUMemory.At(d, at)})
		}
	}
	return s, true
}

// address returns a new address of the private network.
func (r *Runtime) address() string {
	n := r.addresses % (1 << 24)
	r.addresses++
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}).Next().String()
}
