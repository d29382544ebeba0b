package machine_test

import (
	"fmt"

	"github.com/podyard/podyard/backend/machine"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
)

// The machine that the program runs on, as the only host of its pods.
func ExampleHost() {
	c, host := machine.Host(memory.NewRuntime(nil), &machine.Options{Cores: 4, Memory: 16})
	s, err := pods.New(memory.NewPods(), c, []pods.Host{host}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Catalog().CPUs[0].ID, host.ID)
	// Output: host local
}
