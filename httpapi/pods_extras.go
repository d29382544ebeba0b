package httpapi

import (
	"math"
	"time"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/pods"
)

// An extrasBody has the settings of a pod that only this service has (docs/interface.md 2.25), as they
// are in force.
type extrasBody struct {
	StopGrace   int64              `json:"stopGrace"`
	ShmSize     int                `json:"shmSize"`
	User        *string            `json:"user"`
	Restart     pods.RestartPolicy `json:"restart"`
	MaxRestarts int                `json:"maxRestarts"`
	StopAfter   *int64             `json:"stopAfter"`
	Idle        *idleBody          `json:"idle"`
	ExposeHTTP  pods.Exposure      `json:"exposeHttp"`
}

type idleBody struct {
	For int64 `json:"for"`
	GPU int   `json:"gpu"`
	CPU int   `json:"cpu"`
}

func podOptions(c *call) error {
	p, err := c.Pods.Get(c.r.Context(), c.owner, c.r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(c.w, 200, c.extras(p))
}

func (c *call) extras(p *pods.Pod) extrasBody {
	x := &p.Config.Extras
	var memory int
	if p.CPU != nil {
		memory = p.CPU.Memory
	} else {
		_, memory = c.Pods.Share(p)
	}
	b := extrasBody{
		StopGrace: x.Grace().Milliseconds(), ShmSize: memory * 1024 / 2, User: orNull(x.User),
		Restart: pods.RestartNever, MaxRestarts: x.Restarts(), ExposeHTTP: c.exposure(x.ExposeHTTP),
	}
	if x.ShmSize > 0 {
		b.ShmSize = x.ShmSize
	}
	if x.Restart != "" {
		b.Restart = x.Restart
	}
	if n := x.StopAfter.Milliseconds(); n > 0 {
		b.StopAfter = &n
	}
	if i := x.Idle; i != nil {
		b.Idle = &idleBody{i.For.Milliseconds(), i.GPU, i.CPU}
	}
	return b
}

// exposure is who reaches the HTTP ports of a pod that asks for x.
func (a *api) exposure(x pods.Exposure) pods.Exposure {
	switch {
	case x != "":
		return x
	case a.podKeys:
		return pods.ExposeKey
	}
	return pods.ExposeOpen
}

// extras reads the member podyard. A null member takes its default.
func (o *object) extras() (x pods.ExtrasChange) {
	sub := o.object("podyard")
	if sub == nil {
		return x
	}
	x.StopGrace = sub.grace("stopGrace")
	x.ShmSize = sub.sizeOrNull("shmSize")
	if x.User = sub.orDefault("user"); x.User == nil {
		x.User = sub.str("user")
	}
	x.Restart = choice(sub, "restart", pods.RestartNever, pods.RestartOnFailure, pods.RestartAlways)
	x.MaxRestarts = sub.sizeOrNull("maxRestarts")
	x.StopAfter = sub.millisOrNull("stopAfter")
	if sub.isNull("idle") {
		x.Idle = &pods.Idle{}
	} else {
		x.Idle = sub.idle()
	}
	x.ExposeHTTP = choice(sub, "exposeHttp", pods.ExposeOpen, pods.ExposeKey)
	sub.unknown()
	return x
}

// orDefault is an empty text for a null member, else nil.
func (o *object) orDefault(name string) *string {
	if o.isNull(name) {
		return new("")
	}
	return nil
}

func choice[T ~string](o *object, name string, values ...T) *T {
	if o.isNull(name) {
		return new(T(""))
	}
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = string(v)
	}
	if !o.has(name) {
		return nil
	}
	v := T(o.oneOf(name, list...))
	return &v
}

// sizeOrNull reads a number from 1 on; null is 0, the default.
func (o *object) sizeOrNull(name string) *int {
	if o.isNull(name) {
		return new(0)
	}
	n := o.integer(name)
	if n != nil && *n == 0 {
		return new(-1) // its rule says what it must be
	}
	return n
}

// millisOrNull reads a duration; null is 0, the default.
func (o *object) millisOrNull(name string) *time.Duration {
	if o.isNull(name) {
		return new(time.Duration(0))
	}
	n := o.wide(name)
	if n == nil {
		return nil
	}
	d := time.Duration(min(*n, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	if *n <= 0 {
		d = 1 // below every bound, and not the default
	}
	return &d
}

// grace reads stopGrace, which may be 0: that is negative in a change.
func (o *object) grace(name string) *time.Duration {
	zero := o.shape == nil && o.find(name) != nil && string(o.find(name).value) == "0"
	d := o.millisOrNull(name)
	switch {
	case d != nil && zero:
		return new(-time.Millisecond)
	case d != nil && *d == 1:
		return new(pods.MaxStopGrace + 1) // below 0
	}
	return d
}

func (o *object) idle() *pods.Idle {
	sub := o.object("idle")
	if sub == nil {
		return nil
	}
	defer sub.unknown()
	sub.require("for")
	i := &pods.Idle{For: time.Millisecond, GPU: pods.DefaultIdlePercent, CPU: pods.DefaultIdlePercent}
	if d := sub.millisOrNull("for"); d != nil {
		i.For = max(*d, 1)
	}
	for name, n := range map[string]*int{"gpu": &i.GPU, "cpu": &i.CPU} {
		if v := sub.integer(name); v != nil {
			*n = *v
		}
	}
	return i
}

// extrasRules adds what the document says of the member podyard.
func extrasRules(s *openapi.Schema) {
	x := s.At("podyard")
	x.Description = "Settings that only this service has. A null member takes its default."
	x.At("stopGrace").Between(0, inMillis(pods.MaxStopGrace)).Defaults(inMillis(pods.DefaultStopGrace))
	x.At("shmSize").Between(1, pods.MaxShmSize)
	x.At("restart").Defaults(pods.RestartNever)
	x.At("maxRestarts").Between(1, pods.MaxMaxRestarts).Defaults(pods.DefaultMaxRestarts)
	x.At("stopAfter").Between(inMillis(pods.MinStopAfter), inMillis(pods.MaxPeriod))
	x.At("idle/for").Between(inMillis(pods.MinIdle), inMillis(pods.MaxPeriod))
	x.At("idle/gpu").Between(0, 100).Defaults(pods.DefaultIdlePercent)
	x.At("idle/cpu").Between(0, 100).Defaults(pods.DefaultIdlePercent)
}
