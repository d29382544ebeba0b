package process

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podyard/podyard/backend/process/internal/supervise"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
)

// isolated sets Isolation, with a user of their own for pods where the tests are root.
func isolated(mode ...string) func(*Options) {
	return func(o *Options) {
		o.Isolation = &Isolation{Launch: []string{launchArg}}
		if len(mode) > 0 && CheckMode(mode[0]) == nil {
			o.Isolation.Mode = mode[0]
		}
		if os.Geteuid() == 0 {
			o.Isolation.User = Nobody
		}
		for _, name := range []string{"self", "lost"} {
			image := o.Images[name]
			image.Self = true
			o.Images[name] = image
		}
	}
}

// modes are the ways in which pods are isolated here.
func modes(t *testing.T) []string {
	t.Helper()
	if _, err := exec.LookPath("bwrap"); err != nil {
		if os.Getenv("PODYARD_CI") == "1" {
			t.Errorf("bubblewrap is missing: %v", err)
		}
		t.Logf("NOT CHECKED with bubblewrap: %v", err)
		return []string{ModeNone}
	}
	return []string{ModeNone, ModeRequired}
}

func TestIsolatedRuntime(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(mode, func(t *testing.T) { testRuntime(t, func(string) bool { return true }, isolated(mode)) })
	}
}

func TestACommandInBubblewrapNeedsAServerThatIsRoot(t *testing.T) {
	rt := open(t, t.TempDir(), isolated())
	if os.Geteuid() == 0 || rt.policy.Load().isolator.bwrap == "" {
		t.Skip("this user is root, or bubblewrap does not work here")
	}
	ensure(t, rt, spec("a", program("run")))
	await(t, rt, "a", "health", phase(pods.PhaseHealthy))
	var out bytes.Buffer
	_, err := rt.Exec(t.Context(), "a", pods.Command{Argv: []string{"true"}}, pods.Streams{Stdout: &out, Stderr: &out})
	if !errors.Is(err, pods.ErrNoExec) || out.Len() > 0 {
		t.Errorf("Exec = %v and %q, want ErrNoExec", err, &out)
	}
}

// tried has a pod attack, and returns the results by attack.
func tried(t *testing.T, rt *Runtime, s pods.Spec) map[string]string {
	t.Helper()
	ensure(t, rt, s)
	found := map[string]string{}
	for _, line := range awaitLine(t, rt, s.PodID, "tried") {
		what, came, ok := strings.Cut(line, ": ")
		if !ok {
			t.Fatalf("the pod says %q", line)
		}
		found[what] = came
	}
	return found
}

func attacker(id string, args ...string) pods.Spec {
	return spec(id, program(append([]string{"attack"}, args...)...))
}

// A victim is a server with a secret and a pod.
type victim struct {
	rt              *Runtime
	secret, disk    string
	setuid, sock    string
	supervisor, pod string
	descriptor      int
}

