package podfleet

import (
	"context"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/serverless"
)

// Templates is what endpoints may be made from, from the templates of pods.
func Templates(t pods.Templates) serverless.Templates { return presets{t} }

type presets struct{ t pods.Templates }

func (p presets) EndpointTemplate(ctx context.Context, owner, id string) (serverless.Template, error) {
	t, err := p.t.PodTemplate(ctx, owner, id)
	if err != nil {
		return serverless.Template{}, err
	}
	return serverless.Template{
		Image: t.Image, Args: t.Args, Disk: t.Disk, Ports: t.Ports, Env: t.Env, Registry: t.Registry,
		AllowedCUDAVersions: t.AllowedCUDAVersions, Serverless: t.Serverless,
	}, nil
}
