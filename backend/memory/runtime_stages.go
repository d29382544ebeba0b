package memory

import (
	"math"
	"strings"
	"time"

	"github.com/podyard/podyard/pods"
)

// A Script says how containers of some images behave.
type Script struct {
	// Image is a pattern: '*' stands for any characters, also none. The first script that
	// matches an image is its script.
	Image string
	// Stages follow each other. A container that is started again begins at the first
	// stage that is not pods.Pulling. It stays in the last one, unless that is an end.
	Stages []Stage
	// StopAfter is how long a container takes to end when asked to; the grace of the stop
	// is the most. Default: none, it ends at once.
	StopAfter time.Duration
	// Load is what containers that are up use.
	Load Load
}

// A Stage is one step of a container.
type Stage struct {
	// After is how long the stage before lasts, and Jitter how much longer it may,
	// decided by the seed, the pod and the generation.
	After  time.Duration
	Jitter time.Duration
	Phase  pods.Phase
	Lines  []string // what the container writes on entering the stage
	// How it ends: for pods.Down.
	ExitCode int
	OOM      bool
	Stopped  bool
	Reason   string // also for pods.Failed
}

// Load is the use of a container as percentages over its time up.
type Load struct {
	CPU       Curve
	Memory    Curve
	GPU       Curve
	GPUMemory Curve
}

// A Curve goes up and down around Base by at most Swing once in each Period, and stays
// within 0 to 100. Without a Period it is Base.
type Curve struct {
	Base   float64
	Swing  float64
	Period time.Duration
}

// At is the curve after d, its start moved by phase of a period.
func (c Curve) At(d time.Duration, phase float64) int {
	v := c.Base
	if c.Period > 0 {
		turns := float64(d%c.Period)/float64(c.Period) + phase
		v += c.Swing * math.Sin(2*math.Pi*turns)
	}
	return int(math.Round(min(max(v, 0), 100)))
}

// DefaultScript is how containers of an image without a script behave: half a second to
// pull, half a second to start, then up for good.
func DefaultScript() Script {
	return Script{
		Image: "*",
		Stages: []Stage{
			{Phase: pods.Pulling},
			{Phase: pods.Coming, After: 500 * time.Millisecond},
			{Phase: pods.Up, After: 500 * time.Millisecond, Lines: []string{"ready"}},
		},
		Load: Load{
			CPU:       Curve{Base: 30, Swing: 20, Period: 5 * time.Minute},
			Memory:    Curve{Base: 45, Swing: 5, Period: 20 * time.Minute},
			GPU:       Curve{Base: 80, Swing: 15, Period: 3 * time.Minute},
			GPUMemory: Curve{Base: 60, Swing: 5, Period: 10 * time.Minute},
		},
	}
}

// simMatch reports whether s is what a pattern with '*' says.
func simMatch(pattern, s string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == s
	}
	s, ok := strings.CutPrefix(s, first)
	if !ok {
		return false
	}
	parts := strings.Split(rest, "*")
	last := parts[len(parts)-1]
	for _, part := range parts[:len(parts)-1] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return strings.HasSuffix(s, last)
}
