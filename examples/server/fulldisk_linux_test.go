package main

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/suite"
)

// smallDisk is a directory on a file system of its own, of so many MB.
func smallDisk(t *testing.T, megabytes int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes)); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// tableBytes is how much the tables of the store in dir have. Its logs have space as well, which
// comes and goes with other things than jobs.
func tableBytes(t *testing.T, dir string) (n int64) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		info, err := f.Info()
		if filepath.Ext(f.Name()) == ".sst" && err == nil { // otherwise it is deleted just now
			n += info.Size()
		}
	}
	return n
}

func freeBytes(t *testing.T, dir string) int64 {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	return int64(s.Bavail) * s.Bsize
}

// One user fills a disk of 700 MB. That user is refused first, others go on, and an operator sees
// who it is and makes room with one command. What was acknowledged is there after a crash.
func TestAUserWhoFillsTheDiskIsRefusedBeforeTheOthers(t *testing.T) {
	suite.SkipUnlessLong(t)
	disk := smallDisk(t, 700)
	args := []string{"-data", filepath.Join(disk, "data"), "-runtime", "process", "-config", file(t, neighbourConfig("rude", "polite"))}
	in := start(t, args...)
	rude, polite := newTenant(t, in, "rude", "127.0.0.1"), newTenant(t, in, "polite", "127.0.0.1")
	rude.owns()
	submit := func(n *tenant, endpoint, input string) (id string, status int, b []byte) {
		status, b = n.do(t.Context(), "POST", "/v2/"+endpoint+"/run", `{"input":`+input+`}`)
		var job struct{ ID string }
		_ = json.Unmarshal(b, &job)
		return job.ID, status, b
	}
	noise := make([]byte, 3<<20) // which is not made smaller on the disk
	large := func() string {
		_, _ = rand.Read(noise)
		return `{"a":"` + base64.StdEncoding.EncodeToString(noise) + `"}`
	}
	var kept []string
	var full []byte
	for full == nil {
		id, status, b := submit(rude, rude.endpoint, large())
		switch {
		case status == http.StatusOK:
			kept = append(kept, id)
		case status == http.StatusTooManyRequests && strings.Contains(string(b), "the disk of the server is nearly full"):
			full = b
		default:
			t.Fatalf("after %d jobs: %d %.300s", len(kept), status, b)
		}
		if len(kept) > 170 {
			t.Fatal("700 MB were accepted on a disk of 700 MB")
		}
	}
	t.Logf("%d jobs of 4 MB were taken, %d MB are free: %s", len(kept), freeBytes(t, disk)>>20, full)
	for range 50 {
		if status, b := polite.do(t.Context(), "POST", "/v2/echo/runsync", `{"input":{"a":1}}`); status != http.StatusOK || !strings.Contains(string(b), "COMPLETED") {
			t.Fatalf("a job of another user = %d %s", status, b)
		}
	}
	id, status, b := submit(polite, "echo", `{"b":"`+megabyte[:100_000]+`"}`)
	if status != http.StatusOK {
		t.Fatalf("a job of another user = %d %s", status, b)
	}
	if in.warning() == "" {
		t.Error("operators are not warned")
	}

	_ = in.cmd.Process.Kill()
	<-in.done
	in = start(t, args...)
	rude.in, polite.in = in, in
	for _, id := range kept {
		if status, b := rude.do(t.Context(), "GET", "/v2/"+rude.endpoint+"/status/"+id, ""); status != http.StatusOK {
			t.Fatalf("an acknowledged job = %d %s after a crash", status, b)
		}
	}
	if status, b := polite.do(t.Context(), "GET", "/v2/echo/status/"+id, ""); status != http.StatusOK {
		t.Fatalf("an acknowledged job of another user = %d %s after a crash", status, b)
	}
	in.makesRoom(disk, rude, submit)
}

// makesRoom has an operator see who keeps most, and erase those jobs.
func (in *instance) makesRoom(disk string, rude *tenant, submit func(*tenant, string, string) (string, int, []byte)) {
	t := in.t
	t.Helper()
	operator := func(args ...string) string {
		t.Helper()
		out, code := podyard(t, in, t.TempDir(), append(args, "-key", testKey)...)
		if code != 0 {
			t.Fatalf("podyard %v ends with %d: %s", args, code, out)
		}
		return out
	}
	if out := operator("limits", "-owner", "*"); !strings.HasPrefix(strings.SplitN(out, "\n", 2)[1], "rude ") {
		t.Errorf("who keeps most does not come first:\n%s", out)
	}
	store := filepath.Join(disk, "data", "store")
	before := tableBytes(t, store)
	operator("erase", "jobs", "rude")
	began := time.Now()
	eventually(t, "there is room again", func() bool { return tableBytes(t, store) < before-100<<20 })
	t.Logf("of %d MB %d are left after %v, %d MB are free", before>>20, tableBytes(t, store)>>20, time.Since(began).Round(time.Millisecond), freeBytes(t, disk)>>20)
	eventually(t, "the user is served again", func() bool {
		_, status, _ := submit(rude, rude.endpoint, `{}`)
		return status == http.StatusOK
	})
}

func (in *instance) warning() string {
	in.t.Helper()
	return get[struct{ Server struct{ Warning string } }](in, "GET", "/v2/admin/state", "", http.StatusOK).Server.Warning
}
