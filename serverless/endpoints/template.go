package endpoints

import (
	"context"
	"fmt"
	"maps"

	"github.com/podyard/podyard/problem"
)

// A Template has container settings for new endpoints. The caller owns a Template that a
// store returns.
type Template struct {
	Image               string
	Args                string
	Disk                int // GB
	Ports               []string
	Env                 map[string]string
	Registry            string   // id of a credential of the user of the template, or empty
	AllowedCUDAVersions []string // empty: any
	// Serverless says that the template is for workers; otherwise it is for pods.
	Serverless bool
}

// fromTemplate fills absent settings of r from its template. The environment is that of the
// template, overridden by the variables of r; it replaces the environment of the endpoint. A
// missing template is an error at once. A template for pods is a violation.
func (s *Service) fromTemplate(ctx context.Context, v endpointRules, owner string, r *Settings) (*Template, error) {
	if r.TemplateID == "" || v.Has("/templateId") {
		return nil, nil
	}
	if s.templates == nil {
		return nil, problem.Newf(problem.NotFound, "template not found")
	}
	t, err := s.templates.EndpointTemplate(ctx, owner, r.TemplateID)
	if err != nil {
		return nil, fmt.Errorf("serverless: find template %q: %w", r.TemplateID, err)
	}
	if !t.Serverless { // use its settings anyway, so that they are not reported as missing
		v.Invalid("/templateId", "template %q is for pods", r.TemplateID)
	}
	setDefault(&r.Image, &t.Image)
	c := r.command().Or(t.Args)
	r.Args, r.Entrypoint, r.Cmd = c.Args, c.Entrypoint, c.Cmd
	setDefault(&r.Disk, &t.Disk)
	setDefault(&r.Registry, &t.Registry)
	if r.Ports == nil {
		r.Ports = append([]string{}, t.Ports...)
	}
	env := maps.Clone(t.Env)
	if env == nil {
		env = make(map[string]string, len(r.Env))
	}
	maps.Copy(env, r.Env)
	r.Env = env
	return &t, nil
}

// defaultCUDA gives a new GPU endpoint the CUDA versions of its template, unless the request
// sets a version itself: a set of versions together with a minimum is not allowed.
func (r *Settings) defaultCUDA(t *Template) {
	if t == nil || r.GPU == nil || r.GPU.AllowedCUDAVersions != nil || r.GPU.MinCUDAVersion != nil {
		return
	}
	g := *r.GPU
	g.AllowedCUDAVersions = t.AllowedCUDAVersions
	r.GPU = &g
}

func setDefault[T any](to **T, from *T) {
	if *to == nil {
		*to = from
	}
}
