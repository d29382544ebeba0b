package errno_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/podyard/podyard/internal/errno"
)

// Each failure is one that this system has just made.
func TestFailuresOfThisSystemAreKnown(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	if _, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", at); !errno.AddressInUse(err) || errno.Refused(err) {
		t.Errorf("AddressInUse(%v) is not true alone", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", at); !errno.Refused(err) || errno.AddressInUse(err) {
		t.Errorf("Refused(%v) is not true alone", err)
	}
	// An address for documentation (RFC 5737), which no machine has.
	if _, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "192.0.2.1:0"); !errno.AddressNotAvailable(err) {
		t.Errorf("AddressNotAvailable(%v) = false", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(filepath.Join(file, "below")); !errno.NotADirectory(err) {
		t.Errorf("NotADirectory(%v) = false", err)
	}
}

func TestNumbersThatNoTestCanMakeAreKnown(t *testing.T) {
	if err := (&os.PathError{Op: "write", Err: syscall.ENOSPC}); !errno.NoRoom(err) || errno.NoDescriptors(err) {
		t.Errorf("NoRoom(%v) is not true alone", err)
	}
	if err := (&os.PathError{Op: "open", Err: syscall.EMFILE}); !errno.NoDescriptors(err) || errno.NoRoom(err) {
		t.Errorf("NoDescriptors(%v) is not true alone", err)
	}
}

func TestAConnectionThatIsResetIsKnown(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	there, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := there.(*net.TCPConn).SetLinger(0); err != nil { // Close resets
		t.Fatal(err)
	}
	_ = there.Close()
	if _, err := io.ReadAll(c); err == nil {
		t.Skip("this system ended the connection in order")
	} else if !errno.Reset(err) {
		t.Errorf("Reset(%v) = false", err)
	}
}
