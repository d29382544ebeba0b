package conns_test

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi/conns"
)

// What a client has not read is in the memory of the kernel, which no budget counts. A client that
// reads fast at first has the largest buffer.
func TestTheKernelHoldsLittleForAClientThatCeasesToRead(t *testing.T) {
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := conns.New(nil).Listener(inner)
	t.Cleanup(func() { _ = l.Close() })
	const small = 64 << 10 // of the client's own buffer
	d := &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, small) })
	}}
	client, err := d.DialContext(t.Context(), "tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	const fast = 32 * mega
	read := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.Discard, client, fast)
		read <- err
	}()
	if _, err := c.Write(make([]byte, fast)); err != nil {
		t.Fatal(err)
	}
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	n, err := c.Write(make([]byte, fast))
	if err == nil || n > 512<<10 {
		t.Errorf("the kernel took %d KB for a client that does not read, and then said %v; want at most 512", n>>10, err)
	}
}
