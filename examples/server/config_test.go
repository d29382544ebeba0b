package main

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/suite"
)

func TestKeysOfTheConfigurationHaveTheirScopesAndTimes(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	digest := sha256.Sum256([]byte("hidden"))
	in := start(t, "-config", file(t, `{"keys":[
		{"key":"sha256:`+hex.EncodeToString(digest[:])+`","user":"alice","scopes":["*"]},
		{"key":"reader","user":"bob","scopes":["pods:read","endpoint:echo:run"],"expires":"2100-01-01T00:00:00Z"},
		{"key":"old","user":"bob","scopes":["*"],"expires":"2020-01-01T00:00:00Z"}]}`))
	const create = `{"name":"x","image":"podyard/web","cpu":{"id":"host","vcpuCount":2}}`
	in.key = "hidden"
	p := get[pod](in, "POST", "/v2/pods", create, http.StatusCreated)
	in.key = "reader"
	get[any](in, "GET", "/v2/pods", "", http.StatusOK)
	get[any](in, "GET", "/v2/pods/"+p.ID, "", http.StatusNotFound) // it is alice's
	get[any](in, "POST", "/v2/pods", create, http.StatusForbidden)
	if j := get[job](in, "POST", "/v2/echo/runsync", `{"input":{}}`, http.StatusOK); j.Status != "COMPLETED" {
		t.Errorf("a key with endpoint:echo:run runs a job to %s", j.Status)
	}
	in.key = "old"
	get[any](in, "GET", "/v2/pods", "", http.StatusUnauthorized)
}

func TestQuotasOfTheConfigurationHoldAndAnExemptKeyHasNone(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := start(t, "-config", file(t, `{"quotas":{"minute":2},"keys":[{"key":"bench","user":"bench","scopes":["*"],"exempt":true}]}`))
	for _, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		get[any](in, "GET", "/v2/pods", "", want)
	}
	in.key = "bench"
	for range 5 {
		resp, err := http.DefaultClient.Do(in.request("GET", "/v2/pods", ""))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Ratelimit") != "" {
			t.Fatalf("an exempt key gets %d with RateLimit %q, want 200 and none", resp.StatusCode, resp.Header.Get("Ratelimit"))
		}
	}
}

func TestTheSampleCatalogIsRentedOnTheSimulatedRuntime(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := start(t, "-runtime", "sim", "-config", file(t, `{"catalog":"sample"}`))
	p := get[pod](in, "POST", "/v2/pods",
		`{"name":"train","image":"pytorch","gpu":{"id":"NVIDIA GeForce RTX 4090","count":2},"ports":["22/tcp"]}`, http.StatusCreated)
	in.follow(p.ID).await("system: container is healthy")
	if p = in.pod(p.ID); p.Status != "RUNNING" || len(p.Runtime.Ports) != 1 {
		t.Errorf("the pod is %+v, want RUNNING with a port", p)
	}
	if code, took := in.end(syscall.SIGTERM); code != 0 || took >= 5*time.Second {
		t.Errorf("exit code %d after %v, want 0 without waiting: nothing has to be ended", code, took)
	}
}

func TestThePublicURLIsWhatCommandsNameAndNotWhatIsListenedOn(t *testing.T) {
	t.Parallel()
	in := startCommand(t, command(t, nil, "-addr", "127.0.0.1:0", "-data", "", "-public-url", "https://pods.example.com/"))
	if !strings.HasPrefix(in.url, "http://127.0.0.1:") {
		t.Errorf("listening on %q", in.url)
	}
	in.line() // the key
	for range 2 {
		if l := in.line(); !strings.Contains(l, " https://pods.example.com/v2/") {
			t.Errorf("%q does not name the public URL", l)
		}
	}
}

func TestAnAddressInUseIsRefusedByName(t *testing.T) {
	t.Parallel()
	in := start(t)
	addr := strings.TrimPrefix(in.url, "http://")
	if text := refused(t, nil, "-addr", addr, "-data", ""); !strings.Contains(text, addr) {
		t.Errorf("%q does not name the address", text)
	}
}

func TestAKeyWithoutScopesIsTakenAndToldOf(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := start(t, "-config", file(t, `{"keys":[{"key":"all","user":"alice","scopes":["*"]},{"key":"none","user":"bob"}]}`))
	in.key = "none"
	get[any](in, "GET", "/v2/catalog/cpus", "", http.StatusOK)
	get[any](in, "GET", "/v2/pods", "", http.StatusForbidden)
	in.stop()
	if log := in.stderr.String(); !strings.Contains(log, "without scopes") || !strings.Contains(log, "keys[1]") || strings.Contains(log, "keys[0]") {
		t.Errorf("the log says %q, want that keys[1] alone has no scopes", log)
	}
}
