package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/examples/server/demo"
	"github.com/podyard/podyard/internal/suite"
)

// An sshUser is a user of OpenSSH with a key of their own.
type sshUser struct {
	*instance
	dir, host, user string
	port            int
}

// needsOpenSSH skips a test without its programs.
func needsOpenSSH(t *testing.T) {
	t.Helper()
	for _, name := range []string{"ssh", "ssh-keygen", "sftp"} {
		if _, err := exec.LookPath(name); err != nil {
			missing(t, "OpenSSH (openssh-client)")
		}
	}
}

// openssh is where ssh is.
func openssh(t *testing.T) string {
	t.Helper()
	at, err := exec.LookPath("ssh")
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// sshTo makes a key and the address of a pod for OpenSSH.
func (in *instance) sshTo(pod string) *sshUser {
	in.t.Helper()
	u := &sshUser{instance: in, dir: in.t.TempDir()}
	if b, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", u.file("key")).CombinedOutput(); err != nil {
		in.t.Fatalf("ssh-keygen: %s, %v", b, err)
	}
	line, err := os.ReadFile(u.file("key.pub"))
	if err != nil {
		in.t.Fatal(err)
	}
	body, err := json.Marshal(map[string][]string{"keys": {strings.TrimSpace(string(line))}})
	if err != nil {
		in.t.Fatal(err)
	}
	get[any](in, "PUT", "/v2/account/ssh-keys", string(body), http.StatusOK)
	p := get[struct {
		SSH struct {
			Proxy struct {
				Host, Username, Command string
				Port                    int
			}
		}
	}](in, "GET", "/v2/pods/"+pod, "", http.StatusOK).SSH.Proxy
	u.host, u.user, u.port = p.Host, p.Username, p.Port
	if want := "ssh " + u.user + "@127.0.0.1 -p " + strconv.Itoa(u.port); p.Command != want {
		in.t.Errorf("the command of ssh.proxy is %q, want %q", p.Command, want)
	}
	found := regexp.MustCompile(`msg="SSH into pods is served".* hostKey="([^"]+)"`).FindStringSubmatch(in.stderr.String())
	if found == nil {
		in.t.Fatalf("the log does not name the host key: %s", in.stderr.String())
	}
	known := "[127.0.0.1]:" + strconv.Itoa(u.port) + " " + found[1] + "\n"
	if err := os.WriteFile(u.file("known_hosts"), []byte(known), 0o600); err != nil {
		in.t.Fatal(err)
	}
	return u
}

func (u *sshUser) file(name string) string { return filepath.Join(u.dir, name) }

// options are those of all programs of OpenSSH.
func (u *sshUser) options() []string {
	return []string{
		"-F", "none", "-i", u.file("key"), "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=yes",
		"-o", "UserKnownHostsFile=" + u.file("known_hosts"), "-o", "GlobalKnownHostsFile=none",
	}
}

// ssh is a run of ssh with more options and a command.
func (u *sshUser) ssh(more ...string) *exec.Cmd {
	args := append(u.options(), "-p", strconv.Itoa(u.port), "-l", u.user)
	return exec.Command("ssh", append(args, more...)...)
}

// said runs a command and returns what it prints and its exit code.
func said(t *testing.T, cmd *exec.Cmd, stdin string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &out
	err := cmd.Run()
	failed := (&exec.ExitError{})
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// needsCommands skips a test on a server that runs no commands in processes.
func needsCommands(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root runs commands in bubblewrap")
	}
}

