package mixin_test

import (
	"fmt"

	"github.com/podyard/podyard/backend/prometheus/mixin"
)

func Example() {
	for _, a := range mixin.Alerts()[1:3] {
		fmt.Println(a.Name, a.Severity)
	}
	// Output:
	// PodyardFailureRate warning
	// PodyardWorkersLost warning
}
