// Command client runs a job and prints what it streams and its output.
//
//	go run ./examples/client -url http://127.0.0.1:8080 -endpoint echo '{"chunks":3}'
//
// It reads the key from the variable PODYARD_API_KEY.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"

	"github.com/podyard/podyard/httpapi/client"
)

func main() {
	if err := submit(); err != nil {
		log.Fatal(err)
	}
}

func submit() error {
	url := flag.String("url", "http://127.0.0.1:8080", "where the server is")
	endpoint := flag.String("endpoint", "echo", "the endpoint")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c, err := client.New(&client.Options{URL: *url, Key: client.Secret(os.Getenv("PODYARD_API_KEY")), Additions: true})
	if err != nil {
		return err
	}
	return run(ctx, os.Stdout, c.Jobs(*endpoint), flag.Arg(0))
}

// run submits a job and follows it to its end.
func run(ctx context.Context, out io.Writer, jobs *client.Jobs, input string) error {
	if input == "" {
		input = "{}"
	}
	job, err := jobs.Submit(ctx, client.JobRequest{Input: json.RawMessage(input)})
	if err != nil {
		return err
	}
	for chunk, err := range jobs.Stream(ctx, job.ID) {
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, string(chunk.Output)); err != nil {
			return err
		}
	}
	if job, err = jobs.Wait(ctx, job.ID); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s after %v: %s\n", job.Status, job.ExecutionTime.Duration(), job.Output)
	return err
}
