package httpapi_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// acceptSocket answers an upgrade and returns the connection.
func acceptSocket(t *testing.T, w http.ResponseWriter, r *http.Request) (net.Conn, *bufio.ReadWriter) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || !strings.EqualFold(r.Header.Get("Connection"), "upgrade") {
		t.Errorf("the worker gets %v", r.Header)
	}
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return nil, nil
	}
	_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSet-Cookie: a=b\r\n\r\n")
	_ = rw.Flush()
	return c, rw
}

// echoSocket is a worker that sends back the bytes of a WebSocket.
func echoSocket(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if c, rw := acceptSocket(t, w, r); c != nil {
			defer c.Close()
			_, _ = io.Copy(c, rw)
		}
	}
}

// open opens a WebSocket.
func (w *balancedAPI) open(target string) (net.Conn, *bufio.Reader) {
	w.t.Helper()
	c := w.net.dial(w.t)
	text := strings.Replace(requestText("GET", target, "", "Upgrade: WebSocket"), "Connection: close", "Connection: Upgrade", 1)
	go func() { _, _ = io.WriteString(c, text) }()
	r := bufio.NewReader(c)
	res, err := http.ReadResponse(r, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		w.t.Fatalf("upgrade: %v, %v", res, err)
	}
	if res.Header.Get("X-Runpod-Worker-Id") == "" || res.Header.Get("Set-Cookie") != "" {
		w.t.Errorf("the answer to the upgrade has %v", res.Header)
	}
	return c, r
}

// frame is a text frame of a server.
func frame(text string) string { return string([]byte{0x81, byte(len(text))}) + text }

// closing is the frame for 1001.
const closing = "\x88\x02\x03\xe9"

func readText(t *testing.T, r io.Reader, n int) string {
	t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		t.Fatalf("read %d bytes: %v", n, err)
	}
	return string(b)
}

func TestAWebSocketPassesAndStaysOpenWhileSilent(t *testing.T) {
	balanced(t, nil, func(w *balancedAPI) {
		c, r := w.open("/lb/web/socket")
		for range 3 {
			go func() { _, _ = io.WriteString(c, frame("hello")) }()
			if got := readText(t, r, 7); got != frame("hello") {
				t.Errorf("got %q", got)
			}
			advance(time.Hour)
		}
		if n := w.jobs.RunningWorkers("web"); n != 1 {
			t.Errorf("%d workers run", n)
		}
		_ = c.Close()
		advance(time.Second)
		if n := w.jobs.RunningWorkers("web"); n != 0 {
			t.Errorf("after the end %d workers run", n)
		}
	}, echoSocket(t))
}

func TestAWebSocketEndsWith1001BetweenFrames(t *testing.T) {
	big := "\x82\x7e\x04\x00" + strings.Repeat("b", 1024) // a frame of 1024 bytes
	for name, test := range map[string]struct {
		first, rest string // what the worker sends before, and what it sends after the end began
		want        string
	}{
		"nothing":       {"", "", closing},
		"a frame":       {frame("one"), "", frame("one") + closing},
		"half a frame":  {big[:500], big[500:] + frame("late"), big + closing},
		"half a header": {big[:3], big[3:], big + closing},
		"never ends":    {big[:500], "", big[:500]},
	} {
		t.Run(name, func(t *testing.T) {
			var more chan struct{} // of the bubble
			h := func(w http.ResponseWriter, r *http.Request) {
				c, _ := acceptSocket(t, w, r)
				defer c.Close()
				_, _ = io.WriteString(c, test.first)
				<-more
				if _, err := io.WriteString(c, test.rest); err != nil && test.rest != "" && !strings.HasSuffix(test.rest, frame("late")) {
					t.Errorf("the rest of the frame: %v", err)
				}
				time.Sleep(2 * time.Second)
			}
			balanced(t, nil, func(w *balancedAPI) {
				more = make(chan struct{})
				leave := w.join("w", h)
				_, r := w.open("/lb/web/socket")
				got := make(chan string)
				go func() {
					b, _ := io.ReadAll(r)
					got <- string(b)
				}()
				synctest.Wait()
				go leave() // it drains for 10 s
				advance(9 * time.Second)
				select {
				case text := <-got:
					t.Fatalf("it ends while it may drain, after %q", text)
				default:
				}
				advance(time.Second)
				close(more)
				if text := <-got; text != test.want {
					t.Errorf("the client gets %.40q (%d bytes), want %.40q (%d bytes)", text, len(text), test.want, len(test.want))
				}
				time.Sleep(3 * time.Second)
			})
		})
	}
}
