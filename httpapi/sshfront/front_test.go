package sshfront_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/audit"
	"github.com/podyard/podyard/httpapi/sshfront"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/ratelimit/budget"
)

// A hostedRuntime runs what begins with "sh -c" on this machine, and the rest in the simulation.
type hostedRuntime struct{ *memory.Runtime }

func (r *hostedRuntime) Exec(ctx context.Context, podID string, c pods.Command, s pods.Streams) (int, error) {
	if len(c.Argv) < 3 || c.Argv[1] != "-c" || c.TTY || c.Argv[2] == "hang" {
		return r.Runtime.Exec(ctx, podID, c, s)
	}
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = s.Stdout, s.Stderr, os.TempDir()
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	go func() { // the caller ends it: see pods.Streams
		if s.Stdin != nil {
			_, _ = io.Copy(in, s.Stdin) // the command may have ended
		}
		_ = in.Close() // the command may have ended
	}()
	err = cmd.Wait()
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if failed := (&exec.ExitError{}); errors.As(err, &failed) {
		return failed.ExitCode(), nil
	}
	return 0, err
}

// A fronted is a front before a pod of alice that runs.
type fronted struct {
	*testing.T
	addr, pod string
	at        *httpapi.PodSSH
	keys      *sshkeys.Service
	log       audit.Trail
	allowed   atomic.Pointer[httpapi.Identity] // of the API key "k1"; nil: it is revoked
	quotas    *ratelimit.Windows
	hostKey   string
}

// Authenticate implements httpapi.Authenticator.
func (x *fronted) Authenticate(context.Context, string) (httpapi.Identity, error) {
	return httpapi.Identity{}, httpapi.ErrKey
}

// Find implements httpapi.Finder.
func (x *fronted) Find(_ context.Context, name string) (httpapi.Identity, error) {
	if id := x.allowed.Load(); id != nil && id.Key == name {
		return *id, nil
	}
	return httpapi.Identity{}, httpapi.ErrKey
}

// allow gives the API key "k1" a user and a scope.
func (x *fronted) allow(user, scope string) {
	x.Helper()
	p, err := httpapi.ParseScope(scope)
	if err != nil {
		x.Fatal(err)
	}
	x.allowed.Store(&httpapi.Identity{User: user, Key: "k1", Scopes: []httpapi.Permission{p}})
}

func startFront(t *testing.T) *fronted {
	t.Helper()
	x := &fronted{T: t, log: audit.NewMemory(100), at: &httpapi.PodSSH{Host: "pods.example", Port: 2222, Secret: []byte("a secret of the store")}}
	x.allow("alice", "pods:write")
	rt := &hostedRuntime{memory.NewRuntime(&memory.RuntimeOptions{Scripts: []memory.Script{{
		Image: "*", Stages: memory.DefaultScript().Stages,
		Replies: []memory.Reply{
			{Command: "sh -c hang", Stdout: "began\n", Runs: true},
			{Command: "sh -c if *", Stdout: "a shell\r\n", Echo: true, ExitCode: 4},
		},
	}}})}
	c := catalog.Sample()
	p, err := pods.New(memory.NewPods(), c, pods.SimulatedHosts(c, rt), nil)
	if err != nil {
		t.Fatal(err)
	}
	x.quotas = ratelimit.NewWindows(ratelimit.Quotas{})
	x.keys = sshkeys.New(memory.NewSSHKeys())
	flight := budget.NewInFlight(budget.NewSet(budget.Users{Limits: budget.Default()}), budget.DefaultTotals(), time.Now)
	front, err := sshfront.New(sshfront.Options{Pods: p, Keys: x.keys, API: httpapi.Options{Auth: x, Audit: x.log, InFlight: flight, PodSSH: x.at, Quotas: x.quotas}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x.addr, x.hostKey = l.Addr().String(), front.HostKey()
	serving(t, p.Run)
	serving(t, func(ctx context.Context) error { return front.Serve(ctx, l) })
	made, err := p.Create(t.Context(), "alice", pods.CreateRequest{Name: "a", Image: "i", CPU: &pods.CPURequest{ID: c.CPUs[0].ID, VCPU: 2}})
	if err != nil {
		t.Fatal(err)
	}
	x.pod = made.ID
	eventually(t, "the pod runs", func() bool {
		got, err := p.Get(t.Context(), "alice", x.pod)
		return err == nil && got.Status() == pods.Running
	})
	return x
}

// serving runs f until the test ends.
func serving(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("it ended with %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("it does not end")
		}
	})
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in a minute: %s", what)
		}
	}
}

