package disk_test

import (
	"context"
	"fmt"
	"os"

	"github.com/podyard/podyard/backend/disk"
	"github.com/podyard/podyard/serverless"
)

// An acknowledged submit is on disk: the next opening finds the job.
func ExampleOpen() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "store")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	var ref serverless.Ref
	for _, first := range []bool{true, false} {
		store, err := disk.Open(ctx, dir, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		s := serverless.New(store.Jobs(), store.Endpoints(), nil)
		if first {
			if err := s.EnsureEndpoint(ctx, "echo"); err != nil {
				fmt.Println(err)
				return
			}
			j, err := s.Submit(ctx, "alice", "echo", serverless.Request{Input: []byte(`{"n":1}`)})
			if err != nil {
				fmt.Println(err)
				return
			}
			ref = j.Ref
		} else {
			j, err := s.Get(ctx, "alice", ref)
			fmt.Println(j.Status, string(j.Input), err)
		}
		if err := store.Close(); err != nil {
			fmt.Println(err)
		}
	}
	// Output: IN_QUEUE {"n":1} <nil>
}

// Restore creates a store from the directory of a backup.
func ExampleRestore() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "store")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	store, err := disk.Open(ctx, dir+"/live", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := store.Backup(ctx, dir+"/backup"); err != nil {
		fmt.Println(err)
		return
	}
	if err := store.Close(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(disk.Restore(ctx, dir+"/backup", dir+"/again", nil))
	// Output: <nil>
}
