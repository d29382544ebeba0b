// Command embed is the smallest program with a job queue inside: a Go function works as
// an endpoint, and the jobs API is mounted beside what the program serves anyway.
package main

import (
	"bytes"
	"context"
	"log"
	"net/http"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/serverless"
)

func main() {
	mux, err := routes(context.Background(), "secret")
	if err != nil {
		log.Fatal(err)
	}
	srv := &http.Server{Addr: "127.0.0.1:8081", Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(srv.ListenAndServe())
}

// routes are what the program is there for, and jobs.
func routes(ctx context.Context, key string) (*http.ServeMux, error) {
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(".")))
	return mux, addJobs(ctx, mux, key)
}

// addJobs mounts an endpoint "shout" that runs until ctx ends.
func addJobs(ctx context.Context, mux *http.ServeMux, key string) error {
	endpoints := memory.NewEndpoints()
	if err := endpoints.Create(ctx, &serverless.Endpoint{ID: "shout"}); err != nil {
		return err
	}
	keys, err := httpapi.NewKeys([]httpapi.Key{{Secret: key, User: "me", Scopes: []string{"endpoint:shout:run"}}}, time.Now)
	if err != nil {
		return err
	}
	jobs := serverless.New(memory.NewJobs(), endpoints, nil)
	mux.Handle("/v2/", httpapi.NewJobs(jobs, &httpapi.Options{Auth: keys}))
	go func() { log.Print("jobs: ", jobs.Run(ctx)) }()
	go func() { log.Print("shout: ", jobs.Serve(ctx, "shout", serverless.WorkerFunc(shout), nil)) }()
	return nil
}

func shout(_ context.Context, t *serverless.Task) ([]byte, error) {
	return bytes.ToUpper(t.Input), nil
}