func newVictim(t *testing.T, mode string) *victim {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	v := &victim{secret: filepath.Join(data, "secret-key"), setuid: filepath.Join(t.TempDir(), "setuid"), sock: filepath.Join(t.TempDir(), "engine.sock")}
	// Readable for everybody, so that only the isolation hides it.
	if err := errors.Join(os.MkdirAll(data, 0o755), os.WriteFile(v.secret, []byte("secret"), 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Dir(data), filepath.Dir(filepath.Dir(data)), filepath.Dir(v.setuid), filepath.Dir(v.sock)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	copyProgram(t, v.setuid, 0o4755)
	l, err := net.Listen("unix", v.sock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if err := os.Chmod(v.sock, 0o777); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0) // not closed by an exec
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	v.descriptor = fd
	v.rt = open(t, filepath.Join(data, "process"), isolated(mode), func(o *Options) { o.Isolation.Hide = []string{data, v.sock} })
	if got := tried(t, v.rt, attacker("victim", "write=file"))["write=file"]; got != "ok" {
		t.Fatalf("a pod writes to its disk: %s", got)
	}
	st, err := supervise.ReadStatus(v.rt.root.pod("victim"))
	if err != nil {
		t.Fatal(err)
	}
	v.disk, v.supervisor, v.pod = v.rt.root.disk("victim"), strconv.Itoa(st.Supervisor), strconv.Itoa(st.PID)
	return v
}

func copyProgram(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	program, err := os.ReadFile(supervise.SelfPath)
	if err == nil {
		err = os.WriteFile(path, program, 0o700)
	}
	if err := errors.Join(err, os.Chmod(path, mode)); err != nil { // last, because writing clears the setuid bit
		t.Fatal(err)
	}
}

// What docs/security.md says of processes, with bubblewrap and without.
func TestWhatAPodCanDo(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(mode, func(t *testing.T) {
			v := newVictim(t, mode)
			root := os.Geteuid() == 0
			without := mode == ModeNone
			// Whether each attack succeeds without bubblewrap; with it none does.
			attacks := map[string]bool{
				"read=" + v.secret:                           true,
				"read=" + filepath.Join(v.disk, "file"):      true, // all pods have one user
				"write=" + filepath.Join(v.disk, "intruder"): true,
				"write=/etc/podyard-test":                    false,
				"chmod=/etc/passwd":                          false,
				"mount=/mnt":                                 false,
				"setuid":                                     false,
				"descriptor=" + strconv.Itoa(v.descriptor):   false,
				"see=" + v.supervisor:                        true,
				"signal=" + v.pod:                            true,
				"signal=" + v.supervisor:                     !root,
				"signal=" + strconv.Itoa(os.Getpid()):        !root,
				"unix=" + v.sock:                             true,
				"device=/dev/kmsg":                           false,
				"device=/dev/vda":                            false,
				"device=/dev/loop-control":                   false,
				"truncate":                                   false,
				"allocate":                                   false,
			}
			got := tried(t, v.rt, attacker("attacker", append(slices.Collect(maps.Keys(attacks)), "uid", "run="+v.setuid)...))
			for attack, succeeds := range attacks {
				if want := succeeds && without; (got[attack] == "ok") != want {
					t.Errorf("%s: %s, want that it succeeds: %t", attack, got[attack], want)
				}
			}
			if uid := strconv.Itoa(os.Getuid()); root && (got["uid"] != Nobody+" "+Nobody || got["run="+v.setuid] != Nobody) {
				t.Errorf("the pod has the user %s, and in a setuid program %s; the server is %s", got["uid"], got["run="+v.setuid], uid)
			}
		})
	}
}

func TestMemoryWithANameEndsWithItsPod(t *testing.T) {
	for _, mode := range modes(t) {
		if mode == ModeNone {
			continue // it does not, as docs/security.md says
		}
		rt := open(t, t.TempDir(), isolated(mode))
		key, file := os.Getpid()<<8|77, "/dev/shm/podyard-test-"+strconv.Itoa(os.Getpid())
		attacks := []string{"shm=" + strconv.Itoa(key), "write=" + file}
		for what, came := range tried(t, rt, attacker("a", attacks...)) {
			if came != "ok" {
				t.Errorf("%s: %s, want that a pod has this memory", what, came)
			}
		}
		if err := rt.Stop(t.Context(), "a", 0); err != nil {
			t.Fatal(err)
		}
		await(t, rt, "a", "end", phase(pods.PhaseExited))
		if _, err := unix.SysvShmGet(key, 4096, 0); err == nil {
			t.Error("the segment is left on the host")
		}
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%s is left on the host", file)
		}
	}
}

func TestWhatAPodWritesIsLimited(t *testing.T) {
	for name, tt := range map[string]struct {
		attack string
		unit   int64
		disk   int
		mount  int
		want   string
	}{
		"its disk":              {"fill=60", 1 << 20, 40, 0, "disk is full"},
		"a mount":               {"mountfill=60", 1 << 20, 100, 20, "mount is full"},
		"files without a name":  {"unlinked=60", 1 << 20, 40, 100, "disk is full"}, // a mount, so that a file may be larger
		"files":                 {"inodes=2000", gigabyte / 100, 1, 0, "files and directories"},
		"directories in others": {"deep=2000", gigabyte / 100, 1, 0, "files and directories"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rt := open(t, t.TempDir(), isolated(), func(o *Options) { o.Isolation.unit = tt.unit })
			rt.diskCheck = 100 * time.Millisecond
			s := attacker("a", tt.attack)
			s.Disk = tt.disk
			if tt.mount > 0 {
				s.Mounts = []pods.Mount{{Path: "/x", Size: tt.mount}}
			}
			ensure(t, rt, s)
			if got := await(t, rt, "a", "failure", phase(pods.PhaseFailed)); !strings.Contains(got.Reason, tt.want) {
				t.Errorf("Reason = %q, want it to name %q", got.Reason, tt.want)
			}
		})
	}
}

