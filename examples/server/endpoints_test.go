package main

import (
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/examples/server/demo"
	"github.com/podyard/podyard/internal/suite"
)

// A health is what the tests look at of an endpoint's.
type health struct {
	Workers struct {
		Idle         int `json:"idle"`
		Initializing int `json:"initializing"`
		Running      int `json:"running"`
		Unhealthy    int `json:"unhealthy"`
	} `json:"workers"`
}

func (h health) workers() int {
	return h.Workers.Idle + h.Workers.Initializing + h.Workers.Running + h.Workers.Unhealthy
}

// A listing is the workers of an endpoint.
type listing struct {
	Workers []struct {
		ID      string `json:"id"`
		Version int    `json:"version"`
		Image   string `json:"image"`
	} `json:"workers"`
}

func TestHelloIsScaledUpByAJobAndDownAfterIt(t *testing.T) {
	t.Parallel()
	for _, runtime := range []string{"process", "sim"} {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			helloIsScaled(t, start(t, "-runtime", runtime))
		})
	}
}

func helloIsScaled(t *testing.T, in *instance) {
	t.Helper()
	if n := get[health](in, "GET", "/v2/hello/health", "", http.StatusOK).workers(); n != 0 {
		t.Errorf("%d workers before the first job, want none", n)
	}
	for input, want := range map[string]string{`{}`: `{"greeting":"hello, world"}`, `{"name":"you"}`: `{"greeting":"hello, you"}`} {
		j := get[job](in, "POST", "/v2/hello/runsync", `{"input":`+input+`}`, http.StatusOK)
		if j.Status != "COMPLETED" || string(j.Output) != want {
			t.Errorf("hello with %s: %s with %s, want %s", input, j.Status, j.Output, want)
		}
	}
	list := get[listing](in, "GET", "/v2/serverless/hello/workers", "", http.StatusOK)
	if len(list.Workers) != 1 || list.Workers[0].Version != 1 || list.Workers[0].Image != demo.HelloImage {
		t.Errorf("workers %+v, want one of image %s and version 1", list.Workers, demo.HelloImage)
	}
	eventually(t, "the worker without a job ends", func() bool {
		return get[health](in, "GET", "/v2/hello/health", "", http.StatusOK).workers() == 0
	})
}

func TestEndpointsOfTheConfigurationAreShared(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	image := `"images":{"local/greet":{"command":[` + strconv.Quote(program) + `,"` + demo.HelloCommand + `"]}}`
	keys := `"keys":[{"key":"bobs","user":"bob","scopes":["endpoints:write","endpoint:*:run"]}]`
	in := start(t, "-public-url", "https://api.example.com/gpu/", "-config", file(t, `{`+image+`,`+keys+
		`,"endpoints":[{"id":"greet","image":"local/greet","cpu":[{"id":"host","vcpuCount":2}],"workers":{"min":1},"env":{"TOKEN":"s3cret"}}]}`))
	in.key = "bobs"
	if j := get[job](in, "POST", "/v2/greet/runsync", `{"input":{"name":"bob"}}`, http.StatusOK); string(j.Output) != `{"greeting":"hello, bob"}` {
		t.Errorf("greet answers %s with %s %s", j.Status, j.Output, j.Error)
	}
	e := get[struct {
		Name        string            `json:"name"`
		Env         map[string]string `json:"env"`
		RequestURLs map[string]string `json:"requestUrls"`
	}](in, "GET", "/v2/serverless/greet", "", http.StatusOK)
	if e.Name != "greet" || len(e.Env) > 0 || e.RequestURLs["run"] != "https://api.example.com/gpu/v2/greet/run" {
		t.Errorf("greet is %+v, want its id for a name, no environment, and addresses below the public URL", e)
	}
	if status, body := in.do("DELETE", "/v2/serverless/greet", ""); status != http.StatusForbidden {
		t.Errorf("DELETE of a shared endpoint = %d %s, want 403", status, body)
	}
	in.stop()
	if strings.Contains(in.stderr.String(), "s3cret") {
		t.Error("the log shows an endpoint's environment")
	}
}

func TestEndpointOfAUserHasWorkersUntilItIsDeleted(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := start(t)
	id := get[struct {
		ID string `json:"id"`
	}](in, "POST", "/v2/serverless", `{"name":"mine","type":"QUEUE","image":"`+demo.HelloImage+`","cpu":[{"id":"host","vcpuCount":2}],`+
		`"workers":{"min":1,"max":1},"scaling":{"type":"REQUEST_COUNT","requestCount":1}}`, http.StatusCreated).ID
	if j := get[job](in, "POST", "/v2/"+id+"/runsync", `{"input":{}}`, http.StatusOK); j.Status != "COMPLETED" {
		t.Errorf("a job of the new endpoint is %s %s, want COMPLETED", j.Status, j.Error)
	}
	began := time.Now()
	get[struct{}](in, "DELETE", "/v2/serverless/"+id, "", http.StatusNoContent)
	if status, _ := in.do("GET", "/v2/"+id+"/health", ""); status != http.StatusNotFound {
		t.Errorf("health of a deleted endpoint = %d, want 404", status)
	}
	if code, took := in.end(syscall.SIGTERM); code != 0 || took > window {
		t.Errorf("after a delete %v ago the server ends with %d after %v, want 0 within %v", time.Since(began), code, took, window)
	}
}

func TestOnTheSimulatedRuntimeWorkersOfNamedImagesAreProcessesAndPodsAreNot(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := start(t, "-runtime", "sim", "-config", file(t, `{"catalog":"sample",
		"images":{"local/greet":{"command":[`+strconv.Quote(program)+`,"`+demo.HelloCommand+`"]}},
		"endpoints":[{"id":"greet","image":"local/greet","gpu":{"pools":["ADA_24"]}}]}`))
	for _, endpoint := range []string{"greet", demo.HelloEndpoint} {
		if j := get[job](in, "POST", "/v2/"+endpoint+"/runsync", `{"input":{"name":"you"}}`, http.StatusOK); string(j.Output) != `{"greeting":"hello, you"}` {
			t.Errorf("%s answers %s with %s %s", endpoint, j.Status, j.Output, j.Error)
		}
	}
	p := get[pod](in, "POST", "/v2/pods", `{"name":"x","image":"local/greet","gpu":{"id":"NVIDIA GeForce RTX 4090","minCudaVersion":"12.0"}}`, http.StatusCreated)
	in.follow(p.ID).await("system: container is healthy") // a process would have ended: it is no worker
	if code, took := in.end(syscall.SIGTERM); code != 0 || took > window {
		t.Errorf("exit code %d after %v, want 0 within %v", code, took, window)
	}
}
