package volumes_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/pods/volumes"
)

// A volume belongs to the user who made it: for others it does not exist.
func Example() {
	ctx := context.Background()
	s := volumes.New(memory.NewVolumes(), catalog.Local(8, 32), nil)
	v, err := s.Create(ctx, "alice", volumes.CreateRequest{Name: "models", Size: 100, DataCenter: "LOCAL-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(v.Name, v.Size, "GB in", v.DataCenter)
	_, err = s.Get(ctx, "bob", v.ID)
	fmt.Println(errors.Is(err, volumes.ErrNotFound))
	// Output:
	// models 100 GB in LOCAL-1
	// true
}
