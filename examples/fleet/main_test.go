package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/internal/sweeptest"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/fleet"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "work" {
		main()
		return
	}
	os.Exit(sweeptest.Main(m))
}

// start runs the server until the test ends.
func start(t *testing.T) *serverless.Service {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv, err := open(t.Context(), t.TempDir(), []string{self, "work"}, "http://"+l.Addr().String()+"/v2")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx, server.On(l, srv.Handler())) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return srv.Services().Jobs
}

func job(t *testing.T, jobs *serverless.Service, input string) serverless.Job {
	t.Helper()
	j, err := jobs.SubmitAndWait(t.Context(), "me", "greet", serverless.Request{Input: []byte(input), Wait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// processOf is the first line of a worker's log.
func processOf(t *testing.T, jobs *serverless.Service, w serverless.WorkerID) *os.Process {
	t.Helper()
	lines, err := jobs.WorkerLog(t.Context(), "greet", w, fleet.LogQuery{Tail: -1, Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	for line, err := range lines {
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
	suite.SkipUnlessLong(t)
	jobs := start(t)
	first := job(t, jobs, `{"name":"Ann"}`)
	if first.Status != serverless.Completed || string(first.Output) != `"hello, Ann"` {
		t.Fatalf("job is %v with %s, want COMPLETED with a greeting", first.Status, first.Output)
	}
	eventually(t, "no worker is there without a job", func() bool {
		list, err := jobs.WorkerList(t.Context(), "greet")
		return err == nil && len(list) == 0
	})
}

func TestJobOfAKilledProcessIsDoneByAnother(t *testing.T) {
	suite.SkipUnlessLong(t)
	jobs := start(t)
	j, err := jobs.Submit(t.Context(), "me", "greet", serverless.Request{Input: []byte(`{"name":"Ann","sleep_ms":5000}`)})
	if err != nil {
		t.Fatal(err)
	}
	ref := j.Ref
	eventually(t, "a worker has the job", func() bool {
		j, err = jobs.Get(t.Context(), "me", ref)
		return err == nil && j.Status == serverless.InProgress
	})
	victim := j.Worker
	if err := processOf(t, jobs, victim).Kill(); err != nil {
		t.Fatal(err)
	}
	j, err = jobs.Wait(t.Context(), "me", ref, time.Minute)
	if err != nil || j.Status != serverless.Completed || j.Deliveries != 2 || j.Worker == victim {
		why, _ := jobs.Why(t.Context(), "me", ref)
		t.Errorf("job is %v after %d deliveries, %v, want COMPLETED by a second worker: %s", j.Status, j.Deliveries, err, why)
	}
}

func TestManyJobsHaveTwoProcesses(t *testing.T) {
	suite.SkipUnlessLong(t)
	jobs := start(t)
	seen := map[serverless.WorkerID]bool{}
	var refs []serverless.Ref
	for i := range 8 {
		j, err := jobs.Submit(t.Context(), "me", "greet", serverless.Request{Input: fmt.Appendf(nil, `{"name":"%d","sleep_ms":1500}`, i)})
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, j.Ref)
	}
	for _, ref := range refs {
		j, err := jobs.Wait(t.Context(), "me", ref, time.Minute)
		if err != nil || j.Status != serverless.Completed {
			t.Fatalf("job is %v, %v", j.Status, err)
		}
		seen[j.Worker] = true
	}
	if len(seen) != 2 {
		t.Errorf("%d workers did the jobs, want the maximum of 2", len(seen))
	}
}
