package router_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/router"
	"github.com/podyard/podyard/pods"
)

// Images of one prefix run on one runtime, all others on another.
func Example() {
	processes, containers := memory.NewRuntime(nil), memory.NewRuntime(nil)
	rt := router.New(containers, router.Rule{
		Runtime: processes,
		Match:   func(s pods.Spec) bool { return strings.HasPrefix(s.Image, "local/") },
	})
	_, err := rt.List(context.Background())
	fmt.Println(err)
	// Output: <nil>
}
