//go:build unix

package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/podyard/podyard/internal/suite"
)

// startWork runs the command work without a key and without a server.
func startWork(t *testing.T, dir string, env []string, args ...string) *instance {
	t.Helper()
	cmd := command(t, env, append([]string{"work", "-addr", "127.0.0.1:0", "-data", dir, "captions", "--"}, args...)...)
	in := startCommand(t, cmd)
	if line := <-in.lines; !strings.HasPrefix(line, "curl ") || !strings.Contains(line, in.url+"/v2/captions/runsync") {
		t.Errorf("the second line is %q, want a command to try", line)
	}
	if line := <-in.lines; !strings.HasPrefix(line, "export RUNPOD_API_KEY=") || !strings.HasSuffix(line, "RUNPOD_ENDPOINT_BASE_URL="+in.url+"/v2") {
		t.Errorf("the third line is %q, want what a client reads", line)
	}
	b, err := os.ReadFile(filepath.Join(dir, "api-key"))
	if err != nil {
		t.Fatal(err)
	}
	in.key = strings.TrimSpace(string(b))
	return in
}

func TestWorkStartsAServerWithTheEndpointAndAWorker(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := startWork(t, filepath.Join(t.TempDir(), "data"), nil, program, "podyard-hello")
	if status, b := in.do("POST", "/v2/captions/runsync?wait=120000", `{"input":{"name":"you"}}`); status != http.StatusOK || !strings.Contains(string(b), `"COMPLETED"`) || !strings.Contains(string(b), `"workerId":"work-`) {
		t.Errorf("runsync = %d %s", status, b)
	}
	in.stop()
}

func TestAWorkerThatEndsGivesItsJobToTheNext(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	rude := startWork(t, dir, []string{takesAndEnds + "=1"}, os.Args[0])
	status, b := rude.do("POST", "/v2/captions/run", `{"input":{"name":"you"}}`)
	var job struct{ ID string }
	if err := json.Unmarshal(b, &job); err != nil {
		t.Fatal(err)
	}
	if status != http.StatusOK {
		t.Fatalf("run = %d %s", status, b)
	}
	<-rude.done
	if code := rude.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(rude.stderr.String(), "exit status 7") {
		t.Errorf("work ends with %d: %s", code, rude.stderr.String())
	}
	next := startWork(t, dir, nil, program, "podyard-hello")
	status, b = next.do("GET", "/v2/captions/status-sync/"+job.ID+"?wait=20000", "") // less than the lease
	if status != http.StatusOK || !strings.Contains(string(b), `"COMPLETED"`) {
		t.Errorf("the job is %d %s, want it done by the next worker", status, b)
	}
	if _, b := next.do("GET", "/v2/captions/attempts/"+job.ID, ""); !strings.Contains(string(b), `"number":1`) {
		t.Errorf("its attempts are %s, want one: the worker was lost", b)
	}
	next.stop()
}

func TestWorkJoinsAServerThatRuns(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	config := filepath.Join(t.TempDir(), "podyard.json")
	if err := os.WriteFile(config, []byte(`{"endpoints":[{"id":"captions"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	in := start(t, "-config", config, "-runtime", "process")
	env := []string{"PODYARD_URL=" + in.url, "PODYARD_API_KEY=" + testKey}
	for endpoint, want := range map[string]string{"nothere": `has no endpoint "nothere"`, "": "ENDPOINT"} {
		out, err := command(t, env, "work", endpoint, "--", program, "podyard-hello").CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) && !strings.Contains(string(out), "an argument is empty") {
			t.Errorf("work %q: %v %s", endpoint, err, out)
		}
	}
	out, err := command(t, []string{"PODYARD_URL=" + in.url, "PODYARD_API_KEY=wrong"}, "work", "captions", "--", program).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "refuses the key") {
		t.Errorf("work with a wrong key: %v %s", err, out)
	}
	cmd := command(t, env, "work", "captions", "--", program, "podyard-hello")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if status, b := in.do("POST", "/v2/captions/runsync?wait=120000", `{"input":{"name":"you"}}`); status != http.StatusOK || !strings.Contains(string(b), `"COMPLETED"`) {
		t.Errorf("runsync = %d %s", status, b)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("work after a signal: %v", err)
	}
	if out, err := command(t, []string{"PODYARD_URL=http://127.0.0.1:1"}, "work", "captions", "--", program).CombinedOutput(); err == nil || !strings.Contains(string(out), "no server answers") {
		t.Errorf("work without its server: %v %s", err, out)
	}
	in.stop()
}
