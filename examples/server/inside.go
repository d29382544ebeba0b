package main

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"strings"

	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/pods"
)

// Workers in containers do not reach the loopback address of the host. A server that
// listens there listens for them on the engine's gateway, too, on the same port. What is
// served there is the worker protocol and nothing else: it takes the key of a worker.

// listenInside listens for workers in containers: nil where they need no other listener, or
// where there can be none. A server without them is a server all the same.
func (v *server) listenInside(ctx context.Context, addr net.Addr) net.Listener {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !v.gateway.IsValid() || !tcp.IP.IsLoopback() && !tcp.IP.IsUnspecified() {
		return nil
	}
	at := &net.TCPAddr{IP: v.gateway.AsSlice(), Port: tcp.Port}
	if tcp.IP.IsUnspecified() {
		v.inside.set(at)
		return nil
	}
	l, err := (&net.ListenConfig{Control: anyAddress}).Listen(ctx, "tcp", netip.AddrPortFrom(v.gateway, uint16(tcp.Port)).String())
	if err != nil {
		v.log.Warn("workers in containers do not reach this server", "err", err)
		return nil
	}
	v.log.Info("listening for workers in containers", "addr", l.Addr())
	v.inside.set(at)
	return l
}

// calling has workers in containers find this server: what podfleet gives them is the
// address for processes of the host.
type calling struct {
	staying
	host, inside *base
}

func (c calling) Ensure(ctx context.Context, s pods.Spec) error {
	from, to := c.host.get(), c.inside.get()
	if from != "" && to != "" && podfleet.IsWorker(s.PodID) {
		s.Env = maps.Clone(s.Env)
		for name, value := range s.Env {
			if rest, ok := strings.CutPrefix(value, from+"/"); ok && strings.HasPrefix(name, "RUNPOD_WEBHOOK_") {
				s.Env[name] = to + "/" + rest
			}
		}
	}
	return c.staying.Ensure(ctx, s)
}
