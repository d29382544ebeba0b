package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// An engine is what was found out about the other side.
type engine struct {
	podman    bool
	cores     int
	memory    int64
	gpus      gpuFacts
	gives     bool // there are GPUs that it can be made to hand over
	networks  bool // keeps networks of users apart, and finds containers by name in them
	diskLimit bool
	driver    string // of storage, for who reads the log
}

// connect makes a client; it calls nobody yet.
func connect(addr string) (*client.Client, error) {
	opts := []client.Opt{client.FromEnv}
	if addr != "" {
		opts = append(opts, client.WithHost(addr))
	}
	return client.New(opts...)
}

// Answers says whether an engine answers at the address, which is that of Options.Engine.
func Answers(ctx context.Context, addr string) error {
	c, err := connect(addr)
	if err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	_, err = c.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
	return errors.Join(err, c.Close())
}

func (r *Runtime) probe(ctx context.Context) error {
	if _, err := r.api.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		return err
	}
	version, err := r.api.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return err
	}
	for _, c := range version.Components {
		r.engine.podman = r.engine.podman || strings.HasPrefix(c.Name, "Podman")
	}
	answer, err := r.api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return err
	}
	info := answer.Info
	r.engine.cores, r.engine.memory, r.engine.driver = info.NCPU, info.MemTotal, info.Driver
	r.engine.gpus = r.gpuFacts(info)
	r.engine.gives = r.engine.gpus.gives(r.opts.CDIDirs)
	if err := r.probeNetworks(ctx); err != nil {
		return err
	}
	r.engine.diskLimit = r.opts.DiskLimit || info.Driver == "btrfs" || info.Driver == "zfs"
	if !r.engine.diskLimit {
		r.opts.Logger.Info("docker: the size of container disks is not enforced", "storage driver", info.Driver)
	}
	return nil
}

// probeNetworks asks Podman what it makes networks with: only netavark keeps them apart.
func (r *Runtime) probeNetworks(ctx context.Context) error {
	if r.engine.networks = !r.engine.podman; r.engine.networks {
		return nil
	}
	var info struct {
		Host struct {
			Backend string `json:"networkBackend"`
		} `json:"host"`
	}
	err := r.libpod(ctx, http.MethodGet, "/info", nil, &info)
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsInvalidArgument(err) { // as one before version 4 answers
		return err
	}
	if r.engine.networks = info.Host.Backend == "netavark"; !r.engine.networks {
		r.opts.Logger.Info("docker: pods have no private networks", "network backend", info.Host.Backend)
	}
	return nil
}

// lost says whether err is about reaching the engine, rather than what it answered.
func lost(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var op *net.OpError
	return client.IsErrConnectionFailed(err) || errors.As(err, &op) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, http.ErrServerClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// insist repeats f while the engine is not there. An engine that goes away may give
// another error before it does: whether it is there is asked after any.
func (r *Runtime) insist(ctx context.Context, f func() error) error {
	wait := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(0))
	return backoff.Retry(func() error {
		err := f()
		if err == nil {
			return nil
		}
		if lost(err) || (errdefs.IsInternal(err) || errdefs.IsUnavailable(err)) && r.silent(ctx) {
			return err
		}
		return backoff.Permanent(err)
	}, backoff.WithContext(wait, ctx))
}

func (r *Runtime) silent(ctx context.Context) bool {
	_, err := r.api.Ping(ctx, client.PingOptions{})
	return lost(err)
}

// words is what the engine said, for the pod's user.
func words(err error) string {
	text := err.Error()
	for _, prefix := range []string{"Error response from daemon: ", "Error: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return strings.TrimSpace(text)
}
