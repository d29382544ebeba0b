package disk_test

import (
	"context"
	"fmt"
	"os"

	"github.com/podyard/podyard/backend/disk"
	"github.com/podyard/podyard/serverless"
)

// What Submit has answered is on the disk: the next opening finds it.
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

// A backup is a directory that a store is restored from.
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
