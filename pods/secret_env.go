package pods

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/podyard/podyard/problem"
)

// EnvSecrets finds secrets for variables. secrets.Service is one.
type EnvSecrets interface {
	// SecretValue returns the value of a secret of owner, or an error of kind problem.NotFound.
	SecretValue(ctx context.Context, owner, name string) (string, error)
}

// secretMark is where the value of a secret stands in a variable.
var secretMark = regexp.MustCompile(`\{\{[ \t]*RUNPOD_SECRET_([a-zA-Z_][a-zA-Z0-9_.\-/]*)[ \t]*\}\}`)

// Bounds of an environment with secrets: what a Linux kernel gives to a program.
const (
	maxVariable    = 128<<10 - 1 // bytes of NAME=value
	maxEnvironment = 1 << 20     // bytes of all of them
)

// ErrSecretTooLong is wrapped by the error of [ExpandSecrets] for an environment that no program could get.
var ErrSecretTooLong = problem.New(problem.BadRequest, "a secret is too long for an environment")

// ExpandSecrets returns env with the values of secrets of owner in the place of {{ RUNPOD_SECRET_name }}
// (docs/decisions.md 49). What is in a value is not expanded again. A secret that does not exist is
// empty, and its name is in missing, sorted. env is not changed. from may be nil: then nothing is
// expanded.
func ExpandSecrets(ctx context.Context, from EnvSecrets, owner string, env map[string]string) (expanded map[string]string, missing []string, err error) {
	if from == nil {
		return env, nil, nil
	}
	x := secretExpander{values: map[string]string{}, lacks: map[string]bool{}, size: sizeOf(env)}
	x.find = func(name string) (string, error) { return from.SecretValue(ctx, owner, name) }
	for _, variable := range slices.Sorted(maps.Keys(env)) {
		if !secretMark.MatchString(env[variable]) {
			continue
		}
		if expanded == nil {
			expanded = maps.Clone(env)
		}
		if expanded[variable], err = x.expand(variable, env[variable]); err != nil {
			return nil, nil, err
		}
		x.size += len(expanded[variable]) - len(env[variable])
		if err := x.fits(); err != nil { // at once: it must not grow without a bound
			return nil, nil, err
		}
	}
	if expanded == nil {
		return env, nil, nil
	}
	return expanded, slices.Sorted(maps.Keys(x.lacks)), nil
}

// sizeOf is how many bytes an environment has, with what is between its parts.
func sizeOf(env map[string]string) (n int) {
	for name, value := range env {
		n += len(name) + len("=") + len(value) + 1
	}
	return n
}

// A secretExpander has the secrets that an environment names.
type secretExpander struct {
	find    func(name string) (string, error)
	values  map[string]string
	lacks   map[string]bool
	longest string // the name of the longest secret
	size    int    // of the environment as it is now
}

func (x *secretExpander) expand(variable, text string) (string, error) {
	var failed error
	last, size := "", len(variable)+len("=")+len(text)
	out := secretMark.ReplaceAllStringFunc(text, func(mark string) string {
		name := secretMark.FindStringSubmatch(mark)[1]
		value, err := x.value(name)
		if err != nil || failed != nil {
			failed = errors.Join(failed, err)
			return ""
		}
		if size += len(value) - len(mark); size > maxVariable {
			failed = tooLong(name, variable, size)
			return ""
		}
		last = name
		return value
	})
	if failed == nil && len(variable)+len("=")+len(out) > maxVariable {
		failed = tooLong(last, variable, len(variable)+len("=")+len(out))
	}
	return out, failed
}

func tooLong(secret, variable string, size int) error {
	return problem.Newf(problem.BadRequest, "%w: with secret %q the variable %s has %d bytes, of at most %d", ErrSecretTooLong, secret, variable, size, maxVariable)
}

func (x *secretExpander) value(name string) (string, error) {
	value, known := x.values[name]
	if known || x.lacks[name] {
		return value, nil
	}
	value, err := x.find(name)
	switch {
	case err != nil && problem.KindOf(err) == problem.NotFound:
		x.lacks[name] = true
		return "", nil
	case err != nil:
		return "", fmt.Errorf("pods: find secret %q: %w", name, err)
	}
	x.values[name] = value
	if x.longest == "" || len(value) > len(x.values[x.longest]) {
		x.longest = name
	}
	return value, nil
}

// fits returns an error if no program could get the environment.
func (x *secretExpander) fits() error {
	if x.size > maxEnvironment && x.longest != "" {
		return problem.Newf(problem.BadRequest, "%w: with secret %q and others it has %d bytes, of at most %d", ErrSecretTooLong, x.longest, x.size, maxEnvironment)
	}
	return nil
}

// withSecrets returns a copy of p whose applied environment has the values of secrets. It is for the
// host only, and never stored.
func (s *Service) withSecrets(ctx context.Context, p *Pod) (_ *Pod, missing []string, err error) {
	q := *p
	q.Want.Applied.Env, missing, err = ExpandSecrets(ctx, s.envSecrets, p.Owner, p.Want.Applied.Env)
	return &q, missing, err
}

// noteMissing writes the names of secrets that do not exist to the system log.
func (p *Pod) noteMissing(names []string, now time.Time) {
	for _, name := range names {
		p.appendJournal(now, fmt.Sprintf("secret %q does not exist: it is empty in the environment", name))
	}
}
