// Package listen opens the addresses of the server: the library opens none.
package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/httpapi/server/config"
	"github.com/podyard/podyard/httpapi/sshfront"
	"github.com/podyard/podyard/internal/errno"
)

// Listeners are the addresses of a server. They are closed by Close, or by server.Server.Run.
type Listeners struct {
	// Main is where clients come.
	Main net.Listener
	// Workers is where the workers of this machine come, without TLS and for the worker
	// protocol only. It is nil where they come to Main.
	Workers net.Listener
	// Metrics is where operators come without a key. It may be nil.
	Metrics net.Listener
	// SSH is where clients of SSH come. It may be nil.
	SSH net.Listener
}

// forOperators serves what is on the address for metrics. The command line is not there: it
// may have the password of a database.
func forOperators(parts *config.Parts, srv *server.Server) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", parts.Options.Metrics)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.Handle("/debug/pprof/cmdline", http.NotFoundHandler())
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.Handle("/", srv.Probes())
	return mux
}

// Open listens on addr. With apart it also listens on loopback for the workers of this
// machine, which cannot know the certificate of TLS, or may not reach the rest of the service:
// on the address kept, if that is one of loopback and free. With metrics and ssh it also listens on
// these addresses.
func Open(ctx context.Context, addr, metrics, ssh string, apart bool, kept string) (l *Listeners, err error) {
	l = &Listeners{}
	if l.Main, err = listenAt(ctx, "addr", addr); err != nil {
		return nil, err
	}
	if metrics != "" {
		if l.Metrics, err = listenAt(ctx, "metrics", metrics); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	if ssh != "" {
		if l.SSH, err = listenAt(ctx, "ssh", ssh); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	if !apart {
		return l, nil
	}
	if IsLoopback(kept) {
		l.Workers, err = (&net.ListenConfig{}).Listen(ctx, "tcp", kept)
	}
	if l.Workers == nil {
		l.Workers, err = (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// An Error is an address at which nobody can listen.
type Error struct {
	Flag, Addr string // the flag has no dash
	Err        error
}

func (e *Error) Error() string { return fmt.Sprintf("-%s %s: %v", e.Flag, e.Addr, e.Err) }

// Unwrap is what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// listenAt listens on the address of a flag.
func listenAt(ctx context.Context, flag, addr string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	switch {
	case err == nil:
		return l, nil
	case errno.AddressInUse(err):
		err = errors.New("another program listens there: end it, or choose another address")
	case errno.AddressNotAvailable(err):
		err = errors.New("this machine has no such address")
	case errors.Is(err, os.ErrPermission):
		err = errors.New("this user may not listen there: ports below 1024 need root or CAP_NET_BIND_SERVICE")
	}
	return nil, &Error{flag, addr, err}
}

// WorkerAddr is the address of Workers, or nil.
func (l *Listeners) WorkerAddr() net.Addr {
	if l.Workers == nil {
		return nil
	}
	return l.Workers.Addr()
}

// SSHAddr is the address of SSH, or nil.
func (l *Listeners) SSHAddr() net.Addr {
	if l.SSH == nil {
		return nil
	}
	return l.SSH.Addr()
}

// Close closes them.
func (l *Listeners) Close() error {
	err := l.Main.Close()
	for _, more := range []net.Listener{l.Workers, l.Metrics, l.SSH} {
		if more != nil {
			err = errors.Join(err, more.Close())
		}
	}
	return err
}

// All are the listeners for server.Server.Run.
func (l *Listeners) All(ctx context.Context, parts *config.Parts, srv *server.Server, log *slog.Logger) []server.Listener {
	limit := parts.Options.Connections
	main := limit.Listener(l.Main)
	if c := parts.TLS(); c != nil {
		main = tls.NewListener(main, c)
	}
	list := []server.Listener{server.On(main, withConsole(ctx, parts, srv, log))}
	if l.Metrics != nil {
		list = append(list, server.On(limit.Apart().Apart().Listener(l.Metrics), forOperators(parts, srv)))
		log.Info("metrics are served", "addr", l.Metrics.Addr().String())
		if addr := l.Metrics.Addr().String(); !IsLoopback(addr) {
			log.Warn("other machines may reach the metrics and profiles, which need no key: a firewall should allow only operators", "addr", addr)
		}
	}
	// What a worker runs is not always its user's. So it takes no room from those who come to Main.
	workers := limit.Apart()
	for _, w := range []net.Listener{l.Workers, forContainers(ctx, parts, log)} {
		if w != nil {
			list = append(list, server.On(workers.Listener(w), srv.Workers()))
		}
	}
	if b, ok, err := parts.BackupListener(ctx); ok {
		list = append(list, b)
	} else if err != nil {
		log.Warn("-backup needs this server to be stopped", "err", err)
	}
	return list
}

// ServeSSH serves the SSH front of pods until ctx ends, if there is one. Its connections take no room from
// those of Main.
func (l *Listeners) ServeSSH(ctx context.Context, parts *config.Parts, srv *server.Server, log *slog.Logger) error {
	if l.SSH == nil {
		return nil
	}
	limit, all := parts.Options.Connections.Apart(), srv.Services()
	front, err := sshfront.New(sshfront.Options{Pods: all.Pods, Keys: all.SSHKeys, API: srv.API(), ConnContext: limit.ConnContext})
	if err != nil {
		return errors.Join(err, l.SSH.Close())
	}
	log.Info("SSH into pods is served", "addr", l.SSH.Addr().String(), "hostKey", strings.TrimSpace(front.HostKey()))
	return front.Serve(ctx, limit.Listener(l.SSH))
}

// forContainers listens where workers in containers look for the service: nil where they need
// no other listener, or where there can be none. What is served there is the worker protocol
// and nothing else: it takes the key of a worker.
func forContainers(ctx context.Context, parts *config.Parts, log *slog.Logger) net.Listener {
	if !parts.ContainerAddr.IsValid() {
		return nil
	}
	l, err := (&net.ListenConfig{Control: anyAddress}).Listen(ctx, "tcp", parts.ContainerAddr.String())
	if err != nil {
		log.Warn("workers in containers do not reach this server", "err", err)
		return nil
	}
	log.Info("listening for workers in containers", "addr", l.Addr().String())
	return l
}

// URL is where clients find an address.
func URL(addr net.Addr, withTLS bool) string {
	scheme := "http"
	if withTLS {
		scheme = "https"
	}
	return scheme + "://" + strings.ReplaceAll(addr.String(), "%", "%25") // the zone of a link-local address
}

// CheckAddr finds what is wrong with an address before anything is made.
func CheckAddr(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return errors.New("must be HOST:PORT")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return errors.New("the port must be 0 to 65535")
	}
	return nil
}

// IsLoopback reports whether only this machine reaches a listen address.
func IsLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || host == "localhost"
}
