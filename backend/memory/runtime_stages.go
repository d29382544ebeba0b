package memory

import (
	"math"
	"strings"
	"time"

	"github.com/podyard/podyard/pods"
)

// A Script describes the containers of some images.
type Script struct {
	// Image is a pattern in which '*' matches any text, also none. The first script that
	// matches an image applies.
	Image string
	// Stages follow each other. A restarted container begins at the first stage that is not
	// pods.PhasePulling. A container stays in the last stage, unless that stage is an end.
	Stages []Stage
	// StopAfter is how long a container takes to end after a stop, at most the grace of the
	// stop. Default 0: it ends at once.
	StopAfter time.Duration
	// Load is the use of a running container.
	Load Load
	// Replies are what it answers to commands.
	Replies []Reply
}

// A Stage is one step in the life of a container.
type Stage struct {
	// After is the duration of the previous stage. Jitter is the most that is added to it; the
	// seed, the pod and the generation decide how much.
	After  time.Duration
	Jitter time.Duration
	Phase  pods.Phase
	Lines  []string // output of the container when the stage begins
	// The end of the container, for pods.PhaseExited.
	ExitCode int
	OOM      bool
	Stopped  bool
	HostWent bool
	Reason   string // also for pods.PhaseFailed, and for pods.PhasePulling how far the pull is
}

// Load is the use of a container in percent, over its running time.
type Load struct {
	CPU       Curve
	Memory    Curve
	GPU       Curve
	GPUMemory Curve
}

// A Curve swings around Base by at most Swing, once per Period, within 0 to 100. Without a
// Period it is constant.
type Curve struct {
	Base      float64
	Amplitude float64
	Period    time.Duration
}

// At returns the value of the curve after d. phase, from 0 to 1, moves its start by a part of
// a period.
func (c Curve) At(d time.Duration, phase float64) int {
	v := c.Base
	if c.Period > 0 {
		turns := float64(d%c.Period)/float64(c.Period) + phase
		v += c.Amplitude * math.Sin(2*math.Pi*turns)
	}
	return int(math.Round(min(max(v, 0), 100)))
}

// DefaultScript returns the script of images without one: half a second to pull, half a
// second to start, then running for good.
func DefaultScript() Script {
	return Script{
		Image: "*",
		Stages: []Stage{
			{Phase: pods.PhasePulling},
			{Phase: pods.PhaseStarting, After: 500 * time.Millisecond},
			{Phase: pods.PhaseHealthy, After: 500 * time.Millisecond, Lines: []string{"ready"}},
		},
		Load: Load{
			CPU:       Curve{Base: 30, Amplitude: 20, Period: 5 * time.Minute},
			Memory:    Curve{Base: 45, Amplitude: 5, Period: 20 * time.Minute},
			GPU:       Curve{Base: 80, Amplitude: 15, Period: 3 * time.Minute},
			GPUMemory: Curve{Base: 60, Amplitude: 5, Period: 10 * time.Minute},
		},
	}
}

// simMatch reports whether s matches a pattern in which '*' matches any text.
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
