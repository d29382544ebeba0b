package podfleet

import (
	"context"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/serverless/endpoints"
)

// Templates returns the templates for endpoints from the templates of pods.
func Templates(t pods.Templates) endpoints.Templates { return serverlessTemplates{t} }

type serverlessTemplates struct{ t pods.Templates }

func (p serverlessTemplates) EndpointTemplate(ctx context.Context, owner, id string) (endpoints.Template, error) {
	t, err := p.t.PodTemplate(ctx, owner, id)
	if err != nil {
		return endpoints.Template{}, err
	}
	return endpoints.Template{
		Image: t.Image, Args: t.Args, Disk: t.Disk, Ports: t.Ports, Env: t.Env, Registry: t.Registry,
		AllowedCUDAVersions: t.AllowedCUDAVersions, Serverless: t.Serverless,
	}, nil
}
