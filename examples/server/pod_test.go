package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A pod is what the tests look at of one.
type pod struct {
	ID      string   `json:"id"`
	Status  string   `json:"status"`
	Actions []string `json:"actions"`
	Runtime *struct {
		Uptime int `json:"uptime"`
		Ports  []struct {
			Private int    `json:"private"`
			Public  int    `json:"public"`
			Type    string `json:"type"`
			IP      string `json:"ip"`
		} `json:"ports"`
	} `json:"runtime"`
	StartedAt *time.Time `json:"startedAt"`
}

func (p pod) address() string {
	port := p.Runtime.Ports[0]
	return "http://" + net.JoinHostPort(port.IP, strconv.Itoa(port.Public)) + "/"
}

// create makes a pod of an image; more is further members of the request, with a comma
// before each.
func (in *instance) create(image, more string) pod {
	in.t.Helper()
	return get[pod](in, "POST", "/v2/pods",
		`{"name":"test","image":"`+image+`","cpu":{"id":"host","vcpuCount":2}`+more+`}`, http.StatusCreated)
}

// web makes a pod that answers on a port.
func (in *instance) web() pod {
	in.t.Helper()
	return in.create("podyard/web", `,"ports":["8000/http"]`)
}

func (in *instance) pod(id string) pod {
	in.t.Helper()
	return get[pod](in, "GET", "/v2/pods/"+id, "", http.StatusOK)
}

func (in *instance) act(id, action string) {
	in.t.Helper()
	want := http.StatusOK
	if action == "terminate" {
		want = http.StatusNoContent
	}
	get[any](in, "POST", "/v2/pods/"+id+"/action", `{"action":"`+action+`"}`, want)
}

// follow reads the events of a pod's log as they come. The channel is closed when the
// server ends the stream.
func (in *instance) follow(id string) *follower {
	in.t.Helper()
	resp, err := http.DefaultClient.Do(in.request("GET", "/v2/pods/"+id+"/logs", ""))
	if err != nil {
		in.t.Fatal(err)
	}
	in.t.Cleanup(func() { resp.Body.Close() })
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		in.t.Fatalf("logs: status %d, Content-Type %q, want text/event-stream", resp.StatusCode, got)
	}
	f := &follower{t: in.t, lines: make(chan string, 1000)}
	go func() {
		defer close(f.lines)
		for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
			data, ok := strings.CutPrefix(sc.Text(), "data: ")
			if !ok {
				continue
			}
			var l struct{ Source, Line string }
			if err := json.Unmarshal([]byte(data), &l); err != nil {
				l.Line = err.Error()
			}
			f.lines <- l.Source + ": " + l.Line
		}
	}()
	return f
}

// A follower reads the log of a pod, lines like "system: container started".
type follower struct {
	t     *testing.T
	lines chan string
	seen  []string
}

// await reads up to a line that has part in it, and returns that line.
func (f *follower) await(part string) string {
	f.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case l, ok := <-f.lines:
			if !ok {
				f.t.Fatalf("the log ended without %q; it was %q", part, f.seen)
			}
			f.seen = append(f.seen, l)
			if strings.Contains(l, part) {
				return l
			}
		case <-deadline:
			f.t.Fatalf("not in the log: %q; it is %q", part, f.seen)
		}
	}
}

// end reads until the stream ends.
func (f *follower) end() {
	f.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case _, ok := <-f.lines:
			if !ok {
				return
			}
		case <-deadline:
			f.t.Fatal("the log did not end")
		}
	}
}

func visit(url string) (string, error) {
	resp, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}
