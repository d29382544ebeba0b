package sshfront

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/audit"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
)

// failed is the exit code of a session that could not run its command, as that of the client.
const failed = 255

// A session is a channel for one shell, command or subsystem.
type session struct {
	*connection
	ch     ssh.Channel
	ctx    context.Context //nolint:containedctx // of one channel
	events chan pods.ExecEvent
	tty    bool
	term   string
	size   pods.WindowSize
	begun  bool
	work   sync.WaitGroup
}

// session serves a channel of that type.
func (x *connection) session(c ssh.NewChannel) {
	release, err := x.hold()
	if err != nil {
		x.note(audit.Refusal, http.StatusTooManyRequests, "sshSession")
		_ = c.Reject(ssh.ResourceShortage, problem.Of(err).Detail)
		return
	}
	defer release()
	ch, requests, err := c.Accept()
	if err != nil {
		return
	}
	defer func() { _ = ch.Close() }()
	ctx, cancel := context.WithCancel(x.ctx)
	s := &session{connection: x, ch: ch, ctx: ctx, events: make(chan pods.ExecEvent, 16)}
	defer s.work.Wait()
	defer cancel()
	for r := range requests { // until the channel is closed
		ok := s.handle(r)
		if r.WantReply {
			_ = r.Reply(ok, nil)
		}
	}
}

// hold counts a session of the user.
func (x *connection) hold() (release func(), err error) {
	every := x.sessions.Hold(x.owner)
	if !every.Try(1) {
		return nil, problem.New(problem.TooManyRequests, "too many sessions of all users")
	}
	if !x.take() {
		every.Release()
		return nil, problem.New(problem.TooManyRequests, "too many requests of this user: try later")
	}
	var own budget.Hold
	if f := x.API.InFlight; f.Of(x.owner) != nil && !x.id.Exempt {
		own = f.Open[budget.Sessions].Hold(x.owner)
		if !own.Try(1) {
			every.Release()
			return nil, f.Full(budget.Sessions, &own, 1)
		}
	}
	return func() { own.Release(); every.Release() }, nil
}

// mayBeSent reports whether a client may send a signal. Others are ignored: some stop a command, which then stays.
func mayBeSent(signal string) bool {
	switch signal {
	case "HUP", "INT", "QUIT", "TERM", "KILL", "USR1", "USR2":
		return true
	}
	return false
}

// handle does a request of the client, and reports whether it did.
func (s *session) handle(r *ssh.Request) bool {
	switch r.Type {
	case "pty-req":
		return s.terminal(r.Payload)
	case "window-change":
		return s.resize(r.Payload)
	case "signal":
		var m struct{ Signal string }
		return ssh.Unmarshal(r.Payload, &m) == nil && mayBeSent(m.Signal) && s.send(pods.ExecEvent{Signal: m.Signal})
	case "shell":
		return s.start("sshShell", func() { s.run(httpapi.LoginShell()) })
	case "exec":
		var m struct{ Command string }
		return ssh.Unmarshal(r.Payload, &m) == nil && s.start("sshExec", func() { s.run([]string{"sh", "-c", m.Command}) })
	case "subsystem":
		var m struct{ Name string }
		return ssh.Unmarshal(r.Payload, &m) == nil && m.Name == "sftp" && s.start("sshFiles", s.sftp)
	}
	return false // the environment, agents and X11 among them
}

func (s *session) terminal(payload []byte) bool {
	var m struct {
		Term          string
		Columns, Rows uint32
		Width, Height uint32
		Modes         string
	}
	if s.begun || ssh.Unmarshal(payload, &m) != nil {
		return false
	}
	s.tty, s.size = true, sizeOf(m.Columns, m.Rows)
	if s.term = m.Term; len(m.Term) > 100 || m.Term == "" || strings.ContainsRune(m.Term, 0) {
		s.term = "xterm"
	}
	return true
}

func sizeOf(columns, rows uint32) pods.WindowSize {
	return pods.WindowSize{Columns: uint16(min(columns, 1<<16-1)), Rows: uint16(min(rows, 1<<16-1))}
}

func (s *session) resize(payload []byte) bool {
	var m struct{ Columns, Rows, Width, Height uint32 }
	size := pods.WindowSize{}
	if ssh.Unmarshal(payload, &m) == nil {
		size = sizeOf(m.Columns, m.Rows)
	}
	return s.tty && size.Columns > 0 && size.Rows > 0 && s.send(pods.ExecEvent{Size: size})
}

// send tells the command of an event. One that reads none has it dropped.
func (s *session) send(e pods.ExecEvent) bool {
	if !s.begun {
		return false
	}
	select {
	case s.events <- e:
		return true
	default:
		return false
	}
}

// start begins what the session is for. It does so once.
func (s *session) start(operation string, do func()) bool {
	if s.begun {
		return false
	}
	s.begun = true
	s.note(audit.Change, http.StatusOK, operation)
	s.work.Go(func() {
		defer func() { _ = s.ch.Close() }() // the client may have gone
		do()
	})
	return true
}

// run runs a command of the pod and tells the client how it ended.
func (s *session) run(argv []string) {
	c := pods.Command{Argv: argv, TTY: s.tty, Size: s.size}
	if s.tty {
		c.Env = []string{"TERM=" + s.term}
	}
	code, err := s.Pods.Exec(s.ctx, s.owner, s.pod, c, pods.Streams{Stdin: s.ch, Stdout: s.ch, Stderr: s.ch.Stderr(), Events: s.events})
	if err != nil {
		if s.ctx.Err() != nil {
			return
		}
		_, _ = fmt.Fprintf(s.ch.Stderr(), "podyard: %s\r\n", problem.Of(err).Detail)
		code = failed
	}
	s.exit(code)
}

// exit tells the client the exit code.
func (s *session) exit(code int) {
	_ = s.ch.CloseWrite()
	_, _ = s.ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(code)}))
}
