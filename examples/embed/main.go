// Command embed is a small program with a job queue inside: a Go function does the jobs of an
// endpoint. Jobs are kept in a directory, and Ctrl-C lets those in progress end.
package main

import (
	"context"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"

	"github.com/podyard/podyard/backend"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/serverless"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	must(0, serve(ctx, must(new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:8081")), "embed-data"))
}

// serve keeps jobs in dir, or in memory if that is "". No web server may serve this directory: it has the
// inputs of jobs.
func serve(ctx context.Context, l net.Listener, dir string) error {
	keys := []httpapi.Key{{Secret: "secret", User: "me", Scopes: []string{"endpoint:shout:run"}}}
	srv := must(server.New(ctx, &server.Options{Store: must(backend.Open(ctx, dir, nil)), Keys: keys}))
	must(serverless.Handle(ctx, srv.Services().Jobs, "shout", shout, nil))
	return srv.Run(ctx, server.On(l, srv.Handler()))
}

type text struct{ Say string }

func shout(_ context.Context, t text) (string, error) { return strings.ToUpper(t.Say), nil }

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
