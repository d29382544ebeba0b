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
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"
)

// An engine is what Open found out about the engine.
type engine struct {
	podman          bool
	cores           int
	memory          int64
	gpus            gpuSupport
	hasGPUs         bool // there are GPUs that it can be made to hand over
	networks        bool // keeps networks of users apart, and finds containers by name in them
	rootless        bool // its networks are not those of this machine
	diskLimit       bool
	driver          string // of storage
	containerdStore bool   // driver is one of containerd, where Docker takes no notice of a size
	seccomp         seccompMode
	runtimes        []string // by name; of Podman only the default one is known
	storage         string   // the directory with the images, where it is on this machine
	userns          bool     // containers can have, or have, a user namespace
}

// A seccompMode is how an engine filters the system calls of containers by default.
type seccompMode int

const (
	seccompOn      seccompMode = iota // by its own profile, or one of the operator
	seccompOff                        // not, but it does when it is asked to: Docker from 23
	seccompMissing                    // it cannot
)

// dockerSeccomp reads what Docker lists as its security options.
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

// podmanSeccomp reads what Podman says of its filter of system calls.
func podmanSeccomp(enabled bool, profile string) seccompMode {
	if enabled && profile != "unconfined" {
		return seccompOn
	}
	return seccompMissing
}

// connect makes a client; it calls nobody yet.
func connect(addr string) (*client.Client, error) {
	opts := []client.Opt{client.FromEnv}
	if addr != "" {
		opts = append(opts, client.WithHost(addr))
	}
	return client.New(opts...)
}

// Ping says whether an engine answers at the address, which is that of Options.Engine.
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
	if errdefs.IsNotFound(err) || errdefs.IsInvalidArgument(err) { // it is none, or one before version 4
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
		r.opts.Logger.Info("docker: the size of container disks is not enforced",
			"driver", e.driver, "containerd", e.containerdStore)
	}
	return nil
}

// local says whether the networks of the engine are those of this machine, judged by its
// address and by what it reports about itself.
func (e engine) local() bool { return e.gpus.local && !e.rootless }

// limitsDisks says whether the size of a container's disk is a limit: option is Options.DiskLimit.
func (e engine) limitsDisks(option bool) bool {
	return !e.containerdStore && (option || e.driver == "btrfs" || e.driver == "zfs")
}

// readPodmanInfo asks Podman by its own API. That is one call, where the Docker API takes two
// and reports less; each call keeps Podman busy for a good part of a second.
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
		networks: info.Host.Backend == "netavark", // others do not keep networks apart
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
		podman: podman, networks: !podman, rootless: slices.Contains(info.SecurityOptions, "name=rootless"),
		cores: info.NCPU, memory: info.MemTotal, driver: info.Driver,
		containerdStore: slices.Contains(info.DriverStatus, [2]string{"driver-type", "io.containerd.snapshotter.v1"}),
		gpus:            r.gpuSupport(podman, info),
		seccomp:         dockerSeccomp(info.SecurityOptions),
		runtimes:        slices.Sorted(maps.Keys(info.Runtimes)),
		storage:         info.DockerRootDir,
		userns:          slices.Contains(info.SecurityOptions, "name=userns"),
	}, nil
}

// isConnectionError says whether err is about reaching the engine, rather than what it answered.
func isConnectionError(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var op *net.OpError
	return client.IsErrConnectionFailed(err) || errors.As(err, &op) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, http.ErrServerClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// retry repeats f while the engine cannot be reached. An engine that shuts down may answer with
// another error first, so after such an error retry asks whether the engine still answers.
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

// errorText is the error of an engine as the user of the pod reads it.
func errorText(err error) string {
	text := strings.ReplaceAll(err.Error(), "Error response from daemon: ", "")
	return strings.TrimSpace(strings.TrimPrefix(text, "Error: "))
}
