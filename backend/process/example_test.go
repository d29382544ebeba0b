//go:build unix

package process_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/podyard/podyard/backend/process"
	"github.com/podyard/podyard/pods"
)

// A pod is a shell command here, run to its end.
func Example() {
	dir, err := os.MkdirTemp("", "pods")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	rt, err := process.Open(dir, &process.Options{
		Images: map[string]process.Image{"shell": {Command: []string{"/bin/sh", "-c"}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = rt.Ensure(ctx, pods.Spec{
		PodID: "k2v9xq7m4d1abc", Gen: 1, Run: 1, Image: "shell",
		Args: []string{"echo Hello, $NAME"}, Env: map[string]string{"NAME": "pod"},
	})
	if err != nil {
		log.Fatal(err)
	}
	for line, err := range rt.Logs(ctx, "k2v9xq7m4d1abc", pods.LogQuery{Tail: -1, Follow: true}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(line.Seq, line.Text)
		break
	}
	if err := rt.Close(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: 1 Hello, pod
}
