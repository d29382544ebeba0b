//go:build !linux

package process

import (
	"errors"
	"os"
	"runtime"
)

// killDescendants knows the group of the first process only, which keeps its number while it has
// members. Where there are no groups, the number of a process that has ended may be
// another's.
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
