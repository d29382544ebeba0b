package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/system"
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
	rootless  bool // a Podman whose networks this machine does not see
	diskLimit bool
	driver    string // of storage
	snapshots bool   // driver is one of containerd, where Docker takes no notice of a size
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
	err := r.askPodman(ctx)
	if errdefs.IsNotFound(err) || errdefs.IsInvalidArgument(err) { // it is none, or one before version 4
		err = r.askDocker(ctx)
	}
	if err != nil {
		return err
	}
	r.engine.gives = r.engine.gpus.gives(r.opts.CDIDirs)
	r.engine.diskLimit = r.engine.limitsDisks(r.opts.DiskLimit)
	if !r.engine.diskLimit {
		r.opts.Logger.Info("docker: the size of container disks is not enforced",
			"storage driver", r.engine.driver, "of containerd", r.engine.snapshots)
	}
	if !r.engine.networks {
		r.opts.Logger.Info("docker: pods have no private networks")
	}
	return nil
}

// limitsDisks says whether the size of a container's disk is a limit: told is Options.DiskLimit.
func (e engine) limitsDisks(told bool) bool {
	return !e.snapshots && (told || e.driver == "btrfs" || e.driver == "zfs")
}

// askPodman has Podman tell of itself in its own terms. That is one call, where the Docker
// API takes two and does not say enough: each keeps Podman busy for a good part of a second.
func (r *Runtime) askPodman(ctx context.Context) error {
	var info struct {
		Host struct {
			CPUs     int    `json:"cpus"`
			Memory   int64  `json:"memTotal"`
			Backend  string `json:"networkBackend"`
			Security struct {
				Rootless bool `json:"rootless"`
			} `json:"security"`
		} `json:"host"`
		Store struct {
			Driver string `json:"graphDriverName"`
		} `json:"store"`
	}
	if err := r.libpod(ctx, http.MethodGet, "/info", nil, &info); err != nil {
		return err
	}
	r.engine.podman, r.engine.rootless = true, info.Host.Security.Rootless
	r.engine.cores, r.engine.memory, r.engine.driver = info.Host.CPUs, info.Host.Memory, info.Store.Driver
	r.engine.networks = info.Host.Backend == "netavark" // others do not keep networks apart
	r.engine.gpus = r.gpuFacts(system.Info{})
	return nil
}

func (r *Runtime) askDocker(ctx context.Context) error {
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
	r.engine.snapshots = slices.Contains(info.DriverStatus, [2]string{"driver-type", "io.containerd.snapshotter.v1"})
	r.engine.networks = !r.engine.podman
	r.engine.gpus = r.gpuFacts(info)
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
	text := strings.ReplaceAll(err.Error(), "Error response from daemon: ", "")
	return strings.TrimSpace(strings.TrimPrefix(text, "Error: "))
}
