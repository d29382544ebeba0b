package kube_test

import (
	"context"
	"fmt"

	"github.com/podyard/podyard/backend/kube"
	"github.com/podyard/podyard/pods"
)

func ExampleOpen() {
	var api kube.Client // of kubernetes.NewForConfig, with QPS -1
	rt, err := kube.Open(context.Background(), api, &kube.Options{Instance: "lab"})
	if err != nil {
		fmt.Println(err)
		return
	}
	host := pods.Host{ID: "pool-1", DataCenter: "LOCAL", Runtime: rt, GPUs: []pods.HostGPUs{{Type: "NVIDIA H100", Count: 16}}}
	fmt.Println(host.ID, rt.Capabilities().Pull, rt.Close(context.Background()))
}
