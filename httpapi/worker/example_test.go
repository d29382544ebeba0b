package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/worker"
	"github.com/podyard/podyard/serverless"
)

// Run the jobs of an endpoint in another program.
func ExampleRun() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	jobs, url := serve(ctx) // a service, for example examples/server

	go worker.Run(ctx, serverless.WorkerFunc(func(_ context.Context, t *serverless.Task) ([]byte, error) {
		return bytes.ToUpper(t.Input), nil
	}), &worker.Options{URL: url, Endpoint: "shout", Key: "secret"})

	j, err := jobs.SubmitAndWait(ctx, "me", "shout", serverless.Request{Input: []byte(`{"say":"hello"}`)})
	fmt.Println(j.Status, string(j.Output), err)
	// Output: COMPLETED {"SAY":"HELLO"} <nil>
}

func serve(ctx context.Context) (*serverless.Service, string) {
	endpoints := memory.NewEndpoints()
	if err := endpoints.Create(ctx, &serverless.Endpoint{ID: "shout"}); err != nil {
		panic(err)
	}
	jobs := serverless.New(memory.NewJobs(), endpoints, nil)
	go jobs.Run(ctx)
	keys, err := httpapi.NewKeys([]httpapi.Key{{Secret: "secret", User: "me", Scopes: []string{"endpoint:shout:work"}}}, time.Now)
	if err != nil {
		panic(err)
	}
	return jobs, httptest.NewServer(httpapi.NewJobs(jobs, &httpapi.Options{Auth: keys})).URL + "/v2"
}