// makeDeep makes directories in each other.
func makeDeep(t *testing.T, dir string, levels int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	for range levels {
		if err == nil {
			err = unix.Mkdirat(fd, "d", 0o700)
		}
		next := -1
		if err == nil {
			next, err = unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		}
		if err := errors.Join(err, unix.Close(fd)); err != nil {
			t.Fatal(err)
		}
		fd = next
	}
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
}

// More directories in each other than any path can name.
func TestADeepTreeIsMeasuredAndRemoved(t *testing.T) {
	levels := 5_000
	if suite.Long() {
		levels = 20_000
	}
	rt := open(t, t.TempDir(), isolated())
	ensure(t, rt, spec("a", program("exit", "0")))
	await(t, rt, "a", "end", phase(pods.PhaseExited))
	makeDeep(t, rt.root.disk("a"), levels)
	for inodes, want := range map[int64]error{int64(levels) - 1: errOver, int64(levels): nil} {
		m, done, err := newMeter(&diskLimit{Dirs: []string{rt.root.disk("a")}, Bytes: 1 << 40, Inodes: inodes}), false, error(nil)
		for !done && err == nil {
			done, err = m.Step(time.Now().Add(diskStep))
		}
		if !errors.Is(err, want) {
			t.Errorf("the measurement of %d directories with a limit of %d = %v, want %v", levels, inodes, err, want)
		}
	}
	if err := rt.Remove(t.Context(), "a", 0); err != nil {
		t.Fatal(err)
	}
	wantNoTrash(t, rt)
}

func wantNoTrash(t *testing.T, rt *Runtime) {
	t.Helper()
	// One look can miss what is moved while it looks.
	for empty, deadline := 0, time.Now().Add(4*time.Minute); ; time.Sleep(5 * time.Millisecond) {
		left, err := os.ReadDir(rt.root.trash())
		if empty++; err != nil || len(left) > 0 {
			empty = 0
		}
		if empty == 20 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d things of removed pods are left, %v", len(left), err)
		}
	}
}

func TestAPodHasNoMoreThanItsMemoryAndProcesses(t *testing.T) {
	rt := open(t, t.TempDir(), isolated(), func(o *Options) { o.Isolation.unit, o.Isolation.Processes = 1<<20, 40 })
	if lacks := rt.policy.Load().isolator.lacks; slices.ContainsFunc(lacks, func(s string) bool { return strings.HasPrefix(s, "a limit") }) {
		t.Skipf("this host lets the test make no cgroups: %v", lacks)
	}
	if got := tried(t, rt, attacker("many", "processes=60"))["processes=60"]; !strings.HasPrefix(got, "only") {
		t.Errorf("60 processes where 40 are allowed: %s", got)
	}
	s := attacker("large", "memory=500")
	s.Memory = 200
	ensure(t, rt, s)
	if got := await(t, rt, "large", "end", phase(pods.PhaseExited)); !got.OOM {
		t.Errorf("pod is %+v, want it killed for memory", got)
	}
}

