package pods

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/podyard/podyard/internal/id"
	"github.com/podyard/podyard/problem"
)

// A Template has settings for absent fields of a request. The caller owns what a store of
// templates returns.
type Template struct {
	Image               string
	Args                string
	Disk                int // GB
	Ports               []string
	Env                 map[string]string
	Registry            string           // id of a credential of the user who uses the template, or empty
	Persistent          *PersistentMount // for GPU pods
	StartSSH            bool
	StartJupyter        bool
	AllowedCUDAVersions []string // for GPU pods; empty: any
	Extras              Extras   `json:",omitzero"`
	// Serverless means that it is for the workers of an endpoint and not for pods.
	Serverless bool
}

// template returns the template that a request names; nil when it names none. A template that
// does not exist is an error at once (docs/decisions.md 7); one of the wrong kind is a fault.
func (s *Service) template(ctx context.Context, v rules, owner, id string) (*Template, error) {
	if id == "" || v.Has("/templateId") {
		return nil, nil
	}
	if s.templates == nil {
		return nil, problem.Newf(problem.NotFound, "template not found")
	}
	t, err := s.templates.PodTemplate(ctx, owner, id)
	if err != nil {
		return nil, fmt.Errorf("pods: find template %q: %w", id, err)
	}
	if t.Serverless { // its settings still count, so that they are not reported as missing
		v.Invalid("/templateId", "template %q is for serverless endpoints", id)
	}
	return &t, nil
}

// applyTemplate sets the absent fields of r to those of t. Variables of r override those of t.
func (r *CreateRequest) applyTemplate(t *Template) {
	if r.Image == "" {
		r.Image = t.Image
	}
	r.setCommand(r.command().Or(t.Args))
	setIfNil(&r.Disk, &t.Disk)
	setIfNil(&r.Registry, &t.Registry)
	setIfNil(&r.StartSSH, &t.StartSSH)
	setIfNil(&r.StartJupyter, &t.StartJupyter)
	if r.Ports == nil {
		r.Ports = t.Ports
	}
	r.Env, r.Extras = mergeEnv(t.Env, r.Env), r.Extras.Or(t.Extras)
	if r.GPU == nil {
		return // the rest is for GPU pods
	}
	if r.Mounts.Persistent == nil && r.Mounts.Network == nil {
		r.Mounts.Persistent = t.Persistent
	}
	if g := *r.GPU; g.AllowedCUDAVersions == nil && g.MinCUDAVersion == nil {
		g.AllowedCUDAVersions = t.AllowedCUDAVersions
		r.GPU = &g
	}
}

// applyTemplate sets the absent fields of r to those of t. The resulting environment replaces
// that of the pod. Mounts are fixed at creation.
func (r *UpdateRequest) applyTemplate(t *Template) {
	setIfNil(&r.Image, &t.Image)
	r.setCommand(r.command().Or(t.Args))
	setIfNil(&r.Disk, &t.Disk)
	setIfNil(&r.Registry, &t.Registry)
	if r.Ports == nil {
		r.Ports = append([]string{}, t.Ports...)
	}
	r.Env, r.Extras = mergeEnv(t.Env, r.Env), r.Extras.Or(t.Extras)
}

func setIfNil[T any](to **T, from *T) {
	if *to == nil {
		*to = from
	}
}

func mergeEnv(base, over map[string]string) map[string]string {
	m := maps.Clone(base)
	if m == nil {
		m = make(map[string]string, len(over))
	}
	maps.Copy(m, over)
	return m
}

// injectedEnv returns the variables of startSsh and startJupyter. Without keys there are none
// for startSsh.
func (s *Service) injectedEnv(ctx context.Context, owner string, r *CreateRequest) (map[string]string, error) {
	env := make(map[string]string)
	if r.StartSSH != nil && *r.StartSSH && s.keys != nil {
		keys, err := s.keys.PublicKeys(ctx, owner)
		if err != nil {
			return nil, fmt.Errorf("pods: find public keys: %w", err)
		}
		if len(keys) > 0 {
			env["PUBLIC_KEY"] = strings.Join(keys, "\n")
		}
	}
	if r.StartJupyter != nil && *r.StartJupyter {
		password, err := id.New(s.rand)
		if err != nil {
			return nil, fmt.Errorf("pods: make a password: %w", err)
		}
		env["JUPYTER_PASSWORD"] = password
	}
	return env, nil
}
