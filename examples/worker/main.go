// Command worker is the image of a worker: a Go function and the worker protocol, and
// nothing else. It counts the words of {"text": "..."}.
//
//	CGO_ENABLED=0 go build -o worker ./examples/worker
//	printf 'FROM scratch\nCOPY worker /worker\nENTRYPOINT ["/worker"]\n' >Dockerfile
//	docker build -t example.test/words:1 .
//
// A server with a container engine runs it for an endpoint like this one of its
// configuration. The server starts as many workers as the jobs need, and ends them when
// there are no jobs:
//
//	{"id": "words", "image": "example.test/words:1", "cpu": [{"id": "host", "vcpuCount": 2}],
//	 "workers": {"min": 0, "max": 2, "idleTimeout": 5}}
//
// An image with one of the stock SDKs works the same way. A worker finds in its
// environment where it takes jobs, and with which key.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/podyard/podyard/httpapi/worker"
	"github.com/podyard/podyard/serverless"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // who reads the log may go
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// run works until it is told to end, and then ends what it has begun.
func run(ctx context.Context) error {
	o, err := worker.FromEnv(os.Getenv)
	if err != nil {
		return err
	}
	o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	return worker.Run(ctx, serverless.WorkerFunc(count), o)
}

// count answers {"text": "one two"} with {"words": 2}.
func count(_ context.Context, t *serverless.Task) ([]byte, error) {
	var in struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(t.Input, &in); err != nil {
		return nil, fmt.Errorf("count words: %w", err)
	}
	return json.Marshal(map[string]int{"words": len(strings.Fields(in.Text))})
}
