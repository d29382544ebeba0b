package backend_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/podyard/podyard/backend"
	"github.com/podyard/podyard/serverless"
)

// A queue in memory. With "data" it would be in that directory, and with
// "postgres://me@db/jobs" in a database; nothing else changes.
func ExampleOpen() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store, err := backend.Open(ctx, "", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	jobs := serverless.New(store.Stores().Jobs, store.Stores().Endpoints, nil)
	shout, err := serverless.Handle(ctx, jobs, "shout", func(_ context.Context, in struct{ Text string }) (string, error) {
		return strings.ToUpper(in.Text), nil
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	// Both return nil when ctx ends. A server.Server runs them, and the store, by itself.
	go func() { _ = jobs.Run(ctx) }()
	go func() { _ = jobs.ServeHandlers(ctx, nil) }()
	fmt.Println(shout.Do(ctx, struct{ Text string }{"hello"}))
	// Output: HELLO <nil>
}
