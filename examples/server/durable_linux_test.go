package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/examples/server/demo"
	"github.com/podyard/podyard/internal/suite"
)

// Nothing else happens at the server after the claim: no sync of another change takes it along.
func TestAKilledServerKnowsWhichWorkerHasAJob(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	config := file(t, `{"endpoints":[{"id":"`+tally+`","image":"`+demo.HelloImage+`","cpu":[{"id":"host","vcpuCount":2}],"workers":{"max":0}}]}`)
	args := []string{"-data", t.TempDir(), "-config", config}
	in := start(t, args...)
	j := get[job](in, "POST", "/v2/"+tally+"/run", `{"input":{}}`, http.StatusOK)
	get[job](in, "GET", "/v2/"+tally+"/job-take/far", "", http.StatusOK)
	time.Sleep(200 * time.Millisecond) // a claim this old survives
	in.end(syscall.SIGKILL)

	in = start(t, args...)
	if got := get[job](in, "GET", "/v2/"+tally+"/status/"+j.ID, "", http.StatusOK); got.Status != "IN_PROGRESS" {
		t.Errorf("the job is %s after the crash, want IN_PROGRESS", got.Status)
	}
	get[any](in, "POST", "/v2/"+tally+"/job-done/far/"+j.ID, `{"output":1}`, http.StatusOK)
	if got := get[job](in, "GET", "/v2/"+tally+"/status/"+j.ID, "", http.StatusOK); got.Status != "COMPLETED" {
		t.Errorf("the job is %s after its worker has ended it, want COMPLETED", got.Status)
	}
	in.stop()
}

