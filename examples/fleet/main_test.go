package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/serverless"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "work" {
		main()
		return
	}
	os.Exit(m.Run())
}

// newYard runs a yard, behind a server, until the test ends.
func newYard(t *testing.T) *yard {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var h http.Handler
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, r) }))
	t.Cleanup(srv.Close)
	y, err := open(t.Context(), t.TempDir(), []string{self, "work"}, srv.URL+"/v2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := y.runtime.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if h, err = y.handler("secret"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- y.jobs.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return y
}

func (y *yard) job(t *testing.T, input string) serverless.Job {
	t.Helper()
	j, err := y.jobs.SubmitAndWait(t.Context(), "me", "greet", serverless.Request{Input: []byte(input), Wait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// process is the first line of a worker's log.
func (y *yard) process(t *testing.T, w serverless.WorkerID) *os.Process {
	t.Helper()
	for line, err := range y.fleet.WorkerLogs(t.Context(), "greet", w, serverless.LogQuery{Tail: -1, Follow: true}) {
		text, ok := strings.CutPrefix(line.Text, "process ")
		pid, bad := strconv.Atoi(text)
		if err != nil || !ok || bad != nil {
			t.Fatalf("first line of worker %s = %q, %v", w, line.Text, err)
		}
		p, err := os.FindProcess(pid)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	t.Fatalf("worker %s wrote nothing", w)
	return nil
}

// eventually waits for what nobody announces.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick, late := time.NewTicker(10*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("after a minute still not: %s", what)
		}
	}
}

func TestProcessesComeForJobsAndGoWithoutThem(t *testing.T) {
	y := newYard(t)
	first := y.job(t, `{"name":"Ann"}`)
	if first.Status != serverless.Completed || string(first.Output) != `"hello, Ann"` {
		t.Fatalf("job is %v with %s, want COMPLETED with a greeting", first.Status, first.Output)
	}
	eventually(t, "no worker is there without a job", func() bool {
		list, err := y.jobs.WorkerList(t.Context(), "greet")
		return err == nil && len(list) == 0
	})
	eventually(t, "the fleet has none", func() bool {
		list, err := y.fleet.Workers(t.Context())
		return err == nil && len(list) == 0
	})
}

func TestJobOfAKilledProcessIsDoneByAnother(t *testing.T) {
	y := newYard(t)
	j, err := y.jobs.Submit(t.Context(), "me", "greet", serverless.Request{Input: []byte(`{"name":"Ann","sleep_ms":700}`)})
	if err != nil {
		t.Fatal(err)
	}
	ref := j.Ref
	eventually(t, "a worker has the job", func() bool {
		j, err = y.jobs.Get(t.Context(), "me", ref)
		return err == nil && j.Status == serverless.InProgress
	})
	victim := j.Worker
	if err := y.process(t, victim).Kill(); err != nil {
		t.Fatal(err)
	}
	j, err = y.jobs.Wait(t.Context(), "me", ref, time.Minute)
	if err != nil || j.Status != serverless.Completed || j.Deliveries != 2 || j.Worker == victim {
		why, _ := y.jobs.Why(t.Context(), "me", ref)
		t.Errorf("job is %v after %d deliveries, %v, want COMPLETED by a second worker: %s", j.Status, j.Deliveries, err, why)
	}
}

func TestManyJobsHaveTwoProcesses(t *testing.T) {
	y := newYard(t)
	seen := map[serverless.WorkerID]bool{}
	var refs []serverless.Ref
	for i := range 8 {
		j, err := y.jobs.Submit(t.Context(), "me", "greet", serverless.Request{Input: fmt.Appendf(nil, `{"name":"%d","sleep_ms":400}`, i)})
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, j.Ref)
	}
	for _, ref := range refs {
		j, err := y.jobs.Wait(t.Context(), "me", ref, time.Minute)
		if err != nil || j.Status != serverless.Completed {
			t.Fatalf("job is %v, %v", j.Status, err)
		}
		seen[j.Worker] = true
	}
	if len(seen) != 2 {
		t.Errorf("%d workers did the jobs, want the maximum of 2", len(seen))
	}
}
