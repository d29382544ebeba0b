package serverless_test

import (
	"context"
	"fmt"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
)

func ExampleService_CreateEndpoint() {
	ctx := context.Background()
	s := serverless.New(memory.NewJobs(), memory.NewEndpoints(), nil) // with a Fleet, its workers follow
	name, image, disk := "resize", "org/resize:1", 100

	e, err := s.CreateEndpoint(ctx, "alice", endpoints.CreateRequest{
		Type: endpoints.QueueType,
		Settings: endpoints.Settings{
			Name: &name, Image: &image,
			CPU:     []endpoints.CPUSettings{{ID: "cpu5c", VCPU: 4}},
			Scaling: &endpoints.Scaling{Type: endpoints.QueueDelay, Delay: 4 * time.Second},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(e.Name, "version", e.Version, "has at most", e.Workers.Max, "workers")

	e, err = s.UpdateEndpoint(ctx, "alice", e.ID, endpoints.UpdateRequest{
		Settings: endpoints.Settings{Disk: &disk},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range e.Releases[1].Diff {
		fmt.Printf("version %d: %s was %s and is %s\n", e.Version, c.Field, c.Old, c.New)
	}
	// Output:
	// resize version 1 has at most 3 workers
	// version 2: disk was 50 and is 100
}
