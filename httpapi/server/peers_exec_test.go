package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
)

// A commanded is what a runtime got of one command.
type commanded struct {
	command pods.Command
	stdin   string
	events  []pods.ExecEvent
}

// heard is a runtime that notes commands and answers them.
type heard struct {
	mu   sync.Mutex
	list []commanded
}

// Exec implements pods.Executor: it reads all input and two events, and says so.
func (r *volumed) Exec(ctx context.Context, podID string, c pods.Command, s pods.Streams) (int, error) {
	if r.heard == nil {
		return r.Runtime.Exec(ctx, podID, c, s)
	}
	got := commanded{command: c}
	if s.Stdin != nil {
		all, err := io.ReadAll(s.Stdin)
		if err != nil {
			return 0, err
		}
		got.stdin = string(all)
	}
	for range 2 {
		select {
		case e := <-s.Events:
			got.events = append(got.events, e)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	r.heard.mu.Lock()
	r.heard.list = append(r.heard.list, got)
	r.heard.mu.Unlock()
	_, err1 := io.WriteString(s.Stdout, got.stdin)
	_, err2 := io.WriteString(s.Stderr, "errors")
	return 42, errors.Join(err1, err2)
}

func TestEveryFieldOfACommandReachesTheServerOfThePod(t *testing.T) {
	stores := memoryStores(t)
	stores.Servers, stores.Presence = memory.NewServers(), memory.NewPresence()
	b := startPeered(t, stores, "b", 8)
	a := startPeered(t, stores, "a", 4)
	id := decode[struct{ ID string }](t, a.do("POST", "/v2/pods", `{"name":"p","image":"img","cpu":{"id":"cpu3c","vcpuCount":8}}`, http.StatusCreated)).ID
	until(t, "it is RUNNING", func() bool {
		return decode[struct{ Status string }](t, a.do("GET", "/v2/pods/"+id, "", http.StatusOK)).Status == "RUNNING"
	})
	b.runtime.heard = &heard{}
	want := pods.Command{Argv: []string{"a", "", "b c\x01"}, Env: []string{"A=1", "B="}, Dir: "/d", TTY: true, Size: pods.WindowSize{Columns: 3, Rows: 4}}
	for i, v := 0, reflect.ValueOf(want); i < v.NumField(); i++ {
		if f := v.Type().Field(i); f.Name != "Dial" && v.Field(i).IsZero() {
			t.Fatalf("this test sets no %s", f.Name)
		}
	}
	events := []pods.ExecEvent{{Size: pods.WindowSize{Columns: 9, Rows: 8}}, {Signal: "INT"}}
	ch := make(chan pods.ExecEvent, 2)
	ch <- events[0]
	ch <- events[1]
	input := strings.Repeat("0123456789", 200_000) // more than may be on its way
	var out, errs strings.Builder
	code, err := a.services.Pods.Exec(t.Context(), "ann", id, want, pods.Streams{Stdin: strings.NewReader(input), Stdout: &out, Stderr: &errs, Events: ch})
	if err != nil || code != 42 || out.String() != input || errs.String() != "errors" {
		t.Fatalf("Exec = %d, %v, %d bytes, %q", code, err, out.Len(), errs.String())
	}
	if diff := cmp.Diff([]commanded{{want, input, events}}, b.runtime.heard.list, cmp.AllowUnexported(commanded{})); diff != "" {
		t.Errorf("the host's server got (-want +got):\n%s", diff)
	}
	want = pods.Command{Dial: "localhost:80"}
	ch <- events[0]
	ch <- events[1]
	if _, err := a.services.Pods.Exec(t.Context(), "ann", id, want, pods.Streams{Stdout: io.Discard, Stderr: io.Discard, Events: ch}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(commanded{want, "", events}, b.runtime.heard.list[1], cmp.AllowUnexported(commanded{})); diff != "" {
		t.Errorf("a connection (-want +got):\n%s", diff)
	}
}

func TestACommandOnAnotherServerEndsWithItsContextAndWithItsPod(t *testing.T) {
	stores := memoryStores(t)
	stores.Servers, stores.Presence = memory.NewServers(), memory.NewPresence()
	b := startPeered(t, stores, "b", 8)
	a := startPeered(t, stores, "a", 4)
	id := decode[struct{ ID string }](t, a.do("POST", "/v2/pods", `{"name":"p","image":"img","cpu":{"id":"cpu3c","vcpuCount":8}}`, http.StatusCreated)).ID
	until(t, "it is RUNNING", func() bool {
		return decode[struct{ Status string }](t, a.do("GET", "/v2/pods/"+id, "", http.StatusOK)).Status == "RUNNING"
	})
	start := func(ctx context.Context) (end <-chan error, in *io.PipeWriter) {
		r, w := io.Pipe()
		ready := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			code, err := a.services.Pods.Exec(ctx, "ann", id, pods.Command{Argv: []string{"sh"}}, pods.Streams{Stdin: r, Stdout: &firstWrite{did: ready}, Stderr: io.Discard})
			if err == nil && code != 137 {
				err = errors.New("it ended by itself")
			}
			done <- err
		}()
		<-ready
		return done, w
	}
	ctx, cancel := context.WithCancel(t.Context())
	done, in := start(ctx)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v", err)
	}
	in.Close()
	done, in = start(t.Context())
	b.runtime.Kill(id, 1, "a crash")
	if err := <-done; err != nil {
		t.Errorf("after the end of its pod: %v", err)
	}
	in.Close()
	_, err := a.services.Pods.Exec(t.Context(), "ann", "nosuchpod", pods.Command{Argv: []string{"sh"}}, pods.Streams{Stdout: io.Discard, Stderr: io.Discard})
	if !errors.Is(err, pods.ErrNotFound) {
		t.Errorf("an unknown pod: %v", err)
	}
}

// A firstWrite closes a channel at its first write.
type firstWrite struct {
	once sync.Once
	did  chan struct{}
}

func (w *firstWrite) Write(b []byte) (int, error) {
	w.once.Do(func() { close(w.did) })
	return len(b), nil
}
