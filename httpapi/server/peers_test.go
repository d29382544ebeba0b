package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
)

// A peered is a server of a store with a host of its own, at an address.
type peered struct {
	client
	runtime *memory.Runtime
	log     *record
	end     func()
}

// startPeered starts a server that others reach at its address. Its host has a number of vCPUs.
func startPeered(t *testing.T, stores server.Stores, name string, vcpus int) *peered {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	p := &peered{client{t, url}, memory.NewRuntime(nil), &record{}, nil}
	o := &server.Options{
		Stores: stores, Name: name, PeerURL: url, Catalog: catalog.Sample(), Logger: p.log.logger(),
		Hosts: []pods.Host{{ID: "host-" + name, DataCenter: "US-TX-3", Runtime: p.runtime, VCPU: map[string]int{"cpu3c": vcpus}}},
	}
	o.API.Auth = keys(t)
	o.Pods.Overcommit = 1
	s, err := server.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := later(func() error { return s.Run(ctx, server.On(l, s.Handler())) })
	p.end = func() {
		end()
		if err := within(t, "the end of a server", ended); err != nil {
			t.Error(err)
		}
		p.end = func() {}
	}
	t.Cleanup(func() { p.end() })
	until(t, name+" has its host", func() bool {
		left, err := stores.Servers.Leases(t.Context(), time.Now(), "host/host-"+name)
		return err == nil && len(left) == 1
	})
	return p
}

func TestLogsAndLoadsOfAPodAreReadAtAnyServer(t *testing.T) {
	stores := memoryStores(t)
	stores.Servers, stores.Presence = memory.NewServers(), memory.NewPresence()
	b := startPeered(t, stores, "b", 8)
	a := startPeered(t, stores, "a", 2)
	type pod struct {
		ID, Status string
		Runtime    *struct{ CPU json.RawMessage }
	}
	made := decode[pod](t, a.do("POST", "/v2/pods", `{"name":"p","image":"img","cpu":{"id":"cpu3c","vcpuCount":8}}`, http.StatusCreated))
	path := "/v2/pods/" + made.ID
	until(t, "it is RUNNING", func() bool {
		return decode[pod](t, a.do("GET", path, "", http.StatusOK)).Status == "RUNNING"
	})
	if list, err := b.runtime.List(t.Context()); err != nil || len(list) != 1 {
		t.Fatalf("containers of b: %v, %v, want the pod", list, err)
	}
	want := firstLine(t, b.client, path)
	if got := firstLine(t, a.client, path); got != want || got == "" {
		t.Errorf("first line at the other server %q, want %q", got, want)
	}
	load := func(c client) string {
		return fmt.Sprint(decode[map[string]any](t, c.do("GET", path, "", http.StatusOK))["runtime"])
	}
	if load(a.client) == "" || load(a.client) == "<nil>" {
		t.Errorf("runtime at the other server: %s", load(a.client))
	}

	for _, authorization := range []string{"", "Bearer " + testKey, "Podyard-Peer 1.00"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+"/peer/v1/pods/"+made.ID+"/log?tail=1&seq=0&follow=false", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", authorization)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("the path of servers with %q: %d, want 401", authorization, resp.StatusCode)
		}
	}

	b.end()
	until(t, "the end of b is seen", func() bool {
		status, body, err := a.send(t.Context(), "GET", path+"/logs?source=container", "")
		return err == nil && status == http.StatusServiceUnavailable && strings.Contains(string(body), "away")
	})
	if text := a.log.text() + b.log.text(); strings.Contains(text, testKey) || strings.Contains(text, "Podyard-Peer") {
		t.Errorf("a log shows a key or a token:\n%s", text)
	}
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("not seen: %s", what)
		}
	}
}

// firstLine is the first line of the container's log, of a stream that goes on.
func firstLine(t *testing.T, c client, path string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path+"/logs?source=container", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+testKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for in := bufio.NewScanner(resp.Body); in.Scan(); {
		if data, ok := strings.CutPrefix(in.Text(), "data: "); ok {
			return data
		}
	}
	return ""
}