func TestJobsPodsAndCredentialsOutliveAKilledServer(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	data := t.TempDir()
	in := start(t, "-data", data)
	done := get[job](in, "POST", "/v2/echo/run", `{"input":{"a":1}}`, http.StatusOK)
	status := "/v2/echo/status/" + done.ID
	eventually(t, "the job completes", func() bool {
		return get[job](in, "GET", status, "", http.StatusOK).Status == "COMPLETED"
	})
	before := get[any](in, "GET", status, "", http.StatusOK)
	running := get[job](in, "POST", "/v2/echo/run", `{"input":{"sleep_ms":2000}}`, http.StatusOK)
	get[any](in, "POST", "/v2/registries", `{"name":"mine","username":"u","password":"hush-hush"}`, http.StatusCreated)
	p := in.web()
	in.follow(p.ID).await("system: container is healthy")
	pids := processes(t, p.ID)
	in.end(syscall.SIGKILL)

	in = start(t, "-data", data)
	if diff := cmp.Diff(before, get[any](in, "GET", status, "", http.StatusOK)); diff != "" {
		t.Errorf("the result after the crash (-before +after):\n%s", diff)
	}
	eventually(t, "the job that was running is run again", func() bool {
		return get[job](in, "GET", "/v2/echo/status/"+running.ID, "", http.StatusOK).Status == "COMPLETED"
	})
	eventually(t, "the pod is RUNNING", func() bool { return in.pod(p.ID).Status == "RUNNING" })
	if diff := cmp.Diff(pids, processes(t, p.ID)); diff != "" {
		t.Errorf("processes of the pod, want the same one (-before +after):\n%s", diff)
	}
	if text, err := visit(in.pod(p.ID).address()); err != nil || !strings.Contains(text, p.ID) {
		t.Errorf("the pod answers %q, %v, want its id", text, err)
	}
	if got := fmt.Sprint(get[any](in, "GET", "/v2/registries", "", http.StatusOK)); !strings.Contains(got, "mine") {
		t.Errorf("registries after the crash: %s, want mine", got)
	}
	in.act(p.ID, "terminate")
	gone(t, p.ID)
	in.stop()

	err := filepath.WalkDir(data, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), "hush-hush") {
			t.Errorf("%s shows the password of a registry", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAPythonWorkersResultIsKeptOverARestartInTheMiddleOfItsJob(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	script, err := filepath.Abs("testdata/worker.py")
	if err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(map[string]any{
		"images":    map[string]any{"py/sync": map[string]any{"command": []string{interpreter, script}, "env": map[string]string{"MODE": "sync"}}},
		"processes": map[string]any{"user": ownUser()},
		"endpoints": []any{map[string]any{
			"id": "sync", "image": "py/sync", "cpu": []any{map[string]any{"id": "host", "vcpuCount": 2}},
			"workers": map[string]any{"max": 1, "idleTimeout": 600}, "scaling": map[string]any{"type": "QUEUE_DELAY", "queueDelay": 0.5},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-addr", suite.FreeAddress(t), "-data", t.TempDir(), "-config", file(t, string(config))}
	in := start(t, args...)
	release := filepath.Join(t.TempDir(), "go")
	id := in.run("sync", map[string]any{"act": "progress", "go": release})
	eventually(t, "the job is under way", func() bool { return in.status("sync", id).Output != nil })
	worker := in.status("sync", id).WorkerID
	in.end(syscall.SIGKILL)

	in = start(t, args...)
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the worker's result arrives", func() bool { return in.status("sync", id).Status == "COMPLETED" })
	if j := in.status("sync", id); j.WorkerID != worker {
		t.Errorf("the job was completed by %s, want %s, which had it before", j.WorkerID, worker)
	}
	if j := in.runsync("sync", map[string]any{}); j.Status != "COMPLETED" || j.WorkerID != worker {
		t.Errorf("the next job is %s by %s, want COMPLETED by the same worker %s", j.Status, j.WorkerID, worker)
	}
}

func TestAStoreIsCheckedAndCopied(t *testing.T) {
	t.Parallel()
	data, backup := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	in := start(t, "-data", data)
	get[job](in, "POST", "/v2/echo/runsync", `{"input":{"a":1}}`, http.StatusOK)
	if text := refused(t, nil, "-data", data, "-check"); !strings.Contains(text, "another server uses this directory") {
		t.Errorf("a check beside the server: %q, want that the directory is in use", text)
	}
	in.stop()
	out, err := command(t, nil, "-data", data, "-check", "-backup", backup).Output()
	if err != nil || !strings.Contains(string(out), " 0 faults") || !strings.Contains(string(out), backup) {
		t.Errorf("check and copy: %s, %v, want no faults and where the copy is", out, err)
	}
	if entries, err := os.ReadDir(backup); err != nil || len(entries) == 0 {
		t.Errorf("the copy has %v, %v, want files", entries, err)
	}
	if text := refused(t, nil, "-data", filepath.Join(data, "nothing"), "-check"); !strings.Contains(text, "there is no store") {
		t.Errorf("a check of nothing: %q, want that there is no store", text)
	}
}

// A copy has everything but the key, and is started from like any data directory. The server
// that was copied goes on.
func TestABackupIsStartedFrom(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]func(t *testing.T, data, backup string) []string{
		"with the secretKey of the configuration": func(t *testing.T, _, _ string) []string {
			return []string{"-config", file(t, `{"secretKey":"MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}`)}
		},
		"with the file secret-key": func(t *testing.T, data, backup string) []string {
			if data == "" {
				return nil
			}
			b, err := os.ReadFile(filepath.Join(data, "secret-key"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(backup, "secret-key"), b, 0o600); err != nil {
				t.Fatal(err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, backup := t.TempDir(), filepath.Join(t.TempDir(), "copy")
			args := append([]string{"-data", data}, key(t, "", "")...)
			in := start(t, args...)
			done := get[job](in, "POST", "/v2/echo/runsync", `{"input":{"a":1}}`, http.StatusOK)
			get[any](in, "POST", "/v2/registries", `{"name":"mine","username":"u","password":"hush-hush"}`, http.StatusCreated)
			in.stop()
			if out, err := command(t, nil, append(args, "-backup", backup)...).Output(); err != nil {
				t.Fatalf("-backup: %s, %v", out, err)
			}
			if text := refused(t, nil, append(args, "-backup", backup)...); !strings.Contains(text, "exists") {
				t.Errorf("a second backup to the same directory: %q, want that it exists", text)
			}
			in = start(t, args...)
			get[job](in, "POST", "/v2/echo/runsync", `{"input":{"a":2}}`, http.StatusOK)

			if text := refused(t, nil, "-data", backup); !strings.Contains(text, "secret-key") {
				t.Errorf("a start from a copy without the key: %q, want what is missing", text)
			}
			copied := append([]string{"-data", backup}, key(t, data, backup)...)
			if out, err := command(t, nil, append(copied, "-check")...).Output(); err != nil || !strings.Contains(string(out), " 0 faults") {
				t.Errorf("-check of the copy: %s, %v, want no faults", out, err)
			}
			again := start(t, copied...)
			if j := get[job](again, "GET", "/v2/echo/status/"+done.ID, "", http.StatusOK); j.Status != "COMPLETED" {
				t.Errorf("the job is %s in the copy, want COMPLETED", j.Status)
			}
			if got := fmt.Sprint(get[any](again, "GET", "/v2/registries", "", http.StatusOK)); !strings.Contains(got, "mine") {
				t.Errorf("registries of the copy: %s, want mine", got)
			}
			get[job](again, "POST", "/v2/echo/runsync", `{"input":{"a":3}}`, http.StatusOK)
		})
	}
}

func TestAStoreUnderAnotherKeyIsRefusedByName(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	data := t.TempDir()
	mine := file(t, `{"secretKey":"MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}`)
	in := start(t, "-data", data, "-config", mine)
	in.stop()
	other := file(t, `{"secretKey":"OTEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}`)
	for want, args := range map[string][]string{
		"secret-key":       {"-addr", "127.0.0.1:0"},
		"there is a store": {"-check"},
		"the key is not":   {"-addr", "127.0.0.1:0", "-config", other},
	} {
		if text := refused(t, nil, append(args, "-data", data)...); !strings.Contains(text, data) || !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q and the directory", args, text, want)
		}
	}
	if _, err := os.Stat(filepath.Join(data, "secret-key")); err == nil {
		t.Error("a start that was refused left a key")
	}
	start(t, "-data", data, "-config", mine)
}

func TestAStartWithTheWrongKeyMakesNothing(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	data, backup := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	start(t, "-data", data).stop()
	if out, err := command(t, nil, "-data", data, "-backup", backup).Output(); err != nil {
		t.Fatalf("-backup: %s, %v", out, err)
	}
	other := file(t, `{"secretKey":"OTEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}`)
	for _, args := range [][]string{nil, {"-config", other}, {"-config", other, "-runtime", "sim"}} {
		refused(t, nil, append(args, "-addr", "127.0.0.1:0", "-data", backup)...)
		if left, err := filepath.Glob(filepath.Join(backup, "*")); err != nil || len(left) != 1 {
			t.Errorf("%s: the data directory has %s, %v, want the store alone", args, left, err)
		}
	}
}
