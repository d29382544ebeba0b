package httpapi

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What comes before an answer is no header of it: net/http bounds neither its number nor its time.
func TestAPodThatDoesNotComeToItsAnswerIsGivenUp(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	const hint = "HTTP/1.1 103 x\r\nLink: <a>\r\n\r\n"
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 4096)
				n, _ := c.Read(b)
				if strings.HasPrefix(string(b[:n]), "GET /ends") {
					_, _ = io.WriteString(c, strings.Repeat(hint, maxEarly)+"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
					return
				}
				for err == nil {
					_, err = io.WriteString(c, hint)
				}
			}()
		}
	}()
	a := &api{buffers: &bufferPool{}}
	x := a.newPodPorts()
	for path, want := range map[string]error{"/ends": nil, "/goes-on": errPodHead} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		w := httptest.NewRecorder()
		if err := x.pass(&call{router: x.router, w: w, r: r}, l.Addr().String()); !errors.Is(err, want) || w.Code != http.StatusOK {
			t.Errorf("%s: %v %d, want %v", path, err, w.Code, want)
		}
	}
}

// The same rules as for workers: docs/interface.md 4.6.
func TestTheStatusAndTheTrailersOfAPodAreLookedAt(t *testing.T) {
	const lines = "Set-Cookie: CANARY; Domain=localhost\r\nClear-Site-Data: CANARY\r\nKept: yes\r\n\r\n"
	answers := map[string]string{
		"/trailers":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n" + lines,
		"/announced": "HTTP/1.1 200 OK\r\nTrailer: Set-Cookie, Clear-Site-Data, Kept\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n" + lines,
		"/zero":      "HTTP/1.1 000 x\r\nContent-Length: 2\r\n\r\nok",
	}
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, answers[r.URL.Path])
	}))
	defer pod.Close()
	x := (&api{buffers: &bufferPool{}}).newPodPorts()
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := x.pass(&call{router: x.router, w: w, r: r}, pod.Listener.Addr().String()); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	}))
	defer front.Close()
	for path := range answers {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := front.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		switch {
		case path == "/zero":
			if res.StatusCode != http.StatusBadGateway {
				t.Errorf("a status of 000 is answered as %d, want 502", res.StatusCode)
			}
		case err != nil || res.Trailer.Get("Kept") != "yes" || res.Trailer.Get("Set-Cookie")+res.Trailer.Get("Clear-Site-Data") != "":
			t.Errorf("%s: trailers %v, %v, want those of this answer only", path, res.Trailer, err)
		}
	}
}
