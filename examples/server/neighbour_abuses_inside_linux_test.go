package main

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// withStillPods gives the server an image for everybody that does nothing.
func withStillPods(_ *testing.T, s *settingsOf) []string {
	s.Images["test/still"] = map[string]any{"command": []string{"/bin/sleep", "1000"}, "users": []string{"*"}}
	return nil
}

// stillPod makes a pod of the tenant that runs.
func (n *tenant) stillPod() {
	var p struct{ ID, Status string }
	status, b := n.do(n.t.Context(), "POST", "/v2/pods", `{"name":"still","image":"test/still","cpu":{"id":"host","vcpuCount":2}}`)
	if err := json.Unmarshal(b, &p); err != nil || status != http.StatusCreated {
		n.t.Fatalf("a pod = %d %.200s", status, b)
	}
	n.pod = p.ID
	eventually(n.t, "the pod runs", func() bool {
		_, b := n.do(n.t.Context(), "GET", "/v2/pods/"+p.ID, "")
		return json.Unmarshal(b, &p) == nil && p.Status == "RUNNING"
	})
}

var abusesInside = []abuse{
	{door: "Commands inside pods", name: "commands that do not end, and terminals that nobody reads", refused: true, server: withStillPods, prepare: (*tenant).stillPod, do: func(ctx context.Context, n *tenant) {
		var unread sync.WaitGroup
		unread.Go(func() {
			n.unread(ctx, 5, n.head("GET", "/v2/pods/"+n.pod+"/terminal?command=yes",
				"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="))
		})
		everywhere(ctx, 20, func(int) {
			n.do(ctx, "POST", "/v2/pods/"+n.pod+"/exec", `{"command":["sleep","600"],"timeout":600000}`)
		})
		unread.Wait()
	}},
	{door: "Commands inside pods", name: "terminals of the console that nobody reads", server: withStillPods, prepare: func(n *tenant) { n.stillPod(); n.signIn() }, do: func(ctx context.Context, n *tenant) {
		n.unread(ctx, 20, strings.TrimSuffix(n.page("/console/api/v2/pods/"+n.pod+"/terminal?command=yes"), "\r\n")+
			"Origin: https://a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	}},
}
