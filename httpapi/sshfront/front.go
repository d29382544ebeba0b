package sshfront

import (
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/audit"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/ratelimit/budget"
)

// Limits of a connection.
const (
	handshakeTime = 10 * time.Second
	maxTries      = 6
	look          = time.Second // between two looks whether the keys are still good
	aliveTime     = 15 * time.Second
	acceptRest    = 50 * time.Millisecond // after a failure to accept, such as too many open files
)

// Forwarded connections of a user and of all users. A channel may hold 2 MB that the pod does not read.
const (
	forwardsOfUser = 32
	forwardsOfAll  = 256
)

// Connections that have logged in, of a user and of all users. One without a session holds about 100 KB.
const (
	loginsOfUser = 32
	loginsOfAll  = 512
)

// sessionsOfAll bounds the commands of all users, also of those without limits.
const sessionsOfAll = 256

// Options are what a Front needs.
type Options struct {
	Pods *pods.Service
	Keys *sshkeys.Service
	// API has the keys, limits, quotas, audit log and log of the interface. A login and a session each count
	// as a request of the user whose API key put the SSH key. Its PodSSH must be set, and its Auth be
	// an httpapi.Finder: else nobody gets in.
	API httpapi.Options
	// ConnContext makes the context of a connection, such as conns.Limiter.ConnContext. Default: the
	// context is not changed.
	ConnContext func(ctx context.Context, c net.Conn) context.Context
}

// A Front serves SSH. It is safe for concurrent use.
type Front struct {
	Options
	config                     ssh.ServerConfig
	log                        *slog.Logger
	clock                      pods.Clock
	logins, forwards, sessions *budget.Pool
}

// New returns a front. An error says what is missing.
func New(o Options) (*Front, error) {
	if o.Pods == nil || o.Keys == nil || o.API.PodSSH == nil || len(o.API.PodSSH.Secret) == 0 {
		return nil, errors.New("sshfront: needs pods, SSH keys, and PodSSH with its secret")
	}
	f := &Front{
		Options: o, log: o.API.Logger, clock: o.API.Clock,
		logins:   budget.NewPool(loginsOfAll, func(string) int64 { return loginsOfUser }),
		forwards: budget.NewPool(forwardsOfAll, func(string) int64 { return forwardsOfUser }),
		sessions: budget.NewPool(sessionsOfAll, func(string) int64 { return 0 }),
	}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	if f.clock == nil {
		f.clock = clock.System{}
	}
	if f.ConnContext == nil {
		f.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { return ctx }
	}
	key, err := hostKey(o.API.PodSSH.Secret)
	if err != nil {
		return nil, err
	}
	f.config = ssh.ServerConfig{MaxAuthTries: maxTries, ServerVersion: "SSH-2.0-podyard"}
	f.config.AddHostKey(key)
	return f, nil
}

// hostKey is the key by which clients know the servers. All that share a secret have the same.
func hostKey(secret []byte) (ssh.Signer, error) {
	seed, err := hkdf.Key(sha256.New, secret, nil, "podyard ssh host key 1", ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("sshfront: %w", err)
	}
	return ssh.NewSignerFromKey(ed25519.NewKeyFromSeed(seed))
}

// HostKey returns the line of known_hosts for the front, without the host.
func (f *Front) HostKey() string {
	key, err := hostKey(f.API.PodSSH.Secret)
	if err != nil {
		return ""
	}
	return string(ssh.MarshalAuthorizedKey(key.PublicKey()))
}

// Serve serves the connections of l until ctx ends. It then closes l, and returns nil when all have ended.
func (f *Front) Serve(ctx context.Context, l net.Listener) error {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		c, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = c.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("sshfront: %w", err)
		case err != nil:
			f.log.Warn("a connection of SSH was not accepted", "err", err)
			rest(ctx, acceptRest)
			continue
		}
		all.Go(func() { f.serve(ctx, c) })
	}
}

