package main

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
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

// The log of a server may be a pipe, as in "server 2>&1 | tee file". Its reader may go at any time.
func TestAServerOutlivesTheReaderOfItsLog(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	config := file(t, `{}`)
	cmd := command(t, []string{"PODYARD_API_KEY=" + testKey}, "-addr", "127.0.0.1:0", "-data", t.TempDir(), "-config", config)
	cmd.Stderr = w
	in := startCommand(t, cmd)
	if err := errors.Join(w.Close(), r.Close()); err != nil {
		t.Fatal(err)
	}
	for range 3 { // each leaves a line in the log
		if err := in.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if status, _ := in.do("GET", "/healthz", ""); status != http.StatusOK {
			t.Errorf("/healthz answers %d without a reader of the log, want 200", status)
		}
		if j := get[job](in, "POST", "/v2/echo/runsync", `{"input":{"sleep_ms":50}}`, http.StatusOK); j.Status != "COMPLETED" {
			t.Errorf("a job without a reader of the log is %s, want COMPLETED", j.Status)
		}
	}
	in.stop()
}
