package process

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
)

// uids are unused numbers of users. Each run of the tests has others, which the programs that
// it starts inherit, because two runs at once would see each other's processes.
var uids = UIDRange{First: firstUID(), Count: 100}

func firstUID() uint32 {
	const name = "PODYARD_TEST_UIDS"
	n, err := strconv.ParseUint(os.Getenv(name), 10, 32)
	if err != nil {
		n = 1_900_000_000 + 100*uint64(os.Getpid()%500_000)
		os.Setenv(name, strconv.FormatUint(n, 10))
	}
	return uint32(n)
}

// isolated sets Isolation, with users where the tests are root.
func isolated(users bool) func(*Options) {
	return func(o *Options) {
		o.Isolation = &Isolation{Launch: []string{launchArg}}
		if users {
			o.Isolation.UIDs = uids
		}
		self := o.Images["self"]
		self.Self = true
		o.Images["self"] = self
	}
}

// unprivileged marks a run of a test as an ordinary user.
const unprivileged = "PODYARD_TEST_UNPRIVILEGED"

// withoutRoot runs the calling test again as an ordinary user, and reports whether this is that
// run.
func withoutRoot(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		return true
	}
	dir := openDir(t)
	program := filepath.Join(dir, "test")
	copyProgram(t, program, 0o755)
	scratch := filepath.Join(dir, "tmp")
	if err := errors.Join(os.Mkdir(scratch, 0o700), os.Chown(scratch, int(uids.First), int(uids.First))); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), unprivileged+"=1", "TMPDIR="+scratch, "HOME="+scratch)
	cmd.Dir = scratch
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uids.First, Gid: uids.First}}
	out, err := cmd.CombinedOutput()
	t.Logf("as a user without rights:\n%s", out)
	if err != nil {
		t.Error(err)
	}
	return false
}

// openDir returns a directory that every user may pass through.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "podyard-test-") //nolint:usetesting // that one is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func copyProgram(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	from, err := os.Open(selfPath)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(to, from)
	// Last, because writing clears the setuid bit.
	if err := errors.Join(err, to.Close(), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

// hostLacks reports whether this host lacks one of names, and logs that something is not
// checked.
func hostLacks(t *testing.T, rt *Runtime, names ...string) bool {
	t.Helper()
	for _, name := range names {
		why, lacks := rt.policy.Load().isolator.lacks[name]
		if !lacks {
			continue
		}
		t.Logf("NOT CHECKED: this host lacks %s: %s", name, why)
		if os.Getenv("PODYARD_CI") == "1" && os.Getenv(unprivileged) == "" {
			t.Errorf("this host lacks %s", name)
		}
		return true
	}
	return false
}

func TestRuntimeWithAUserForEachOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can have pods run as other users")
	}
	testRuntime(t, suite.RunsRuntimeCase, isolated(true))
}

func TestRuntimeIsolatedWithoutRoot(t *testing.T) {
	suite.SkipUnlessLong(t)
	if withoutRoot(t) {
		testRuntime(t, suite.RunsRuntimeCase, isolated(false))
	}
}

// tenant returns the spec of an attacking pod of an owner.
func tenant(owner, id string, args ...string) pods.Spec {
	s := spec(id, program(append([]string{"attack"}, args...)...))
	s.Owner = owner
	return s
}

// tried returns the results of a pod's attacks, by attack.
func tried(t *testing.T, rt *Runtime, id string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, line := range awaitLine(t, rt, id, "tried") {
		what, came, ok := strings.Cut(line, ": ")
		if !ok {
			t.Fatalf("the pod says %q", line)
		}
		found[what] = came
	}
	return found
}

// A victim is a server with a secret and a pod of another owner.
type victim struct {
	rt     *Runtime
	secret string // a file of the server
	disk   string // of the pod
	pid    string
}

func newVictim(t *testing.T, data string, change ...func(*Options)) victim {
	t.Helper()
	secret := filepath.Join(data, "secret-key")
	// Readable for everybody, so that only the isolation hides it.
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	hide := func(o *Options) {
		if o.Isolation != nil {
			o.Isolation.Hide = []string{data}
		}
	}
	rt := open(t, filepath.Join(data, "process"), append(change, hide)...)
	s := tenant("victim", "victim", "write=file")
	s.Mounts = []pods.Mount{{VolumeID: "volume", Path: "/volume"}}
	ensure(t, rt, s)
	if got := tried(t, rt, "victim")["write=file"]; got != "ok" {
		t.Fatalf("a pod writes to its disk: %s", got)
	}
	rec, err := readRecord(rt.root.record("victim"))
	if err != nil {
		t.Fatal(err)
	}
	return victim{rt, secret, rt.root.disk("victim"), strconv.Itoa(rec.PID)}
}

