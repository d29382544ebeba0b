package main

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/postgrestest"
	"github.com/podyard/podyard/internal/suite"
)

// behind starts a server whose database is behind a Freezer.
func behind(t *testing.T) (in *instance, f *postgrestest.Freezer) {
	t.Helper()
	var postgresql postgrestest.Server
	t.Cleanup(postgresql.Stop)
	f, url := postgrestest.NewFreezer(t, postgresql.Empty(t))
	in = startCommand(t, command(t, nil, "-addr", "127.0.0.1:0", "-data", url, "-local", t.TempDir(), "-config", secretConfig(t)))
	in.key = strings.TrimPrefix(in.line(), "key: ")
	completes(in)
	return in, f
}

// completes waits until a job completes.
func completes(in *instance) {
	in.t.Helper()
	eventually(in.t, "a job completes", func() bool {
		code, body := in.do("POST", "/v2/echo/runsync", `{"input":{"n":1}}`)
		return code == http.StatusOK && strings.Contains(string(body), `"COMPLETED"`)
	})
}

func (in *instance) readyz() int {
	code, _ := in.do("GET", "/readyz", "")
	return code
}

// The connections that there are go silent, and new ones work: jobs run again as soon as the old ones are
// given up, in seconds and not in the quarter of an hour of TCP.
func TestJobsRunAgainWhenTheConnectionsOfTheDatabaseGoSilent(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in, f := behind(t)
	f.Freeze(false)
	begin := time.Now()
	completes(in)
	if took := time.Since(begin); took > suite.Within(25*time.Second) {
		t.Errorf("the first job completes after %v, want the time of a call and of its repetition", took)
	}
	for range 5 { // who waits is woken, and does not wait for as long as it may
		begin = time.Now()
		completes(in)
		if took := time.Since(begin); took > suite.Within(5*time.Second) {
			t.Errorf("a job completes after %v, want at once", took)
		}
	}
	eventually(t, "the server is ready", func() bool { return in.readyz() == http.StatusOK })
	in.stop()
}

func TestAServerWhoseDatabaseIsSilentSaysSoAndGoesOn(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in, f := behind(t)
	f.Freeze(true)
	req := in.request("POST", "/v2/echo/run", `{"input":{"n":1}}`)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("a submit is answered with %d and Retry-After %q, want 503 and one", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	if code := in.readyz(); code != http.StatusServiceUnavailable {
		t.Errorf("/readyz is %d, want 503", code)
	}
	f.Thaw()
	completes(in)
	eventually(t, "the server is ready", func() bool { return in.readyz() == http.StatusOK })
	in.stop()
}

func TestAServerWhoseDatabaseIsSilentEnds(t *testing.T) {
	suite.SkipUnlessLong(t)
	for _, all := range []bool{false, true} {
		t.Run(fmt.Sprint("new connections too: ", all), func(t *testing.T) {
			t.Parallel()
			in, f := behind(t)
			for range 3 { // jobs that run in the server, and in its workers
				get[job](in, "POST", "/v2/echo/run", `{"input":{"sleep_ms":1500}}`, http.StatusOK)
			}
			f.Freeze(all)
			for range 3 {
				go func() { _, _, _ = send(in.request("POST", "/v2/echo/runsync", `{"input":{"n":1}}`)) }() // how it ends does not matter
			}
			time.Sleep(500 * time.Millisecond) // they are under way
			if code, took := in.end(syscall.SIGTERM); code != 0 || took > window {
				t.Errorf("exit code %d after %v, want 0 within %v", code, took, window)
			} else {
				t.Logf("it took %v", took)
			}
		})
	}
}
