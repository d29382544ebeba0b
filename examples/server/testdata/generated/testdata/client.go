// Command client uses what oapi-codegen makes of the document.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/podyard/podyard/examples/server/testdata/generated/use/api"
)

func main() {
	log.SetFlags(0)
	ctx, url, key := context.Background(), os.Args[1], os.Args[2]
	c := must(api.NewClientWithResponses(url, api.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+key)
		return nil
	})))
	var job string
	for range 3 {
		timeout := 5000
		body := api.RunRequest{Input: map[string]any{"chunks": 3}}
		body.Policy = &struct {
			ExecutionTimeout *int  `json:"executionTimeout,omitempty"`
			LowPriority      *bool `json:"lowPriority,omitempty"`
			Ttl              *int  `json:"ttl,omitempty"`
		}{ExecutionTimeout: &timeout}
		run := must(c.RunWithResponse(ctx, "echo", &api.RunParams{}, body))
		if run.JSON200 == nil {
			log.Fatalf("run: %s", run.Body)
		}
		job = run.JSON200.Id
	}
	parts, status := stream(ctx, c, job)
	jobs, pages := list(ctx, c)
	none := must(c.StatusWithResponse(ctx, "echo", "none", nil))
	if none.ApplicationproblemJSON404 == nil {
		log.Fatalf("status of no job: %s", none.Body)
	}
	must(0, json.NewEncoder(os.Stdout).Encode(map[string]any{
		"status": status, "parts": parts, "jobs": jobs, "pages": pages,
		"code": none.ApplicationproblemJSON404.Status, "detail": none.ApplicationproblemJSON404.Detail,
	}))
}

// stream reads to the end what a job streams.
func stream(ctx context.Context, c *api.ClientWithResponses, job string) (parts int, status string) {
	format := api.StreamParamsFormatEnvelope
	for {
		res := must(c.StreamWithResponse(ctx, "echo", job, &api.StreamParams{Format: &format}))
		if res.JSON200 == nil {
			log.Fatalf("stream: %s", res.Body)
		}
		part := must(res.JSON200.AsStream200JSONResponseBody1())
		if parts += len(part.Stream); len(part.Stream) == 0 && part.Status == "COMPLETED" {
			return parts, string(part.Status)
		}
	}
}

// list reads the jobs in pages of two.
func list(ctx context.Context, c *api.ClientWithResponses) (jobs, pages int) {
	limit := 2
	for p := (&api.ListEndpointJobsParams{Limit: &limit}); ; pages++ {
		res := must(c.ListEndpointJobsWithResponse(ctx, "echo", p))
		if res.JSON200 == nil {
			log.Fatalf("jobs: %s", res.Body)
		}
		jobs += len(res.JSON200.Jobs)
		if p.Cursor = res.JSON200.Cursor; p.Cursor == nil {
			return jobs, pages + 1
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return v
}
