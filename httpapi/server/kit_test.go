package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/disk"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/internal/enginetest"
	"github.com/podyard/podyard/internal/suite"
)

// patience is the longest wait for an event on a slow machine.
const patience = 30 * time.Second

const testKey = "key-of-the-tests"

// workerProgram is testdata/worker, built once.
var workerProgram string

func TestMain(m *testing.M) {
	os.Exit(enginetest.MainWithProgram(m, "./testdata/worker", &workerProgram))
}

// memoryStores returns new stores on each call.
func memoryStores(*testing.T) server.Stores {
	return server.Stores{
		Pods: memory.NewPods(), Registries: memory.NewRegistries(), Volumes: memory.NewVolumes(), Templates: memory.NewTemplates(),
		SSHKeys: memory.NewSSHKeys(), Secrets: memory.NewSecrets(), Accounts: memory.NewAccounts(), Billing: memory.NewBilling(), Endpoints: memory.NewEndpoints(), Jobs: memory.NewJobs(), Schedules: memory.NewSchedules(), Batches: memory.NewBatches(), JobLogs: memory.NewJobLogs(),
	}
}

// diskStores opens the stores below dir, as the last server left them.
func diskStores(t *testing.T, dir string) server.Stores {
	t.Helper()
	d, err := disk.Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return server.Stores{
		Pods: d.Pods(), Registries: d.Registries(), Volumes: d.Volumes(), Templates: d.Templates(),
		SSHKeys: d.SSHKeys(), Secrets: d.Secrets(), Accounts: d.Accounts(), Billing: d.Billing(), Endpoints: d.Endpoints(), Jobs: d.Jobs(), Schedules: d.Schedules(), Batches: d.Batches(), JobLogs: d.JobLogs(),
		Run: d.Run, Close: d.Close,
	}
}

// keys accepts testKey.
func keys(t *testing.T) httpapi.Authenticator {
	t.Helper()
	k, err := httpapi.NewKeys([]httpapi.Key{{Secret: testKey, User: "ann", Scopes: []string{"*", "operator"}}}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// A record is the log of a server.
type record struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(p)
}

func (r *record) logger() *slog.Logger { return slog.New(slog.NewTextHandler(r, nil)) }

func (r *record) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.String()
}

// wantNoTrouble fails the test if the log has a level above info.
func (r *record) wantNoTrouble(t *testing.T) {
	t.Helper()
	for line := range strings.Lines(r.text()) {
		if !strings.Contains(line, "level=INFO") && !strings.Contains(line, "level=DEBUG") {
			t.Errorf("logged: %s", line)
		}
	}
}

// A client sends requests to the server at url.
type client struct {
	t   *testing.T
	url string
}

// send makes a request and returns the status and body of its answer.
func (c client) send(ctx context.Context, method, path, body string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+testKey)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, b, err
}

// do is send, and checks the status of the answer.
func (c client) do(method, path, body string, want int) []byte {
	c.t.Helper()
	status, b, err := c.send(c.t.Context(), method, path, body)
	if err != nil || status != want {
		c.t.Fatalf("%s %s: %d %v, want %d: %s", method, path, status, err, want, b)
	}
	return b
}

// A job has the members of a job that the tests read.
type job struct {
	ID     string          `json:"id"`
	Status string          `json:"status"`
	Output json.RawMessage `json:"output"`
	Error  string          `json:"error"`
}

func decode[T any](t *testing.T, b []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return v
}

// jobs waits until an endpoint has these numbers of jobs in progress and in its queue.
func (c client) jobs(endpoint string, running, queued int) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("endpoint %s has %d jobs in progress and %d in its queue", endpoint, running, queued), func() bool {
		h := decode[struct {
			Jobs struct{ InProgress, InQueue int }
		}](c.t, c.do("GET", "/v2/"+endpoint+"/health", "", http.StatusOK))
		return h.Jobs.InProgress == running && h.Jobs.InQueue == queued
	})
}

func (c client) eventually(what string, ok func() bool) {
	c.t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for deadline := time.After(patience); !ok(); {
		select {
		case <-look.C:
		case <-deadline:
			c.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// wantSoon fails the test if something took more than a second.
func wantSoon(t *testing.T, what string, took time.Duration) {
	t.Helper()
	if t.Logf("%s took %v", what, took); took > suite.Within(time.Second) {
		t.Errorf("%s took %v, want at most %v", what, took, suite.Within(time.Second))
	}
}

// later runs f in a goroutine and returns a channel with its result.
func later[T any](f func() T) <-chan T {
	ch := make(chan T, 1)
	go func() { ch <- f() }()
	return ch
}

// within receives from ch before patience runs out.
func within[T any](t *testing.T, what string, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
	return v
}

// runsync submits a job and waits for it in a goroutine.
func (c client) runsync(endpoint, input string) <-chan string {
	ctx := c.t.Context()
	return later(func() string {
		_, b, err := c.send(ctx, "POST", "/v2/"+endpoint+"/runsync", `{"input":`+input+`}`)
		if err != nil {
			return err.Error()
		}
		return string(b)
	})
}

// stream polls the stream of a job. It returns the chunks and the last status, or the first
// answer that is not part of a stream.
func (c client) stream(endpoint, input string) <-chan string {
	c.t.Helper()
	id := decode[job](c.t, c.do("POST", "/v2/"+endpoint+"/run", `{"input":`+input+`}`, http.StatusOK)).ID
	ctx := c.t.Context()
	return later(func() string {
		got := ""
		for {
			status, b, err := c.send(ctx, "GET", "/v2/"+endpoint+"/stream/"+id+"?format=envelope", "")
			var part struct {
				Status string
				Stream []struct{ Output json.RawMessage }
			}
			if err != nil || status != http.StatusOK || json.Unmarshal(b, &part) != nil {
				return fmt.Sprintf("%s, then %d %s %v", got, status, b, err)
			}
			for _, it := range part.Stream {
				got += string(it.Output)
			}
			if len(part.Stream) == 0 && part.Status != "IN_PROGRESS" && part.Status != "IN_QUEUE" {
				return got + " " + part.Status
			}
		}
	})
}

// create creates a pod.
func (c client) create(image string) (id string) {
	c.t.Helper()
	body := `{"name":"test","image":"` + image + `","cpu":{"id":"host","vcpuCount":2}}`
	return decode[struct{ ID string }](c.t, c.do("POST", "/v2/pods", body, http.StatusCreated)).ID
}

// follow reads the log of a pod until the server ends it. It returns after the log has this
// line. If the log is cut off, the result ends with the error.
func (c client) follow(id, line string) <-chan string {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.url+"/v2/pods/"+id+"/logs", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+testKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		c.t.Fatalf("follow the log: %v, %v", resp, err)
	}
	came := make(chan bool, 1)
	all := later(func() string {
		defer resp.Body.Close()
		text := ""
		sc := bufio.NewScanner(resp.Body)
		for sc.Scan() {
			if text += sc.Text() + "\n"; strings.Contains(sc.Text(), line) {
				select {
				case came <- true:
				default:
				}
			}
		}
		if err := sc.Err(); err != nil {
			text += "cut off: " + err.Error()
		}
		return text
	})
	within(c.t, "a line with "+line, came)
	return all
}
