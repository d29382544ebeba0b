package docker

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/enginetest"
	"github.com/podyard/podyard/pods"
)

// status are the fields of /proc/self/status that the program "can" prints, and its user.
func status(t *testing.T, rt *Runtime, id string) map[string]string {
	t.Helper()
	fields := map[string]string{}
	for _, line := range rt.lines(t, id, 4) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	return fields
}

// The image is that of another user than root, and its program has the setuid bit of root.
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

// reached are the addresses that a pod of an owner connects to, of those that it tries.
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

// greeter listens at an address of the machine, and says hello to everybody.
func greeter(t *testing.T, address string) *net.TCPAddr {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(c, "hello")
			_ = c.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr)
}

// These addresses are those of a machine in a network behind that of the tests: metadata of
// a cloud, a block that the operator denies, and the internet.
const metadata, denied, internet = "169.254.169.254", "198.51.100.7", "203.0.113.9"

// otherMachine has these addresses, and says hello at port 80.
func otherMachine(t *testing.T) {
	t.Helper()
	run := func(args ...string) {
		if out, err := exec.CommandContext(t.Context(), "ip", args...).CombinedOutput(); err != nil {
			t.Errorf("ip %q: %v: %s", args, err, out)
		}
	}
	run("link", "add", "pyhere", "type", "veth", "peer", "name", "pythere")
	t.Cleanup(func() {
		_ = exec.CommandContext(context.WithoutCancel(t.Context()), "ip", "link", "del", "pyhere").Run()
	})
	thread, moved, listens := make(chan int), make(chan struct{}), make(chan *net.TCPAddr)
	go func() {
		runtime.LockOSThread() // it ends with the goroutine: its network is another one
		if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
			t.Error(err)
		}
		thread <- syscall.Gettid()
		<-moved
		for _, a := range []string{"192.0.2.2/24", metadata + "/32", denied + "/32", internet + "/32"} {
			run("address", "add", a, "dev", "pythere")
		}
		run("link", "set", "pythere", "up")
		run("route", "add", "default", "via", "192.0.2.1")
		listens <- greeter(t, "0.0.0.0:80")
	}()
	run("link", "set", "pythere", "netns", strconv.Itoa(<-thread))
	run("address", "add", "192.0.2.1/24", "dev", "pyhere")
	run("link", "set", "pyhere", "up")
	close(moved)
	<-listens
	for _, a := range []string{metadata, denied, internet} {
		run("route", "add", a+"/32", "via", "192.0.2.2")
	}
}

func TestAContainerReachesNothingOfTheHostAndOfOthers(t *testing.T) {
	requireEngine(t, "dockerd") // or skip, before the network of the machine is changed
	otherMachine(t)
	private, public := greeter(t, "0.0.0.0:0"), greeter(t, "0.0.0.0:0")
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
			first := subnets(t, rt)[0].Addr().Next() // of the network of bob; alice has the one after it
			worker, api, bridge := at(gateway, public), at(gateway, private), at(first, private)
			web := internet + ":80"
			tried := []string{web, metadata + ":80", denied + ":80", worker, api, bridge}
			want := tried // without rules: the attacks are good ones
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
		table := rt.table()
		there := func() bool {
			_, err := nft(t.Context(), "", "list", "table", "inet", table)
			return err == nil
		}
		if there() {
			t.Error("there are rules before there is a container")
		}
		up(t, rt, spec("one", program("run")))
		if !there() {
			t.Fatal("there are no rules for a container")
		}
		if _, err := nft(t.Context(), "", "delete", "table", "inet", table); err != nil {
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
		t.Setenv("PATH", t.TempDir()) // no nft
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
