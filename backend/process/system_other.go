//go:build !linux

package process

import (
	"errors"
	"os"
)

const (
	canIsolate = false
	selfPath   = ""
)

func launchStage(string) error {
	return errors.New("process: this is for the server to start a pod with")
}

func becomeReaper() error { return nil }

func (s *supervisor) spawn(w *os.File) error { return s.spawnDirectly(w) }

// sweep kills the group of the first process, whose number stays in use while it has members.
func (s *supervisor) sweep() { killGroup(s.status.PID) }

func startTimeOf(int) string { return "" }

// remains reports false: it is not known whose number that is now.
func (s *status) remains() bool { return false }

func oomCount() uint64 { return 0 }

// probe finds that there is no bubblewrap.
func (i *isolator) probe([]*identity) error {
	switch i.opts.Mode {
	case ModeNone:
	case ModeRequired:
		return errors.New("bubblewrap is required, and needs Linux")
	default:
		i.lacks = append(i.lacks, "bubblewrap (it needs Linux)")
	}
	return nil
}

type cgroups struct{}

func openCgroups(*Isolation, string) (cgroups, []string) { return cgroups{}, nil }

func (cgroups) make(string, int, int64) ([]string, error) { return nil, nil }

func (cgroups) leftovers([]string) []string { return nil }

func killCgroups([]string) int { return 0 }

func removeCgroups([]string) error { return nil }
