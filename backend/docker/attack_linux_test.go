package docker

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/enginetest"
	"github.com/podyard/podyard/internal/firewall"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
)

// status returns the fields of /proc/self/status that the program "can" prints, and its
// user.
func status(t *testing.T, rt *Runtime, id string) map[string]string {
	t.Helper()
	fields := map[string]string{}
	for _, line := range rt.lines(t, id, 5) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	return fields
}

// The user of the image is not root, and its program is setuid root.
func TestASetuidProgramInAContainerGivesNoRights(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		for _, c := range []struct {
			allow           bool
			user, noNewPriv string
		}{{false, "1000", "1"}, {true, "0", "0"}} {
			rt := open(t, d, t.TempDir(), func(o *Options) { o.AllowNewPrivileges = c.allow })
			s := spec("climber", program("can"))
			s.Image = setuid
			up(t, rt, s)
			got := status(t, rt, "climber")
			if got["user"] != c.user || got["NoNewPrivs"] != c.noNewPriv || got["Seccomp"] != "2" {
				t.Errorf("AllowNewPrivileges = %v: the program is user %s with NoNewPrivs %s and Seccomp %s, want %s, %s and 2",
					c.allow, got["user"], got["NoNewPrivs"], got["Seccomp"], c.user, c.noNewPriv)
			}
		}
	})
}

func TestContainersHaveNotAllCapabilitiesOfTheEngine(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		rt := open(t, d, t.TempDir())
		up(t, rt, spec("can", program("can")))
		var effective uint64
		if _, err := fmt.Sscanf(status(t, rt, "can")["CapEff"], "%x", &effective); err != nil {
			t.Fatal(err)
		}
		const netAdmin, netRaw, sysAdmin, mknod, setuid = 12, 13, 21, 27, 7
		if effective&(1<<netRaw|1<<mknod|1<<netAdmin|1<<sysAdmin) != 0 || effective&(1<<setuid) == 0 {
			t.Errorf("capabilities are %x, want SETUID, and no NET_RAW, MKNOD, NET_ADMIN and SYS_ADMIN", effective)
		}
	})
}

// reached returns which of the addresses a pod of the owner can connect to.
func reached(t *testing.T, rt *Runtime, id, owner string, addresses ...string) (got []string) {
	t.Helper()
	s := spec(id, program(append([]string{"ask"}, addresses...)...))
	s.Owner = owner
	up(t, rt, s)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for line, err := range rt.Logs(ctx, id, pods.LogQuery{Tail: -1, Follow: true}) {
		if err != nil {
			t.Fatalf("Logs yields %v", err)
		}
		if line.Text == "tried" {
			break
		}
		got = append(got, strings.Fields(line.Text)[1])
	}
	slices.Sort(got)
	return got
}

// Addresses in a network behind this machine: the metadata service of a cloud, a block that
// the operator denies, and the internet.
const metadata, denied, internet = "169.254.169.254", "198.51.100.7", "203.0.113.9"

func TestAContainerReachesNothingOfTheHostAndOfOthers(t *testing.T) {
	suite.SkipUnlessLong(t)
	requireEngine(t, "dockerd") // or skip, before the network of the machine changes
	enginetest.OtherMachine(t, metadata, denied, internet)
	private, public := enginetest.Greeter(t, "0.0.0.0:0"), enginetest.Greeter(t, "0.0.0.0:0")
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		for _, isolation := range []Isolation{IsolationRequired, IsolationOff} {
			rt := open(t, d, t.TempDir(), func(o *Options) {
				o.Isolation = isolation
				o.Reachable = []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(public.Port))}
				o.Deny = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
			})
			gateway, err := rt.Gateway(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			victim := joined("victim", "bob")
			victim.Args, victim.Ports = []string{"serve"}, []pods.Port{{Private: 8888, Protocol: "tcp"}}
			other := net.JoinHostPort(up(t, rt, victim).IP, "8888")
			first := subnets(t, rt)[0].Addr().Next() // of the network of bob; alice has the next one
			worker, api, bridge := at(gateway, public), at(gateway, private), at(first, private)
			web := internet + ":80"
			tried := []string{web, metadata + ":80", denied + ":80", worker, api, bridge}
			want := tried // without rules, every attack succeeds
			if isolation == IsolationRequired {
				// Without rules the isolation of Podman has gaps: see doc.go.
				tried, want = append(tried, other), []string{web, worker}
			}
			got := reached(t, rt, "attacker", "alice", tried...)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("isolation %s: a container reaches %q, want %q", isolation, got, want)
			}
		}
	})
}

func at(a netip.Addr, service *net.TCPAddr) string {
	return netip.AddrPortFrom(a, uint16(service.Port)).String()
}