func TestOpenSSHRunsCommandsAndReachesPortsOfAPod(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	needsOpenSSH(t)
	needsCommands(t)
	in := start(t, "-ssh", "127.0.0.1:0")
	p := in.create(demo.WebImage, `,"ports":["8000/http"]`)
	in.follow(p.ID).await("system: container is healthy")
	u := in.sshTo(p.ID)

	if out, code := said(t, u.ssh(u.host, "cat; echo wrong >&2; exit 3"), "typed\n"); code != 3 || !slices.Equal(slices.Sorted(strings.Lines(out)), []string{"typed\n", "wrong\n"}) { // two streams have no order
		t.Errorf("a command: %q, %d; want both outputs and exit code 3", out, code)
	}
	if out, code := said(t, u.ssh("-tt", u.host), "test -t 0 && echo a${NO}terminal; exit 4\n"); code != 4 || !strings.Contains(out, "aterminal") {
		t.Errorf("a shell: %q, %d; want a terminal and exit code 4", out, code)
	}
	if out, code := said(t, u.ssh("-W", "localhost:8000", u.host), "GET / HTTP/1.0\r\nConnection: close\r\n\r\n"); code != 0 || !strings.HasPrefix(out, "HTTP/1.0 200") {
		t.Errorf("a port of the pod: %q, %d; want its page", out, code)
	}
	_, port, _ := strings.Cut(strings.TrimPrefix(in.url, "http://"), ":")
	if out, code := said(t, u.ssh("-W", "127.0.0.1:"+port, u.host), ""); code == 0 || !strings.Contains(out, "listed ports only") {
		t.Errorf("a port of the server's machine: %q, %d; want a refusal", out, code)
	}
	wrapper := "#!/bin/sh\nexec " + openssh(t) + " '" + strings.Join(u.options(), "' '") + "' \"$@\"\n"
	if err := os.WriteFile(u.file("ssh"), []byte(wrapper), 0o700); err != nil {
		t.Fatal(err)
	}
	podyard := exec.Command(program, "ssh", "-url", in.url, "-key", testKey, p.ID, "--", "cat; exit 5")
	podyard.Env = append(os.Environ(), "PATH="+u.dir+":"+os.Getenv("PATH"))
	if out, code := said(t, podyard, "typed"); code != 5 || !strings.HasPrefix(out, "typed") {
		t.Errorf("podyard ssh: %q, %d; want the command's output and exit code 5", out, code)
	}
	other := *u
	other.dir = t.TempDir()
	if b, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other.file("key")).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %s, %v", b, err)
	}
	known, err := os.ReadFile(u.file("known_hosts"))
	if err == nil {
		err = os.WriteFile(other.file("known_hosts"), known, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, code := said(t, other.ssh(u.host, "true"), ""); code != 255 || !strings.Contains(out, "Permission denied") {
		t.Errorf("another key: %q, %d; want a refusal", out, code)
	}
	lasting := u.ssh(u.host, "sleep 1000")
	if err := lasting.Start(); err != nil {
		t.Fatal(err)
	}
	in.act(p.ID, "stop")
	ended := make(chan error, 1)
	go func() { ended <- lasting.Wait() }()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("a command goes on after its pod")
		_ = lasting.Process.Kill()
	}
}

func TestTheHostKeyOfSSHStaysOverARestart(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	hostKey := regexp.MustCompile(`hostKey="([^"]+)"`)
	var keys []string
	for range 2 {
		in := start(t, "-data", data, "-runtime", "sim", "-ssh", "127.0.0.1:0")
		eventually(t, "the log names the host key", func() bool { return hostKey.MatchString(in.stderr.String()) })
		keys = append(keys, hostKey.FindStringSubmatch(in.stderr.String())[1])
		in.stop()
	}
	if keys[0] != keys[1] {
		t.Errorf("host keys %q", keys)
	}
}

func TestTheSftpOfOpenSSHCopiesFilesIntoAPodAndOut(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	needsOpenSSH(t)
	needsCommands(t)
	in := start(t, "-ssh", "127.0.0.1:0")
	p := in.create(demo.WebImage, "")
	in.follow(p.ID).await("system: container is healthy")
	u := in.sshTo(p.ID)
	content := bytes.Repeat([]byte("all of it, and in order\n"), 200_000)
	for name, mode := range map[string]os.FileMode{"tree/a": 0o600, "tree/b/c": 0o755} {
		if err := os.MkdirAll(filepath.Dir(u.file(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(u.file(name), content, mode); err != nil {
			t.Fatal(err)
		}
	}
	args := append(u.options(), "-P", strconv.Itoa(u.port), "-b", "-", u.user+"@"+u.host)
	batch := "put -rp " + u.file("tree") + "\nls -l tree\nget -rp tree " + u.file("back") + "\n"
	if out, code := said(t, exec.Command("sftp", args...), batch); code != 0 {
		t.Fatalf("sftp: %s, %d", out, code)
	}
	for _, name := range []string{"a", "b/c"} {
		got, err := os.ReadFile(u.file("back/" + name))
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes came back, %v; want %d", name, len(got), err, len(content))
		}
		before, err := os.Stat(u.file("tree/" + name))
		after, err2 := os.Stat(u.file("back/" + name))
		if err := errors.Join(err, err2); err != nil || before.Mode() != after.Mode() || before.ModTime().Unix() != after.ModTime().Unix() {
			t.Errorf("%s: %v, %v; want mode and time as before", name, after, err)
		}
	}
	if out, code := said(t, u.ssh(u.host, "stat -c %U:%a tree/a; id -un"), ""); code != 0 || len(strings.Fields(out)) != 2 || strings.TrimSuffix(strings.Fields(out)[0], ":600") != strings.Fields(out)[1] {
		t.Errorf("the owner of a file: %q, %d; want the pod's user", out, code)
	}
}
