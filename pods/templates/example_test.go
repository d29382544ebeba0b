package templates_test

import (
	"context"
	"fmt"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods/templates"
)

// A template is container settings to start pods or endpoints from.
func Example() {
	ctx := context.Background()
	s := templates.New(memory.NewTemplates(), nil)
	name, image := "train", "pytorch/pytorch"
	t, err := s.Create(ctx, "alice", templates.Settings{Name: &name, Image: &image, Env: map[string]string{"MODE": "fast"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(t.Name, t.Disk, "GB", t.Env)
	// Output: train 50 GB map[MODE:fast]
}
