package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/podyard/podyard/internal/suite"
)

// An operatorView is the part of GET /v2/admin/state that the tests look at.
type operatorView struct {
	Server struct {
		Name, State string
		Ready       bool
	}
	Hosts []struct {
		ID, State     string
		Pods, Workers int
	}
	Endpoints []struct {
		ID, State string
		Workers   struct{ Idle, Running, Initializing int }
	}
}

func (v *operatorView) endpoint(t *testing.T, id string) (state string, workers int) {
	t.Helper()
	for _, e := range v.Endpoints {
		if e.ID == id {
			return e.State, e.Workers.Idle + e.Workers.Running + e.Workers.Initializing
		}
	}
	t.Fatalf("no endpoint %s in %+v", id, v)
	return "", 0
}

func TestACordonOutlastsTheServerAndADrainEndsWorkers(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	data := t.TempDir()
	in := start(t, "-data", data, "-runtime", "process")
	view := func() (v operatorView) { return get[operatorView](in, "GET", "/v2/admin/state", "", http.StatusOK) }
	const hello = `{"input":{"name":"you"}}`
	get[job](in, "POST", "/v2/hello/runsync", hello, http.StatusOK)
	host := view().Hosts[0].ID

	get[any](in, "POST", "/v2/admin/cordon", `{"host":"`+host+`"}`, http.StatusOK)
	get[any](in, "POST", "/v2/admin/drain", `{"endpoint":"hello"}`, http.StatusOK)
	eventually(t, "the worker of a drained endpoint ends", func() bool {
		v := view()
		_, workers := v.endpoint(t, "hello")
		return workers == 0 && v.Hosts[0].Workers == 0
	})
	const pod = `{"name":"x","image":"podyard/web","cpu":{"id":"host","vcpuCount":2}}`
	get[any](in, "POST", "/v2/pods", pod, http.StatusBadRequest)
	queued := get[job](in, "POST", "/v2/hello/run", hello, http.StatusOK)
	if code, _ := in.end(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit code %d", code)
	}

	in = start(t, "-data", data, "-runtime", "process")
	v := view()
	if state, _ := v.endpoint(t, "hello"); state != "drained" || v.Hosts[0].State != "cordoned" {
		t.Errorf("the next server has the endpoint %s and the host %s, want drained and cordoned", state, v.Hosts[0].State)
	}
	get[any](in, "POST", "/v2/pods", pod, http.StatusBadRequest)
	get[any](in, "POST", "/v2/admin/uncordon", `{"endpoint":"hello"}`, http.StatusOK)
	get[any](in, "POST", "/v2/admin/uncordon", `{"host":"`+host+`"}`, http.StatusOK)
	eventually(t, "the job that waited is done", func() bool {
		return get[job](in, "GET", "/v2/hello/status/"+queued.ID, "", http.StatusOK).Status == "COMPLETED"
	})
	get[any](in, "POST", "/v2/pods", pod, http.StatusCreated)
}

func TestADrainedHostReplacesItsWorkersElsewhereOrWaits(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := start(t, "-runtime", "process")
	get[job](in, "POST", "/v2/hello/runsync", `{"input":{}}`, http.StatusOK)
	host := get[operatorView](in, "GET", "/v2/admin/state", "", http.StatusOK).Hosts[0].ID
	get[any](in, "POST", "/v2/admin/drain", `{"host":"`+host+`"}`, http.StatusOK)
	eventually(t, "the host has no worker", func() bool {
		return get[operatorView](in, "GET", "/v2/admin/state", "", http.StatusOK).Hosts[0].Workers == 0
	})
	queued := get[job](in, "POST", "/v2/hello/run", `{"input":{}}`, http.StatusOK)
	eventually(t, "the reason is named", func() bool {
		_, body := in.do("GET", "/v2/serverless/hello/decisions?jobId="+queued.ID, "")
		return strings.Contains(string(body), "capacity")
	})
	get[any](in, "POST", "/v2/admin/uncordon", `{"host":"`+host+`"}`, http.StatusOK)
	eventually(t, "the job is done", func() bool {
		return get[job](in, "GET", "/v2/hello/status/"+queued.ID, "", http.StatusOK).Status == "COMPLETED"
	})
}

func TestADrainedServerTakesJobsAndGivesNone(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := start(t)
	const server = `{"server":"server"}`
	get[any](in, "POST", "/v2/admin/cordon", server, http.StatusOK)
	if status, _ := in.do("GET", "/readyz", ""); status != http.StatusServiceUnavailable {
		t.Errorf("a cordoned server has /readyz %d, want 503", status)
	}
	get[job](in, "POST", "/v2/echo/runsync", `{"input":{}}`, http.StatusOK)
	get[any](in, "POST", "/v2/admin/drain", server, http.StatusOK)
	queued := get[job](in, "POST", "/v2/echo/run", `{"input":{}}`, http.StatusOK)
	if j := get[job](in, "POST", "/v2/echo/runsync?wait=1000", `{"input":{}}`, http.StatusOK); j.Status != "IN_QUEUE" {
		t.Errorf("a job on a drained server is %s after a second, want IN_QUEUE", j.Status)
	}
	var v operatorView
	_, body := in.do("GET", "/v2/admin/state", "")
	if err := json.Unmarshal(body, &v); err != nil || v.Server.State != "drained" || v.Server.Ready {
		t.Errorf("the state is %s, want drained and not ready", body)
	}
	get[any](in, "POST", "/v2/admin/uncordon", server, http.StatusOK)
	eventually(t, "the job that waited is done", func() bool {
		return get[job](in, "GET", "/v2/echo/status/"+queued.ID, "", http.StatusOK).Status == "COMPLETED"
	})
	if status, _ := in.do("GET", "/readyz", ""); status != http.StatusOK {
		t.Errorf("after that /readyz is %d, want 200", status)
	}
}
