package templates

import "github.com/podyard/podyard/pods"

// Official returns templates for images that need no engine or that everybody can pull. Each
// call returns new ones.
func Official() []Template {
	return []Template{
		{
			ID: "podyard-web", Name: "Web server", Public: true, Category: CPU,
			Template: pods.Template{Image: "podyard/web", Disk: 5, Ports: []string{"8000/http"}},
		},
		{
			ID: "podyard-python", Name: "Python", Public: true, Category: CPU,
			Template: pods.Template{
				Image: "docker.io/library/python:3.13-slim", Args: "python -m http.server 8000", Disk: 10, Ports: []string{"8000/http"},
			},
		},
		{
			ID: "podyard-pytorch", Name: "PyTorch", Public: true, Category: NVIDIA,
			Template: pods.Template{
				Image: "docker.io/pytorch/pytorch:latest", Disk: 50, Ports: []string{"8888/http", "22/tcp"},
				Persistent: &pods.PersistentMount{Size: 20, Path: "/workspace"}, StartSSH: true, StartJupyter: true,
			},
		},
		{
			ID: "podyard-hello", Name: "Hello worker", Public: true, Category: CPU,
			Template: pods.Template{Image: "podyard/hello", Disk: 5, Serverless: true},
		},
	}
}
