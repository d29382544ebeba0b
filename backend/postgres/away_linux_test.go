package postgres_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/internal/postgrestest"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/queue"
)

// insideVariable is set in the process of a test that has namespaces of its own.
const insideVariable = "PODYARD_TEST_INSIDE"

// inside reports whether this process has a network and mounts of its own, in which a test may do what it likes.
// If not, it runs the test in one that has.
func inside(t *testing.T, programs ...string) bool {
	t.Helper()
	suite.SkipUnlessLong(t)
	if os.Getenv(insideVariable) != "" {
		run(t, "ip", "link", "set", "lo", "up")
		run(t, "mount", "--make-rprivate", "/")
		return true
	}
	if os.Getuid() != 0 {
		t.Skip("needs root, for namespaces of its own")
	}
	for _, name := range append(programs, "ip", "mount") {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("needs the program %s", name)
		}
	}
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.v")
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, syscall.EPERM):
		t.Skip("needs namespaces of its own: ", err)
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	case !bytes.Contains(out, []byte("--- PASS: "+t.Name())):
		t.Skipf("in a namespace:\n%s", out)
	}
	return false
}

// The packets of all connections that there are disappear, and new ones arrive: a firewall has forgotten them,
// or a machine has been replaced by another one.
func TestConnectionsWhosePacketsDisappearAreReplaced(t *testing.T) {
	if !inside(t, "nft") {
		return
	}
	var server postgrestest.Server
	t.Cleanup(server.Stop)
	database := server.Empty(t)
	u, err := url.Parse(database)
	must(t, err)
	s := openURL(t, database) // with the times of operation
	connections(t, s)
	ports := established(t, u.Port())
	if len(ports) < 4 {
		t.Fatalf("%d connections are open, want several", len(ports))
	}
	run(t, "nft", fmt.Sprintf(`add table ip t; add chain ip t o { type filter hook output priority 0; }; add rule ip t o tcp sport { %[1]s } drop; add rule ip t o tcp dport { %[1]s } drop`, strings.Join(ports, ", ")))
	begin := time.Now()
	must(t, ignore(postgres.ErrUnknown, s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("a")})))
	submit(t, s.Jobs(), newJob("b"))
	if jobs := claim(t, s.Jobs(), instant, "w", 1, nil); len(jobs) != 1 {
		t.Errorf("Claim = %d jobs, want one", len(jobs))
	}
	must(t, s.Err(t.Context()))
	took := time.Since(begin)
	t.Logf("the calls took %v", took)
	if took > suite.Within(25*time.Second) {
		t.Errorf("the calls took %v, want the time of a call and of its repetition", took)
	}
}

// established returns the ports of clients with a connection to a port of this machine.
func established(t *testing.T, to string) (ports []string) {
	t.Helper()
	port, err := strconv.Atoi(to)
	must(t, err)
	b, err := os.ReadFile("/proc/net/tcp")
	must(t, err)
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 4 || f[3] != "01" || !strings.HasSuffix(f[2], fmt.Sprintf(":%04X", port)) {
			continue
		}
		_, hex, _ := strings.Cut(f[1], ":")
		n, err := strconv.ParseUint(hex, 16, 16)
		must(t, err)
		ports = append(ports, strconv.FormatUint(n, 10))
	}
	return ports
}

func TestAFullDiskOfTheDatabaseIsA503UntilThereIsRoom(t *testing.T) {
	if !inside(t) {
		return
	}
	dir := filepath.Join(t.TempDir(), "small")
	must(t, os.Mkdir(dir, 0o700))
	for parent := filepath.Dir(dir); parent != os.TempDir() && parent != "/"; parent = filepath.Dir(parent) {
		must(t, os.Chmod(parent, 0o755)) // the server is another user
	}
	run(t, "mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", dir)
	t.Cleanup(func() { must(t, syscall.Unmount(dir, 0)) })
	nobody, err := user.Lookup("nobody")
	must(t, err)
	uid, err := strconv.Atoi(nobody.Uid)
	must(t, err)
	must(t, os.Chown(dir, uid, -1))
	var server postgrestest.Server
	t.Cleanup(server.Stop)
	server.Empty(t)
	server.Admin(t, "CREATE TABLESPACE small LOCATION '"+dir+"'", "CREATE DATABASE small TABLESPACE small")
	s := openShort(t, server.URL("postgres", "", "small"))
	job := func(n int) queue.Job {
		j := newJob(fmt.Sprint("job-", n))
		j.Input = make([]byte, 1<<20)
		for i := range j.Input {
			j.Input[i] = byte(i * i * (n + 1) >> 7) // it does not become smaller than the disk
		}
		return j
	}
	var refused error
	last := 0
	for ; refused == nil && last < 1000; last++ {
		refused = s.Jobs().Enqueue(t.Context(), []queue.Job{job(last)})
	}
	notNow(t, "Enqueue", refused, postgres.ErrNotNow)
	notNow(t, "Err", s.Err(t.Context()), postgres.ErrNotNow)
	if refused == nil || !strings.Contains(refused.Error(), "No space left on device") {
		t.Errorf("Enqueue = %v, want that no space is left", refused)
	}
	run(t, "mount", "-o", "remount,size=200m", dir)
	submit(t, s.Jobs(), job(last))
	eventually(t, func() error { return s.Err(t.Context()) })
}