// attack makes a pod of another owner attack, and returns the attacks that were refused.
func (v victim) attack(t *testing.T, attacks ...string) (refused map[string]string) {
	t.Helper()
	ensure(t, v.rt, tenant("tenant", "tenant", attacks...))
	refused = tried(t, v.rt, "tenant")
	for what, came := range refused {
		if came == "ok" {
			delete(refused, what)
		}
	}
	return refused
}

// wantRefused wants all attacks to fail.
func (v victim) wantRefused(t *testing.T, attacks ...string) {
	t.Helper()
	refused := v.attack(t, attacks...)
	for _, what := range attacks {
		if came, ok := refused[what]; ok {
			t.Logf("%s: %s", what, came)
		} else {
			t.Errorf("%s: it could", what)
		}
	}
}

// attacks returns attacks that would succeed for root.
func (v victim) attacks() []string {
	list := []string{
		"read=" + v.secret, "list=" + filepath.Dir(v.secret) + ",secret-key",
		"read=" + v.disk + "/file", "write=" + v.disk + "/file", "list=" + v.disk + ",file",
		"read=" + v.rt.root.record("victim"), "list=" + v.rt.root.at("pods") + ",victim",
		"list=" + v.rt.root.at("volumes") + ",volume", "write=" + v.rt.root.at("volumes", "volume", "file"),
		"write=" + filepath.Dir(filepath.Dir(v.secret)) + "/file", "mount=.", "limit=",
	}
	for _, pid := range []string{v.pid, strconv.Itoa(os.Getpid())} {
		list = append(list, "signal="+pid, "environ="+pid, "ptrace="+pid, "root="+pid+","+v.secret, "root="+pid+","+v.disk+"/file")
	}
	return list
}

// Otherwise the refusals below would prove nothing.
func TestWithoutIsolationAttacksOfRootSucceed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can do all of it")
	}
	v := newVictim(t, t.TempDir())
	for what, came := range v.attack(t, v.attacks()...) {
		t.Errorf("%s: %s, want that it could", what, came)
	}
}

func TestATenantReachesNothingOfOthers(t *testing.T) {
	suite.SkipUnlessLong(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can have pods run as other users: see the test without root")
	}
	for _, tt := range []struct {
		name    string
		without []string
		server  bool // pods run as the server's user
	}{
		{name: "with all that the host has"},
		{name: "without Landlock", without: []string{lacksLandlock, lacksSignals}},
		{name: "without mounts", without: []string{lacksMounts, lacksHiddenPIDs}},
		{name: "by users alone", without: []string{lacksLandlock, lacksSignals, lacksMounts, lacksHiddenPIDs}},
		{name: "as root without capabilities", server: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// As on a host where the server cannot mount: everybody may pass through it and not
			// list it.
			data := filepath.Join(openDir(t), "data")
			if err := errors.Join(os.Mkdir(data, 0o711), os.Chmod(data, 0o711)); err != nil {
				t.Fatal(err)
			}
			v := newVictim(t, data, isolated(!tt.server), func(o *Options) { o.Isolation.without = tt.without })
			list := v.attacks()
			if len(tt.without) == 0 {
				hostLacks(t, v.rt, lacksLandlock, lacksMounts)
				list = append(list, "unmount="+data, "write=/etc/podyard-test", "write=/tmp/podyard-test")
				if !hostLacks(t, v.rt, lacksHiddenPIDs) {
					list = append(list, "see="+v.pid, "see="+strconv.Itoa(os.Getpid()))
				}
			}
			if !tt.server {
				list = append(list, "setuid=")
			}
			if tt.name == "by users alone" {
				list = list[1:] // a file that everybody may read
			}
			v.wantRefused(t, list...)
		})
	}
}

func TestATenantReachesNothingOfOthersWithoutRoot(t *testing.T) {
	if !withoutRoot(t) {
		return
	}
	v := newVictim(t, t.TempDir(), isolated(false))
	if !hostLacks(t, v.rt, lacksLandlock, lacksSignals) {
		v.wantRefused(t, append(v.attacks(), "setuid=")...)
	}
}