// newKey returns a key that the API key "k1" has put for a user.
func (x *fronted) newKey(user string) ssh.Signer {
	x.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		x.Fatal(err)
	}
	key, err := ssh.NewSignerFromKey(private)
	if err != nil {
		x.Fatal(err)
	}
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key.PublicKey()))) + " a laptop"
	if _, err := x.keys.Replace(x.Context(), user, sshkeys.ReplaceRequest{Keys: []string{line}, By: "k1"}); err != nil {
		x.Fatal(err)
	}
	return key
}

// login connects as a user name of SSH.
func (x *fronted) login(user string, key ssh.Signer) (*ssh.Client, error) {
	want, _, _, _, err := ssh.ParseAuthorizedKey([]byte(x.hostKey)) //nolint:dogsled // the rest is options
	if err != nil {
		return nil, err
	}
	return ssh.Dial("tcp", x.addr, &ssh.ClientConfig{User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.FixedHostKey(want), Timeout: time.Minute})
}

// enter connects to the pod.
func (x *fronted) enter() *ssh.Client {
	x.Helper()
	c, err := x.login(x.at.User(x.pod), x.newKey("alice"))
	if err != nil {
		x.Fatal(err)
	}
	x.Cleanup(func() { _ = c.Close() })
	return c
}

func (x *fronted) session(c *ssh.Client) *ssh.Session {
	x.Helper()
	s, err := c.NewSession()
	if err != nil {
		x.Fatal(err)
	}
	x.Cleanup(func() { _ = s.Close() })
	return s
}

func TestACommandHasItsInputBothOutputsAndItsExitCode(t *testing.T) {
	x := startFront(t)
	c := x.enter()
	s := x.session(c)
	var out, errs bytes.Buffer
	s.Stdin, s.Stdout, s.Stderr = strings.NewReader("typed"), &out, &errs
	err := s.Run("cat; echo wrong >&2; exit 3")
	failed := (&ssh.ExitError{})
	if !errors.As(err, &failed) || failed.ExitStatus() != 3 || out.String() != "typed" || errs.String() != "wrong\n" {
		t.Errorf("%q, %q, %v; want both outputs and exit code 3", out.String(), errs.String(), err)
	}
	again := x.session(c) // of the same connection
	if b, err := again.Output("echo again"); err != nil || string(b) != "again\n" {
		t.Errorf("a second command: %q, %v", b, err)
	}
	for _, operation := range []string{"sshLogin", "sshExec"} {
		if list, err := x.log.Read(t.Context(), audit.Query{Limit: 9, Operation: operation, User: "alice"}); err != nil || len(list) == 0 || list[0].Key != "k1" || list[0].Record != x.pod || list[0].Source != "127.0.0.1" {
			t.Errorf("audit log of %s: %v, %v; want a line of the pod, by the API key that has put the SSH key", operation, list, err)
		}
	}
}

