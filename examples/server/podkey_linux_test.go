package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/internal/suite"
)

// ask sends a request with a key, and returns the status of the answer.
func ask(t *testing.T, key, method, url, body string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

func TestAPodsKeyGetsStopsAndTerminatesItsPodAndDoesNothingElse(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := start(t, "-config", file(t, `{"processes":{"isolation":"none"},"images":{"local/env":{"command":["sh","-c","echo key $RUNPOD_API_KEY at $RUNPOD_API_BASE_URL; exec sleep 1000"]}}}`))
	p, other := in.create("local/env", ""), in.create("local/env", "")
	var key, base string
	for key == "" {
		if words := strings.Fields(in.follow(p.ID).await("key ")); len(words) > 3 {
			key, base = words[len(words)-3], words[len(words)-1]
		}
	}
	for _, at := range []string{base, in.url} { // the listener for workers, if it is one of its own, and everybody's
		if got := ask(t, key, "GET", at+"/v2/pods/"+p.ID, ""); got != http.StatusOK {
			t.Errorf("GET of the pod itself at %s = %d, want 200", at, got)
		}
		for _, o := range httpapi.Operations() {
			if o.Scope == httpapi.ScopeNone || o.NotOffered != "" || o.API == httpapi.APIBalance {
				continue
			}
			path := strings.NewReplacer("{id}", p.ID, "{podId}", p.ID, "{endpoint}", "echo").Replace(o.Path)
			if own := strings.ReplaceAll(o.Path, "{id}", p.ID) == "/v2/pods/"+p.ID && o.Methods[0] != "PATCH"; own || o.Name == "podAction" {
				path = strings.Replace(path, p.ID, other.ID, 1) // another pod
			}
			for _, m := range o.Methods {
				if got := ask(t, key, m, at+path, `{"action":"stop"}`); got != http.StatusForbidden && (at == in.url || got != http.StatusNotFound) {
					t.Errorf("%s %s at %s = %d, want 403", m, path, at, got)
				}
			}
		}
		if got := ask(t, key, "POST", at+"/v2/pods/"+p.ID+"/action", `{"action":"restart"}`); got != http.StatusForbidden {
			t.Errorf("a restart of the pod itself = %d, want 403", got)
		}
	}
	if got := ask(t, testKey, "GET", base+"/v2/pods/"+p.ID, ""); base != in.url && got != http.StatusForbidden {
		t.Errorf("GET with a user's key where only pods ask = %d, want 403", got)
	}
	if got := ask(t, key, "POST", base+"/v2/pods/"+p.ID+"/action", `{"action":"stop"}`); got != http.StatusOK {
		t.Errorf("a stop of the pod itself = %d, want 200", got)
	}
	eventually(t, "the pod has stopped", func() bool { return in.pod(p.ID).Status == "EXITED" })
	if got := ask(t, key, "DELETE", base+"/v2/pods/"+p.ID, ""); got != http.StatusNoContent {
		t.Errorf("the pod's end by itself = %d, want 204", got)
	}
	if got := ask(t, key, "GET", base+"/v2/pods/"+p.ID, ""); got != http.StatusUnauthorized {
		t.Errorf("the key after the pod's end = %d, want 401", got)
	}
	if in.pod(other.ID).Status != "RUNNING" {
		t.Errorf("the other pod is %s, want RUNNING", in.pod(other.ID).Status)
	}
}
