package server_test

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/podyard/podyard/backend/docker"
	"github.com/podyard/podyard/backend/router"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/internal/enginetest"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/serverless"
)

const workerImage = "podyard.test/stream:1"

var imageOfWorker = sync.OnceValues(func() (v1.Image, error) { return enginetest.Image("./testdata/worker") })

// Containers continue after the server stops. The next server finds them, and none of this
// is an error.
func TestTheEndLeavesContainersToTheNextServer(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	for _, kind := range enginetest.Kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			e := enginetest.Require(t, kind)
			img, err := imageOfWorker()
			if err != nil {
				t.Fatal(err)
			}
			e.LoadImage(t, workerImage, img)
			containersGoOn(t, e)
		})
	}
}

func containersGoOn(t *testing.T, e *enginetest.Engine) {
	t.Helper()
	dir := t.TempDir()
	first, log := besideEngine(t, e, dir)
	c := first.client
	// A worker's image exits at once if it is not started as a worker. With the protocol's
	// addresses it waits.
	pod := decode[struct{ ID string }](t, c.do("POST", "/v2/pods", `{"name":"c","image":"`+workerImage+`","cpu":{"id":"host","vcpuCount":2},"env":{
		"RUNPOD_POD_ID":"p","RUNPOD_WEBHOOK_GET_JOB":"http://127.0.0.1:9/v2/x/job-take/$ID","RUNPOD_WEBHOOK_POST_OUTPUT":"http://127.0.0.1:9/","RUNPOD_WEBHOOK_POST_STREAM":"http://127.0.0.1:9/","RUNPOD_WEBHOOK_PING":"http://127.0.0.1:9/"}}`, http.StatusCreated)).ID
	talks := c.create("test/talks")
	processLog := c.follow(talks, `"line":"hello"`)
	containerLog := c.follow(pod, "container is healthy")
	streamed := c.stream("count", `{"chunks":10,"pause_ms":100}`)
	c.jobs("count", 1, 0)

	first.end()
	if got := within(t, "the end of the stream", streamed); strings.Count(got, "chunk") != 10 || !strings.HasSuffix(got, "COMPLETED") {
		t.Errorf("the stream of a container is %s, want ten chunks and COMPLETED", got)
	}
	last := time.Now()
	if got := within(t, "the end of a process's log", processLog); !strings.Contains(got, "server stopped") || strings.Contains(got, "cut off") {
		t.Errorf("the log of a process ends without its end, or is cut off:\n%s", got)
	}
	if got := within(t, "the end of a container's log", containerLog); strings.Contains(got, "cut off") || strings.Contains(got, "stopped") {
		t.Errorf("the log of a container, which goes on, is cut off or tells of an end:\n%s", got)
	}
	if err := within(t, "the end", first.ended); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	wantSoon(t, "the end after the last job", time.Since(last))
	log.wantNoTrouble(t)

	second, _ := besideEngine(t, e, dir)
	var p struct{ Status string }
	if p = decode[struct{ Status string }](t, second.do("GET", "/v2/pods/"+pod, "", http.StatusOK)); p.Status != "RUNNING" {
		t.Errorf("the next server has the container's pod as %s, want RUNNING", p.Status)
	}
	for _, id := range []string{pod, talks} {
		second.do("POST", "/v2/pods/"+id+"/action", `{"action":"terminate"}`, http.StatusNoContent)
		second.eventually("the pod is gone", func() bool {
			st, _, err := second.send(t.Context(), "GET", "/v2/pods/"+id, "")
			return err == nil && st == http.StatusNotFound
		})
	}
	second.end()
	if err := within(t, "the end", second.ended); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
}

// A program is a server that runs until end is called.
type program struct {
	client

	end   context.CancelFunc
	ended <-chan error
}

// besideEngine runs a server on the data in dir, with processes and the containers of e.
func besideEngine(t *testing.T, e *enginetest.Engine, dir string) (program, *record) {
	t.Helper()
	log := &record{}
	processes := openProcesses(t, filepath.Join(dir, "process"), log)
	l := listen(t, "0.0.0.0:0")
	containers, err := docker.Open(t.Context(), filepath.Join(dir, "docker"), &docker.Options{
		Engine: e.Address(), LocalImages: []string{"*"}, Logger: log.logger(),
		Reachable: []netip.AddrPort{l.Addr().(*net.TCPAddr).AddrPort()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // if the test failed; otherwise it is closed already
		again, err := docker.Open(context.WithoutCancel(t.Context()), filepath.Join(dir, "docker"), &docker.Options{Engine: e.Address()})
		if err == nil {
			_ = again.Purge(context.WithoutCancel(t.Context()))
			_ = again.Close(context.WithoutCancel(t.Context()))
		}
	})
	gateway, err := containers.Gateway(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	named := images()
	rt := router.New(containers, router.Rule{Runtime: processes, Match: func(s pods.Spec) bool {
		_, ok := named[s.Image]
		return ok
	}})
	s, err := server.New(t.Context(), &server.Options{
		Stores: diskStores(t, filepath.Join(dir, "store")), Catalog: catalog.Local(16, 16), Hosts: here(rt), Runtimes: []server.Closer{processes, containers},
		API:    httpapi.Options{Auth: keys(t)},
		Jobs:   serverless.Options{WorkerURL: func() string { return "http://" + net.JoinHostPort(gateway.String(), port) + "/v2" }},
		Logger: log.logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	declare(t, s, "count", workerImage)
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(end)
	return program{client{t, "http://127.0.0.1:" + port}, end, later(func() error { return s.Run(ctx, server.On(l, mux(s))) })}, log
}
