package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi"
)

// pipeListener is a listener without a network, so that connections use the time of a
// synctest bubble.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipeListener) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (*pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// dialPipe serves w without a network and returns a function that connects to it.
func (w *testAPI) dialPipe() func() rawConn {
	w.t.Helper()
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	s := &http.Server{Handler: w.handler}
	done := make(chan error)
	go func() { done <- s.Serve(l) }()
	w.t.Cleanup(func() {
		_ = s.Close()
		<-done
		time.Sleep(time.Second) // a server waits for a moment before it closes a refused connection
	})
	return func() rawConn {
		server, client := net.Pipe()
		w.t.Cleanup(func() { _ = client.Close() })
		l.conns <- server
		return rawConn{client, bufio.NewReader(client)}
	}
}

func TestClientThatStallsInABodyIsAnswered(t *testing.T) {
	bubble(t, func(w *testAPI) {
		connect := w.dialPipe()
		for _, row := range []struct {
			why, head, body string
			status          int
			after           time.Duration
		}{
			{"with its length", rawHead, "Content-Length: 65536\r\n\r\n{", 408, 31 * time.Second},
			{"in chunks", rawHead, "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", 408, 350 * time.Second},
			{"too large", rawHead, "Content-Length: 1048577\r\n\r\n{", 413, 2 * time.Second},
			{"of an unknown key", strings.Replace(rawHead, aliceFree, "nobody", 1), "Content-Length: 65536\r\n\r\n{", 401, 31 * time.Second},
			{"of no such path", strings.Replace(rawHead, "/v2/registries", "/v2/nothing/of/this", 1), "Content-Length: 65536\r\n\r\n{", 404, 31 * time.Second},
			{"that nobody reads", strings.Replace(rawHead, "/v2/registries", "/v2/idle/purge-queue", 1), "Content-Length: 65536\r\n\r\n{", 200, 31 * time.Second},
		} {
			c := connect()
			began := time.Now()
			c.send(w.t, row.head+row.body)
			res, answer := c.answer(w.t)
			if res.StatusCode != row.status || !res.Close {
				w.t.Errorf("a body %s: %d, close %v, %s; want %d and the end of the connection", row.why, res.StatusCode, res.Close, answer, row.status)
			}
			if d := time.Since(began); d != row.after {
				w.t.Errorf("a body %s: answered after %v, want %v", row.why, d, row.after)
			}
			if _, err := c.ReadByte(); err != io.EOF {
				w.t.Errorf("a body %s: after the answer comes %v, want EOF", row.why, err)
			}
		}
	})
}

func TestABodyThatKeepsComingIsTaken(t *testing.T) {
	bubble(t, func(w *testAPI) {
		c := w.dialPipe()()
		body := padded(`{"name":"n","image":"i"}`, 1<<20)
		c.send(w.t, fmt.Sprintf("%sContent-Length: %d\r\n\r\n", strings.Replace(rawHead, "/v2/registries", "/v2/templates", 1), len(body)))
		for len(body) > 0 {
			time.Sleep(40 * time.Second / 32)
			c.send(w.t, string(body[:1<<15]))
			body = body[1<<15:]
		}
		if res, answer := c.answer(w.t); res.StatusCode != http.StatusCreated || res.Close {
			w.t.Errorf("a body of 1 MiB in 40 s: %d, close %v, %s; want 201", res.StatusCode, res.Close, answer)
		}
	})
}

func TestARequestMayBeHeldForLongerThanItsBodyMayTake(t *testing.T) {
	bubble(t, func(w *testAPI) {
		c := w.dialPipe()()
		for range 2 {
			began := time.Now()
			c.send(w.t, strings.Replace(rawHead, "/v2/registries", "/v2/idle/runsync?wait=90000", 1)+"Content-Length: 12\r\n\r\n{\"input\":{}}")
			if res, answer := c.answer(w.t); res.StatusCode != http.StatusOK || res.Close || time.Since(began) != 90*time.Second {
				w.t.Errorf("after %v: %d, close %v, %s; want 200 after 90 s", time.Since(began), res.StatusCode, res.Close, answer)
			}
		}
	})
}

func TestBodyTimeoutIsTheEmbeddingPrograms(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{time.Second: 2 * time.Second, -1: 0} {
		bubbleWith(t, func(o *httpapi.Options) { o.BodyTimeout = timeout }, func(w *testAPI) {
			c := w.dialPipe()()
			began := time.Now()
			c.send(w.t, rawHead+"Content-Length: 65536\r\n\r\n{")
			_ = c.SetReadDeadline(began.Add(time.Hour)) // a pipe has deadlines
			_, err := c.ReadByte()
			if d := time.Since(began); want != 0 && (err != nil || d != want) || want == 0 && d != time.Hour {
				w.t.Errorf("BodyTimeout %v: answered after %v, %v; want %v", timeout, d, err, want)
			}
		})
	}
}
