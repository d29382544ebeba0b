//go:build !linux

package supervise

import "github.com/podyard/podyard/internal/podhost"

// A Sampler measures nothing on this system.
type Sampler struct{}

// Measure reports that nothing is known.
func (Sampler) Measure(*Proc) (u podhost.CPUUsage, memory int64, ok bool) { return u, 0, false }
