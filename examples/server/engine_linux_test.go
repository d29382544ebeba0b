package main

import (
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/podyard/podyard/internal/enginetest"
)

// The images of the tests: a web server on port 8000, and examples/worker.
const (
	siteImage  = "podyard.test/site:1"
	wordsImage = "podyard.test/words:1"
)

var (
	ofSite  = sync.OnceValues(func() (v1.Image, error) { return enginetest.Image("./testdata/site") })
	ofWords = sync.OnceValues(func() (v1.Image, error) { return enginetest.Image("../worker") })
)

// onEngines runs a test on every engine.
func onEngines(t *testing.T, ref string, img func() (v1.Image, error), f func(t *testing.T, e *enginetest.Engine)) {
	t.Helper()
	t.Parallel()
	for _, kind := range enginetest.Kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			e := enginetest.Require(t, kind)
			i, err := img()
			if err != nil {
				t.Fatal(err)
			}
			e.LoadImage(t, ref, i)
			f(t, e)
		})
	}
}

// startOn runs a server on an engine.
func startOn(t *testing.T, e *enginetest.Engine, args ...string) *instance {
	t.Helper()
	args = append([]string{"-addr", "127.0.0.1:0", "-runtime", "docker"}, args...)
	return startCommand(t, command(t, []string{"PODYARD_API_KEY=" + testKey, "DOCKER_HOST=" + e.Address()}, args...))
}

// ownedBy counts what an engine has of the server with a data directory.
func ownedBy(t *testing.T, e *enginetest.Engine, data, kind string) int {
	t.Helper()
	name, err := os.ReadFile(filepath.Join(data, "docker", "instance"))
	if err != nil {
		t.Fatal(err)
	}
	list := e.Get(t, "/"+kind+"?all=true&filters="+url.QueryEscape(`{"label":["io.podyard.instance=`+string(name)+`"]}`))
	return strings.Count(string(list), `"io.podyard.instance":`)
}

func nothingIsLeft(t *testing.T, e *enginetest.Engine, data string) {
	t.Helper()
	for _, kind := range []string{"containers/json", "volumes", "networks"} {
		eventually(t, "the engine has no "+kind+" of the server", func() bool { return ownedBy(t, e, data, kind) == 0 })
	}
}

func TestAPodOfALocalImageIsAContainer(t *testing.T) {
	onEngines(t, siteImage, ofSite, func(t *testing.T, e *enginetest.Engine) {
		data := t.TempDir()
		in := startOn(t, e, "-data", data)
		if dc := get[struct{ GlobalNetwork bool }](in, "GET", "/v2/catalog/datacenters/LOCAL-1", "", http.StatusOK); !dc.GlobalNetwork {
			t.Error("the catalog has no global networking, which the engine has")
		}
		p := in.create(siteImage, `,"ports":["8000/http"]`)
		log := in.follow(p.ID)
		log.await("container is healthy")
		if p = in.pod(p.ID); p.Status != "RUNNING" {
			t.Fatalf("the pod is %+v, want RUNNING", p)
		}
		eventually(t, "its port answers", func() bool { _, err := visit(p.address()); return err == nil })
		in.act(p.ID, "stop")
		log.await("stopped by its user")
		if p = in.pod(p.ID); p.Status != "EXITED" || ownedBy(t, e, data, "containers/json") != 1 {
			t.Errorf("the stopped pod is %+v, want EXITED with its container kept", p)
		}
		in.act(p.ID, "start")
		log.await("container is healthy")
		p = in.pod(p.ID)
		eventually(t, "its port answers again", func() bool { _, err := visit(p.address()); return err == nil })
		in.act(p.ID, "terminate")
		log.end()
		nothingIsLeft(t, e, data)
		in.stop()
	})
}

// A server with an engine does all that the README says of one without.
func TestTheCommandsOfTheREADMEAnswerBesideAnEngine(t *testing.T) {
	onEngines(t, siteImage, ofSite, func(t *testing.T, e *enginetest.Engine) {
		runPage(t, startOn(t, e, "-data", t.TempDir()), readme, 7)
	})
}

