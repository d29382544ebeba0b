package podhost

import (
	"sync"
	"time"
)

// minSampleInterval is how near two samples may be to tell a load.
const minSampleInterval = 125 * time.Millisecond

// A CPUUsage is the processor time that a pod has used at an instant, since its start.
type CPUUsage struct {
	At  time.Time
	CPU time.Duration
}

// A CPULoad is how busy a pod keeps the processor between its two latest samples. The zero
// value has had none. It is safe for concurrent use.
type CPULoad struct {
	mu      sync.Mutex
	last    CPUUsage
	percent int
}

// Sample takes u of a pod that was started then, and returns the load as Percent of cores,
// at least 1, since the sample before, or since the start.
func (l *CPULoad) Sample(u CPUUsage, started time.Time, cores int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last.At.Before(started) {
		l.last = CPUUsage{At: started}
	}
	wall := u.At.Sub(l.last.At)
	if wall < minSampleInterval {
		return l.percent // too little to tell from
	}
	l.percent = Percent(float64(u.CPU-l.last.CPU) / float64(wall) / float64(cores))
	l.last = u
	return l.percent
}

// Percent is of a share, within 0 and 100: not every host holds a pod to its limits.
func Percent(share float64) int {
	return int(max(0, min(100, 100*share+0.5)))
}