// Before, each owner had a user of its own.
func TestFilesOfAnotherUserAreGivenToTheOneOfNow(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	dir := t.TempDir()
	rt := open(t, dir, isolated())
	s := spec("a", program("exit", "0"))
	s.Mounts = []pods.Mount{{VolumeID: "volume", Path: "/v"}}
	ensure(t, rt, s)
	await(t, rt, "a", "end", phase(pods.PhaseExited))
	shared := filepath.Join(t.TempDir(), "of-another")
	deep := filepath.Join(dir, "volumes", "volume", "x", "y")
	if err := errors.Join(os.MkdirAll(deep, 0o700), os.WriteFile(shared, nil, 0o600), os.Link(shared, filepath.Join(deep, "link")), os.Symlink(shared, filepath.Join(deep, "symlink"))); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{deep, filepath.Dir(deep), filepath.Dir(filepath.Dir(deep))} {
		if err := os.Chown(path, 1_900_000_001, 1_900_000_001); err != nil {
			t.Fatal(err)
		}
	}
	s.Run = 2
	ensure(t, rt, s)
	uid := func(path string) uint32 {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			t.Fatal(err)
		}
		return st.Uid
	}
	for deadline := time.Now().Add(30 * time.Second); uid(filepath.Join(deep, "symlink")) != 65534; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the files have the user %d, want that of pods", uid(deep))
		}
	}
	if got := uid(shared); got != 0 {
		t.Errorf("a file that has another name elsewhere was given to user %d", got)
	}
}

func TestAPodThatFloodsItsLogStaysWithinItsSizeAndEndsAtOnce(t *testing.T) {
	rt := open(t, t.TempDir(), isolated(), func(o *Options) { o.LogSize = 1 })
	ensure(t, rt, spec("a", pods.Spec{Image: "args", Args: []string{"/bin/sh", "-c", "yes & head -c 100000000 /dev/zero; wait"}}))
	size := func() (n int64, oldest string) {
		entries, err := os.ReadDir(rt.root.log("a"))
		if err != nil {
			return 0, ""
		}
		for _, e := range entries {
			if info, err := e.Info(); err == nil {
				n += info.Size()
			}
			if oldest == "" {
				oldest = e.Name()
			}
		}
		return n, oldest
	}
	_, first := size()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		n, oldest := size()
		if n > 256<<10 {
			t.Fatalf("the log has %d bytes, want 256 KiB at most", n)
		}
		if first == "" {
			first = oldest
		} else if oldest != first { // it has thrown lines away
			break
		}
	}
	if err := rt.Remove(t.Context(), "a", 0); err != nil {
		t.Errorf("Remove = %v, want nil", err)
	}
}

// An editor that saves a file renames a new one over it, and an engine that starts again makes its
// socket anew: in the namespace of a pod that runs, what lay over the old file goes with it then.
func TestAHiddenFileStaysHiddenWhenItIsReplaced(t *testing.T) {
	for _, mode := range modes(t) {
		if mode == ModeNone {
			continue
		}
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		write := func(name string) string {
			t.Helper()
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, []byte("content of "+name+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			return path
		}
		secret, later, beside := write("secret"), filepath.Join(dir, "later"), write("beside")
		if err := os.Symlink("beside", filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		other := filepath.Join(t.TempDir(), "other") // as /var/run is another name of /run
		if err := os.Symlink(dir, other); err != nil {
			t.Fatal(err)
		}
		rt := open(t, t.TempDir(), isolated(mode), func(o *Options) { o.Isolation.Hide = []string{secret, filepath.Join(other, "later")} })
		script := `look() { for f; do cat "$f" 2>/dev/null || true; done; }
			look "$@"; echo looked
			until [ -e go ]; do sleep 0.05; done
			look "$@"; echo again`
		ensure(t, rt, spec("a", pods.Spec{Image: "args", Args: []string{"/bin/sh", "-c", script, "sh", secret, later, beside, filepath.Join(dir, "link")}}))
		want := []string{"content of beside", "content of beside"}
		if got := awaitLine(t, rt, "a", "looked"); !slices.Equal(got, want) {
			t.Errorf("at first the pod reads %q, want what is beside the hidden files alone", got)
		}
		if err := os.Rename(write("new"), secret); err != nil {
			t.Fatal(err)
		}
		write("later")
		if err := os.WriteFile(filepath.Join(rt.root.disk("a"), "go"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		got := awaitLine(t, rt, "a", "again")
		if got = got[slices.Index(got, "looked")+1:]; !slices.Equal(got, want) {
			t.Errorf("after they were replaced the pod reads %q, want what is beside the hidden files alone", got)
		}
	}
}
