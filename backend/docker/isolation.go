package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// An Isolation says what Open does if containers cannot be isolated in every way.
type Isolation string

// The values of Options.Isolation.
const (
	IsolationAuto     Isolation = "auto"     // isolate as far as possible; Open logs what is missing
	IsolationRequired Isolation = "required" // Open returns an error that names what is missing
	IsolationOff      Isolation = "off"      // no firewall rules
)

// CheckIsolation returns an error if i is not a value of Options.Isolation.
func CheckIsolation(i Isolation) error {
	if !slices.Contains([]Isolation{"", IsolationAuto, IsolationRequired, IsolationOff}, i) {
		return fmt.Errorf("must be auto, required or off, not %q", i)
	}
	return nil
}

// CheckDeny returns an error if p cannot be an entry of Options.Deny.
func CheckDeny(p netip.Prefix) error {
	if !p.IsValid() || !p.Addr().Is4() {
		return errors.New("must be a block of IPv4 addresses, as 10.0.0.0/8: containers have no IPv6")
	}
	if p != p.Masked() {
		return fmt.Errorf("has bits after its prefix: %s is the block", p.Masked())
	}
	return nil
}

// Missing lists the parts of isolation that this host lacks, each with the reason. It is
// empty if everything in the package comment applies.
func (r *Runtime) Missing() []string { return slices.Clone(r.missing) }

// openIsolation finds out which isolation is possible.
func (r *Runtime) openIsolation(ctx context.Context) error {
	if err := CheckIsolation(r.opts.Isolation); err != nil {
		return fmt.Errorf("isolation: %w", err)
	}
	for _, p := range r.opts.Deny {
		if err := CheckDeny(p); err != nil {
			return fmt.Errorf("deny %s: %w", p, err)
		}
	}
	if err := r.checkDemands(); err != nil {
		return err
	}
	if err := r.openFirewall(ctx); err != nil {
		r.missing = append(r.missing, "firewall rules: "+err.Error())
	}
	if !r.engine.networks {
		r.missing = append(r.missing, "a network for each owner: it takes Docker, or Podman with netavark")
	}
	if r.engine.seccomp == seccompMissing {
		r.missing = append(r.missing, "a filter of system calls: the engine has no seccomp profile")
	}
	if len(r.missing) == 0 {
		return nil
	}
	list := strings.Join(r.missing, "; ")
	if r.opts.Isolation == IsolationRequired {
		return errors.New("isolation is required, and this is missing: " + list)
	}
	level := slog.LevelWarn
	if r.opts.Isolation == IsolationOff {
		level = slog.LevelInfo
	}
	r.opts.Logger.Log(ctx, level, "docker: containers are not kept apart in every way", "missing", list)
	return nil
}

// checkDemands returns an error if the engine lacks the runtime or the user namespaces that
// the options require.
func (r *Runtime) checkDemands() error {
	if !r.hasRuntime(r.opts.Runtime) {
		return fmt.Errorf("runtime %q is demanded, and the engine knows %s", r.opts.Runtime, strings.Join(r.engine.runtimes, ", "))
	}
	if !r.opts.UserNamespaces || r.engine.userns {
		return nil
	}
	if r.engine.podman {
		return errors.New("user namespaces are demanded, and the user containers has no range in /etc/subuid and /etc/subgid")
	}
	return errors.New("user namespaces are demanded, and Docker is not set to userns-remap")
}

// hasRuntime reports whether the engine has a runtime. Podman does not list its runtimes,
// so the program must be in PATH.
func (r *Runtime) hasRuntime(name string) bool {
	if name == "" || slices.Contains(r.engine.runtimes, name) {
		return true
	}
	if !r.engine.podman || !r.engine.gpus.local {
		return false
	}
	_, err := exec.LookPath(name)
	return err == nil
}

// hasSubordinateIDs reports whether Podman can give containers their own user ids.
func hasSubordinateIDs() bool {
	for _, path := range []string{"/etc/subuid", "/etc/subgid"} {
		data, err := os.ReadFile(path)
		if err != nil || !strings.Contains("\n"+string(data), "\ncontainers:") {
			return false
		}
	}
	return true
}
