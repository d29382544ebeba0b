package serverless

import (
	"context"
	"fmt"
	"maps"

	"github.com/podyard/podyard/problem"
)

// A Template is container settings to start a request for an endpoint from. What a store
// of templates returns is the caller's.
type Template struct {
	Image               string
	Args                string
	Disk                int // GB
	Ports               []string
	Env                 map[string]string
	Registry            string   // id of a credential of who uses the template, or empty
	AllowedCUDAVersions []string // empty: any
	// Serverless says that it is for workers. Others are for pods.
	Serverless bool
}

// fromTemplate fills in what is absent in r and its template has. A variable of r wins
// over that of the template; an environment that results replaces that of the endpoint.
// A template that does not exist is an error at once, one of the wrong kind a fault.
func (s *Service) fromTemplate(ctx context.Context, v endpointRules, owner string, r *EndpointSettings) (*Template, error) {
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
	if !t.Serverless { // what it has is not missing all the same
		v.Invalid("/templateId", "template %q is for pods", r.TemplateID)
	}
	fill(&r.Image, &t.Image)
	fill(&r.Args, &t.Args)
	fill(&r.Disk, &t.Disk)
	fill(&r.Registry, &t.Registry)
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

// seedCUDA has a new GPU endpoint accept the versions of its template unless the request
// says something of versions itself: a set beside a floor would be refused.
func (r *EndpointSettings) seedCUDA(t *Template) {
	if t == nil || r.GPU == nil || r.GPU.AllowedCUDAVersions != nil || r.GPU.MinCUDAVersion != nil {
		return
	}
	g := *r.GPU
	g.AllowedCUDAVersions = t.AllowedCUDAVersions
	r.GPU = &g
}

func fill[T any](to **T, from *T) {
	if *to == nil {
		*to = from
	}
}
