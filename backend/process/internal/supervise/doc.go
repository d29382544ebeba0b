// Package supervise starts, finds and ends the programs of pods on this host, each with a supervisor
// that outlives the server, and goes through what they leave: logs, and trees of any size. It knows
// nothing of the life of a pod, which is package process.
package supervise

import "errors"

// ErrMoved is the error of a Walk that has lost its way.
var ErrMoved = errors.New("directories were moved while it was measured")
