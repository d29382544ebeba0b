package process

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Isolation keeps a pod from the server, from the host and from pods of others, as far as
// this host lets the server do that. The documentation of the package says what holds where.
type Isolation struct {
	// Launch is the arguments with which this program is started again for each pod. Its
	// main function must know them by the first one and call [LaunchPod] before it does
	// anything else. Required.
	Launch []string
	// UIDs are numbers of users and groups that nobody else on this host has: each owner
	// gets one. It needs root and Linux. Default: pods run as the server's user.
	UIDs UIDRange
	// Hide is files and directories that no pod may see: the data directory of the server,
	// its configuration, the socket of a container engine. The directory of the Runtime is
	// hidden in any case. What is not there when a pod starts is not hidden from it.
	Hide []string
	// Writable is files and directories that pods may write to, besides their own and
	// devices, as far as their user may. Default: none.
	Writable []string
	// Processes is how many processes and threads a pod may have at once. Default 4096.
	Processes int
	// Cgroup is a directory of a cgroup of version 2 without processes of its own, below
	// which the Runtime may make others. Default: the cgroup of the server.
	Cgroup string

	unit      int64         // what Spec.Disk and Spec.Memory count; tests use smaller ones
	diskCheck time.Duration // how often disks are measured
	without   []string      // what a test wants this host to lack
}

// A UIDRange is Count numbers from First on. The zero value is none.
type UIDRange struct {
	First uint32
	Count uint32
}

func (u UIDRange) has(uid uint32) bool { return uid >= u.First && uid-u.First < u.Count }

// Check says what is wrong with a range: one with root in it, or with numbers that are none.
func (u UIDRange) Check() error {
	// The last number of 32 bits is "no change" to the system.
	if u.Count > 0 && (u.First == 0 || u.First+u.Count < u.First || u.First+u.Count == 0) {
		return fmt.Errorf("UIDs %d to %d: they must be above 0 and below %d", u.First, uint64(u.First)+uint64(u.Count)-1, uint32(1<<32-1))
	}
	return nil
}

func (o Isolation) withDefaults() Isolation {
	o.Processes = cmp.Or(o.Processes, 4096)
	o.unit = cmp.Or(o.unit, gigabyte)
	o.diskCheck = cmp.Or(o.diskCheck, defaultDiskCheck)
	return o
}

func (o Isolation) check() error {
	if len(o.Launch) == 0 || o.Launch[0] == "" {
		return errors.New("Isolation.Launch is empty: this program could not tell that it is to launch a pod")
	}
	return o.UIDs.Check()
}

// The names of what a host may lack, as they are logged.
const (
	lacksUser       = "a user for each owner"
	lacksMounts     = "a mount namespace that hides the data directory"
	lacksHiddenPIDs = "a /proc without the processes of others"
	lacksLandlock   = "Landlock, which bounds what can be read and written"
	lacksSignals    = "Landlock scopes, which keep signals within the pod"
	lacksCaps       = "an empty bounding set of capabilities"
	lacksKill       = "a cgroup that is killed as a whole"
	lacksPIDs       = "a limit of processes"
	lacksMemory     = "a limit of memory"
	lacksAll        = "isolation of processes"
)

// lacks is what a host lacks, by name, and why.
type lacks map[string]string

func (l lacks) list() []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(l)) {
		list = append(list, name+" ("+l[name]+")")
	}
	return list
}

// Missing is what Options.Isolation asks for and this host does not give, each by name and
// with the reason. It is empty without Isolation, where nothing was asked for.
func (r *Runtime) Missing() []string { return r.policy.Load().isolator.missing().list() }

// logMissing tells whoever runs the host, once.
func (r *Runtime) logMissing() {
	if list := r.Missing(); len(list) > 0 {
		r.opts.Logger.Info("process: this host does not keep pods apart in every way", "missing", strings.Join(list, "; "))
	}
}
