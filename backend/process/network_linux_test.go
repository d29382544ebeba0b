package process

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/enginetest"
	"github.com/podyard/podyard/internal/firewall"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
)

// Addresses behind this machine: metadata services of clouds, a block that the operator denies,
// and the internet.
const (
	metadata, metadata6Address = "169.254.169.254", "fd00:ec2::254"
	denied, denied6            = "198.51.100.7", "2001:db8:7::7"
	internet, internet6        = "203.0.113.9", "2001:db8:9::9"
)

// echo answers datagrams at an address of this machine.
func echo(t *testing.T, address string) string {
	t.Helper()
	c, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		b := make([]byte, 16)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(b[:n], from) // somebody who went
		}
	}()
	return c.LocalAddr().String()
}

// engineSocket is a socket that everybody may connect to, and that is to be hidden.
func engineSocket(t *testing.T) string {
	t.Helper()
	path := filepath.Join(openDir(t), "engine.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("hello")) // somebody who went
			_ = c.Close()
		}
	}()
	return path
}

// nameServer makes an address the name server of this machine, in the mount namespace of the
// tests.
func nameServer(t *testing.T, address string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("nameserver "+address+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount(file, "/etc/resolv.conf", "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount("/etc/resolv.conf", 0) })
}

// served starts a pod that says hello at its port, and returns where.
func served(t *testing.T, rt *Runtime, owner, id string) string {
	t.Helper()
	s := spec(id, program("serve"))
	s.Owner, s.Ports = owner, []pods.Port{{Private: 8888, Protocol: "tcp"}}
	ensure(t, rt, s)
	up := await(t, rt, id, "port", phase(pods.PhaseHealthy))
	return "127.0.0.1:" + strconv.Itoa(up.Ports[0].Public)
}

func needsRules(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can have pods run as other users, and set firewall rules")
	}
}

func TestAProcessReachesNothingOfTheHostAndOfOthers(t *testing.T) {
	suite.SkipUnlessLong(t)
	needsRules(t)
	enginetest.OtherMachine(t, metadata, denied, internet, metadata6Address, denied6, internet6)
	nameServer(t, "127.0.0.1")
	resolver, service := echo(t, "127.0.0.1:53"), echo(t, "127.0.0.1:0")
	worker := enginetest.Greeter(t, "127.0.0.1:0").String()
	api, api6 := enginetest.Greeter(t, "127.0.0.1:0").String(), enginetest.Greeter(t, "[::1]:0").String()
	everywhere := enginetest.Greeter(t, "[::]:0").Port
	socket := engineSocket(t)
	for _, isolation := range []bool{true, false} {
		rt := open(t, t.TempDir(), func(o *Options) {
			if !isolation {
				return
			}
			isolated(true)(o)
			o.Isolation.Hide = []string{socket}
			o.Isolation.Reachable = []netip.AddrPort{netip.MustParseAddrPort(worker)}
			o.Isolation.Deny = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:7::/48")}
		})
		if isolation && hostLacks(t, rt, lacksNetwork) {
			return
		}
		other, own := served(t, rt, "victim", "victim"), served(t, rt, "tenant", "friend")
		public := net.JoinHostPort("192.0.2.1", strconv.Itoa(everywhere))
		refused := []string{
			"dial=" + api, "dial=" + api6, "mptcp=" + api, "dial=" + public, "dial=" + other, "mptcp=" + other, "udp=" + service,
			"dial=" + metadata + ":80", "dial=[" + metadata6Address + "]:80", "dial=" + denied + ":80", "dial=[" + denied6 + "]:80",
			"unix=" + socket, "packet=",
		}
		allowed := []string{"dial=" + worker, "dial=" + own, "mptcp=" + own, "udp=" + resolver, "dial=" + internet + ":80", "dial=[" + internet6 + "]:80"}
		ensure(t, rt, tenant("tenant", "tenant", slices.Concat(refused, allowed)...))
		came := tried(t, rt, "tenant")
		for _, what := range refused {
			t.Logf("isolation %t: %s: %s", isolation, what, came[what])
			if (came[what] == "ok") == isolation { // without rules every attack succeeds
				t.Errorf("isolation %t: %s: %s", isolation, what, came[what])
			}
		}
		for _, what := range allowed {
			if came[what] != "ok" {
				t.Errorf("isolation %t: %s: %s, want that it can", isolation, what, came[what])
			}
		}
		if err := rt.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFirewallRulesOfPodsAreRepairedAndRemoved(t *testing.T) {
	suite.SkipUnlessLong(t)
	needsRules(t)
	dir := t.TempDir()
	often := func(o *Options) {
		isolated(true)(o)
		o.Isolation.repair = 20 * time.Millisecond
	}
	rt := open(t, dir, often)
	if hostLacks(t, rt, lacksNetwork) {
		return
	}
	table := rt.network.table.Name
	there := func() bool {
		_, err := firewall.Run(t.Context(), "", "list", "table", "inet", table)
		return err == nil
	}
	remove := func() {
		t.Helper()
		if _, err := firewall.Run(t.Context(), "", "delete", "table", "inet", table); err != nil {
			t.Fatal(err)
		}
	}
	if !there() {
		t.Fatal("there are no rules")
	}
	remove()
	late := time.After(time.Minute)
	for look := time.NewTicker(10 * time.Millisecond); !there(); {
		select {
		case <-look.C:
		case <-late:
			t.Fatal("rules that somebody removed do not come back")
		}
	}
	if err := rt.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if there() {
		t.Error("the rules stay when no pod is left")
	}
	rt = open(t, dir, isolated(true))
	remove()
	ensure(t, rt, spec("one", program("run")))
	await(t, rt, "one", "health", phase(pods.PhaseHealthy))
	if !there() {
		t.Error("a pod runs without the rules that somebody removed")
	}
}

func TestWithoutTheRightToSetRulesItIsSaidAndPodsRun(t *testing.T) {
	needsRules(t)
	t.Setenv("PATH", t.TempDir()) // without nft
	rt := open(t, t.TempDir(), isolated(true))
	if said := rt.Missing(); !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, lacksNetwork) && strings.Contains(s, "nft") }) {
		t.Errorf("Missing = %q, want the firewall rules, and nft", said)
	}
	ensure(t, rt, spec("one", program("run")))
	await(t, rt, "one", "health", phase(pods.PhaseHealthy))
}

func TestOnlyBlocksAreDenied(t *testing.T) {
	bad := netip.MustParsePrefix("10.0.0.1/8")
	if _, err := Open(t.TempDir(), &Options{Isolation: &Isolation{Launch: []string{launchArg}, Deny: []netip.Prefix{bad}}}); err == nil || !strings.Contains(err.Error(), "10.0.0.0/8 is the block") {
		t.Errorf("Open = %v, want that it names the block", err)
	}
	for p, ok := range maps.All(map[string]bool{"10.0.0.0/8": true, "fd00::/8": true, "fd00::1/8": false}) {
		if err := CheckDeny(netip.MustParsePrefix(p)); (err == nil) != ok {
			t.Errorf("CheckDeny(%s) = %v", p, err)
		}
	}
}
