package catalog_test

import (
	"fmt"

	"github.com/podyard/podyard/pods/catalog"
)

// Local is the catalog of one machine: the flavor "host" in the data center LOCAL-1.
func ExampleLocal() {
	c := catalog.Local(8, 32)
	fmt.Println(c.DataCenters[0].ID, c.CPUs[0].ID)
	// Output: LOCAL-1 host
}

// Sample is a made-up catalog for simulations and tests.
func ExampleSample() {
	c := catalog.Sample()
	fmt.Println(len(c.GPUs) > 10, len(c.CPUs) > 3, len(c.DataCenters) > 10)
	// Output: true true true
}
