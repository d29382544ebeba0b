package docker_test

import (
	"context"
	"log"

	"github.com/podyard/podyard/backend/docker"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
)

// Run pods as containers on a machine with 8 cores and 32 GB that has Docker or Podman.
func ExampleOpen() {
	ctx := context.Background()
	rt, err := docker.Open(ctx, "/var/lib/pods", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close(ctx)
	s, err := pods.New(memory.NewPods(), catalog.Local(8, 32), []pods.Host{{
		ID: "local", DataCenter: catalog.LocalDataCenter, Runtime: rt, VCPU: map[string]int{catalog.HostFlavor: 8}, Memory: 32,
	}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	log.Print(s.Run(ctx))
}
