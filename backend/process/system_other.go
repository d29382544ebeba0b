//go:build !linux

package process

import (
	"errors"
	"os"
	"runtime"
)

// killRest knows the group of the first process only, which keeps its number while it has
// members. Where there are no groups, the number of a process that has ended may be
// another's.
func (x *proc) killRest() (int, error) {
	if x.ended() && runtime.GOOS != "windows" {
		hardKill(x.pid)
	}
	return 0, nil
}

type kin struct{}

func (kin) note() {}

func (x *proc) remember() { x.kin.note() }

func born(int) string { return "" }

func (x *proc) alive() bool { return false }

func (x *proc) orphanExit() exit { return unknownExit }

func punch(*os.File, int64, int64) error { return errors.ErrUnsupported }
