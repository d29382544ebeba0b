package podhost

import (
	"sync"
	"time"
)

// nearest is how near two samples may be to tell a load.
const nearest = 125 * time.Millisecond

// A Usage is the processor time that a pod has used at an instant, since its start.
type Usage struct {
	At  time.Time
	CPU time.Duration
}

// A Load is how busy a pod keeps the processor between its two latest samples. The zero
// value has had none. It is safe for concurrent use.
type Load struct {
	mu      sync.Mutex
	last    Usage
	percent int
}

// Sample takes u of a pod that was started then, and returns the load as Percent of cores,
// at least 1, since the sample before, or since the start.
func (l *Load) Sample(u Usage, started time.Time, cores int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last.At.Before(started) {
		l.last = Usage{At: started}
	}
	wall := u.At.Sub(l.last.At)
	if wall < nearest {
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
