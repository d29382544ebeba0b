package suite

import (
	"context"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"testing"
)

// FreePort returns a port of 127.0.0.1 that nothing listens on. It stays free while no server
// listens there: it is below those that the system gives to callers that ask for no particular
// one, as other tests do.
func FreePort(ctx context.Context) (port int, err error) {
	for range 100 {
		port = 10_000 + rand.IntN(20_000) //nolint:forbidigo // no test needs the same again
		if err = listens(ctx, addressOf(port)); err == nil {
			return port, nil
		}
	}
	return 0, err
}

// FreeAddress returns the address of a FreePort.
func FreeAddress(t testing.TB) string {
	t.Helper()
	port, err := FreePort(t.Context())
	if err != nil {
		t.Fatalf("no port is free: %v", err)
	}
	return addressOf(port)
}

// IsFree reports whether nothing listens on an address.
func IsFree(ctx context.Context, address string) bool { return listens(ctx, address) == nil }

func addressOf(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func listens(ctx context.Context, address string) error {
	syscall.ForkLock.RLock() // a program that another test starts now would hold the port until it runs
	defer syscall.ForkLock.RUnlock()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return l.Close()
}
