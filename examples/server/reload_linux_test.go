package main

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/podyard/podyard/internal/suite"
)

// reload signals that there is another file, and waits for a line of the log.
func (in *instance) reload(config, content, line string) {
	in.t.Helper()
	before := strings.Count(in.stderr.String(), line)
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		in.t.Fatal(err)
	}
	if err := in.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		in.t.Fatal(err)
	}
	eventually(in.t, line, func() bool { return strings.Count(in.stderr.String(), line) > before })
}

func TestASignalReadsTheConfigurationAnewAndEndsNoRequest(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	config := file(t, `{"keys":[{"key":"alices","user":"alice","scopes":["*"]}]}`)
	in := start(t, "-config", config)
	const py = `"images":{"local/py":{"command":["true"]}},
		"endpoints":[{"id":"py","image":"local/py","cpu":[{"id":"host","vcpuCount":2}],"workers":{"max":0}}]`
	in.key = "alices"
	held := in.request("POST", "/v2/echo/runsync", `{"input":{"sleep_ms":3000}}`)
	answer := make(chan job, 1)
	go func() {
		defer close(answer)
		status, body, err := send(held)
		var j job
		if err == nil && status == http.StatusOK && json.Unmarshal(body, &j) == nil {
			answer <- j
		}
	}()
	in.key = testKey
	eventually(t, "the job of alice runs", func() bool {
		status, body := in.do("GET", "/v2/echo/health", "")
		return status == http.StatusOK && strings.Contains(string(body), `"inProgress":1`)
	})

	in.reload(config, `{"keys":[{"key":"bobs","user":"bob","scopes":["*"]}],"catalog":"sample",`+py+`}`, "configuration reloaded")
	if log := in.stderr.String(); !strings.Contains(log, `settings="endpoints, images, keys"`) || !strings.Contains(log, "settings=catalog") {
		t.Errorf("the log does not say what was taken and what was not:\n%s", log)
	}
	in.key = "alices"
	get[any](in, "GET", "/v2/pods", "", http.StatusUnauthorized)
	in.key = "bobs"
	get[any](in, "GET", "/v2/pods", "", http.StatusOK)
	get[any](in, "GET", "/v2/serverless/py", "", http.StatusOK)

	in.reload(config, `{"keys":[{"key":"carols","user":"carol","scopes":["all"]}],`+"\n"+py+`}`, "configuration not reloaded")
	if log := in.stderr.String(); !strings.Contains(log, config+":1:") || !strings.Contains(log, "keys[0].scopes") {
		t.Errorf("the log does not name the file, the line and the field:\n%s", log)
	}
	get[any](in, "GET", "/v2/pods", "", http.StatusOK)
	if j, ok := <-answer; !ok || j.Status != "COMPLETED" {
		t.Errorf("the request that was held over the reloads was answered %+v, want its job, COMPLETED", j)
	}
}
