package enginetest

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
)

// Greeter accepts connections at an address of this machine and writes hello.
func Greeter(t testing.TB, address string) *net.TCPAddr {
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
			_, _ = fmt.Fprintln(c, "hello") // a client that went reads nothing
			_ = c.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr)
}

// OtherMachine creates a network namespace with these addresses that writes hello at port 80,
// and routes to them. This process must have a network namespace of its own: see Apart.
func OtherMachine(t testing.TB, addresses ...string) {
	t.Helper()
	ip := func(args ...string) {
		if out, err := exec.CommandContext(t.Context(), "ip", args...).CombinedOutput(); err != nil {
			t.Errorf("ip %q: %v: %s", args, err, out)
		}
	}
	ip("link", "add", "herepodyard", "type", "veth", "peer", "name", "therepodyard")
	t.Cleanup(func() {
		_ = exec.CommandContext(context.WithoutCancel(t.Context()), "ip", "link", "del", "herepodyard").Run()
	})
	thread, moved, listens := make(chan int), make(chan struct{}), make(chan *net.TCPAddr)
	go func() {
		runtime.LockOSThread() // the thread has another network namespace: it must end with the goroutine
		if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
			t.Error(err)
		}
		thread <- syscall.Gettid()
		<-moved
		for _, a := range append([]string{"192.0.2.2/24", "2001:db8::2/64"}, hosts(t, addresses)...) {
			ip("address", "add", a, "dev", "therepodyard", "nodad")
		}
		ip("link", "set", "lo", "up")
		ip("link", "set", "therepodyard", "up")
		ip("route", "add", "default", "via", "192.0.2.1")
		listens <- Greeter(t, "[::]:80")
	}()
	ip("link", "set", "therepodyard", "netns", strconv.Itoa(<-thread))
	ip("address", "add", "192.0.2.1/24", "dev", "herepodyard")
	ip("address", "add", "2001:db8::1/64", "dev", "herepodyard", "nodad")
	ip("link", "set", "herepodyard", "up")
	close(moved)
	<-listens
	for _, a := range hosts(t, addresses) {
		via := "192.0.2.2"
		if netip.MustParsePrefix(a).Addr().Is6() {
			via = "2001:db8::2"
		}
		ip("route", "add", a, "via", via)
	}
}

// hosts returns addresses as networks of one.
func hosts(t testing.TB, addresses []string) (all []string) {
	t.Helper()
	for _, text := range addresses {
		a, err := netip.ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, netip.PrefixFrom(a, a.BitLen()).String())
	}
	return all
}
