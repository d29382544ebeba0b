package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/suite"
)

// withScript gives the server the image "test/rude", which runs a shell. Its pods are an operator's:
// a process image is for people whom the operator trusts, and the bounds hold for their mistakes, too.
func withScript(script string) func(*testing.T, *settingsOf) []string {
	return func(_ *testing.T, s *settingsOf) []string {
		s.Images["test/rude"] = map[string]any{"command": []string{"/bin/sh", "-c", script}}
		return nil
	}
}

// withDisk is the same on a file system of its own, which has room for so many files. It goes with all
// that is in it, because what a pod has made may be too deep for the end of a test to remove.
func withDisk(files int, script string) func(*testing.T, *settingsOf) []string {
	return func(t *testing.T, s *settingsOf) []string {
		withScript(script)(t, s)
		dir := t.TempDir()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=2g,nr_inodes=%d,mode=755", files)); err != nil {
			t.Skipf("a small file system cannot be mounted here: %v", err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
		return []string{"-data", filepath.Join(dir, "data")}
	}
}

// ofPod is an abuse by a pod, which needs a moment. Afterwards it is deleted, and the server ends and
// starts in time: nothing that a pod has made may be gone through on the way.
func ofPod(door, name string, server func(*testing.T, *settingsOf) []string, moment time.Duration) abuse {
	return abuse{door: door, name: name, fills: door == "Disks of pods", slow: true, server: server, do: func(ctx context.Context, n *tenant) {
		status, b := n.in.do("POST", "/v2/pods", `{"name":"rude","image":"test/rude","disk":1,"cpu":{"id":"host","vcpuCount":2}}`)
		var made struct{ ID string }
		if err := json.Unmarshal(b, &made); err != nil || status != http.StatusCreated {
			n.t.Errorf("a pod = %d %.200s", status, b)
		}
		n.pod = made.ID
		select {
		case <-ctx.Done():
			return
		case <-time.After(moment):
		}
		n.bites()
		<-ctx.Done()
	}, after: func(n *tenant) {
		if status, b, err := send(n.in.request("DELETE", "/v2/pods/"+n.pod, "")); err != nil || status != http.StatusNoContent {
			n.t.Errorf("deleting the pod = %d %.200s, %v", status, b, err)
		}
		// What needs a new file of the store, because it is not small.
		eventually(n.t, "a job of a megabyte is done once the pod is deleted", func() bool {
			status, _ := n.do(n.t.Context(), "POST", "/v2/echo/runsync", `{"input":{"a":"`+megabyte+`","size":1}}`)
			return status == http.StatusOK
		})
	}}
}

// Abuses by what runs in a pod: each ends with its pod, and the server with or without it.
var abusesOfPods = []abuse{
	ofPod("Logs of pods", "a pod whose log is huge and empty", withScript(`truncate -s 1T /proc/self/fd/1; exec sleep 1000`), time.Second),
	ofPod("Logs of pods", "a pod that writes without end", withScript(`exec yes "$(head -c 4000 /dev/zero | tr '\0' x)"`), time.Second),
	ofPod("Logs of pods", "a pod that writes empty lines without end", withScript(`exec yes ''`), time.Second),
	ofPod("Disks of pods", "a pod that makes files until there is no inode", withDisk(20_000, `i=0; while :; do : >f$i; i=$((i+1)); done`), 2*time.Second),
	ofPod("Disks of pods", "a pod with directories that are very deep", withDisk(200_000, `
		p=d$(printf '/d%.0s' $(seq 1700))
		for i in $(seq 12); do mkdir -p $p; mv d e; mkdir -p $p; mv e $p/d; done; exec sleep 1000`), 5*time.Second),
}

// TestAServerEndsAndStartsWhateverAPodHasMade is what the abuses of pods leave out, because it ends the
// server: with a pod that has just done harm it ends in time, and starts on what is left.
func TestAServerEndsAndStartsWhateverAPodHasMade(t *testing.T) {
	suite.SkipUnlessLong(t)
	for _, a := range abusesOfPods {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			s := neighbourSettings("rude")
			args := append([]string{"-runtime", "process", "-data", t.TempDir()}, a.server(t, s)...)
			b, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			args = append(args, "-config", file(t, string(b)))
			in := start(t, args...)
			n := newTenant(t, in, "rude", "127.0.0.1")
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-n.bitten; cancel() }()
			a.do(ctx, n)
			in.stop()
			again := start(t, args...)
			if status, b := again.do("DELETE", "/v2/pods/"+n.pod, ""); status != http.StatusNoContent {
				t.Errorf("deleting the pod after a restart = %d %.200s", status, b)
			}
			eventually(t, "a job is done after a restart", func() bool {
				status, _ := again.do("POST", "/v2/echo/runsync", `{"input":{"a":"`+megabyte+`"}}`)
				return status == http.StatusOK
			})
			again.stop()
		})
	}
}
