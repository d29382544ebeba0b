package server

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/podyard/podyard/httpapi/conns"
	"github.com/podyard/podyard/internal/pipelistener"
)

// A client that reads slowly answers a ping after what is before it: of an answer that is in the
// buffers of the kernel, megabytes. Such a client would lose its connection in the middle.
func TestASlowClientOfHTTP2IsNotAskedToAnswerPings(t *testing.T) {
	if h := newHTTPServer(nil, nil, 0).HTTP2; h.SendPingTimeout != 0 || h.PingTimeout != 0 {
		t.Errorf("a ping is sent after %v and must be answered in %v, want none", h.SendPingTimeout, h.PingTimeout)
	}
}

// What a connection of HTTP/2 has left in memory when it has ended is there until its last timer ends. A
// client that resets its streams at once, again and again, filled the memory so.
func TestNothingIsLeftOfAConnectionOfHTTP2ThatHasEnded(t *testing.T) {
	with := httptest.NewTLSServer(nil)
	with.Close()
	for _, row := range []struct {
		name string
		last []byte // that the client sends before it ends the connection
	}{
		{"the client resets its stream", []byte{0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8}},
		{"the client ends the connection with a stream", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				left := oneStream(t, with.TLS.Certificates, row.last)
				for range 5 { // net/http has pools, and timers that were stopped are let go later
					time.Sleep(time.Second)
					runtime.GC()
				}
				if left.Value() != nil {
					t.Error("the connection is still in memory")
				}
			})
		})
	}
}

// A pipeEnd is the end of a connection at the server.
type pipeEnd struct{ net.Conn }

// pipeEnds accepts one connection.
type pipeEnds struct {
	*pipelistener.Listener

	accepted weak.Pointer[pipeEnd]
}

func (l *pipeEnds) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	end := &pipeEnd{c}
	l.accepted = weak.Make(end)
	return end, nil
}

// oneStream makes a request of HTTP/2 whose handler sets deadlines before and after the end of its
// stream, and returns the connection after its end.
func oneStream(t *testing.T, certificates []tls.Certificate, last []byte) weak.Pointer[pipeEnd] {
	t.Helper()
	limit := conns.New(nil)
	srv := newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = errors.Join(rc.SetReadDeadline(time.Time{}), rc.SetWriteDeadline(time.Time{}), rc.Flush())
		<-r.Context().Done()
		_ = errors.Join(rc.SetReadDeadline(time.Now().Add(time.Hour)), rc.SetWriteDeadline(time.Now().Add(time.Hour)))
	}), limit, 0)
	l := &pipeEnds{Listener: pipelistener.New()}
	served := make(chan error)
	go func() {
		served <- srv.Serve(tls.NewListener(limit.Listener(l), &tls.Config{Certificates: certificates, NextProtos: []string{"h2"}}))
	}()
	c, err := l.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, client) }()
	head := "\x83\x87\x84\x01\x01a" // POST, https, / and an authority, and the stream stays open
	_, err = client.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" +
		"\x00\x00" + string(rune(len(head))) + "\x01\x04\x00\x00\x00\x01" + head))
	if synctest.Wait(); err != nil || limit.Stats().Connections == 0 {
		t.Fatal(err, limit.Stats())
	}
	_, _ = client.Write(last)
	synctest.Wait()
	_ = c.Close()
	synctest.Wait()
	if got := limit.Stats(); got != (conns.Stats{}) {
		t.Errorf("%+v stay counted", got)
	}
	_ = srv.Close()
	<-served
	return l.accepted
}
