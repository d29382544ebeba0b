package endpoints_test

import (
	"context"
	"fmt"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/endpoints"
)

// A program declares its shared endpoints at every start. Only a change of what workers are
// made of is a release.
func ExampleService_Declare() {
	ctx := context.Background()
	s := endpoints.New(memory.NewEndpoints(), nil)
	name, image := "resize", "org/resize:1"
	r := endpoints.CreateRequest{Type: endpoints.QueueType, Settings: endpoints.Settings{
		Name: &name, Image: &image,
		CPU:     []endpoints.CPUSettings{{ID: "cpu5c", VCPU: 4}},
		Scaling: &endpoints.Scaling{Type: endpoints.QueueDelay, Delay: 4 * time.Second},
	}}
	for _, tag := range []string{"org/resize:1", "org/resize:1", "org/resize:2"} {
		image = tag
		e, err := s.Declare(ctx, "resize", r)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(e.Container.Image, "is version", e.Version)
	}
	// Output:
	// org/resize:1 is version 1
	// org/resize:1 is version 1
	// org/resize:2 is version 2
}

// All that is wrong with a request is reported at once, in the order of the documentation.
func ExampleService_Create() {
	name := "resize"
	_, err := endpoints.New(memory.NewEndpoints(), nil).Create(context.Background(), "alice", endpoints.CreateRequest{
		Type: endpoints.QueueType, Settings: endpoints.Settings{Name: &name},
	})
	for _, violation := range problem.Of(err).Errors {
		fmt.Println(violation)
	}
	// Output:
	// /image: is required
	// /scaling: is required
}

func ExampleCheckID() {
	for _, id := range []string{"my-model_2", "pods", "a b"} {
		fmt.Println(id, endpoints.CheckID(id) == nil)
	}
	// Output:
	// my-model_2 true
	// pods false
	// a b false
}
