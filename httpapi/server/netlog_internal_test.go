package server

import (
	"bytes"
	"log"
	"log/slog"
	"strings"
	"testing"
)

func TestFailedHandshakesFillNoLog(t *testing.T) {
	var out bytes.Buffer
	l := log.New(netLog{slog.New(slog.NewTextHandler(&out, nil))}, "", 0)
	for range 1000 {
		l.Printf("http: TLS handshake error from %s: EOF", "192.0.2.1:1")
	}
	l.Printf("http: panic serving %v: %v", "192.0.2.1:1", "a fault")
	if n := strings.Count(out.String(), "\n"); n != 1 || !strings.Contains(out.String(), "level=WARN") || !strings.Contains(out.String(), "a fault") {
		t.Errorf("%d lines, want the panic alone:\n%.500s", n, &out)
	}
}
