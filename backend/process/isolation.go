package process

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Isolation protects the server, the host and the pods of others from a pod, as far as the host
// permits it. The package documentation says what holds on which host.
type Isolation struct {
	// Launch are the arguments with which this program is started again for each pod. Its main
	// function must recognise the first one and call [LaunchPod] before it does anything else.
	// Required.
	Launch []string
	// UIDs are numbers of users and groups that nobody else on this host has: each owner
	// gets one. It needs root and Linux. Default: pods run as the server's user.
	UIDs UIDRange
	// Hide are files and directories that no pod may see: the data directory of the server, its
	// configuration, the socket of a container engine. The directory of the Runtime is always
	// hidden. Paths that do not exist when a pod starts are not hidden from it.
	Hide []string
	// Writable are files and directories that pods may write to, besides their own and devices,
	// as far as their user may. Default: none.
	Writable []string
	// Processes is how many processes and threads a pod may have at once. Default 4096.
	Processes int
	// Reachable are TCP addresses of this machine that pods with a user of their own may
	// connect to, whoever listens there: that of the worker protocol. Default: none.
	Reachable []netip.AddrPort
	// Deny are addresses that pods with a user of their own may not connect to, besides those
	// where clouds serve metadata. Default: none.
	Deny []netip.Prefix
	// Cgroup is the directory of a cgroup of version 2 without processes of its own. The
	// Runtime makes cgroups below it. Default: the cgroup of the server.
	Cgroup string

	repair    time.Duration // how often firewall rules are checked
	unit      int64         // unit of Spec.Disk and Spec.Memory; tests use a smaller one
	diskCheck time.Duration // how often disks are measured
	without   []string      // names of what the host lacks in a test
}

// A UIDRange has Count numbers from First on. The zero value has none.
type UIDRange struct {
	First uint32
	Count uint32
}

func (u UIDRange) has(uid uint32) bool { return uid >= u.First && uid-u.First < u.Count }

// Check returns an error for a range that includes root or numbers that are no UIDs.
func (u UIDRange) Check() error {
	// The last number of 32 bits means "no change" to the system.
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
	for _, p := range o.Deny {
		if err := CheckDeny(p); err != nil {
			return fmt.Errorf("deny %s: %w", p, err)
		}
	}
	return o.UIDs.Check()
}

// Names of what a host may lack, as they are logged.
const (
	lacksUser       = "a user for each owner"
	lacksMounts     = "a mount namespace that hides the data directory"
	lacksHiddenPIDs = "a /proc without the processes of others"
	lacksLandlock   = "Landlock, which bounds what can be read and written"
	lacksSignals    = "Landlock scopes, which keep signals within the pod"
	lacksCaps       = "an empty bounding set of capabilities"
	lacksNetwork    = "firewall rules, which keep pods from this machine and from metadata"
	lacksKill       = "a cgroup that is killed as a whole"
	lacksPIDs       = "a limit of processes"
	lacksMemory     = "a limit of memory"
	lacksAll        = "isolation of processes"
)

// lacks has what a host lacks, by name, with the reason.
type lacks map[string]string

func (l lacks) list() []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(l)) {
		list = append(list, name+" ("+l[name]+")")
	}
	return list
}

// Missing returns what Options.Isolation asks for and this host lacks, each with its name and
// the reason. Without Isolation it is empty.
func (r *Runtime) Missing() []string { return r.policy.Load().isolator.missing().list() }

// logMissing logs what the host lacks, once.
func (r *Runtime) logMissing() {
	if list := r.Missing(); len(list) > 0 {
		r.opts.Logger.Info("process: this host does not keep pods apart in every way", "missing", strings.Join(list, "; "))
	}
}
