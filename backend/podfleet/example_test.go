package podfleet_test

import (
	"context"
	"fmt"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/serverless"
)

// Workers of endpoints run on the hosts of the pods, and reserve GPUs and memory as pods
// do.
func ExampleNew() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	c, store := catalog.Sample(), memory.NewPods()
	hosts := pods.SimulatedHosts(c, memory.NewRuntime(nil))
	fleet, err := podfleet.New(store, c, hosts, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	jobs := serverless.New(memory.NewJobs(), memory.NewEndpoints(), &serverless.Options{
		Fleet: fleet, WorkerURL: func() string { return "http://127.0.0.1:8080/v2" }, Catalog: podfleet.Catalog(c),
	})
	go jobs.Run(ctx)
	list, err := fleet.Workers(ctx)
	fmt.Println(len(list), err)
	// Output: 0 <nil>
}