// A user namespace gives a process all capabilities over what was made in it, but not over the
// mounts that it inherits. With Landlock it has no use of one at all.
// An editor, and whatever renews a certificate, puts a new file in the place of the old one.
func TestAHiddenFileStaysHiddenWhenItIsReplaced(t *testing.T) {
	dir := openDir(t)
	secret, sign := filepath.Join(dir, "key.pem"), filepath.Join(dir, "replaced")
	write := func(path string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("secret"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(secret)
	rt := open(t, filepath.Join(openDir(t), "process"), isolated(false), func(o *Options) { o.Isolation.Hide = []string{secret} })
	if hostLacks(t, rt, lacksLandlock) {
		return
	}
	attack := "readOnce=" + secret + "," + sign
	ensure(t, rt, tenant("tenant", "tenant", "list="+dir+",key.pem", attack))
	write(secret + ".new")
	if err := os.Rename(secret+".new", secret); err != nil {
		t.Fatal(err)
	}
	write(sign)
	if came := tried(t, rt, "tenant")[attack]; came == "ok" {
		t.Error("the pod reads the new file")
	}
}

// An engine's directory is often closed to the user of the server, as /run/containerd.
func TestWhatTheServersUserCannotReachNeedsNoHiding(t *testing.T) {
	if !withoutRoot(t) {
		return
	}
	dir := openDir(t)
	closed := filepath.Join(dir, "closed")
	if err := os.Mkdir(closed, 0); err != nil {
		t.Fatal(err)
	}
	rt := open(t, filepath.Join(openDir(t), "process"), isolated(false), func(o *Options) { o.Isolation.Hide = []string{filepath.Join(closed, "engine.sock")} })
	ensure(t, rt, tenant("tenant", "tenant", "list="+dir+",closed"))
	if err := rt.Remove(t.Context(), "tenant", 0); err != nil {
		t.Error(err)
	}
}

func TestAUserNamespaceUncoversNothing(t *testing.T) {
	suite.SkipUnlessLong(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can mount something over the data directory")
	}
	for name, without := range map[string][]string{"with Landlock": nil, "without": {lacksLandlock, lacksSignals}} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			v := newVictim(t, data, isolated(true), func(o *Options) { o.Isolation.without = without })
			if hostLacks(t, v.rt, lacksMounts) {
				return
			}
			ensure(t, v.rt, tenant("tenant", "tenant", "unshare="+data))
			got := tried(t, v.rt, "tenant")["unshare="+data]
			t.Log(got)
			if strings.Contains(got, "list="+data+",secret-key: ok") || strings.Contains(got, "unmount="+data+": ok") {
				t.Errorf("in a user namespace: %s", got)
			}
			if without != nil && !strings.Contains(got, "unmount="+data) {
				t.Errorf("it made no user namespace, so nothing was tried: %s", got)
			}
		})
	}
}

func TestASetuidProgramGivesNoRights(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a program that would give its rights")
	}
	program := filepath.Join(openDir(t), "setuid")
	copyProgram(t, program, 0o755|fs.ModeSetuid)
	control := exec.Command(program, "euid")
	control.Env = []string{asProgram + "=1"}
	control.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uids.First, Gid: uids.First}}
	if out, err := control.Output(); err != nil || strings.TrimSpace(string(out)) != "0" {
		t.Skipf("programs give no rights here anyway: %q, %v", out, err)
	}
	rt := open(t, t.TempDir(), isolated(true))
	ensure(t, rt, tenant("tenant", "tenant", "run="+program, "uid="))
	got := tried(t, rt, "tenant")
	uid, gid, _ := strings.Cut(got["uid="], " ")
	if n, _ := strconv.ParseUint(uid, 10, 32); !uids.has(uint32(n)) || uid != gid {
		t.Errorf("the pod runs as %s", got["uid="])
	}
	if got["run="+program] != uid {
		t.Errorf("a setuid program of root runs as %s, want %s", got["run="+program], uid)
	}
}

func TestNothingOutlivesItsPod(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(rt *Runtime) error
	}{
		{"when it is stopped", func(rt *Runtime) error { return rt.Stop(t.Context(), "daemon", time.Second) }},
		{"when it is removed", func(rt *Runtime) error { return rt.Remove(t.Context(), "daemon", 0) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rt := open(t, t.TempDir(), isolated(os.Geteuid() == 0))
			if hostLacks(t, rt, lacksKill) && hostLacks(t, rt, lacksPIDs) {
				return
			}
			ensure(t, rt, tenant("tenant", "daemon", "daemon="))
			pid, err := strconv.Atoi(tried(t, rt, "daemon")["daemon="])
			if err != nil {
				t.Fatal(err)
			}
			if task, ok := readTask(pid); !ok || task.dead() {
				t.Fatal("there is no daemon")
			}
			if err := tt.end(rt); err != nil {
				t.Fatal(err)
			}
			if tt.name == "when it is stopped" {
				await(t, rt, "daemon", "end", phase(pods.PhaseExited))
			}
			wantDead(t, []int{pid})
			if left := rt.policy.Load().isolator.groups.leftovers(nil); len(left) > 0 {
				t.Errorf("cgroups are left: %v", left)
			}
		})
	}
}