func TestAShellHasATerminalAndSignalsReachACommand(t *testing.T) {
	x := startFront(t)
	c := x.enter()
	s := x.session(c)
	var out bytes.Buffer
	s.Stdin, s.Stdout = strings.NewReader("hello"), &out
	if err := s.RequestPty("xterm-256color", 30, 100, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Shell(); err != nil {
		t.Fatal(err)
	}
	failed := (&ssh.ExitError{})
	if err := s.Wait(); !errors.As(err, &failed) || failed.ExitStatus() != 4 || out.String() != "a shell\r\nhello" {
		t.Errorf("%q, %v; want the shell of the pod", out.String(), err)
	}
	hung := x.session(c)
	read, err := hung.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := hung.Start("hang"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(read, make([]byte, len("began\n"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"STOP", "TSTP", "KILL ", ""} {
		if ok, err := hung.SendRequest("signal", true, ssh.Marshal(struct{ Signal string }{name})); ok || err != nil {
			t.Errorf("signal %q = %v, %v; want a refusal", name, ok, err)
		}
	}
	if err := hung.Signal(ssh.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := hung.Wait(); !errors.As(err, &failed) || failed.ExitStatus() != 128+15 {
		t.Errorf("a command that got TERM: %v, want exit code 143", err)
	}
}

func TestOnlyAGoodKeyOfThePodsOwnerGetsIn(t *testing.T) {
	x := startFront(t)
	alice := x.newKey("alice")
	name := x.at.User(x.pod)
	bob := x.newKey("bob")
	refused := func(what, user string, key ssh.Signer) {
		t.Helper()
		if c, err := x.login(user, key); err == nil {
			_ = c.Close()
			t.Errorf("%s got in", what)
		} else if !strings.Contains(err.Error(), "unable to authenticate") {
			t.Errorf("%s: %v, want a refusal that says nothing", what, err)
		}
	}
	refused("another user's key", name, bob)
	refused("a name without its token", x.pod, alice)
	refused("a wrong token", x.pod+"-00000000", alice)
	refused("a pod that does not exist", x.at.User("abcdefghijklmn"), alice)
	x.allow("alice", "pods:read")
	refused("a key whose API key cannot write", name, alice)
	x.allow("bob", "pods:write")
	refused("a key whose API key is another user's", name, alice)
	x.allowed.Store(nil)
	refused("a key whose API key is revoked", name, alice)
	eventually(t, "the audit log has a line of each", func() bool {
		list, err := x.log.Read(t.Context(), audit.Query{Limit: 100, Operation: "sshLogin"})
		return err == nil && len(list) == 7 && list[0].Kind == audit.Refusal && list[0].Path == name
	})
	x.allow("alice", "pods:write")
	c, err := x.login(name, alice)
	if err != nil {
		t.Fatalf("the owner's key: %v", err)
	}
	_ = c.Close()
}

func TestAConnectionEndsSoonAfterItsKeys(t *testing.T) {
	for what, end := range map[string]func(x *fronted){
		"the API key is revoked":      func(x *fronted) { x.allowed.Store(nil) },
		"the API key loses its scope": func(x *fronted) { x.allow("alice", "pods:read") },
		"the SSH key is taken out":    func(x *fronted) { x.newKey("alice") },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			x := startFront(t)
			c := x.enter()
			s := x.session(c)
			if err := s.Start("hang"); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- s.Wait() }()
			end(x)
			select {
			case err := <-ended:
				if err == nil {
					t.Error("the command ended by itself")
				}
			case <-time.After(10 * time.Second): // 3 s are promised, and machines of tests are slow
				t.Error("it goes on")
			}
			if _, err := c.NewSession(); err == nil {
				t.Error("the connection goes on")
			}
		})
	}
}

func TestAUserHasTenSessionsOfSSHAtMost(t *testing.T) {
	x := startFront(t)
	c := x.enter()
	for range 10 {
		if err := x.session(c).Start("hang"); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := c.NewSession(); err == nil {
		_ = s.Close()
		t.Error("an eleventh session was opened")
	} else if !strings.Contains(err.Error(), "sessions") {
		t.Errorf("an eleventh session: %v, want the budget's name", err)
	}
}

func TestAUserHas32ConnectionsOfSSHAtMost(t *testing.T) {
	x := startFront(t)
	key := x.newKey("alice")
	for i := range 33 {
		c, err := x.login(x.at.User(x.pod), key)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _, err = c.SendRequest("keepalive@openssh.com", true, nil) // answered once it is in
		if in := err == nil; in != (i < 32) {
			t.Fatalf("connection %d is served: %v (%v), want 32 of a user", i+1, in, err)
		}
	}
}

func TestLoginsAndSessionsOfSSHAreRequestsOfTheUser(t *testing.T) {
	x := startFront(t)
	x.quotas.SetQuotas(ratelimit.Quotas{Minute: 2})
	c := x.enter()
	x.session(c)
	if s, err := c.NewSession(); err == nil {
		_ = s.Close()
		t.Error("a third request of a minute was served, of 2")
	} else if !strings.Contains(err.Error(), "too many requests") {
		t.Errorf("a third request of a minute: %v, want that they are too many", err)
	}
}

func TestWhatIsNotServedIsRefused(t *testing.T) {
	x := startFront(t)
	c := x.enter()
	for _, kind := range []string{"x11", "auth-agent@openssh.com", "forwarded-tcpip", "direct-streamlocal@openssh.com"} {
		if _, _, err := c.OpenChannel(kind, nil); err == nil {
			t.Errorf("a channel %s was opened", kind)
		}
	}
	if l, err := c.Listen("tcp", "127.0.0.1:0"); err == nil {
		_ = l.Close()
		t.Error("a remote port was forwarded")
	}
	s := x.session(c)
	for _, kind := range []string{"x11-req", "auth-agent-req@openssh.com", "env", "subsystem"} {
		if ok, err := s.SendRequest(kind, true, nil); ok || err != nil {
			t.Errorf("%s = %v, %v; want a refusal", kind, ok, err)
		}
	}
}

func TestForwardedConnectionsReachThePod(t *testing.T) {
	x := startFront(t)
	c := x.enter()
	port, err := c.Dial("tcp", "localhost:80")
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	if _, err := io.WriteString(port, "echo"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(port, got); err != nil || string(got) != "echo" {
		t.Errorf("%q, %v; want what was sent", got, err)
	}
	for range 31 {
		more, err := c.Dial("tcp", "localhost:80")
		if err != nil {
			t.Fatal(err)
		}
		defer more.Close()
	}
	if more, err := c.Dial("tcp", "localhost:80"); err == nil {
		_ = more.Close()
		t.Error("a user has 33 forwarded connections")
	}
	if list, err := x.log.Read(t.Context(), audit.Query{Limit: 100, Operation: "sshForward", User: "alice"}); err != nil || len(list) != 2 {
		t.Errorf("audit log: %v, %v; want a line for the port, and one for what was refused", list, err)
	}
}

// A deafConn is a connection whose client takes nothing more after deaf is set. ended is closed when the server
// has closed it.
type deafConn struct {
	net.Conn
	deaf  atomic.Bool
	ended chan struct{}
}

func (c *deafConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.deaf.Load() {
		_, _ = io.Copy(io.Discard, c.Conn) // until the server closes it
		close(c.ended)
		return 0, io.EOF
	}
	return n, err
}

func TestAClientThatDoesNotCloseAForwardedConnectionIsCutOff(t *testing.T) {
	t.Parallel()
	x := startFront(t)
	key := x.newKey("alice")
	raw, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", x.addr)
	if err != nil {
		t.Fatal(err)
	}
	deaf := &deafConn{Conn: raw, ended: make(chan struct{})}
	want, _, _, _, err := ssh.ParseAuthorizedKey([]byte(x.hostKey)) //nolint:dogsled // the rest is options
	if err != nil {
		t.Fatal(err)
	}
	conn, channels, requests, err := ssh.NewClientConn(deaf, x.addr, &ssh.ClientConfig{User: x.at.User(x.pod), Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.FixedHostKey(want)})
	if err != nil {
		t.Fatal(err)
	}
	c := ssh.NewClient(conn, channels, requests)
	defer c.Close()
	port, err := c.Dial("tcp", "localhost:80")
	if err != nil {
		t.Fatal(err)
	}
	deaf.deaf.Store(true)
	began := time.Now()
	if err := port.(interface{ CloseWrite() error }).CloseWrite(); err != nil { // the pod closes it, too
		t.Fatal(err)
	}
	select {
	case <-deaf.ended:
		if took := time.Since(began); took < 9*time.Second {
			t.Errorf("it was cut off after %v, want 10 s", took)
		}
	case <-time.After(time.Minute):
		t.Error("it was not cut off")
	}
}

func TestAClientThatDoesNotLogInIsCutOff(t *testing.T) {
	x := startFront(t)
	silent, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", x.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if err := silent.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := io.Copy(io.Discard, silent); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 9*time.Second {
		t.Errorf("it was cut off after %v, want 10 s", took)
	}
}

func TestAllServersOfOneSecretHaveOneHostKey(t *testing.T) {
	of := func(secret string) string {
		c := catalog.Sample()
		p, err := pods.New(memory.NewPods(), c, pods.SimulatedHosts(c, memory.NewRuntime(nil)), nil)
		if err != nil {
			t.Fatal(err)
		}
		f, err := sshfront.New(sshfront.Options{Pods: p, Keys: sshkeys.New(memory.NewSSHKeys()), API: httpapi.Options{PodSSH: &httpapi.PodSSH{Secret: []byte(secret)}}})
		if err != nil {
			t.Fatal(err)
		}
		return f.HostKey()
	}
	if first, again := of("a"), of("a"); first != again || first == of("b") {
		t.Error("the host key does not follow from the secret")
	}
}
