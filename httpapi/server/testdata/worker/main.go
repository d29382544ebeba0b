// Command worker is a worker's image of the tests. {"chunks":n,"pause_ms":m} streams n
// chunks, each after a pause, and ends with their number.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/podyard/podyard/httpapi/worker"
	"github.com/podyard/podyard/serverless"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := worker.FromEnv(os.Getenv)
	if err == nil {
		err = worker.Run(ctx, serverless.WorkerFunc(stream), o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1) //nolint:gocritic // stop has nothing left to do
	}
}

func stream(ctx context.Context, t *serverless.Task) ([]byte, error) {
	var in struct {
		Chunks int `json:"chunks"`
		Pause  int `json:"pause_ms"`
	}
	if err := json.Unmarshal(t.Input, &in); err != nil {
		return nil, err
	}
	for i := range in.Chunks {
		time.Sleep(time.Duration(in.Pause) * time.Millisecond)
		if err := t.Emit(ctx, fmt.Appendf(nil, `{"chunk":%d}`, i)); err != nil {
			return nil, err
		}
	}
	return fmt.Appendf(nil, `{"chunks":%d}`, in.Chunks), nil
}
