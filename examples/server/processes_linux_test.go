package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/podyard/podyard/internal/suite"
)

// Finding 1 of a review by somebody who had a key: a variable was enough to be the server's
// user, and to read its key.
func TestAUserSetsOnlyWhatAProcessImageAllows(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := start(t, "-config", file(t, `{
		"keys":[{"key":"tenants","user":"tenant","scopes":["pods:write","endpoints:write"]}],
		"images":{"local/sh":{"command":["/bin/sh","-c","sleep 1000"],"allowEnv":["APP_*","*"],"users":["tenant"]},
			"local/ops":{"command":["/bin/sh","-c","sleep 1000"]}}
	}`))
	tenant := &instance{t: t, url: in.url, key: "tenants"}
	pod := func(rest string) string {
		return `{"name":"p","cpu":{"id":"host","vcpuCount":2},` + rest + `}`
	}
	endpoint := func(rest string) string {
		return `{"name":"e","type":"QUEUE","cpu":[{"id":"host","vcpuCount":2}],"workers":{"max":0},"scaling":{"type":"REQUEST_COUNT","requestCount":1},` + rest + `}`
	}
	for _, tt := range []struct {
		rest, place string // place: empty where it is allowed
	}{
		{`"image":"podyard/web","env":{"A":"1"}`, "/env/A"},
		{`"image":"podyard/web","args":"x"`, "/args"},
		{`"image":"local/ops"`, "/image"},
		{`"image":"local/sh","env":{"APP_MODE":"1","OTHER":"2"}`, ""},
		{`"image":"local/sh","env":{"LD_PRELOAD":"/x"}`, "/env/LD_PRELOAD"},
		{`"image":"local/sh","env":{"PYTHONWARNINGS":"x","BROWSER":"y"}`, "/env/BROWSER"},
		{`"image":"local/sh","args":"x"`, "/args"},
	} {
		for path, body := range map[string]string{"/v2/pods": pod(tt.rest), "/v2/serverless": endpoint(tt.rest)} {
			status, answer := tenant.do("POST", path, body)
			tenant.remove(path, answer)
			switch {
			case tt.place == "" && status != http.StatusCreated:
				t.Errorf("%s %s: %d %s, want 201", path, tt.rest, status, answer)
			case tt.place != "" && (status != http.StatusBadRequest || !strings.Contains(string(answer), `"`+tt.place+`: `)):
				t.Errorf("%s %s: %d %s, want a 400 that names %s", path, tt.rest, status, answer, tt.place)
			}
			eventually(t, path+" "+tt.rest+" by the operator", func() bool { // when there is room again
				status, answer = in.do("POST", path, body)
				return status == http.StatusCreated
			})
			in.remove(path, answer)
		}
	}
}

// remove deletes what an answer says was made.
func (in *instance) remove(path string, answer []byte) {
	in.t.Helper()
	var made struct{ ID string }
	if json.Unmarshal(answer, &made) == nil && made.ID != "" {
		get[any](in, "DELETE", path+"/"+made.ID, "", http.StatusNoContent)
	}
}

// Without any configuration of it, where there is bubblewrap.
func TestAPodDoesNotSeeTheServersFiles(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	data := t.TempDir()
	config := file(t, `{
		"keys":[{"key":"tenants","user":"tenant","scopes":["pods:write"]}],
		"images":{"local/sh":{"command":["/bin/sh","-c"],"allowArgs":true,"users":["tenant"]}}
	}`)
	in := start(t, "-data", data, "-config", config, "-runtime", "process")
	if lines := in.stderr.String(); strings.Contains(lines, "bubblewrap (") {
		missing(t, "this machine has no bubblewrap: "+lines)
	}
	tenant := &instance{t: t, url: in.url, key: "tenants"}
	script := `for f in ` + filepath.Join(data, "secret-key") + ` ` + config + `; do cat $f >/dev/null 2>&1 && test -s $f && echo read $f; done; ` +
		`echo mine >file && cat file; grep NoNewPrivs /proc/self/status; exec sleep 1000`
	p := tenant.create("local/sh", `,"args":"'`+script+`'"`)
	log := tenant.follow(p.ID)
	log.await("NoNewPrivs")
	if said, want := containerLines(log.seen), []string{"container: mine", "container: NoNewPrivs:\t1"}; !slices.Equal(said, want) {
		t.Errorf("the pod says %q, want %q", said, want)
	}
	for _, path := range []string{filepath.Join(data, "secret-key"), config} {
		if b, err := os.ReadFile(path); err != nil || len(b) == 0 {
			t.Errorf("%s: %d bytes, %v: there was nothing to read", path, len(b), err)
		}
	}
}

// containerLines is what the process wrote.
func containerLines(lines []string) (of []string) {
	for _, line := range lines {
		if strings.HasPrefix(line, "container: ") {
			of = append(of, line)
		}
	}
	return of
}
