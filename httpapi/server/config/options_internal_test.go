package config

import (
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/podyard/podyard/backend/docker"
)

// leftOut are the options of containers that the configuration does not set, with the reason.
func leftOut() map[string]string {
	return map[string]string{
		"Engine": "DOCKER_HOST and its kin say where the engine is, as for its other clients",
		"Grace":  "each pod has its own: podyard.stopGrace",
		"Resync": "a safety net that nobody has had to change",
	}
}

// Each option of the runtime of containers is set by the configuration, or listed with the reason.
func TestEveryOptionOfContainersIsSetOrLeftOutForAReason(t *testing.T) {
	p := &Parts{log: slog.New(slog.DiscardHandler), podAddress: netip.MustParseAddr("192.0.2.1"), own: &Options{Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}}, config: &Config{
		Containers: Containers{
			LocalImages: []string{"a"}, ImageRecheck: 1, Subnet: "10.1.0.0/16", Isolation: string(docker.IsolationRequired), Deny: []string{"10.0.0.0/8"},
			ImageDays: 1, DiskFree: 1, Runtime: "runsc", UserNamespaces: true, NewPrivileges: true, Pids: 1, Ulimits: map[string]int64{"memlock": -1},
			ShmSize: 1, LogSize: 2, Init: true, DiskLimit: true, CapDrop: []string{"ALL"}, CDIDirs: []string{"/cdi"},
		},
	}}
	o, reasons := reflect.ValueOf(*p.containerOptions()), leftOut()
	for i := range o.NumField() {
		f := o.Type().Field(i)
		if _, listed := reasons[f.Name]; f.IsExported() && o.Field(i).IsZero() != listed {
			t.Errorf("%s: set by the configuration: %v, left out: %v; want one of the two", f.Name, !o.Field(i).IsZero(), listed)
		}
	}
}

func TestPortsOfPodsArePublishedWhereTheServerListens(t *testing.T) {
	for name, c := range map[string]struct {
		listens, configured string
		want                string // empty: the address of the default route, or loopback without one
	}{
		"on loopback":            {"127.0.0.1", "", "127.0.0.1"},
		"on loopback of IPv6":    {"::1", "", "127.0.0.1"},
		"on one address":         {"192.0.2.7", "", "192.0.2.7"},
		"everywhere":             {"0.0.0.0", "", ""},
		"where the file says":    {"0.0.0.0", "192.0.2.8", "192.0.2.8"},
		"on loopback, but there": {"127.0.0.1", "192.0.2.8", "192.0.2.8"},
	} {
		p := &Parts{log: slog.New(slog.DiscardHandler), own: &Options{Addr: &net.TCPAddr{IP: net.ParseIP(c.listens)}}, config: &Config{Pods: Pods{Address: c.configured}}}
		got, err := p.publishAt()
		if err != nil {
			t.Fatal(err)
		}
		want := c.want
		if want == "" {
			want = "127.0.0.1"
			if at, err := defaultSource(); err == nil {
				want = at.String()
			}
		}
		if got.String() != want || got.IsUnspecified() {
			t.Errorf("a server that listens %s publishes at %s, want %s", name, got, want)
		}
	}
}

func TestWhatContainersCannotHaveIsNamed(t *testing.T) {
	for place, c := range map[string]*Config{
		"pods.address":              {Pods: Pods{Address: "0.0.0.0"}},
		"containers.ulimits.memory": {Containers: Containers{Ulimits: map[string]int64{"memory": 1}}},
		"containers.ulimits.nofile": {Containers: Containers{Ulimits: map[string]int64{"nofile": -2}}},
		"containers.shmSize":        {Containers: Containers{ShmSize: -1}},
		"containers.pids":           {Containers: Containers{Pids: -2}},
	} {
		err := c.Pods.checkAddress()
		if err == nil {
			err = c.Containers.checkLimits()
		}
		if err == nil || !strings.Contains(err.Error(), place) {
			t.Errorf("%s: %v, want an error that names it", place, err)
		}
	}
}
