package registries_test

import (
	"context"
	"fmt"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/registries"
)

func Example() {
	ctx := context.Background()
	s := registries.New(memory.NewRegistries(), nil)

	r, err := s.Create(ctx, "alice", registries.CreateRequest{
		Name: "hub", Username: "alice", Password: "correct-horse-battery-staple",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, user, password, err := s.PullSecret(ctx, "alice", r.ID)
	fmt.Println(r.Name, user, len(password), err)

	_, err = s.Get(ctx, "bob", r.ID)
	fmt.Println(err != nil)
	// Output:
	// hub alice 28 <nil>
	// true
}
