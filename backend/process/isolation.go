package process

import (
	"cmp"
	"errors"
	"fmt"
)

// Isolation says how pods are started and kept apart. The package documentation says what that
// gives on which host.
type Isolation struct {
	// Launch are the arguments with which this program is started again for each pod. Its main
	// function must recognise the first one and call [LaunchPod] before it does anything else.
	// Required.
	Launch []string
	// Mode says whether pods run in bubblewrap. Default ModeAuto.
	Mode string
	// User is the user of the host, by name or number, that pods run as where the server is
	// root. Default: the server's.
	User string
	// Hide are files and directories that no pod sees in bubblewrap: the data directory of the
	// server, its configuration, the socket of a container engine. The directory of the Runtime
	// is always hidden. Where a file is hidden, a pod sees of its directory what else was there when
	// the pod started. Paths whose directory does not exist then are not hidden from it.
	Hide []string
	// Processes is how many processes and threads a pod may have at once, where the server may
	// make cgroups. Default 4096.
	Processes int
	// Cgroup is the directory of a cgroup of version 2 without processes of its own. The
	// Runtime makes cgroups below it. Default: the cgroup of the server.
	Cgroup string

	unit int64 // unit of Spec.Disk and Spec.Memory; tests use a smaller one
}

// Values of Isolation.Mode.
const (
	ModeAuto     = "auto"     // in bubblewrap where Open finds that it works
	ModeRequired = "required" // Open fails where it does not
	ModeNone     = "none"     // without
)

// CheckMode returns an error for a value that Isolation.Mode cannot have.
func CheckMode(mode string) error {
	switch mode {
	case "", ModeAuto, ModeRequired, ModeNone:
		return nil
	}
	return fmt.Errorf("must be %s, %s or %s, not %q", ModeAuto, ModeRequired, ModeNone, mode)
}

func (o Isolation) withDefaults() Isolation {
	o.Processes = cmp.Or(o.Processes, 4096)
	o.unit = cmp.Or(o.unit, gigabyte)
	return o
}

func (o Isolation) check() error {
	if len(o.Launch) == 0 || o.Launch[0] == "" {
		return errors.New("Isolation.Launch is empty: this program could not tell that it is to launch a pod")
	}
	return CheckMode(o.Mode)
}
