package main

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// withRudePods gives the server the image "test/visited", a rude web server.
func withRudePods(t *testing.T, s *settingsOf) []string {
	s.Images["test/visited"] = map[string]any{"command": []string{openProgram(t)}, "env": map[string]string{rudeWorkerEnv: "1"}, "users": []string{"*"}}
	return nil
}

// visited makes a rude pod, and waits until it answers at its name.
func (n *tenant) visited() {
	status, b := n.do(n.t.Context(), "POST", "/v2/pods", `{"name":"visited","image":"test/visited","cpu":{"id":"host","vcpuCount":2},"ports":["8000/http"]}`)
	var made struct{ ID string }
	if err := json.Unmarshal(b, &made); err != nil || status != http.StatusCreated {
		n.t.Fatalf("a pod = %d %.200s", status, b)
	}
	n.pod = made.ID
	eventually(n.t, "the rude pod answers", func() bool {
		status, _, _ := n.in.visit(n.pod+"-8000.localhost", "/")
		return status == 200
	})
}

// ofName is an abuse by an answer of a pod that some visitors wait for and nobody reads.
func ofName(name, path string, visitors int) abuse {
	return abuse{door: "Names of pods' ports", name: name, slow: true, server: withRudePods, prepare: (*tenant).visited, do: func(ctx context.Context, n *tenant) {
		n.unread(ctx, visitors, strings.Replace(n.head("GET", path), "Host: a", "Host: "+n.pod+"-8000.localhost", 1))
	}}
}

// Abuses by what pods answer to visitors, and by visitors.
var abusesOfNames = []abuse{
	ofName("a pod with one huge header for its visitors", "/headers", 80),
	ofName("a pod with 900,000 header fields for its visitors", "/lines", 60),
	ofName("a pod that sends early hints without end", "/early", 40),
	ofName("a pod with a body without end", "/endless", 100),
	ofName("a pod with 200,000 trailers for its visitors", "/trailers", 20),
	ofName("visitors of a pod that never answers", "/silent", 400),
}
