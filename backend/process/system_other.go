//go:build !linux

package process

import (
	"errors"
	"os"
	"runtime"
)

// killDescendants kills the group of the first process only, whose number stays in use while it
// has members. On Windows there are no groups, and the number may be in use again, so it does
// nothing.
func (x *proc) killDescendants() (int, error) {
	if x.ended() && runtime.GOOS != "windows" {
		killGroup(x.pid)
	}
	return 0, nil
}

type descendants struct{}

func (descendants) set() {}

func (x *proc) recordDescendants() { x.descendants.set() }

func startTimeOf(int) string { return "" }

func (x *proc) alive() bool { return false }

func (x *proc) orphanExit() exit { return unknownExit }

func punchFile(*os.File, int64, int64) error { return errors.ErrUnsupported }