func TestFirewallRulesAreRepairedAndRemoved(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		dir := t.TempDir()
		strict := func(o *Options) { o.Isolation, o.Resync = IsolationRequired, 50*time.Millisecond }
		rt := open(t, d, dir, strict)
		table := rt.firewall.Name
		there := func() bool {
			_, err := firewall.Run(t.Context(), "", "list", "table", "inet", table)
			return err == nil
		}
		if there() {
			t.Error("there are rules before there is a container")
		}
		up(t, rt, spec("one", program("run")))
		if !there() {
			t.Fatal("there are no rules for a container")
		}
		if _, err := firewall.Run(t.Context(), "", "delete", "table", "inet", table); err != nil {
			t.Fatal(err)
		}
		late := time.After(time.Minute)
		for look := time.NewTicker(20 * time.Millisecond); !there(); {
			select {
			case <-look.C:
			case <-late:
				t.Fatal("rules that somebody removed do not come back")
			}
		}
		if err := rt.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !there() {
			t.Error("the rules of a container that runs went with the server")
		}
		rt = open(t, d, dir, strict)
		if err := rt.Remove(t.Context(), "one", 0); err != nil {
			t.Fatal(err)
		}
		if there() {
			t.Error("rules stay when no container is left")
		}
	})
}

func TestWithoutTheRightToSetRulesTheServerSaysSoOrRefuses(t *testing.T) {
	withEngine(t, func(t *testing.T, d *enginetest.Engine) {
		t.Setenv("PATH", t.TempDir()) // without nft
		rt := open(t, d, t.TempDir())
		if got := rt.Missing(); len(got) != 1 || !strings.Contains(got[0], "nft") {
			t.Errorf("Missing = %q, want the firewall rules", got)
		}
		up(t, rt, spec("runs", program("run")))
		_, err := Open(t.Context(), t.TempDir(), &Options{Engine: d.Address(), Isolation: IsolationRequired})
		if err == nil || !strings.Contains(err.Error(), "isolation is required") || !strings.Contains(err.Error(), "nft") {
			t.Errorf("Open = %v, want that nft is missing", err)
		}
	})
}

func TestARuntimeOrUserNamespacesThatTheEngineLacksAreRefusedAtOpen(t *testing.T) {
	withEngine(t, func(t *testing.T, d *enginetest.Engine) {
		for want, o := range map[string]Options{
			`runtime "no-such-runtime" is demanded`: {Runtime: "no-such-runtime"},
			"user namespaces are demanded":          {UserNamespaces: true},
		} {
			o.Engine = d.Address()
			if _, err := Open(t.Context(), t.TempDir(), &o); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Open = %v, want that %s", err, want)
			}
		}
		rt := open(t, d, t.TempDir(), func(o *Options) { o.Runtime = "runc" })
		up(t, rt, spec("runs", program("run")))
	})
}

// Docker has one setting for all containers, so this test needs Podman.
func TestRootOfAContainerWithAUserNamespaceIsNotRootOfTheHost(t *testing.T) {
	d := requireEngine(t, "podman")
	ids := filepath.Join(t.TempDir(), "ids")
	if err := os.WriteFile(ids, []byte("containers:2000000000:1000000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/etc/subuid", "/etc/subgid"} { // only in the mount namespace of the tests
		if err := syscall.Mount(ids, path, "", syscall.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(path, 0) })
	}
	rt := open(t, d, t.TempDir(), func(o *Options) { o.UserNamespaces = true })
	s := spec("mapped", program("can"))
	s.Mounts = []pods.Mount{{Path: "/data", Size: 1}}
	up(t, rt, s)
	if got := strings.Fields(status(t, rt, "mapped")["users"]); len(got) < 3 || got[0] != "0" || !strings.HasPrefix(got[1], "200") {
		t.Errorf("the users of the container are %q, want that 0 is a user of the range", got)
	}
}

func TestAContainerSeesNoFilesAndProcessesOfTheHostAndOfOthers(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		dir := t.TempDir()
		secret := filepath.Join(dir, "secret-key")
		if err := os.WriteFile(secret, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		rt := open(t, d, filepath.Join(dir, "docker"))
		up(t, rt, spec("victim", program("stubborn"))) // this image has a file /deaf
		paths := []string{secret, filepath.Join(dir, "docker"), strings.TrimPrefix(d.Address(), "unix://"), "/var/run/docker.sock", "/run/podman/podman.sock", "/deaf"}
		up(t, rt, spec("looker", program(append([]string{"look"}, paths...)...)))
		lines := rt.lines(t, "looker", len(paths)+1)
		for i, path := range paths {
			if lines[i] != path+" false" {
				t.Errorf("a container sees %s", lines[i])
			}
		}
		if got := lines[len(paths)]; got != "processes 1" {
			t.Errorf("a container sees %s, want its own", got)
		}
	})
}

func TestNothingOutlivesAContainer(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		rt := open(t, d, t.TempDir())
		mark := "podyard-outlives-" + d.Kind
		up(t, rt, spec("leaver", program("leave", mark)))
		rt.lines(t, "leaver", 1)
		lives := func() (n int) {
			all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
			for _, path := range all {
				if line, _ := os.ReadFile(path); strings.Contains(string(line), "stubborn\x00"+mark) {
					n++
				}
			}
			return n
		}
		if lives() != 1 {
			t.Fatal("the process that should stay was not started")
		}
		if err := rt.Remove(t.Context(), "leaver", 0); err != nil {
			t.Fatal(err)
		}
		if n := lives(); n != 0 {
			t.Errorf("%d processes of a container are left after its removal", n)
		}
	})
}
