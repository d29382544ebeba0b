package pods_test

import (
	"context"
	"fmt"
	"log"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
)

// untilUp follows the log of the system until a pod is up.
func untilUp(ctx context.Context, s *pods.Service, p *pods.Pod) error {
	lines, err := s.Logs(ctx, p.Owner, p.ID, pods.SystemLog, pods.LogQuery{Tail: -1, Follow: true})
	if err != nil {
		return err
	}
	for _, err := range lines {
		if err != nil {
			return err
		}
		if p, err = s.Get(ctx, p.Owner, p.ID); err != nil || p.Status() == pods.Running {
			return err
		}
	}
	return ctx.Err()
}

// A pod on a simulated host comes up within about a second.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := simulated(ctx)

	p, err := s.Create(ctx, "ann", pods.CreateRequest{
		Name: "train", Image: "pytorch/pytorch", GPU: &pods.GPURequest{ID: "NVIDIA GeForce RTX 4090"},
		DataCenterIDs: []string{"EU-RO-1"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(p.Status(), p.Placement.DataCenter, p.Cost())
	if err := untilUp(ctx, s, p); err != nil {
		log.Fatal(err)
	}
	p, err = s.Get(ctx, "ann", p.ID)
	fmt.Println(p.Status(), pods.Actions(p), err)
	// Output:
	// PROVISIONING EU-RO-1 0.69
	// RUNNING [stop restart terminate] <nil>
}

// Hosts for tests: what a catalog has in stock, simulated.
func ExampleSimulatedHosts() {
	c := catalog.Catalog{
		GPUs: []catalog.GPUType{{ID: "NVIDIA L4", Memory: 24, Secure: true}},
		DataCenters: []catalog.DataCenter{
			{ID: "EU-1", Stock: []catalog.Stock{{ID: "NVIDIA L4", Secure: 8, Community: 2}}},
			{ID: "US-1"},
		},
	}
	for _, h := range pods.SimulatedHosts(c, memory.NewRuntime(nil)) {
		fmt.Println(h.ID, h.DataCenter, h.GPUs[0].Count)
	}
	// Output:
	// eu-1-secure EU-1 8
	// eu-1-community EU-1 2
}
