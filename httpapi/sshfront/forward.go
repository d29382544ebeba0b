package sshfront

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/podyard/podyard/httpapi/audit"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
)

// maxHost is the longest name of a host.
const maxHost = 255

// closeTime is how long a client has to close a channel that has been closed for it.
const closeTime = 10 * time.Second

// forward joins a channel with a port in the pod's own network.
func (x *connection) forward(c ssh.NewChannel) {
	var m struct {
		Host     string
		Port     uint32
		From     string
		FromPort uint32
	}
	if ssh.Unmarshal(c.ExtraData(), &m) != nil || len(m.Host) > maxHost {
		_ = c.Reject(ssh.ConnectionFailed, "this is no address")
		return
	}
	held := x.forwards.Hold(x.owner)
	defer held.Release()
	if !held.Try(1) {
		x.note(audit.Refusal, http.StatusTooManyRequests, "sshForward")
		_ = c.Reject(ssh.ResourceShortage, "too many forwarded connections of this user")
		return
	}
	to := net.JoinHostPort(m.Host, strconv.FormatUint(uint64(m.Port), 10))
	x.noteForward(to)
	ctx, cancel := context.WithCancel(x.ctx)
	defer cancel()
	j := &joint{offer: c, cancel: cancel}
	_, err := x.Pods.Exec(ctx, x.owner, x.pod, pods.Command{Dial: to}, pods.Streams{Stdin: j, Stdout: j, Stderr: j})
	gone := j.end(err)
	if gone == nil {
		return
	}
	// It has memory and counts until the client has closed it, too.
	late := time.NewTimer(closeTime)
	defer late.Stop()
	select {
	case <-gone:
	case <-x.ctx.Done():
	case <-late.C:
		x.cancel()
	}
}

// noteForward writes a line into the audit log for the first connection to a port.
func (x *connection) noteForward(to string) {
	x.mu.Lock()
	seen := x.ports[to] || len(x.ports) >= maxChannels
	if !seen {
		x.ports[to] = true
	}
	x.mu.Unlock()
	if !seen {
		x.note(audit.Change, http.StatusOK, "sshForward")
	}
}

// A joint is the client's end of a forwarded connection. The runtime reads and writes once it has connected:
// then the channel is accepted, which until then may be refused.
type joint struct {
	offer  ssh.NewChannel
	cancel context.CancelFunc // when the client closes the channel

	mu   sync.Mutex
	ch   ssh.Channel   // nil: not accepted
	gone chan struct{} // closed when the client has closed ch
	err  error         // of accepting, or of having ended
}

func (j *joint) channel() (ssh.Channel, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ch != nil || j.err != nil {
		return j.ch, j.err
	}
	ch, requests, err := j.offer.Accept()
	if err != nil {
		j.err = err
		return nil, err
	}
	j.ch, j.gone = ch, make(chan struct{})
	go func() {
		defer close(j.gone)
		ssh.DiscardRequests(requests)
		j.cancel()
	}()
	return ch, nil
}

// Read implements io.Reader.
func (j *joint) Read(b []byte) (int, error) {
	ch, err := j.channel()
	if err != nil {
		return 0, err
	}
	return ch.Read(b)
}

// Write implements io.Writer.
func (j *joint) Write(b []byte) (int, error) {
	ch, err := j.channel()
	if err != nil {
		return 0, err
	}
	return ch.Write(b)
}

// end closes the channel, or says why there is none. What it returns is closed when the client has closed the
// channel; nil: there is none.
func (j *joint) end(err error) (gone <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ch != nil {
		_ = j.ch.Close() // the client may have closed it
		return j.gone
	}
	if j.err = io.ErrClosedPipe; err == nil {
		err = errNothing
	}
	reason := ssh.ConnectionFailed
	if problem.KindOf(err) == problem.Forbidden {
		reason = ssh.Prohibited
	}
	_ = j.offer.Reject(reason, problem.Of(err).Detail) // the client may have gone
	return nil
}

var errNothing = problem.New(problem.BadGateway, "the pod closed the connection")
