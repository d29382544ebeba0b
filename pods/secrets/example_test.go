package secrets_test

import (
	"context"
	"fmt"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/secrets"
)

// A variable of a pod names a secret of the pod's owner.
func Example() {
	ctx := context.Background()
	s := secrets.New(memory.NewSecrets(), nil)
	made, err := s.Create(ctx, "alice", secrets.CreateRequest{Name: "db_password", Value: "hunter2"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(made.Name, made.Size, made.Value == "")
	env, missing, err := pods.ExpandSecrets(ctx, s, "alice", map[string]string{
		"DATABASE": "postgres://app:{{ RUNPOD_SECRET_db_password }}@db/app",
		"TOKEN":    "{{ RUNPOD_SECRET_token }}",
	})
	fmt.Printf("%s %q %q %v\n", env["DATABASE"], env["TOKEN"], missing, err)
	// Output:
	// db_password 7 true
	// postgres://app:hunter2@db/app "" ["token"] <nil>
}
