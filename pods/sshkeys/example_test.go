package sshkeys_test

import (
	"context"
	"fmt"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/problem"
)

// A user has one set of keys, which is replaced as a whole.
func Example() {
	s := sshkeys.New(memory.NewSSHKeys())
	_, err := s.Replace(context.Background(), "alice", sshkeys.ReplaceRequest{Keys: []string{"not a key"}})
	fmt.Println(problem.Of(err).Status)
	// Output: 422
}
