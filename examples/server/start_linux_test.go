package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// terminal is a pair of pseudo-terminals: what is written to tty is read from far.
func terminal(t *testing.T) (far, tty *os.File) {
	t.Helper()
	far, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		missing(t, "there are no pseudo-terminals: "+err.Error())
	}
	t.Cleanup(func() { far.Close() })
	var unlock, number int32
	for request, arg := range map[uintptr]*int32{syscall.TIOCSPTLCK: &unlock, syscall.TIOCGPTN: &number} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, far.Fd(), request, uintptr(unsafe.Pointer(arg))); errno != 0 {
			missing(t, "there are no pseudo-terminals: "+errno.Error())
		}
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		missing(t, "there are no pseudo-terminals: "+err.Error())
	}
	t.Cleanup(func() { tty.Close() })
	return far, tty
}

func TestOnATerminalTheKeyIsPrintedAlsoWhenItIsNotNew(t *testing.T) {
	t.Parallel()
	far, tty := terminal(t)
	cmd := command(t, []string{"PODYARD_API_KEY=" + testKey}, "-addr", "127.0.0.1:0", "-data", "")
	cmd.Stdout = tty
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	lines := make(chan string, 10)
	go func() {
		for sc := bufio.NewScanner(far); sc.Scan(); {
			lines <- strings.TrimSpace(sc.Text())
		}
	}()
	for _, want := range []string{"listening on http://", "key: " + testKey, "curl ", "curl "} {
		select {
		case got := <-lines:
			if !strings.HasPrefix(got, want) {
				t.Errorf("line %q, want one that begins %q", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("no line that begins %q", want)
		}
	}
}
