package console_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/podyard/podyard/httpapi/console"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
)

// A terminalTest is a console on a listener, with a pod of alice that runs.
type terminalTest struct {
	*world

	url, path string
}

func startTerminal(t *testing.T, set func(*console.Options)) *terminalTest {
	t.Helper()
	w := newWorld(t, set)
	w.background(w.pods.Run)
	s := httptest.NewUnstartedServer(w.console)
	var log bytes.Buffer
	s.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(&log, nil), slog.LevelError)
	s.Start()
	t.Cleanup(func() {
		if s.Close(); log.Len() > 0 {
			t.Errorf("the server says: %s", &log)
		}
	})
	pod := w.pod()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		p, err := w.pods.Get(t.Context(), "alice", pod)
		check(t, err)
		if p.Status() == pods.Running {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the pod is %s, want RUNNING", p.Status())
		}
	}
	return &terminalTest{w, s.URL, "/console/api/v2/pods/" + pod + "/terminal"}
}

// dial opens a terminal as a page of origin does. It returns the status of the answer.
func (x *terminalTest) dial(origin string) (*websocket.Conn, int) {
	x.t.Helper()
	h := http.Header{"Sec-Fetch-Site": {"same-origin"}}
	if x.cookie != nil {
		h.Set("Cookie", x.cookie.Name+"="+x.cookie.Value)
	}
	if origin != "" {
		h.Set("Origin", origin)
	}
	c, a, err := websocket.Dial(x.t.Context(), "ws"+strings.TrimPrefix(x.url, "http")+x.path+"?command=cat", &websocket.DialOptions{HTTPHeader: h})
	if a == nil {
		x.t.Fatal(err)
	}
	if err == nil {
		x.t.Cleanup(func() { _ = c.CloseNow() })
	}
	return c, a.StatusCode
}

// echoes writes to a terminal and reads it back.
func (x *terminalTest) echoes(c *websocket.Conn) {
	x.t.Helper()
	check(x.t, c.Write(x.t.Context(), websocket.MessageText, []byte(`{"columns":100,"rows":30}`)))
	check(x.t, c.Write(x.t.Context(), websocket.MessageBinary, []byte("hello")))
	x.reads(c, websocket.MessageBinary, "hello")
}

func (x *terminalTest) reads(c *websocket.Conn, kind websocket.MessageType, want string) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), 10*time.Second)
	defer cancel()
	for got := ""; !strings.Contains(got, want); {
		k, b, err := c.Read(ctx)
		if err != nil {
			x.t.Fatalf("the terminal says %q and ends with %v, want %q", got, err, want)
		}
		if k == kind {
			got += string(b)
		}
	}
}

func TestATerminalOfAPageEndsWithItsSession(t *testing.T) {
	x := startTerminal(t, nil)
	x.signIn(aliceKey)
	c, status := x.dial(x.url)
	if status != http.StatusSwitchingProtocols {
		t.Fatalf("a terminal of the console's own page = %d, want 101", status)
	}
	x.echoes(c)
	x.want(http.StatusNoContent, "DELETE", "/console/session", "")
	x.reads(c, websocket.MessageText, "no longer good")
}

func TestATerminalOfAPageEndsWithItsKey(t *testing.T) {
	x := startTerminal(t, nil)
	_, key, err := x.keys.Create(t.Context(), root, accounts.CreateRequest{User: "alice", Scopes: []string{"pods:write"}})
	check(t, err)
	k, err := x.keys.List(t.Context(), "alice")
	check(t, err)
	x.signIn(string(key))
	c, _ := x.dial(x.url)
	x.echoes(c)
	_, err = x.keys.Update(t.Context(), root, k[0].ID, accounts.UpdateRequest{Scopes: []string{"pods:read"}})
	check(t, err)
	x.reads(c, websocket.MessageText, "no longer good")
}

// A WebSocket has no header of the pages: the origin says where it comes from.
func TestATerminalIsForTheConsolesOwnOriginAlone(t *testing.T) {
	x := startTerminal(t, nil)
	x.signIn(aliceKey)
	host := strings.TrimPrefix(x.url, "http://")
	port := host[strings.LastIndexByte(host, ':'):]
	for _, origin := range []string{"", "null", "https://evil.example", "http://127.0.0.1:1", "http://localhost" + port, "ftp://" + host, "http://" + host + ".evil.example", "http://evil.example@" + host + "1", "podyard"} {
		if _, status := x.dial(origin); status != http.StatusForbidden {
			t.Errorf("a terminal of the origin %q = %d, want 403", origin, status)
		}
	}
	x.cookie = nil
	if _, status := x.dial(x.url); status != http.StatusUnauthorized {
		t.Errorf("a terminal without a session = %d, want 401", status)
	}
}

// Over HTTP a page of the same host name is another origin than one over HTTPS, unless it is on this machine.
func TestATerminalNeedsHTTPSElsewhere(t *testing.T) {
	x := startTerminal(t, nil)
	x.signIn(aliceKey)
	x.headers.Set("Upgrade", "websocket")
	for origin, want := range map[string]int{"http://podyard.test": http.StatusForbidden, "https://podyard.test": http.StatusUpgradeRequired} {
		x.headers.Set("Origin", origin)
		x.want(want, "GET", x.path, "") // 426: the API says what else a WebSocket needs
	}
}

func TestATerminalNeedsWhatChangesAPod(t *testing.T) {
	x := startTerminal(t, nil)
	x.signIn(readerKey)
	if _, status := x.dial(x.url); status != http.StatusForbidden {
		t.Errorf("a terminal with a key that reads = %d, want 403", status)
	}
	x.signIn(bobKey)
	if _, status := x.dial(x.url); status != http.StatusNotFound {
		t.Errorf("a terminal in the pod of another user = %d, want 404", status)
	}
	x.signIn(aliceKey)
	x.want(http.StatusBadRequest, "GET", x.path, "") // no WebSocket
	only := startTerminal(t, func(o *console.Options) { o.ReadOnly = true })
	only.signIn(aliceKey)
	if _, status := only.dial(only.url); status != http.StatusForbidden {
		t.Errorf("a terminal of a console that is read-only = %d, want 403", status)
	}
}

// The budget of sessions counts those of pages with all others of the user.
func TestTerminalsOfPagesCountAsSessions(t *testing.T) {
	x := startTerminal(t, nil)
	x.signIn(aliceKey)
	for range 10 {
		c, _ := x.dial(x.url)
		x.echoes(c)
	}
	if _, status := x.dial(x.url); status != http.StatusTooManyRequests {
		t.Errorf("the eleventh terminal = %d, want 429", status)
	}
}
