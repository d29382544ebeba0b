package demo

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/podyard/podyard/httpapi/worker"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
)

// The endpoint hello, and the image of its workers.
const (
	HelloEndpoint = "hello"
	HelloImage    = "podyard/hello"
)

// Hello is an endpoint whose worker is this program, started again, on the smallest machine
// there is.
func Hello(c catalog.Catalog) endpoints.CreateRequest {
	flavor := c.CPUs[0]
	name, image, most, idle := HelloEndpoint, HelloImage, 1, 3*time.Second
	return endpoints.CreateRequest{
		Type: endpoints.QueueType,
		Settings: endpoints.Settings{
			Name: &name, Image: &image,
			CPU:     []endpoints.CPUSettings{{ID: flavor.ID, VCPU: flavor.VCPU.Min}},
			Workers: endpoints.WorkerSettings{Max: &most, Idle: &idle},
			Scaling: &endpoints.Scaling{Type: endpoints.QueueDelay, Delay: endpoints.MinDelay},
		},
	}
}

// Declare makes the endpoint of Hello, and gives one user half of the slots of echo at most, so
// that nobody can fill it. Limits that were set stay.
func Declare(ctx context.Context, s *serverless.Service, c catalog.Catalog) error {
	if _, err := s.InitQueue(ctx, EchoEndpoint, endpoints.QueueUpdate{PerUser: new(EchoSlots / 2)}); err != nil {
		return err
	}
	_, err := s.DeclareEndpoint(ctx, HelloEndpoint, Hello(c))
	return err
}

// workHello greets until it is told to end.
func workHello(ctx context.Context, env func(string) string) error {
	o, err := worker.FromEnv(env)
	if err != nil {
		return err
	}
	return worker.Run(ctx, serverless.WorkerFunc(greet), o)
}

// greet answers {"name":"you"} with {"greeting":"hello, you"}.
func greet(_ context.Context, t *serverless.Task) ([]byte, error) {
	in := struct {
		Name string `json:"name"`
	}{"world"}
	if err := json.Unmarshal(t.Input, &in); err != nil {
		return nil, errors.New("hello: name must be a string")
	}
	return json.Marshal(map[string]string{"greeting": "hello, " + in.Name})
}
