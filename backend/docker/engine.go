package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/podyard/podyard/internal/errno"
)

// An engine is what Open has learned about the engine.
type engine struct {
	podman          bool
	cores           int
	memory          int64
	gpus            gpuSupport
	hasGPUs         bool // the engine has GPUs that containers can get
	networks        bool // it isolates users' networks, and resolves names of containers in them
	rootless        bool // its networks are not networks of this machine
	desktop         bool // Docker Desktop: the engine is in a virtual machine, from which a name leads here
	diskLimit       bool
	driver          string // the storage driver
	containerdStore bool   // driver is a snapshotter of containerd: Docker ignores the size of a disk
	seccomp         seccompMode
	runtimes        []string // names; of Podman only the default one is known
	storage         string   // the directory with the images; empty: not on this machine
	userns          bool     // containers can have, or have, a user namespace
}

// A seccompMode is how an engine filters the system calls of containers by default.
type seccompMode int

const (
	seccompOn      seccompMode = iota // by its own profile, or by the operator's
	seccompOff                        // off by default, but a container can turn it on: Docker from 23
	seccompMissing                    // the engine has no filter
)

// dockerSeccomp reads Docker's list of security options.
func dockerSeccomp(options []string) seccompMode {
	for _, o := range options {
		switch {
		case o == "name=seccomp,profile=unconfined":
			return seccompOff
		case strings.HasPrefix(o, "name=seccomp"):
			return seccompOn
		}
	}
	return seccompMissing
}

// podmanSeccomp reads Podman's report of its seccomp filter.
func podmanSeccomp(enabled bool, profile string) seccompMode {
	if enabled && profile != "unconfined" {
		return seccompOn
	}
	return seccompMissing
}

// connect makes a client. It makes no request.
func connect(addr string) (*client.Client, error) {
	opts := []client.Opt{client.FromEnv}
	if addr == "" {
		addr = Address()
	}
	if addr != "" {
		opts = append(opts, client.WithHost(addr))
	}
	return client.New(opts...)
}

// Ping returns an error if no engine answers at addr. The format is that of Options.Engine.
func Ping(ctx context.Context, addr string) error {
	c, err := connect(addr)
	if err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	_, err = c.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
	return errors.Join(err, c.Close())
}

func (r *Runtime) inspectEngine(ctx context.Context) error {
	if _, err := r.api.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		return err
	}
	e, err := r.readPodmanInfo(ctx)
	if errdefs.IsNotFound(err) || errdefs.IsInvalidArgument(err) { // not Podman, or Podman before version 4
		e, err = r.readDockerInfo(ctx)
	}
	if err != nil {
		return err
	}
	if !e.gpus.local {
		e.storage = ""
	}
	e.hasGPUs = e.gpus.available(r.opts.CDIDirs)
	e.diskLimit = e.limitsDisks(r.opts.DiskLimit)
	r.engine = e
	if !e.diskLimit {
		r.opts.Logger.Info("docker: the engine does not enforce the size of container disks: a pod that has written more is ended some seconds later",
			"driver", e.driver, "containerd", e.containerdStore)
	}
	return nil
}

// local reports whether the networks of the engine are on this machine, judged by its
// address and by what it reports about itself.
func (e engine) local() bool { return e.gpus.local && !e.rootless }

// limitsDisks reports whether a container's disk has a size limit. option is
// Options.DiskLimit.
func (e engine) limitsDisks(option bool) bool {
	return !e.containerdStore && (option || e.driver == "btrfs" || e.driver == "zfs")
}

// readPodmanInfo asks Podman's own API. That is one call. The Docker API needs two and
// reports less, and each call keeps Podman busy for a good part of a second.
func (r *Runtime) readPodmanInfo(ctx context.Context) (engine, error) {
	var info struct {
		Host struct {
			CPUs    int    `json:"cpus"`
			Memory  int64  `json:"memTotal"`
			Backend string `json:"networkBackend"`
			Runtime struct {
				Name string `json:"name"`
			} `json:"ociRuntime"`
			Security struct {
				Rootless       bool   `json:"rootless"`
				Seccomp        bool   `json:"seccompEnabled"`
				SeccompProfile string `json:"seccompProfilePath"`
			} `json:"security"`
		} `json:"host"`
		Store struct {
			Driver string `json:"graphDriverName"`
			Root   string `json:"graphRoot"`
		} `json:"store"`
	}
	if err := r.libpod(ctx, http.MethodGet, "/info", nil, &info); err != nil {
		return engine{}, err
	}
	return engine{
		podman: true, rootless: info.Host.Security.Rootless,
		cores: info.Host.CPUs, memory: info.Host.Memory, driver: info.Store.Driver,
		networks: info.Host.Backend == "netavark", // other backends do not isolate networks
		gpus:     r.gpuSupport(true, system.Info{}),
		seccomp:  podmanSeccomp(info.Host.Security.Seccomp, info.Host.Security.SeccompProfile),
		runtimes: []string{info.Host.Runtime.Name}, userns: hasSubordinateIDs(),
		storage: info.Store.Root,
	}, nil
}

func (r *Runtime) readDockerInfo(ctx context.Context) (engine, error) {
	version, err := r.api.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return engine{}, err
	}
	answer, err := r.api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return engine{}, err
	}
	podman := slices.ContainsFunc(version.Components, func(c system.ComponentVersion) bool { return strings.HasPrefix(c.Name, "Podman") })
	info := answer.Info
	return engine{
		podman: podman, networks: !podman, desktop: isDesktop(info), rootless: slices.Contains(info.SecurityOptions, "name=rootless"),
		cores: info.NCPU, memory: info.MemTotal, driver: info.Driver,
		containerdStore: slices.Contains(info.DriverStatus, [2]string{"driver-type", "io.containerd.snapshotter.v1"}),
		gpus:            r.gpuSupport(podman, info),
		seccomp:         dockerSeccomp(info.SecurityOptions),
		runtimes:        slices.Sorted(maps.Keys(info.Runtimes)),
		storage:         info.DockerRootDir,
		userns:          slices.Contains(info.SecurityOptions, "name=userns"),
	}, nil
}

func isDesktop(info system.Info) bool { return info.OperatingSystem == "Docker Desktop" }

// isConnectionError reports whether err comes from the connection, not from the engine's
// answer.
func isConnectionError(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var op *net.OpError
	return client.IsErrConnectionFailed(err) || errors.As(err, &op) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, http.ErrServerClosed) ||
		errno.Reset(err)
}

// retry repeats f while the engine cannot be reached. An engine that shuts down may answer
// with another error first, so after such an error retry checks whether the engine still
// answers.
func (r *Runtime) retry(ctx context.Context, f func() error) error {
	wait := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(0))
	return backoff.Retry(func() error {
		err := f()
		if err == nil {
			return nil
		}
		if isConnectionError(err) || (errdefs.IsInternal(err) || errdefs.IsUnavailable(err)) && r.unreachable(ctx) {
			return err
		}
		return backoff.Permanent(err)
	}, backoff.WithContext(wait, ctx))
}

func (r *Runtime) unreachable(ctx context.Context) bool {
	_, err := r.api.Ping(ctx, client.PingOptions{})
	return isConnectionError(err)
}

// errorText is an engine's error as the user of the pod sees it.
func errorText(err error) string {
	text := strings.ReplaceAll(err.Error(), "Error response from daemon: ", "")
	return strings.TrimSpace(strings.TrimPrefix(text, "Error: "))
}
