package postgres

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"
)

// Without these options the system waits for a quarter of an hour, and for ever if nothing was sent.
func TestConnectionsGiveASilentPeerUp(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	all := newLinks(time.Minute, time.Now)
	c, err := all.dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := c.(*link).Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		for what, o := range map[string][3]int{
			"TCP_USER_TIMEOUT, ms": {syscall.IPPROTO_TCP, tcpUserTimeout, 20_000},
			"SO_KEEPALIVE":         {syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
			"TCP_KEEPIDLE, s":      {syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, 10},
			"TCP_KEEPINTVL, s":     {syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, 5},
		} {
			if got, err := syscall.GetsockoptInt(int(fd), o[0], o[1]); err != nil || got != o[2] {
				t.Errorf("%s = %d, %v, want %d", what, got, err, o[2])
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	all.close()
	if _, err := all.dial(t.Context(), "tcp", l.Addr().String()); !errors.Is(err, ErrClosed) {
		t.Errorf("dial after the end = %v, want ErrClosed", err)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a write after the end = %v, want net.ErrClosed", err)
	}
}