// When a server crashes before it has recorded a start, only the name of the cgroup shows what
// it left.
func TestWhatIsInAForgottenCgroupIsEnded(t *testing.T) {
	dir := t.TempDir()
	change := isolated(os.Geteuid() == 0)
	rt := open(t, dir, change)
	if hostLacks(t, rt, lacksKill) && hostLacks(t, rt, lacksPIDs) {
		return
	}
	groups, err := rt.policy.Load().isolator.group("forgotten.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	lost := exec.Command(selfPath, "run")
	lost.Env = []string{asProgram + "=1"}
	if err := lost.Start(); err != nil {
		t.Fatal(err)
	}
	for _, group := range groups {
		if err := writeCgroup(group, "cgroup.procs", strconv.Itoa(lost.Process.Pid)); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- lost.Wait() }()
	again := open(t, dir, change)
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("a process in a forgotten cgroup runs on")
	}
	if left := again.policy.Load().isolator.groups.leftovers(nil); len(left) > 0 {
		t.Errorf("cgroups are left: %v", left)
	}
}

// small sets a unit of 1 MB instead of 1 GB.
func small(o *Options) {
	o.Isolation.unit, o.Isolation.diskCheck = 1<<20, 10*time.Millisecond
}

func TestOverItsDiskAPodFails(t *testing.T) {
	for name, tt := range map[string]struct {
		spec pods.Spec
		want string
	}{
		"its own":           {pods.Spec{Disk: 5, Args: []string{"attack", "fill=20"}}, "its disk is full"},
		"one of its mounts": {pods.Spec{Disk: 50, Mounts: []pods.Mount{{Path: "/m", Size: 5}}, Args: []string{"attack", "mountfill=20"}}, "its persistent mount is full"},
	} {
		t.Run(name, func(t *testing.T) {
			rt := open(t, t.TempDir(), isolated(os.Geteuid() == 0), small)
			s := spec("full", tt.spec)
			s.Image, s.Owner = "self", "tenant"
			ensure(t, rt, s)
			got := await(t, rt, "full", "failure", phase(pods.PhaseFailed))
			if !strings.Contains(got.Reason, tt.want) || got.Stopped {
				t.Errorf("pod is %+v, want it to have failed because %s", got, tt.want)
			}
			wantNoProcesses(t, rt.root.at())
		})
	}
}

func TestOverItsMemoryAPodIsKilled(t *testing.T) {
	rt := open(t, t.TempDir(), isolated(os.Geteuid() == 0), small)
	if hostLacks(t, rt, lacksMemory) {
		return
	}
	s := tenant("tenant", "hog", "memory=300")
	s.Memory = 100
	ensure(t, rt, s)
	if got := await(t, rt, "hog", "end", phase(pods.PhaseExited)); !got.OOM {
		t.Errorf("pod is %+v, want it killed for its memory", got)
	}
}

func TestAPodHasSoManyProcesses(t *testing.T) {
	rt := open(t, t.TempDir(), isolated(os.Geteuid() == 0), func(o *Options) { o.Isolation.Processes = 60 })
	if hostLacks(t, rt, lacksPIDs) {
		return
	}
	ensure(t, rt, tenant("tenant", "fork", "processes=100"))
	got := tried(t, rt, "fork")["processes=100"]
	if n, ok := strings.CutPrefix(got, "only "); !ok || n == "0" {
		t.Errorf("a pod with 60 processes and threads starts 100 others: %s", got)
	}
}

func TestTheOutputOfAPodIsAFileThatItCanOpen(t *testing.T) {
	rt := open(t, t.TempDir(), isolated(os.Geteuid() == 0))
	s := spec("shell", pods.Spec{Image: "args", Args: []string{"/bin/sh", "-c", "echo to stderr >>/dev/stderr; echo done"}})
	s.Owner = ""
	ensure(t, rt, s)
	if got := awaitLine(t, rt, "shell", "done"); len(got) != 1 || got[0] != "to stderr" {
		t.Errorf("the pod says %q", got)
	}
}

func TestAProgramThatDoesNotKnowItsLauncherIsRefused(t *testing.T) {
	_, err := Open(t.TempDir(), &Options{Isolation: &Isolation{Launch: []string{"-test.run=^$"}}})
	if err == nil || !strings.Contains(err.Error(), "launcher") {
		t.Errorf("Open = %v, want that the program does not launch", err)
	}
	if _, err := Open(t.TempDir(), &Options{Isolation: &Isolation{}}); err == nil {
		t.Error("Open without Launch = nil, want an error")
	}
}

func TestUsersWithoutRootAreRefused(t *testing.T) {
	if !withoutRoot(t) {
		return
	}
	opts := &Options{Isolation: &Isolation{Launch: []string{launchArg}, UIDs: uids}}
	if _, err := Open(t.TempDir(), opts); err == nil || !strings.Contains(err.Error(), "other users") {
		t.Errorf("Open = %v, want that it cannot have users", err)
	}
}
