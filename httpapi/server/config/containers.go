package config

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/backend/docker"
	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
)

// answerTime is how long an engine may take to say that it is there.
const answerTime = 2 * time.Second

// engine says whether pods run in containers: with the runtime docker an engine must answer,
// with auto it may. It asks at docker.Address.
func (p *Parts) engine(ctx context.Context) (bool, error) {
	must := p.own.Runtime == "docker"
	if !must && p.own.Runtime != "auto" && p.own.Runtime != "" {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	err := docker.Ping(ctx, "")
	if err != nil && must {
		return false, p.own.wrong("Runtime", fmt.Errorf("no engine answers: %w", err))
	}
	return err == nil, nil
}

// openContainers is the runtime of images that are no commands of this host. Containers of a
// server that keeps nothing end with it; the others go on, and the next server finds them.
func (p *Parts) openContainers(ctx context.Context, dir string) (pods.Runtime, error) {
	keeps := p.own.Data != ""
	if keeps {
		dir = p.own.Data
	}
	rt, err := docker.Open(ctx, filepath.Join(dir, "docker"), p.containerOptions())
	if err != nil {
		return nil, p.own.wrong("Runtime", err)
	}
	if keeps {
		p.Options.Runtimes = append(p.Options.Runtimes, rt)
	} else {
		p.Options.Runtimes = append(p.Options.Runtimes, purged{rt})
	}
	tcp, ok := p.own.workerAddr().(*net.TCPAddr)
	if !ok || !tcp.IP.IsLoopback() && !tcp.IP.IsUnspecified() {
		return rt, nil // workers are sent to the address itself
	}
	w := workerURLRewriter{Runtime: rt, from: urlOf(tcp)}
	if w.to, err = p.urlForContainers(ctx, rt, tcp); err != nil {
		p.log.Warn("workers in containers do not reach this server", "err", err)
		w.why = err
	}
	return w, nil
}

// A containerHost knows how containers reach this machine.
type containerHost interface {
	HostName() string
	Gateway(ctx context.Context) (netip.Addr, error)
}

// urlForContainers is where workers in containers find the server, which listens at tcp.
func (p *Parts) urlForContainers(ctx context.Context, engine containerHost, tcp *net.TCPAddr) (string, error) {
	if name := engine.HostName(); name != "" {
		return "http://" + net.JoinHostPort(name, strconv.Itoa(tcp.Port)), nil
	}
	gateway, err := engine.Gateway(ctx)
	if err != nil {
		return "", err
	}
	at := netip.AddrPortFrom(gateway, uint16(tcp.Port))
	if tcp.IP.IsLoopback() {
		p.ContainerAddr = at
	}
	return "http://" + at.String(), nil
}

// containerOptions are those of the configuration, which was checked.
func (p *Parts) containerOptions() *docker.Options {
	c := &p.config.Containers
	o := &docker.Options{
		Logger: p.log, AllowNewPrivileges: c.NewPrivileges,
		Trusted:     p.trusts,
		LocalImages: c.LocalImages, ImageRecheck: time.Duration(c.ImageRecheck) * time.Second,
		Isolation: docker.Isolation(c.Isolation), Runtime: c.Runtime, UserNamespaces: c.UserNamespaces,
		ImageAge: time.Duration(c.ImageDays) * 24 * time.Hour, DiskFree: c.DiskFree,
		Host: p.podAddress, PidsLimit: c.Pids, Ulimits: c.Ulimits, ShmSize: c.ShmSize << 20, LogSize: c.LogSize << 20,
		Init: c.Init, DiskLimit: c.DiskLimit, CapDrop: c.CapDrop, CDIDirs: c.CDIDirs,
	}
	o.Subnet, _ = netip.ParsePrefix(c.Subnet) // empty: the default
	for _, entry := range c.Deny {
		o.Deny = append(o.Deny, netip.MustParsePrefix(entry))
	}
	if tcp, ok := p.own.workerAddr().(*net.TCPAddr); ok {
		o.Reachable = []netip.AddrPort{tcp.AddrPort()}
	}
	return o
}

// purged is a runtime whose containers end with it.
type purged struct{ *docker.Runtime }

// Close removes all containers first.
func (r purged) Close(ctx context.Context) error {
	return errors.Join(r.Purge(ctx), r.Runtime.Close(ctx))
}

// A workerURLRewriter has workers in containers find the server: they do not reach the
// loopback address of the host, which is what the fleet gives them.
type workerURLRewriter struct {
	*docker.Runtime
	from, to string
	why      error // instead of to: why they do not reach the server
}

// Ensure implements pods.Runtime.
func (r workerURLRewriter) Ensure(ctx context.Context, s pods.Spec) error {
	env, err := r.rewrite(s)
	if err != nil {
		return err
	}
	s.Env = env
	return r.Runtime.Ensure(ctx, s)
}

// rewrite returns the environment of a pod. A worker that would never find the server is an error,
// which says so where the pod is looked at: it would run, and its jobs would wait without a reason.
func (r workerURLRewriter) rewrite(s pods.Spec) (map[string]string, error) {
	if !podfleet.IsWorker(s.PodID) {
		return r.own(s), nil
	}
	env := maps.Clone(s.Env)
	for name, value := range env {
		rest, ok := strings.CutPrefix(value, r.from+"/")
		switch {
		case !ok || !strings.HasPrefix(name, "RUNPOD_WEBHOOK_"):
		case r.why != nil:
			return nil, &problem.Error{Kind: problem.Unavailable, Detail: "containers of this host do not reach its server, so a worker would get no jobs", Err: r.why}
		default:
			env[name] = r.to + "/" + rest
		}
	}
	return env, nil
}

// own returns the environment of a pod of a user, whose key is good at the address where containers reach
// the server. Without one the pod has no key.
func (r workerURLRewriter) own(s pods.Spec) map[string]string {
	const key, url = "RUNPOD_API_KEY", "RUNPOD_API_BASE_URL"
	if s.Env[url] != r.from || !slices.Contains(s.PlatformEnv, url) {
		return s.Env
	}
	env := maps.Clone(s.Env)
	if env[url] = r.to; r.why != nil {
		delete(env, url)
		if slices.Contains(s.PlatformEnv, key) {
			delete(env, key)
		}
	}
	return env
}