func TestAWorkersImageServesAnEndpoint(t *testing.T) {
	onEngines(t, wordsImage, ofWords, func(t *testing.T, e *enginetest.Engine) {
		config := file(t, `{"endpoints":[{"id":"words","image":"`+wordsImage+`","cpu":[{"id":"host","vcpuCount":2}],
			"workers":{"min":0,"max":1,"idleTimeout":1},"scaling":{"type":"QUEUE_DELAY","queueDelay":1}}]}`)
		data := t.TempDir()
		in := startOn(t, e, "-data", data, "-config", config)
		for _, text := range []string{"one two three", "four"} {
			j := get[job](in, "POST", "/v2/words/runsync", `{"input":{"text":"`+text+`"}}`, http.StatusOK)
			if want := `{"words":` + strconv.Itoa(len(strings.Fields(text))) + `}`; j.Status != "COMPLETED" || string(j.Output) != want {
				t.Errorf("%q: %s with %s, want %s", text, j.Status, j.Output, want)
			}
		}
		wantOnlyTheWorkerProtocolInside(t, in)
		eventually(t, "the worker without a job ends", func() bool {
			records, err := filepath.Glob(filepath.Join(data, "docker", "pods", "*"))
			return err == nil && len(records) == 0
		})
		in.stop()
		nothingIsLeft(t, e, data)
	})
}

// wantOnlyTheWorkerProtocolInside asks the listener for workers in containers, which the
// server's log names, for what it must not serve.
func wantOnlyTheWorkerProtocolInside(t *testing.T, in *instance) {
	t.Helper()
	_, rest, ok := strings.Cut(in.stderr.String(), `listening for workers in containers" addr=`)
	addr, _, _ := strings.Cut(rest, "\n")
	host, _, err := net.SplitHostPort(addr)
	if !ok || err != nil || net.ParseIP(host).IsUnspecified() || net.ParseIP(host).IsLoopback() {
		t.Fatalf("the log names %q as where workers in containers find the server", addr)
	}
	outside := &instance{t: t, url: "http://" + addr, key: in.key}
	for _, path := range []string{"/v2/pods", "/v2/words/health", "/v2/words/status/x", "/healthz"} {
		if status, body, err := send(outside.request("GET", path, "")); err == nil && status != http.StatusNotFound {
			t.Errorf("GET %s inside: %d %s, want 404", path, status, body)
		}
	}
	req := outside.request("GET", "/v2/words/job-take/w", "")
	req.Header.Del("Authorization")
	if status, _, err := send(req); err == nil && status != http.StatusUnauthorized {
		t.Errorf("a job taken without a key: %d, want 401", status)
	}
}

// A server that keeps nothing and is killed leaves containers: the next one ends them.
func TestContainersOfAServerThatKeepsNothingEndWithItOrWithTheNext(t *testing.T) {
	onEngines(t, siteImage, ofSite, func(t *testing.T, e *enginetest.Engine) {
		tmp := "TMPDIR=" + t.TempDir()
		env := []string{"PODYARD_API_KEY=" + testKey, "DOCKER_HOST=" + e.Address(), tmp}
		args := []string{"-addr", "127.0.0.1:0", "-data", "", "-runtime", "docker"}
		first := startCommand(t, command(t, env, args...))
		p := first.create(siteImage, `,"ports":["8000/http"]`)
		first.follow(p.ID).await("container is healthy")
		first.end(syscall.SIGKILL)
		if !strings.Contains(containers(t, e), p.ID) {
			t.Fatal("the container ended with the server that was killed: there is nothing to be shown")
		}
		second := startCommand(t, command(t, env, args...))
		nothingOf(t, e, p.ID)
		p = second.create(siteImage, `,"ports":["8000/http"]`)
		second.follow(p.ID).await("container is healthy")
		second.stop()
		nothingOf(t, e, p.ID)
		if left, _ := filepath.Glob(filepath.Join(strings.TrimPrefix(tmp, "TMPDIR="), "podyard-*", "run-*")); len(left) > 0 {
			t.Errorf("directories are left: %q", left)
		}
	})
}

func nothingOf(t *testing.T, e *enginetest.Engine, pod string) {
	t.Helper()
	eventually(t, "the engine has no container of pod "+pod, func() bool { return !strings.Contains(containers(t, e), pod) })
}

func containers(t *testing.T, e *enginetest.Engine) string {
	t.Helper()
	return string(e.Get(t, "/containers/json?all=true"))
}
