//go:build !linux

package supervise

import (
	"errors"
	"os"
)

// SelfPath is empty: this system has no path of the running program.
const SelfPath = ""

func launchStage(string) error {
	return errors.New("process: this is for the server to start a pod with")
}

func becomeReaper() error { return nil }

func (s *supervisor) spawn(w *os.File) error { return s.spawnDirectly(w) }

// sweep kills the group of the first process, whose number stays in use while it has members.
func (s *supervisor) sweep() { killGroup(s.status.PID) }

// groupHas reports false: environments of other processes are not read on this system.
func groupHas(int, string) bool { return false }

func oomCount() uint64 { return 0 }

type Cgroups struct{}

func OpenCgroups(string, string) (Cgroups, []string) { return Cgroups{}, nil }

func (Cgroups) Make(string, int, int64) ([]string, error) { return nil, nil }

func (Cgroups) Leftovers([]string) []string { return nil }

func killCgroups([]string) int { return 0 }

func RemoveCgroups([]string) error { return nil }
