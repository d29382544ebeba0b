package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// Abuses of connections, before a key is read and with an ordinary one.
var abusesOfConnections = []abuse{
	{door: "HTTP/1 before a key", name: "many header fields and bodies that do not come", slow: true, do: func(ctx context.Context, n *tenant) {
		fields := manyFields(7000)
		n.silent(ctx, 256, func(int) string {
			return "POST /v2/echo/run HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n" + fields + "\r\n{"
		})
	}},
	{door: "HTTP/1 before a key", name: "headers that trickle", slow: true, do: func(ctx context.Context, n *tenant) {
		fields := manyFields(4000)
		n.silent(ctx, 256, func(int) string { return "GET /healthz HTTP/1.1\r\nHost: a\r\n" + fields })
	}},
	{door: "HTTP/1 before a key", name: "pipelined requests whose answers nobody reads", slow: true, do: func(ctx context.Context, n *tenant) {
		requests := strings.Repeat("GET /v2/openapi.json HTTP/1.1\r\nHost: a\r\n\r\n", 200)
		n.silent(ctx, 200, func(int) string { return requests })
	}},
	{door: "HTTP/1 before a key", name: "connections that come and go", do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 16, func(int) { closeConn(n.dial(ctx, "GET / HT")) })
	}},
	{door: "HTTP/2 before a key", name: "streams without a window and with many header fields", slow: true, server: withCertificate, do: func(ctx context.Context, n *tenant) {
		n.streams(ctx, 48, 250, 1700)
	}},
	{door: "HTTP/2 before a key", name: "streams without a window", slow: true, server: withCertificate, do: func(ctx context.Context, n *tenant) {
		n.streams(ctx, 250, 250, 0)
	}},
	{door: "HTTP/2 before a key", name: "streams that are reset at once", server: withCertificate, do: func(ctx context.Context, n *tenant) {
		n.resets(ctx, 0)
	}},
	{door: "HTTP/2 before a key", name: "streams with bodies that are reset at once", server: withCertificate, do: func(ctx context.Context, n *tenant) {
		n.resets(ctx, 1)
	}},
	{door: "HTTP/2 before a key", name: "connections that end with their streams", server: withCertificate, do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 16, func(int) {
			if c := n.dialHTTP2(ctx); c != nil {
				_, _ = c.Write(append(getStream(1, 0), getStream(3, 0)...))
				_ = c.Close()
			}
		})
	}},
	{door: "HTTP/2 before a key", name: "pings whose answers nobody reads", server: withCertificate, do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 8, func(int) {
			c := n.dialHTTP2(ctx)
			if c == nil {
				return
			}
			defer c.Close()
			ping := frame(6, 0, 0, make([]byte, 8))
			for ctx.Err() == nil {
				_ = c.SetWriteDeadline(time.Now().Add(time.Second))
				if _, err := c.Write(ping); err != nil {
					return
				}
			}
		})
	}},
	{door: "HTTP/2 before a key", name: "headers that go on and on", server: withCertificate, do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 8, func(int) {
			c := n.dialHTTP2(ctx)
			if c == nil {
				return
			}
			defer c.Close()
			if _, err := c.Write(frame(1, 1, 1, []byte{0x82, 0x87})); err != nil { // no END_HEADERS
				return
			}
			more := frame(9, 0, 1, append([]byte{0, 1, 'a', 100}, megabyte[:100]...))
			for ctx.Err() == nil {
				if _, err := c.Write(more); err != nil {
					return
				}
			}
		})
	}},
	{door: "API", name: "idle connections of one key from many addresses", slow: true, server: func(_ *testing.T, s *settingsOf) []string {
		s.Connections["total"] = 2000
		return nil
	}, do: func(ctx context.Context, n *tenant) {
		n.idle(ctx, 2400, func(i int) string { return fmt.Sprintf("127.0.4.%d", i%6+1) }, n.head("GET", "/v2/echo/health"))
	}},
	{door: "Worker protocol", name: "connections of workers from the address of others", slow: true, do: func(ctx context.Context, n *tenant) {
		n.idle(ctx, 2300, func(int) string { return "127.0.0.1" }, n.head("GET", "/v2/"+n.endpoint+"/ping/w1"))
	}},
	{door: "API", name: "connections that ask once and come again", do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 16, func(int) { closeConn(n.dial(ctx, n.head("GET", "/v2/echo/health"))) })
	}},
}

