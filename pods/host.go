package pods

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/podyard/podyard/pods/catalog"
)

// A Host is a machine, or a simulated stock of machines, that runs pods. It must not be changed
// once a service has it.
//
// GPUs or VCPU say what it has. To drain a host, so that it keeps its pods and gets no more,
// set its counts to zero: a flavor with 0 vCPUs, or a GPU type with neither devices nor a
// count.
type Host struct {
	ID         string  // unique, and the same after a restart: pods store it
	DataCenter string  // in the catalog
	Clouds     []Cloud // empty: every one
	Runtime    Runtime
	GPUs       []HostGPUs     // each type once
	VCPU       map[string]int // vCPUs by CPU flavor, before overcommitment; other flavors have none
	Memory     int            // GB for all pods together; 0 is no limit
	CUDA       string         // CUDA version of the driver, "12.8"; empty: not known, or none
}

// HostGPUs are the GPUs of one type in a host. With Devices, each device goes to one pod at a
// time. Without Devices, the Count GPUs have no names.
type HostGPUs struct {
	Type    string   // in the catalog
	Devices []string // each once in a host
	Count   int
}

// inCloud reports whether the host is of tier c. A host that names none is of every tier.
func (h *Host) inCloud(c Cloud) bool { return len(h.Clouds) == 0 || slices.Contains(h.Clouds, c) }

// A Notifier is an optional interface of a Runtime that reports changes without a goroutine of
// the service. A service that is driven by Step alone learns of a change at the instant it
// happens. Without it, Step calls List.
type Notifier interface {
	// Notify calls f on each change until stop is called, under the terms of
	// [Runtime.Watch]. Changes after Notify has returned are not missed.
	Notify(f func(ContainerState)) (stop func())
}

// A CUDAVersioner is an optional interface of a Runtime that knows the CUDA version of its
// driver.
type CUDAVersioner interface {
	CUDAVersion() string
}

// SimulatedHosts makes one host on rt for each data center of c and each tier that has stock
// there. An id is like "us-tx-3-secure". For the machine that a program runs on, use package
// backend/machine.
func SimulatedHosts(c catalog.Catalog, rt Runtime) []Host {
	var list []Host
	for _, d := range c.DataCenters {
		for _, cloud := range []Cloud{Secure, Community} {
			h := Host{
				ID:         strings.ToLower(d.ID + "-" + string(cloud)),
				DataCenter: d.ID, Clouds: []Cloud{cloud}, Runtime: rt,
			}
			if k, ok := As[CUDAVersioner](rt); ok {
				h.CUDA = k.CUDAVersion()
			}
			for _, s := range d.Stock {
				h.addStock(c, s, cloud)
			}
			if len(h.GPUs) > 0 || len(h.VCPU) > 0 {
				list = append(list, h)
			}
		}
	}
	return list
}

func (h *Host) addStock(c catalog.Catalog, s catalog.Stock, cloud Cloud) {
	n := s.Secure
	if cloud == Community {
		n = s.Community
	}
	if n == 0 {
		return
	}
	if _, ok := c.CPU(s.ID); ok {
		if h.VCPU == nil {
			h.VCPU = make(map[string]int)
		}
		h.VCPU[s.ID] = n
		return
	}
	h.GPUs = append(h.GPUs, HostGPUs{Type: s.ID, Count: n})
}

// checkHosts refuses hosts that do not fit the catalog.
func checkHosts(c catalog.Catalog, hosts []Host) error {
	var errs []error
	bad := func(h Host, format string, args ...any) {
		errs = append(errs, fmt.Errorf("pods: host %q: %s", h.ID, fmt.Sprintf(format, args...)))
	}
	seen := make(map[string]bool)
	for _, h := range hosts {
		if h.ID == "" || seen[h.ID] {
			bad(h, "the id is empty or taken")
		}
		seen[h.ID] = true
		if h.Runtime == nil {
			bad(h, "it has no runtime")
		}
		if _, ok := c.DataCenter(h.DataCenter); !ok {
			bad(h, "data center %q is not in the catalog", h.DataCenter)
		}
		if len(h.GPUs) == 0 && len(h.VCPU) == 0 {
			bad(h, "GPUs and VCPU are empty, so no pod could ever run on it")
		}
		if h.Memory < 0 {
			bad(h, "Memory must not be negative")
		}
		for _, name := range h.duplicates() {
			bad(h, "%s is listed twice", name)
		}
		for _, g := range h.GPUs {
			if g.Count < 0 {
				bad(h, "Count of GPU type %q must not be negative", g.Type)
			}
			if _, ok := c.GPU(g.Type); !ok {
				bad(h, "GPU type %q is not in the catalog", g.Type)
			}
			// A pod must not run without its GPUs. GPUs without names may be simulated.
			if len(g.Devices) > 0 && h.Runtime != nil && !h.Runtime.Capabilities().GPUs {
				bad(h, "it has devices of %q, and its runtime hands out none", g.Type)
			}
		}
		for id, n := range h.VCPU {
			if n < 0 {
				bad(h, "VCPU of flavor %q must not be negative", id)
			}
			if _, ok := c.CPU(id); !ok {
				bad(h, "CPU flavor %q is not in the catalog", id)
			}
		}
	}
	return errors.Join(errs...)
}

// duplicates returns the GPU types and devices that are listed more than once. A device has one
// claim, so a second one of its name could not be used.
func (h *Host) duplicates() (names []string) {
	types, devices := make(map[string]bool), make(map[string]bool)
	note := func(seen map[string]bool, what, name string) {
		if seen[name] {
			names = append(names, fmt.Sprintf("%s %q", what, name))
		}
		seen[name] = true
	}
	for _, g := range h.GPUs {
		note(types, "GPU type", g.Type)
		for _, d := range g.Devices {
			note(devices, "device", d)
		}
	}
	return names
}

// withoutMissingNetworks returns c without the global network of data centers where a host
// cannot join one.
func withoutMissingNetworks(c catalog.Catalog, hosts []Host) catalog.Catalog {
	c.DataCenters = slices.Clone(c.DataCenters)
	for i := range c.DataCenters {
		d := &c.DataCenters[i]
		for _, h := range hosts {
			d.GlobalNetwork = d.GlobalNetwork && (h.DataCenter != d.ID || h.Runtime.Capabilities().PrivateNetworks)
		}
	}
	return c
}

// sameRuntime reports whether a and b are one runtime.
func sameRuntime(a, b Runtime) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.TypeOf(a).Comparable() && a == b
}
