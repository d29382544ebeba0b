package pods_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
)

// simulated returns a service whose pods are simulated.
func simulated(ctx context.Context) *pods.Service {
	c := catalog.Sample()
	s, err := pods.New(memory.NewPods(), c, pods.SimulatedHosts(c, memory.NewRuntime(nil)), nil)
	if err != nil {
		panic(err)
	}
	go s.Run(ctx)
	return s
}

// A pod has the compute that it claims alone. What no host has is refused.
func ExampleService_Create() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s := simulated(ctx)
	p, err := s.Create(ctx, "alice", pods.CreateRequest{Name: "web", Image: "nginx", CPU: &pods.CPURequest{ID: "cpu3c", VCPU: 2}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Status(), p.Config.Disk, "GB")
	count := 1000
	_, err = s.Create(ctx, "alice", pods.CreateRequest{Name: "huge", Image: "nginx", GPU: &pods.GPURequest{ID: "NVIDIA GeForce RTX 4090", Count: &count}})
	fmt.Println(err != nil)
	// Output:
	// PROVISIONING 50 GB
	// true
}

// A pod of another user is not found.
func ExampleService_Get() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s := simulated(ctx)
	p, err := s.Create(ctx, "alice", pods.CreateRequest{Name: "web", Image: "nginx", CPU: &pods.CPURequest{ID: "cpu3c", VCPU: 2}})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = s.Get(ctx, "bob", p.ID)
	fmt.Println(errors.Is(err, pods.ErrNotFound))
	// Output: true
}

// A terminated pod is in no list.
func ExampleService_Terminate() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s := simulated(ctx)
	p, err := s.Create(ctx, "alice", pods.CreateRequest{Name: "web", Image: "nginx", CPU: &pods.CPURequest{ID: "cpu3c", VCPU: 2}})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := s.Terminate(ctx, "alice", p.ID); err != nil {
		fmt.Println(err)
		return
	}
	list, err := s.List(ctx, "alice")
	fmt.Println(len(list), err)
	// Output: 0 <nil>
}

// args are words for the program of the image, or an object with both lists.
func ExampleParseCommand() {
	for _, args := range []string{`serve --name "my model"`, `{"entrypoint":["sh"],"cmd":["-c","exec serve"]}`} {
		entrypoint, cmd, err := pods.ParseCommand(args)
		fmt.Printf("%q %q %v\n", entrypoint, cmd, err)
	}
	// Output:
	// [] ["serve" "--name" "my model"] <nil>
	// ["sh"] ["-c" "exec serve"] <nil>
}

func ExampleCompareCUDA() {
	fmt.Println(pods.CompareCUDA("12.8", "12.10"), pods.CompareCUDA("12.8", "12.8"))
	// Output: -1 0
}
