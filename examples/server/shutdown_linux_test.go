package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/examples/server/demo"
	"github.com/podyard/podyard/httpapi/worker"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/serverless"
)

func TestASignalFinishesWhatIsInFlight(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			in := start(t)
			answer := make(chan string, 1)
			req := in.request("POST", "/v2/echo/runsync", `{"input":{"sleep_ms":3000}}`)
			go func() {
				_, b, err := send(req)
				answer <- fmt.Sprintf("%s %v", b, err)
			}()
			eventually(t, "the job is in progress", func() bool {
				h := get[struct{ Jobs struct{ InProgress int } }](in, "GET", "/v2/echo/health", "", http.StatusOK)
				return h.Jobs.InProgress == 1
			})
			code, took := in.end(sig)
			if code != 0 || took > window {
				t.Errorf("exit code %d after %v, want 0 within %v", code, took, window)
			}
			if got := <-answer; !strings.Contains(got, `"status":"COMPLETED"`) {
				t.Errorf("the request in flight is answered with %s, want COMPLETED", got)
			}
			if _, err := visit(in.url + "/healthz"); err == nil {
				t.Error("the address still answers")
			}
		})
	}
}

func TestAJobThatAnotherProcessHasIsFinishedToo(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := start(t)
	id := get[struct{ ID string }](in, "POST", "/v2/serverless", `{"name":"mine","type":"QUEUE","image":"`+demo.HelloImage+`",`+
		`"cpu":[{"id":"host","vcpuCount":2}],"scaling":{"type":"REQUEST_COUNT","requestCount":1}}`, http.StatusCreated).ID
	took, ended := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		ended <- worker.Run(ctx, serverless.WorkerFunc(func(context.Context, *serverless.Task) ([]byte, error) {
			close(took)
			eventually(t, "the server stops", func() bool {
				status, _, err := send(in.request("GET", "/readyz", ""))
				return err == nil && status == http.StatusServiceUnavailable
			})
			return []byte(`{"finished":true}`), nil
		}), &worker.Options{URL: in.url + "/v2", Endpoint: id, Key: in.key})
	}()
	answer := make(chan string, 1)
	// A job of low priority starts no worker: it is for the one here.
	req := in.request("POST", "/v2/"+id+"/runsync", `{"input":{},"policy":{"lowPriority":true}}`)
	go func() {
		_, b, err := send(req)
		answer <- fmt.Sprintf("%s %v", b, err)
	}()
	select {
	case <-took:
	case got := <-answer:
		t.Fatalf("no worker got the job: %s", got)
	}
	if code, took := in.end(syscall.SIGTERM); code != 0 || took > window {
		t.Errorf("exit code %d after %v, want 0 within %v", code, took, window)
	}
	if got := <-answer; !strings.Contains(got, `"output":{"finished":true},"status":"COMPLETED"`) {
		t.Errorf("the request in flight is answered with %s, want COMPLETED with what the worker made", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the worker ended with %v", err)
	}
}

func TestAJobTooLongForTheEndIsHandedBackInTime(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	if testing.Short() {
		t.Skip("it waits for the end of the server's patience")
	}
	in := start(t)
	answer := make(chan string, 1)
	req := in.request("POST", "/v2/echo/runsync", `{"input":{"sleep_ms":600000}}`)
	go func() {
		_, b, _ := send(req)
		answer <- string(b)
	}()
	eventually(t, "the job is in progress", func() bool {
		h := get[struct{ Jobs struct{ InProgress int } }](in, "GET", "/v2/echo/health", "", http.StatusOK)
		return h.Jobs.InProgress == 1
	})
	if code, took := in.end(syscall.SIGTERM); code != 0 || took > window {
		t.Errorf("exit code %d after %v, want 0 within %v", code, took, window)
	}
	if got := <-answer; !strings.Contains(got, `"status":"IN_QUEUE"`) {
		t.Errorf("the caller is answered with %s, want the job back IN_QUEUE", got)
	}
}

func TestTheEndOfTheServerEndsItsPodsAndSaysSoInTheirLogs(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	data := t.TempDir()
	in := start(t, "-data", data, "-config", loggingImages(t))
	web, deaf := in.web(), in.create("local/stubborn", "")
	log, deafLog := in.follow(web.ID), in.follow(deaf.ID)
	log.await("system: container is healthy")
	deafLog.await("container: deaf")

	code, took := in.end(syscall.SIGTERM)
	if code != 0 || took > window {
		t.Errorf("exit code %d after %v, want 0 within %v", code, took, window)
	}
	for _, p := range []pod{web, deaf} {
		if left := processes(t, p.ID); len(left) > 0 {
			t.Errorf("processes %v are left", left)
		}
		b, err := os.ReadFile(filepath.Join(data, "process", "pods", p.ID, "state.json"))
		if err != nil {
			t.Fatal(err)
		}
		var rec struct{ State pods.ContainerState }
		if err := json.Unmarshal(b, &rec); err != nil {
			t.Fatal(err)
		}
		if got := rec.State; got.Phase != pods.PhaseExited || !got.Stopped || got.Reason != "server stopped" {
			t.Errorf("on record is %+v, want it down, stopped with the server", got)
		}
	}
	log.await("system: server stopped")
	deafLog.await("system: server stopped")
	_, end, ok := strings.Cut(in.stderr.String(), "msg=stopping") // the start warns of pods that are root
	if !ok || strings.Contains(end, "WARN") || strings.Contains(end, "ERROR") {
		t.Errorf("an orderly end warns:\n%s", in.stderr.String())
	}
}

