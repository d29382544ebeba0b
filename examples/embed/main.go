// Command embed is a small program with a job queue inside: a Go function works as an
// endpoint, beside what the program serves anyway. Jobs are kept in a directory, and Ctrl-C
// lets those in progress end.
package main

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"

	"github.com/podyard/podyard/backend/disk"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/serverless"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:8081")
	check(err)
	check(serve(ctx, l, "embed-data"))
}

func serve(ctx context.Context, l net.Listener, dir string) error {
	store, err := disk.Open(ctx, dir, nil)
	check(err)
	srv, err := server.New(ctx, &server.Options{
		Stores:  server.Stores{Endpoints: store.Endpoints(), Jobs: store.Jobs(), Run: store.Run, Close: store.Close},
		Keys:    []httpapi.Key{{Secret: "secret", User: "me", Scopes: []string{"endpoint:shout:run"}}},
		Workers: []server.Worker{{Endpoint: "shout", Worker: serverless.WorkerFunc(shout)}},
	})
	check(err)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", home)
	mux.Handle("/v2/", srv.Handler())
	return srv.Run(ctx, server.On(l, mux))
}

// home stands for what the program serves anyway. A directory that it serves must not be one in
// which the store lies: everybody could read the inputs of jobs.
func home(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello\n") }

func shout(_ context.Context, t *serverless.Task) ([]byte, error) { return bytes.ToUpper(t.Input), nil }

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
