package console

import (
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/podyard/podyard/problem"
)

// terminalOperation is the one operation that pages call by a WebSocket.
const terminalOperation = "podTerminal"

var errOrigin = problem.New(problem.Forbidden, "A terminal is for the console's own pages, over HTTPS or on this machine.")

// upgrade are the headers of a page's request for a WebSocket that the API gets. Without extensions:
// what is typed and shown is small.
var upgrade = [...]string{"Connection", "Upgrade", "Origin", "Sec-Websocket-Key", "Sec-Websocket-Version"}

// permitTerminal returns why a request may not open a terminal, or nil. The request is a GET, so neither
// the header of the pages nor the protection of what changes something says where it comes from.
//
// A request that is no WebSocket opens none: by it a page learns why one was refused, which a browser
// does not tell it.
func (c *Console) permitTerminal(r *http.Request) error {
	switch {
	case c.ReadOnly:
		return errReadOnly
	case isUpgrade(r) && !ownOrigin(r):
		return errOrigin
	}
	return nil
}

func isUpgrade(r *http.Request) bool { return r.Header.Get("Upgrade") != "" }

// ownOrigin reports whether a request says that it comes from a page of the host that it goes to. A proxy
// may have taken TLS away, so the scheme follows from the host: a browser keeps the session over HTTPS
// only, or on loopback.
func ownOrigin(r *http.Request) bool {
	o, err := url.Parse(r.Header.Get("Origin"))
	if err != nil || o.Host == "" || !strings.EqualFold(o.Host, r.Host) {
		return false
	}
	return o.Scheme == "https" || o.Scheme == "http" && r.TLS == nil && isLoopback(o.Hostname())
}

func isLoopback(host string) bool {
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || net.ParseIP(host).IsLoopback()
}

// passUpgrade gives the API what a WebSocket begins with. The request was permitted.
func passUpgrade(inner, r *http.Request) {
	for _, name := range upgrade {
		if v := r.Header.Values(name); len(v) > 0 {
			inner.Header[name] = v
		}
	}
}