func TestWhatAKilledServerLeavesIsEndedByTheNext(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, data string
		next       string // runtime of the next server
		status     string // of the pod then; empty: it is not known
	}{
		{"SameDataSimulated", "data", "sim", "EXITED"},
		{"NoData", "", "process", ""},
		{"NoDataSimulated", "", "sim", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			home, tmp := t.TempDir(), t.TempDir()
			run := func(runtime string) *instance {
				cmd := command(t, []string{"TMPDIR=" + tmp, "PODYARD_API_KEY=" + testKey}, "-addr", "127.0.0.1:0", "-data", tt.data, "-runtime", runtime)
				cmd.Dir = home
				return startCommand(t, cmd)
			}
			in := run("process")
			p := in.web()
			in.follow(p.ID).await("system: container is healthy")
			in.end(syscall.SIGKILL)
			if len(processes(t, p.ID)) == 0 {
				t.Fatal("the process died with its server: this test shows nothing")
			}
			t.Cleanup(func() {
				if t.Failed() {
					kill(t, p.ID)
				}
			})
			next := run(tt.next)
			gone(t, p.ID)
			if tt.status == "" {
				get[any](next, "GET", "/v2/pods/"+p.ID, "", http.StatusNotFound)
			} else {
				// The server answers before it has looked at every pod.
				eventually(t, "the pod is "+tt.status, func() bool { return next.pod(p.ID).Status == tt.status })
			}
			next.stop()
			if left, _ := filepath.Glob(filepath.Join(tmp, "podyard-*", "*")); len(left) > 0 {
				t.Errorf("left in the temporary directory: %v", left)
			}
		})
	}
}

func TestWorkersOfAKilledServerAreEndedByTheNextElsewhere(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	data := t.TempDir()
	in := start(t, "-data", data)
	mine := get[struct{ ID string }](in, "POST", "/v2/serverless", `{"name":"mine","type":"QUEUE","image":"`+demo.HelloImage+`",`+
		`"cpu":[{"id":"host","vcpuCount":2}],"workers":{"min":1,"max":1},"scaling":{"type":"REQUEST_COUNT","requestCount":1}}`, http.StatusCreated).ID
	var pods []string
	for _, endpoint := range []string{mine, demo.HelloEndpoint} {
		get[job](in, "POST", "/v2/"+endpoint+"/runsync", `{"input":{}}`, http.StatusOK)
		for _, w := range get[listing](in, "GET", "/v2/serverless/"+endpoint+"/workers", "", http.StatusOK).Workers {
			pods = append(pods, podfleet.PodID(endpoint, serverless.WorkerID(w.ID)))
		}
	}
	if len(pods) != 2 {
		t.Fatalf("workers %v, want one of each endpoint", pods)
	}
	in.end(syscall.SIGKILL)
	for _, pod := range pods {
		t.Cleanup(func() { kill(t, pod) })
		if len(processes(t, pod)) == 0 {
			t.Fatal("a worker died with its server: this test shows nothing")
		}
	}
	start(t, "-data", data)
	for _, pod := range pods {
		gone(t, pod)
	}
}

func TestServersThatKeepNothingLeaveEachOtherAlone(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	tmp := t.TempDir()
	run := func() *instance {
		return startCommand(t, command(t, []string{"TMPDIR=" + tmp, "PODYARD_API_KEY=" + testKey}, "-addr", "127.0.0.1:0", "-data", ""))
	}
	in := run()
	p := in.web()
	in.follow(p.ID).await("system: container is healthy")
	run().stop()
	if got := in.pod(p.ID); got.Status != "RUNNING" || len(processes(t, p.ID)) != 1 {
		t.Errorf("after the start of another server the pod is %s with processes %v, want it RUNNING", got.Status, processes(t, p.ID))
	}
}

func TestATemporaryDirectoryThatOthersCanWriteIsNotTrusted(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	place := filepath.Join(tmp, "podyard-"+strconv.Itoa(os.Getuid()))
	if err := os.Mkdir(place, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(place, 0o777); err != nil {
		t.Fatal(err)
	}
	if text := refused(t, []string{"TMPDIR=" + tmp}, "-addr", "127.0.0.1:0", "-data", ""); !strings.Contains(text, place) {
		t.Errorf("%q does not name the directory", text)
	}
}

func TestAStartThatFailsAfterACrashDoesNotWaitForPods(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	data := t.TempDir()
	in := start(t, "-data", data)
	p := in.web()
	in.follow(p.ID).await("system: container is healthy")
	in.end(syscall.SIGKILL)
	t.Cleanup(func() { kill(t, p.ID) })
	text := refused(t, []string{noEngine}, "-addr", "127.0.0.1:0", "-data", data,
		"-config", file(t, `{"endpoints":[{"id":"py","image":"local/py","cpu":[{"id":"none","vcpuCount":2}]}]}`))
	if !strings.Contains(text, `"none"`) {
		t.Errorf("%q does not name the flavor that does not exist", text)
	}
}
