package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Abuses of the console, by somebody who may sign in and by somebody who may not.
var abusesOfTheConsole = []abuse{
	{door: "Console data", name: "downloads of the console that nobody reads", slow: true, prepare: func(n *tenant) { n.pod = n.largeJob(); n.signIn() }, do: func(ctx context.Context, n *tenant) {
		n.silent(ctx, 120, func(int) string { return n.page("/console/data/job/echo/" + n.pod + "/output?download=1") })
	}},
	{door: "Console data", name: "overviews of the console with large pods", slow: true, server: withVariables, prepare: func(n *tenant) { n.largePods(); n.signIn() }, do: func(ctx context.Context, n *tenant) {
		n.silent(ctx, 24, func(int) string { return n.page("/console/data/overview") })
	}},
	{door: "Console data", name: "jobs with large payloads in the console", slow: true, prepare: func(n *tenant) { n.largeJobs(8); n.signIn() }, do: func(ctx context.Context, n *tenant) {
		n.silent(ctx, 60, func(int) string { return n.page("/console/data/jobs/" + n.endpoint) })
	}},
	{door: "Console data", name: "requests of the console to the API that nobody reads", slow: true, prepare: func(n *tenant) { n.largeJobs(8); n.signIn() }, do: func(ctx context.Context, n *tenant) {
		n.silent(ctx, 60, func(int) string { return n.page("/console/api/v2/" + n.endpoint + "/requests?full=true&limit=100") })
	}},
	{door: "Console data", name: "live pages of the console that nobody reads", prepare: (*tenant).signIn, do: func(ctx context.Context, n *tenant) {
		n.silent(ctx, 200, func(int) string { return n.page("/console/data/live?endpoint=echo") })
	}},
	{door: "Console data", name: "histories and waiting jobs again and again", prepare: (*tenant).signIn, do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 8, func(i int) {
			what := [...]string{"history", "waiting", "workers", "jobs"}[i%4]
			n.do(ctx, "GET", "/console/data/"+what+"/"+n.endpoint, "", "Cookie: "+n.cookie)
		})
	}},
	{door: "Console pages", name: "a flood of wrong keys to sign in", refused: true, do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 16, func(int) {
			n.do(ctx, "POST", "/console/session", `{"key":"wrong"}`, "Podyard-Console: 1")
		})
	}},
	{door: "Console pages", name: "pages and files that nobody reads", slow: true, do: func(ctx context.Context, n *tenant) {
		n.silent(ctx, 250, func(int) string { return strings.Repeat("GET /console/ HTTP/1.1\r\nHost: a\r\n\r\n", 50) })
	}},
}

// signIn gets the cookie of a session.
func (n *tenant) signIn() {
	n.t.Helper()
	r, err := http.NewRequestWithContext(n.t.Context(), http.MethodPost, n.in.url+"/console/session", strings.NewReader(`{"key":"`+n.key+`"}`))
	if err != nil {
		n.t.Fatal(err)
	}
	r.Header.Set("Podyard-Console", "1")
	res, err := n.client.Do(r)
	if err != nil {
		n.t.Fatal(err)
	}
	_ = res.Body.Close()
	for _, c := range res.Cookies() {
		n.cookie = c.Name + "=" + c.Value
	}
	if n.cookie == "" {
		n.t.Fatalf("sign in: %s, and no cookie", res.Status)
	}
}

// page is a request of the console with the session of the user.
func (n *tenant) page(path string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: a\r\nCookie: " + n.cookie + "\r\n\r\n"
}

// withVariables gives the server an image with variables that users may set.
func withVariables(_ *testing.T, s *settingsOf) []string {
	s.Images["test/env"] = map[string]any{"command": []string{"/bin/sleep", "1000"}, "allowEnv": []string{"A"}, "users": []string{"*"}}
	return nil
}

// largePods makes pods with environments as large as the budget allows. Each < of a value has six bytes
// in JSON.
func (n *tenant) largePods() {
	env := strings.Repeat("<", 900<<10)
	for i := range 8 {
		body := fmt.Sprintf(`{"name":"p%d","image":"test/env","cpu":{"id":"host","vcpuCount":2}}`, i)
		var p struct{ ID string }
		eventually(n.t, "there is room for the next pod", func() bool {
			status, made := n.do(n.t.Context(), "POST", "/v2/pods", body)
			return status == http.StatusCreated && json.Unmarshal(made, &p) == nil
		})
		eventually(n.t, "there is room for its environment", func() bool {
			status, _ := n.do(n.t.Context(), "PATCH", "/v2/pods/"+p.ID, fmt.Sprintf(`{"env":{"A":"%s"}}`, env))
			return status == http.StatusOK
		})
		n.do(n.t.Context(), "POST", "/v2/pods/"+p.ID+"/action", `{"action":"stop"}`) // the next pod gets the room
	}
}
