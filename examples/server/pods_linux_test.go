package main

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/suite"
)

// processes are those that bear the id of a pod in their environment. One that ended and
// that nobody reaped has none.
func processes(t *testing.T, pod string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		env, err := os.ReadFile(path)
		if err == nil && slices.ContainsFunc(bytes.Split(env, []byte{0}), func(v []byte) bool {
			return string(v) == "PODYARD_POD_ID="+pod
		}) {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

// kill ends what a test that failed left of a pod.
func kill(t *testing.T, pod string) {
	t.Helper()
	for _, text := range processes(t, pod) {
		if pid, err := strconv.Atoi(text); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func gone(t *testing.T, pod string) {
	t.Helper()
	eventually(t, "no process of the pod is left", func() bool { return len(processes(t, pod)) == 0 })
}

func TestAPodOfPodyardWebIsVisitedStoppedStartedAndTerminated(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := start(t)
	p := in.web()
	if p.Status != "PROVISIONING" || p.Runtime != nil || p.StartedAt != nil {
		t.Errorf("a new pod is %+v, want PROVISIONING with neither runtime nor startedAt", p)
	}
	log := in.follow(p.ID)
	log.await("system: container is healthy")
	p = in.pod(p.ID)
	if p.Status != "RUNNING" || p.Runtime == nil || len(p.Runtime.Ports) != 1 {
		t.Fatalf("the pod is %+v, want RUNNING with one port", p)
	}
	if got := p.Runtime.Ports[0]; got.Private != 8000 || got.Type != "http" || got.IP != "127.0.0.1" {
		t.Errorf("port %+v, want 8000 of type http on 127.0.0.1", got)
	}
	if text, err := visit(p.address()); err != nil || text != "hello from pod "+p.ID+"\n" {
		t.Fatalf("the pod answers %q (%v), want its greeting", text, err)
	}
	log.await(`container: GET "/"`)
	if n := len(processes(t, p.ID)); n != 1 {
		t.Errorf("%d processes, want 1", n)
	}
	first := p.Runtime.Uptime
	eventually(t, "the uptime grows", func() bool { return in.pod(p.ID).Runtime.Uptime > first })

	in.act(p.ID, "stop")
	log.await("system: stopped by its user")
	stopped := in.pod(p.ID)
	if diff := cmp.Diff([]string{"start", "terminate"}, stopped.Actions); stopped.Status != "EXITED" || stopped.Runtime != nil || diff != "" {
		t.Errorf("after stop the pod is %s, runtime %v, actions (-want +got):\n%s", stopped.Status, stopped.Runtime, diff)
	}
	if stopped.StartedAt == nil {
		t.Error("startedAt is lost with a stop")
	}
	gone(t, p.ID)
	if _, err := visit(p.address()); err == nil {
		t.Error("the port of a stopped pod answers")
	}

	in.act(p.ID, "start")
	log.await("system: container is healthy")
	again := in.pod(p.ID)
	if diff := cmp.Diff([]string{"stop", "restart", "terminate"}, again.Actions); again.Status != "RUNNING" || diff != "" {
		t.Errorf("after start the pod is %s, actions (-want +got):\n%s", again.Status, diff)
	}
	if _, err := visit(again.address()); err != nil {
		t.Errorf("the pod does not answer after start: %v", err)
	}

	in.act(p.ID, "terminate")
	log.end()
	gone(t, p.ID)
	get[any](in, "GET", "/v2/pods/"+p.ID, "", http.StatusNotFound)
	if list := get[struct{ Pods []pod }](in, "GET", "/v2/pods", "", http.StatusOK); len(list.Pods) != 0 {
		t.Errorf("a terminated pod is in the listing: %+v", list)
	}
}

// loggingImages is the configuration of images that say what they see.
func loggingImages(t *testing.T) string {
	t.Helper()
	return file(t, `{"images":{
		"local/diary": {"command":["sh","-c","test -e mark && echo kept || echo empty; : >mark; exec sleep 1000"]},
		"local/ends": {"command":["sh","-c","exit ${CODE}"]},
		"local/env": {"command":["env"],"env":{"FROM_CONFIG":"yes"}},
		"local/stubborn": {"command":["sh","-c","trap '' TERM; echo deaf; while :; do sleep 1; done"]}
	}}`)
}

func TestStartKeepsTheDiskRestartAndResetWipeIt(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := start(t, "-config", loggingImages(t))
	p := in.create("local/diary", "")
	log := in.follow(p.ID)
	log.await("container: empty")
	in.act(p.ID, "stop")
	log.await("system: stopped by its user")
	in.act(p.ID, "start")
	log.await("container: kept") // before or after it the server says that the pod is healthy
	eventually(t, "the pod runs", func() bool { return in.pod(p.ID).Status == "RUNNING" })
	in.act(p.ID, "restart")
	log.await("container: empty")
	// A reset is allowed in STARTING too.
	if got := get[pod](in, "POST", "/v1/pods/"+p.ID+"/reset", "", http.StatusOK); got.ID != p.ID {
		t.Errorf("reset answers with pod %q, want the pod", got.ID)
	}
	log.await("container: empty")
	get[any](in, "POST", "/v1/pods/abcdefghijklmn/reset", "", http.StatusNotFound)
	if n := len(processes(t, p.ID)); n != 1 {
		t.Errorf("%d processes after a reset, want 1", n)
	}
}

func TestALockedPodIsNotStoppedRestartedOrResetButTerminated(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := start(t)
	p := in.web()
	in.follow(p.ID).await("system: container is healthy")
	if got := get[pod](in, "PATCH", "/v2/pods/"+p.ID, `{"locked":true}`, http.StatusOK); !slices.Equal(got.Actions, []string{"terminate"}) {
		t.Errorf("actions of a locked pod: %v, want terminate only", got.Actions)
	}
	for _, action := range []string{"stop", "restart"} {
		get[any](in, "POST", "/v2/pods/"+p.ID+"/action", `{"action":"`+action+`"}`, http.StatusConflict)
	}
	get[any](in, "POST", "/v1/pods/"+p.ID+"/reset", "", http.StatusConflict)
	get[any](in, "POST", "/v2/pods/"+p.ID+"/action", `{"action":"start"}`, http.StatusConflict)
	in.act(p.ID, "terminate")
	gone(t, p.ID)
}

func TestAnExitIsExitedAFailureIsErrorAndTheSystemLogSaysWhy(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := start(t, "-config", loggingImages(t))
	for _, tt := range []struct{ image, env, status, line string }{
		{"local/ends", `{"CODE":"0"}`, "EXITED", "exited with code 0"},
		{"local/ends", `{"CODE":"3"}`, "ERROR", "exited with code 3"},
		{"nginx:latest", `{}`, "ERROR", `image "nginx:latest" is not known here`},
	} {
		p := in.create(tt.image, `,"env":`+tt.env)
		in.follow(p.ID).await(tt.line)
		if got := in.pod(p.ID); got.Status != tt.status || !slices.Equal(got.Actions, []string{"start", "terminate"}) {
			t.Errorf("%s %s: %s with actions %v, want %s with start and terminate", tt.image, tt.env, got.Status, got.Actions, tt.status)
		}
	}
}

func TestAPodThatIgnoresSIGTERMIsGoneSoonAfterTerminate(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := start(t, "-config", loggingImages(t))
	p := in.create("local/stubborn", "")
	in.follow(p.ID).await("container: deaf")
	in.act(p.ID, "terminate")
	gone(t, p.ID)
}

func TestAPodSeesItsOwnEnvironmentAndNothingOfTheServers(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := start(t, "-config", loggingImages(t))
	p := in.create("local/env", `,"env":{"MINE":"1"}`)
	log := in.follow(p.ID)
	log.await("exited with code 0")
	for _, want := range []string{"container: MINE=1", "container: FROM_CONFIG=yes", "container: RUNPOD_POD_ID=" + p.ID} {
		log.seen = append(log.seen, drain(log)...)
		if !slices.Contains(log.seen, want) {
			log.await(want) // the output may come after the end
		}
	}
	all := strings.Join(append(log.seen, drain(log)...), "\n")
	if strings.Contains(all, testKey) || strings.Contains(all, "PODYARD_API_KEY") {
		t.Errorf("the key of the server is in the environment of a pod:\n%s", all)
	}
}

// drain is what is there without waiting.
func drain(f *follower) (lines []string) {
	for {
		select {
		case l, ok := <-f.lines:
			if !ok {
				return lines
			}
			lines = append(lines, l)
		default:
			return lines
		}
	}
}
