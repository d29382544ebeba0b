package pods_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
)

// A simulated fleet in virtual time: a pod comes up within a second that nobody waits
// for. A program that serves users leaves out the clock and calls Run.
func Example() {
	ctx := context.Background()
	now := clock.NewManual(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	c := catalog.Sample()
	hosts := pods.Hosts(c, memory.NewRuntime(&memory.RuntimeOptions{Clock: now}))
	s, err := pods.New(memory.NewPods(), c, hosts, &pods.Options{Clock: now, Rand: rand.NewChaCha8([32]byte{})})
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := s.Create(ctx, "alice", pods.CreateRequest{
		Name: "train", Image: "pytorch/pytorch", GPU: &pods.GPURequest{ID: "NVIDIA GeForce RTX 4090"},
		DataCenterIDs: []string{"EU-RO-1"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Status(), p.Placement.DataCenter, p.Cost())
	if err := now.Advance(ctx, time.Second, s); err != nil {
		fmt.Println(err)
		return
	}
	if p, err = s.Get(ctx, "alice", p.ID); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Status(), pods.Actions(p))
	// Output:
	// PROVISIONING EU-RO-1 0.69
	// RUNNING [stop restart terminate]
}
