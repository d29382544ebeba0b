package podhost

import (
	"sync"
	"time"
)

// minSampleInterval is the shortest time between two samples that gives a load.
const minSampleInterval = 125 * time.Millisecond

// A CPUUsage is the CPU time that a pod has used from its start until an instant.
type CPUUsage struct {
	At  time.Time
	CPU time.Duration
}

// A CPULoad computes the CPU load of a pod between its two latest samples. The zero value
// has no samples. It is safe for concurrent use.
type CPULoad struct {
	mu      sync.Mutex
	last    CPUUsage
	percent int
}

// Sample adds the sample u of a pod that started at started. It returns the load since the
// previous sample, or since the start, as a percentage of cores. cores must be at least 1.
func (l *CPULoad) Sample(u CPUUsage, started time.Time, cores int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last.At.Before(started) {
		l.last = CPUUsage{At: started}
	}
	wall := u.At.Sub(l.last.At)
	if wall < minSampleInterval {
		return l.percent // too short for a new value
	}
	l.percent = Percent(float64(u.CPU-l.last.CPU) / float64(wall) / float64(cores))
	l.last = u
	return l.percent
}

// Percent converts a share to a percentage from 0 to 100. A share may be above 1, because
// not every host enforces limits.
func Percent(share float64) int {
	return int(max(0, min(100, 100*share+0.5)))
}
