package main

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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

// inodesOf are the free inodes of the file system of dir.
func inodesOf(t *testing.T, dir string) int64 {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	return int64(s.Ffree)
}

// ext4Disk is a directory on a file system of its own, of so many MB and with so many inodes.
func ext4Disk(t *testing.T, megabytes, inodes int) string {
	t.Helper()
	dir, image := t.TempDir(), filepath.Join(t.TempDir(), "image")
	f, err := os.Create(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(int64(megabytes)<<20), f.Close()); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-N", strconv.Itoa(inodes), "-m", "0", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("a small file system cannot be made here: %v: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// A filler is somebody else who uses up a file system, like a pod.
type filler struct {
	t   *testing.T
	dir string
}

// inodes makes empty files until there can be no more.
func (f filler) inodes() {
	f.t.Helper()
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		f.t.Fatal(err)
	}
	for i := 0; ; i++ {
		file, err := os.Create(filepath.Join(f.dir, strconv.Itoa(i)))
		if errors.Is(err, syscall.ENOSPC) {
			return
		}
		if err != nil {
			f.t.Fatal(err)
		}
		_ = file.Close()
	}
}

// bytes writes until there is no byte left.
func (f filler) bytes() {
	f.t.Helper()
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		f.t.Fatal(err)
	}
	file, err := os.OpenFile(filepath.Join(f.dir, "bytes"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		f.t.Fatal(err)
	}
	for part := make([]byte, 1<<20); len(part) > 0; {
		if n, err := file.Write(part); errors.Is(err, syscall.ENOSPC) {
			part = part[:min(len(part)/2, len(part)-n)]
		} else if err != nil {
			f.t.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		f.t.Fatal(err)
	}
}

func (f filler) leave() {
	f.t.Helper()
	if err := os.RemoveAll(f.dir); err != nil {
		f.t.Fatal(err)
	}
}

// Somebody else, such as a pod, uses up the inodes or the bytes of the file system of the data
// directory. New work is refused, what is there is read and deleted, and it is served again soon
// after there is room, without a restart. A server starts on the full file system, too.
func TestAFullFileSystemStopsNewWorkOnly(t *testing.T) {
	suite.SkipUnlessLong(t)
	for name, fill := range map[string]func(filler){"inodes": filler.inodes, "bytes": filler.bytes} {
		t.Run(name, func(t *testing.T) {
			disk := ext4Disk(t, 560, 20_000)
			f := filler{t, filepath.Join(disk, "others")}
			args := []string{"-data", filepath.Join(disk, "data"), "-runtime", "process", "-config", file(t, neighbourConfig("rude", "polite"))}
			in := start(t, args...)
			rude, polite := newTenant(t, in, "rude", "127.0.0.1"), newTenant(t, in, "polite", "127.0.0.1")
			rude.owns()
			polite.owns()
			c := fullDiskCheck{t: t, disk: disk, args: args, rude: rude, polite: polite, f: f}
			c.submitAll()
			c.round("a running server", func() { fill(f) })
			c.round("a started server", func() {
				fill(f)
				_ = c.rude.in.cmd.Process.Kill()
				<-c.rude.in.done
				c.maintain(func() { fill(f) })
				in := start(t, args...)
				rude.in, polite.in = in, in
			})
		})
	}
}

// maintain runs the commands for a store that no server uses. fill takes what an end has given back.
func (c *fullDiskCheck) maintain(fill func()) {
	c.t.Helper()
	for _, args := range [][]string{{"check"}, {"backup", filepath.Join(c.t.TempDir(), "copy")}, {"repair"}} {
		fill()
		cmd := command(c.t, nil, append([]string{args[0], "-data", filepath.Join(c.disk, "data")}, args[1:]...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			c.t.Errorf("podyard %s on a full disk: %v: %s", args[0], err, out)
		}
	}
	fill()
}

type fullDiskCheck struct {
	t            *testing.T
	disk         string
	args         []string
	rude, polite *tenant
	f            filler
	jobs         []string // of polite
}

func (c *fullDiskCheck) submit(input string) (id string, status int, b []byte) {
	status, b = c.polite.do(c.t.Context(), "POST", "/v2/"+c.polite.endpoint+"/run", `{"input":`+input+`}`)
	var job struct{ ID string }
	_ = json.Unmarshal(b, &job)
	return job.ID, status, b
}

func (c *fullDiskCheck) submitAll() {
	c.t.Helper()
	for _, input := range []string{`{"a":1}`, `{"b":"` + megabyte[:200_000] + `"}`, `{"c":3}`} {
		id, status, b := c.submit(input)
		if status != http.StatusOK {
			c.t.Fatalf("a job = %d %s", status, b)
		}
		c.jobs = append(c.jobs, id)
	}
}

// round fills the disk, and makes room again.
func (c *fullDiskCheck) round(what string, fill func()) {
	t := c.t
	t.Helper()
	podDir := filepath.Join(c.disk, "data", "process", "pods", c.rude.pod)
	eventually(t, "the pod is there", func() bool { _, err := os.Stat(filepath.Join(podDir, "disk")); return err == nil })
	fill()
	t.Logf("%s: %d bytes and %d inodes are free", what, freeBytes(t, c.disk), inodesOf(t, c.disk))
	for _, input := range []string{`{"a":1}`, `{"b":"` + megabyte[:200_000] + `"}`} {
		if _, status, b := c.submit(input); status != http.StatusServiceUnavailable || !strings.Contains(string(b), "disk space") {
			t.Errorf("%s: a job on a full disk = %d %.200s, want a 503", what, status, b)
		}
	}
	for _, id := range c.jobs {
		if status, b := c.polite.do(t.Context(), "GET", "/v2/"+c.polite.endpoint+"/status/"+id, ""); status != http.StatusOK {
			t.Errorf("%s: reading a job of another user = %d %s", what, status, b)
		}
	}
	if status, b := c.polite.do(t.Context(), "POST", "/v2/"+c.polite.endpoint+"/cancel/"+c.jobs[0], ""); status != http.StatusOK {
		t.Errorf("%s: cancelling a job = %d %s", what, status, b)
	}
	if status, b := c.polite.do(t.Context(), "POST", "/v2/"+c.polite.endpoint+"/purge-queue", ""); status != http.StatusOK {
		t.Errorf("%s: purging a queue = %d %s", what, status, b)
	}
	if status, b := c.rude.in.do("DELETE", "/v2/pods/"+c.rude.pod, ""); status != http.StatusNoContent {
		t.Errorf("%s: an operator deletes a pod = %d %s", what, status, b)
	}
	eventually(t, "the pod is gone", func() bool {
		_, err := os.Stat(podDir)
		return errors.Is(err, os.ErrNotExist)
	})

	c.f.leave()
	began := time.Now()
	eventually(t, what+": work is taken again", func() bool { _, status, _ := c.submit(`{}`); return status == http.StatusOK })
	t.Logf("%s: work is taken again after %v", what, time.Since(began).Round(time.Millisecond))
	if limit := suite.Within(20 * time.Second); time.Since(began) > limit {
		t.Errorf("%s: work is taken again after %v, want %v at most", what, time.Since(began), limit)
	}
	c.jobs = nil
	c.submitAll()
	c.rude.owns()
	if log := c.rude.in.stderr.String(); strings.Contains(log, "the store failed") {
		t.Errorf("%s: the store has failed:\n%s", what, telling(log))
	}
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

// A store without its key would be lost, so the first start needs room for it.
func TestAFirstStartThatCannotKeepItsKeySaysSo(t *testing.T) {
	suite.SkipUnlessLong(t)
	disk := ext4Disk(t, 400, 2000)
	data := filepath.Join(disk, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	f := filler{t, filepath.Join(disk, "others")}
	f.bytes()
	out, err := command(t, []string{"PODYARD_API_KEY=" + testKey}, "-addr", "127.0.0.1:0", "-data", data, "-runtime", "process").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no space left on device") || !strings.Contains(string(out), data) {
		t.Errorf("a first start on a full disk = %v: %s", err, out)
	}
	f.leave()
	start(t, "-data", data, "-runtime", "process")
}
