package server

import "testing"

// A client that reads slowly answers a ping after what is before it: of an answer that is in the
// buffers of the kernel, megabytes. Such a client would lose its connection in the middle.
func TestASlowClientOfHTTP2IsNotAskedToAnswerPings(t *testing.T) {
	if h := newHTTPServer(nil).HTTP2; h.SendPingTimeout != 0 || h.PingTimeout != 0 {
		t.Errorf("a ping is sent after %v and must be answered in %v, want none", h.SendPingTimeout, h.PingTimeout)
	}
}
