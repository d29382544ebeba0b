package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/pods/volumes"
)

// A peered is a server of a store with a host of its own, at an address.
type peered struct {
	client
	runtime  *volumed
	log      *record
	services httpapi.Services
	end      func()
}

// A volumed is a runtime that keeps which volumes it was to remove.
type volumed struct {
	*memory.Runtime
	mu      sync.Mutex
	removed []string
	heard   *heard // nil: commands are for the simulation
}

// RemoveVolume implements volumes.Storage.
func (r *volumed) RemoveVolume(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removed = append(r.removed, id)
	return nil
}

// gone returns the volumes that were removed.
func (r *volumed) gone() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.removed)
}

// startPeered starts a server that others reach at its address. Its host has a number of vCPUs.
func startPeered(t *testing.T, stores server.Stores, name string, vcpus int) *peered {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	p := &peered{client: client{t, url}, runtime: &volumed{Runtime: memory.NewRuntime(nil)}, log: &record{}}
	o := &server.Options{
		Stores: stores, Name: name, PeerURL: url, Catalog: catalog.Sample(), Logger: p.log.logger(),
		Hosts: []pods.Host{{ID: "host-" + name, DataCenter: "US-TX-3", Runtime: p.runtime, VCPU: map[string]int{"cpu3c": vcpus}}},
	}
	o.API.Auth = keys(t)
	o.Pods.Overcommit = 1
	o.Jobs.WorkerURL = func() string { return url + "/v2" }
	s, err := server.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	p.services = s.Services()
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

// A volumeTest has two servers.
type volumeTest struct {
	*testing.T
	stores server.Stores
	a, b   *peered
}

func startVolumeTest(t *testing.T) *volumeTest {
	t.Helper()
	stores := memoryStores(t)
	stores.Servers, stores.Presence = memory.NewServers(), memory.NewPresence()
	b := startPeered(t, stores, "b", 8)
	return &volumeTest{t, stores, startPeered(t, stores, "a", 16), b}
}

func (x *volumeTest) create(at *peered, path, body string) (id string) {
	x.Helper()
	return decode[struct{ ID string }](x.T, at.do("POST", path, body, http.StatusCreated)).ID
}

func (x *volumeTest) volume() (id string) {
	x.Helper()
	return x.create(x.a, "/v2/network-volumes", `{"name":"v","size":10,"dataCenter":"US-TX-3"}`)
}

// podWith returns a request for a pod with a volume.
func podWith(volume string, vcpus int) string {
	return fmt.Sprintf(`{"name":"p","image":"img","cpu":{"id":"cpu3c","vcpuCount":%d},"mounts":{"network":[{"volumeId":%q,"path":"/v"}]}}`, vcpus, volume)
}

// runsAt waits until a server has a container whose id begins with id.
func (x *volumeTest) runsAt(p *peered, id string) {
	x.Helper()
	until(x.T, id+" runs", func() bool {
		list, err := p.runtime.List(x.Context())
		return err == nil && slices.ContainsFunc(list, func(c pods.ContainerState) bool { return strings.HasPrefix(c.PodID, id) })
	})
}

func TestPodsAndWorkersWithAVolumeGoToTheServerThatMountedItFirst(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	x := startVolumeTest(t)
	volume := x.volume()
	x.runsAt(x.b, x.create(x.b, "/v2/pods", podWith(volume, 2)))
	x.runsAt(x.b, x.create(x.a, "/v2/pods", podWith(volume, 2)))
	if text := x.a.do("POST", "/v2/pods", podWith(volume, 8), http.StatusBadRequest); !strings.Contains(string(text), "the server that has what is in its network volume") {
		t.Errorf("a pod for which there is no room at b: %s", text)
	}
	x.create(x.a, "/v2/serverless", fmt.Sprintf(`{"name":"e","type":"QUEUE","image":"work","cpu":[{"id":"cpu3c","vcpuCount":2}],
		"scaling":{"type":"REQUEST_COUNT","requestCount":1},"dataCenterIds":["US-TX-3"],"networkVolumes":[%q],"workers":{"min":1,"max":1}}`, volume))
	x.runsAt(x.b, "worker.")
}

func TestWhatIsInADeletedVolumeIsRemovedByTheServerThatHasIt(t *testing.T) {
	x := startVolumeTest(t)
	volume := x.volume()
	pod := x.create(x.b, "/v2/pods", podWith(volume, 2))
	x.runsAt(x.b, pod)
	x.a.do("DELETE", "/v2/pods/"+pod, "", http.StatusNoContent)
	path := "/v2/network-volumes/" + volume
	until(t, "nothing uses the volume", func() bool {
		status, _, err := x.a.send(t.Context(), "DELETE", path, "")
		return err == nil && status == http.StatusNoContent
	})
	for _, p := range []*peered{x.a, x.b} {
		p.do("GET", path, "", http.StatusNotFound)
		p.do("PATCH", path, `{"name":"w"}`, http.StatusNotFound)
		if text := p.do("GET", "/v2/network-volumes", "", http.StatusOK); strings.Contains(string(text), volume) {
			t.Errorf("a deleted volume is listed: %s", text)
		}
	}
	x.b.do("POST", "/v2/pods", podWith(volume, 2), http.StatusBadRequest)
	if err := errors.Join(x.a.services.Volumes.Sweep(t.Context()), x.b.services.Volumes.Sweep(t.Context())); err != nil {
		t.Error(err)
	}
	if a, b := x.a.runtime.gone(), x.b.runtime.gone(); len(a) > 0 || !slices.Equal(b, []string{volume}) {
		t.Errorf("a has removed %v and b %v, want nothing and the volume", a, b)
	}
	if _, err := x.stores.Volumes.Get(t.Context(), volume); !errors.Is(err, volumes.ErrNotFound) {
		t.Errorf("the record of the volume after the sweep: %v, want ErrNotFound", err)
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
