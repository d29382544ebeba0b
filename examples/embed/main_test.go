package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
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

// ask makes a request with the key of the program.
func ask(t *testing.T, method, url, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer secret")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestTheProgramServesItsFilesAndJobsAndKeepsThem(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	url, end := run(t, dir)
	if own := ask(t, "GET", url+"/main.go", ""); !strings.Contains(own, "package main") {
		t.Errorf("its own files: %s", own)
	}
	var job struct {
		ID, Status string
		Output     json.RawMessage
	}
	answer := ask(t, "POST", url+"/v2/shout/runsync", `{"input":{"say":"hello"}}`)
	if err := json.Unmarshal([]byte(answer), &job); err != nil || job.Status != "COMPLETED" || string(job.Output) != `{"SAY":"HELLO"}` {
		t.Errorf("runsync answers %s (%v), want the input in capitals", answer, err)
	}
	began := time.Now()
	end()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the end takes %v", took)
	}
	url, end = run(t, dir)
	defer end()
	if again := ask(t, "GET", url+"/v2/shout/status/"+job.ID, ""); !strings.Contains(again, `{"SAY":"HELLO"}`) {
		t.Errorf("after a restart the job is %s, want it kept", again)
	}
}
