package main

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi/client"
)

// run has the program serve until the function it returns is called.
func run(t *testing.T, dir string) (url string, end func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, l, dir) }()
	return "http://" + l.Addr().String(), func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestTheProgramDoesJobsAndKeepsThem(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	url, end := run(t, dir)
	job, err := jobs(t, url).RunSync(t.Context(), client.JobRequest{Input: map[string]string{"say": "hello"}})
	if err != nil || job.Status != client.Completed || string(job.Output) != `"HELLO"` {
		t.Errorf("runsync answers %+v (%v), want the input in capitals", job, err)
	}
	began := time.Now()
	end()
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("the end takes %v", took)
	}
	url, end = run(t, dir)
	defer end()
	if again, err := jobs(t, url).Get(t.Context(), job.ID); err != nil || string(again.Output) != `"HELLO"` {
		t.Errorf("after a restart the job is %+v (%v), want it kept", again, err)
	}
}

// jobs returns the jobs of the program, with its key.
func jobs(t *testing.T, url string) *client.Jobs {
	t.Helper()
	c, err := client.New(&client.Options{URL: url, Key: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	return c.Jobs("shout")
}