// resets begins streams and resets them at once. The flag END_STREAM is off if body is 1.
func (n *tenant) resets(ctx context.Context, body byte) {
	everywhere(ctx, 8, func(int) {
		c := n.dialHTTP2(ctx)
		if c == nil {
			return
		}
		defer c.Close()
		for id := uint32(1); ctx.Err() == nil && id < 4000; id += 2 {
			b := append(getStream(id, 0), frame(3, 0, id, []byte{0, 0, 0, 8})...)
			b[4] &^= body
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
}

// manyFields are short header fields with different names, of about 8 bytes each.
func manyFields(count int) string {
	var b strings.Builder
	for i := range count {
		fmt.Fprintf(&b, "%x:1\r\n", i+0x1000)
	}
	return b.String()
}

// idle opens connections, makes a request on each and reads the answer, and makes another one each
// second until ctx ends, so that none is idle for long.
func (n *tenant) idle(ctx context.Context, count int, from func(i int) string, request string) {
	var all []net.Conn
	defer func() {
		for _, c := range all {
			_ = c.Close()
		}
	}()
	answer := make([]byte, 4<<10)
	ask := func(c net.Conn) {
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(c, request); err == nil {
			_, _ = c.Read(answer)
		}
	}
	for i := 0; i < count && ctx.Err() == nil; i++ {
		n.from = from(i)
		if c := n.dial(ctx, ""); c != nil {
			all = append(all, c)
			ask(c)
		}
	}
	n.bites()
	<-ctx.Done()
}

// withCertificate gives the server TLS, and so HTTP/2.
func withCertificate(t *testing.T, s *settingsOf) []string {
	c := newCertificate(t)
	s.trusted = c.trusted
	return []string{"-tls-cert", c.cert, "-tls-key", c.key}
}

// frame is a frame of HTTP/2.
func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	size := len(payload)
	b := append(make([]byte, 0, 9+size), byte(size>>16), byte(size>>8), byte(size), kind, flags)
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// getStream begins a stream: a request without a key for a large document, with so many header fields.
// A field costs one byte, because it names one that was sent before (RFC 7541, 6.1).
func getStream(id uint32, fields int) []byte {
	const path, names = "/v2/openapi.json", 60
	b := append([]byte{0x82, 0x87, 0x01, 1, 'a', 0x04, byte(len(path))}, path...) // GET, https, :authority, :path
	for i := range min(fields, names) {
		b = append(b, 0x40, 1, byte('0'+i), 1, 'x')
		if '0'+i >= ':' { // names have no capitals
			b[len(b)-3] = "abcdefghijklmnopqrstuvwxyz-_.!#$%&'*+^`|~0123456789"[i%50]
		}
	}
	for i := range fields - names {
		b = append(b, 0x80|byte(62+i%names))
	}
	return frame(1, 4|1, id, b)
}

// dialHTTP2 opens a connection of HTTP/2 that takes no byte of an answer.
func (n *tenant) dialHTTP2(ctx context.Context) net.Conn {
	window := frame(4, 0, 0, []byte{0, 4, 0, 0, 0, 0}) // SETTINGS_INITIAL_WINDOW_SIZE = 0
	return n.dial(ctx, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+string(window))
}

// streams keeps connections with streams open, whose answers have no room.
func (n *tenant) streams(ctx context.Context, connections, streams, fields int) {
	for range connections {
		if ctx.Err() != nil {
			return
		}
		c := n.dialHTTP2(ctx)
		if c == nil {
			continue
		}
		defer c.Close()
		go func() { _, _ = io.Copy(io.Discard, c) }() // settings and resets are read, or the kernel would stop the server
		for i := range streams {
			if _, err := c.Write(getStream(uint32(2*i+1), fields)); err != nil {
				break
			}
		}
	}
	n.bites()
	<-ctx.Done()
}
