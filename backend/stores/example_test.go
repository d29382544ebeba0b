package stores_test

import (
	"fmt"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/stores"
)

// A program that keeps bills elsewhere takes everything else of a store.
func ExampleSet_Or() {
	bills := memory.NewBilling()
	set := stores.Set{Billing: bills}.Or(memory.New().Stores())
	fmt.Println(set.Billing == bills, set.Jobs != nil, set.Servers == nil)
	// Output: true true true
}
