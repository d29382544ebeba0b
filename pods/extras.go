package pods

import (
	"cmp"
	"time"

	"github.com/podyard/podyard/internal/container"
	"github.com/podyard/podyard/problem"
)

// Extras are the settings of a pod that the hosted service does not have: the member podyard of a
// request (docs/decisions.md 51). A zero field has its default. They are in no public record.
type Extras struct {
	// StopGrace is how long stop, restart and reset wait before they kill. Negative: not at all.
	StopGrace time.Duration `json:",omitzero"`
	// ShmSize is the size of /dev/shm in MB. Default: half of the pod's memory.
	ShmSize int `json:",omitzero"`
	// User is the user of the container, as the USER of an image has it. Default: the image's.
	User string `json:",omitzero"`
	// Restart says after which ends the container starts again, at most MaxRestarts times.
	Restart     RestartPolicy `json:",omitzero"`
	MaxRestarts int           `json:",omitzero"`
	// StopAfter is how long the pod may run after its user started it. Default: for ever.
	StopAfter time.Duration `json:",omitzero"`
	Idle      *Idle         `json:",omitzero"` // nil: it may idle
	// ExposeHTTP says who reaches its HTTP ports. Default: that of the server.
	ExposeHTTP Exposure `json:",omitzero"`
}

// A RestartPolicy says after which ends a container starts again.
type RestartPolicy string

// The policies.
const (
	RestartNever     RestartPolicy = "never"
	RestartOnFailure RestartPolicy = "on-failure"
	RestartAlways    RestartPolicy = "always"
)

// An Exposure says who reaches the HTTP ports of a pod.
type Exposure string

// The exposures.
const (
	ExposeOpen Exposure = "open" // everybody who reaches the host
	ExposeKey  Exposure = "key"  // whoever shows a key of the owner to the proxy
)

// An Idle stops a pod once its load has been below both bounds for a time.
type Idle struct {
	For time.Duration
	GPU int // percent, of each of its GPUs; ignored without GPUs
	CPU int // percent of its vCPUs
}

// Defaults and bounds of Extras.
const (
	DefaultStopGrace   = 10 * time.Second
	MaxStopGrace       = 10 * time.Minute
	DefaultMaxRestarts = 5
	MaxMaxRestarts     = 1000
	DefaultIdlePercent = 5
	MinIdle            = time.Minute
	MaxPeriod          = 366 * 24 * time.Hour // of Idle.For and StopAfter
	MinStopAfter       = time.Second
	MaxShmSize         = 1 << 20 // MB
)

// Grace is how long a stop waits.
func (x *Extras) Grace() time.Duration { return max(cmp.Or(x.StopGrace, DefaultStopGrace), 0) }

// specGrace is Grace as Spec has it.
func (x *Extras) specGrace() time.Duration { return cmp.Or(x.Grace(), -1) }

// Restarts is how often in a row the container starts again.
func (x *Extras) Restarts() int { return cmp.Or(x.MaxRestarts, DefaultMaxRestarts) }

// Clone returns a copy of x that shares nothing with it.
func (x Extras) Clone() Extras {
	x.Idle = clonePointer(x.Idle)
	return x
}

// sameContainer reports whether x and y make the same container: the rest of them counts at once.
func (x *Extras) sameContainer(y *Extras) bool {
	return x.ShmSize == y.ShmSize && x.User == y.User && x.ExposeHTTP == y.ExposeHTTP
}

// An ExtrasChange is what a request says of Extras. A nil member changes nothing; one that points to
// a zero value takes the default.
type ExtrasChange struct {
	StopGrace   *time.Duration // negative: none
	ShmSize     *int
	User        *string
	Restart     *RestartPolicy
	MaxRestarts *int
	StopAfter   *time.Duration
	Idle        *Idle
	ExposeHTTP  *Exposure
}

// Apply returns what x is after c.
func (c *ExtrasChange) Apply(x Extras) Extras {
	setIfGiven(&x.StopGrace, c.StopGrace)
	setIfGiven(&x.ShmSize, c.ShmSize)
	setIfGiven(&x.User, c.User)
	setIfGiven(&x.Restart, c.Restart)
	setIfGiven(&x.MaxRestarts, c.MaxRestarts)
	setIfGiven(&x.StopAfter, c.StopAfter)
	setIfGiven(&x.ExposeHTTP, c.ExposeHTTP)
	if c.Idle != nil {
		x.Idle = clonePointer(c.Idle)
		if *c.Idle == (Idle{}) {
			x.Idle = nil
		}
	}
	return x.Clone()
}

// Or adds the settings of a template where c says nothing.
func (c ExtrasChange) Or(t Extras) ExtrasChange {
	setIfSet(&c.StopGrace, t.StopGrace)
	setIfSet(&c.ShmSize, t.ShmSize)
	setIfSet(&c.User, t.User)
	setIfSet(&c.Restart, t.Restart)
	setIfSet(&c.MaxRestarts, t.MaxRestarts)
	setIfSet(&c.StopAfter, t.StopAfter)
	setIfSet(&c.ExposeHTTP, t.ExposeHTTP)
	setIfNil(&c.Idle, clonePointer(t.Idle))
	return c
}

// setIfSet sets what is absent to a value that is not the default.
func setIfSet[T comparable](to **T, from T) {
	var zero T
	if *to == nil && from != zero {
		*to = &from
	}
}

// Check adds the faults of c, at "/podyard/...".
func (c *ExtrasChange) Check(faults *problem.Violations) {
	v := container.Rules{Violations: faults}
	const at = "/podyard/"
	if n := c.StopGrace; n != nil && *n > MaxStopGrace {
		v.Invalid(at+"stopGrace", "must be 0 to %d ms", MaxStopGrace.Milliseconds())
	}
	if n := c.ShmSize; n != nil && (*n < 0 || *n > MaxShmSize) {
		v.Invalid(at+"shmSize", "must be 1 to %d MB", MaxShmSize)
	}
	if c.User != nil {
		v.ContainerUser(at+"user", *c.User)
	}
	if n := c.MaxRestarts; n != nil && (*n < 0 || *n > MaxMaxRestarts) {
		v.Invalid(at+"maxRestarts", "must be 1 to %d", MaxMaxRestarts)
	}
	if n := c.StopAfter; n != nil && *n != 0 && (*n < MinStopAfter || *n > MaxPeriod) {
		v.Invalid(at+"stopAfter", "must be %d to %d ms", MinStopAfter.Milliseconds(), MaxPeriod.Milliseconds())
	}
	if i := c.Idle; i != nil && *i != (Idle{}) {
		i.check(v, at+"idle/")
	}
}

func (i *Idle) check(v container.Rules, at string) {
	if i.For < MinIdle || i.For > MaxPeriod {
		v.Invalid(at+"for", "must be %d to %d ms", MinIdle.Milliseconds(), MaxPeriod.Milliseconds())
	}
	for name, n := range map[string]int{"gpu": i.GPU, "cpu": i.CPU} {
		if n < 0 || n > 100 {
			v.Invalid(at+name, "must be 0 to 100 percent")
		}
	}
}

// ExtrasFields are the members of podyard, in the order in which faults are reported.
func ExtrasFields() []string {
	return []string{
		"podyard", "podyard/stopGrace", "podyard/shmSize", "podyard/user", "podyard/restart", "podyard/maxRestarts",
		"podyard/stopAfter", "podyard/idle", "podyard/idle/for", "podyard/idle/gpu", "podyard/idle/cpu", "podyard/exposeHttp",
	}
}
