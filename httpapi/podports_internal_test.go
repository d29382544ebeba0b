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