func rest(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

// serve serves a connection until it ends.
func (f *Front) serve(ctx context.Context, c net.Conn) {
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithCancel(f.ConnContext(ctx, c))
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if c.SetDeadline(time.Now().Add(handshakeTime)) != nil {
		return // it has gone
	}
	in := &login{front: f, ctx: ctx}
	config := f.config
	config.PublicKeyCallback = in.check
	conn, channels, requests, err := ssh.NewServerConn(c, &config)
	if err != nil {
		if in.tries.name != "" {
			f.note(audit.Refusal, http.StatusUnauthorized, "sshLogin", &in.tries, c.RemoteAddr())
		}
		return
	}
	defer func() { // what is not served, else goroutines of package ssh wait
		_ = c.Close()
		go ssh.DiscardRequests(requests)
		for range channels { // they go with the connection
		}
	}()
	if c.SetDeadline(time.Time{}) != nil {
		return
	}
	who := in.who(conn)
	if who == nil {
		return
	}
	who.version, who.source = string(conn.ClientVersion()), c.RemoteAddr()
	x := &connection{Front: f, conn: conn, visitor: *who, ctx: ctx, cancel: cancel, ports: map[string]bool{}}
	room := f.logins.Hold(who.owner)
	defer room.Release()
	if !room.Try(1) || !x.take() || httpapi.AcceptKey(ctx, who.id) != nil {
		x.note(audit.Refusal, http.StatusTooManyRequests, "sshLogin")
		return
	}
	x.note(audit.Change, http.StatusOK, "sshLogin")
	x.run(channels, requests)
}

// A connection is one with a good key.
type connection struct {
	*Front
	visitor
	conn   *ssh.ServerConn
	ctx    context.Context //nolint:containedctx // of one connection
	cancel context.CancelFunc

	work     sync.WaitGroup // channels
	mu       sync.Mutex
	channels int
	ports    map[string]bool // forwarded ones that the audit log has
}

// take counts a request of the user, and reports whether its quotas have room for it.
func (x *connection) take() bool {
	return x.API.Quotas == nil || x.id.Exempt || x.API.Quotas.TakeContext(x.ctx, x.clock.Now(), x.id.User).OK
}

// run serves channels until the connection ends.
func (x *connection) run(channels <-chan ssh.NewChannel, requests <-chan *ssh.Request) {
	defer x.work.Wait()
	defer x.cancel()
	x.work.Go(func() { ssh.DiscardRequests(requests) }) // forwarding of remote ports among them
	x.work.Go(x.watch)
	x.work.Go(x.ping)
	for c := range channels {
		x.open(c)
	}
}

// watch ends the connection soon after its keys.
func (x *connection) watch() {
	t := time.NewTicker(look)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if !x.good(x.ctx, x.Front) {
				x.cancel()
				return
			}
		case <-x.ctx.Done():
			return
		}
	}
}

// ping notices a client that has gone without a word.
func (x *connection) ping() {
	t := time.NewTicker(aliveTime)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			late := time.AfterFunc(2*aliveTime, x.cancel)
			_, _, err := x.conn.SendRequest("keepalive@openssh.com", true, nil)
			late.Stop()
			if err != nil {
				x.cancel()
				return
			}
		case <-x.ctx.Done():
			return
		}
	}
}

// maxChannels is how many a connection has, before the limits of its user.
const maxChannels = 64

// open serves a channel that the client opens.
func (x *connection) open(c ssh.NewChannel) {
	serve := map[string]func(ssh.NewChannel){"session": x.session, "direct-tcpip": x.forward}[c.ChannelType()]
	if serve == nil {
		_ = c.Reject(ssh.UnknownChannelType, "only sessions and forwarding to the pod are served")
		return
	}
	x.mu.Lock()
	full := x.channels >= maxChannels
	if !full {
		x.channels++
	}
	x.mu.Unlock()
	if full {
		_ = c.Reject(ssh.ResourceShortage, "this connection has too many channels")
		return
	}
	x.work.Go(func() {
		defer func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.channels--
		}()
		serve(c)
	})
}

// note writes a line into the audit log.
func (x *connection) note(kind audit.Kind, status int, operation string) {
	x.Front.note(kind, status, operation, &x.visitor, x.source)
}

func (f *Front) note(kind audit.Kind, status int, operation string, v *visitor, from net.Addr) {
	if f.API.Audit == nil {
		return
	}
	r := audit.Record{
		Time: f.clock.Now(), Kind: kind, Status: status, Operation: operation, Path: v.name,
		User: v.id.User, Key: v.id.Key, Record: v.pod, Agent: v.version,
	}
	if v.id.User != v.owner {
		r.Owner = v.owner
	}
	if at, err := netip.ParseAddrPort(from.String()); err == nil {
		r.Source = at.Addr().Unmap().WithZone("").String()
	}
	f.API.Audit.Record(r)
}
