// Command part is a program with an HTTP interface of its own that also offers pods. It
// mounts the control API alone, under a prefix, so that its own /v2 paths stay free.
// The pods are simulated, on a catalog of made-up stock.
package main

import (
	"context"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Print(err)
		os.Exit(1) //nolint:gocritic // stop has nothing left to do
	}
}

func run(ctx context.Context) error {
	srv, err := open(ctx)
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:8082")
	if err != nil {
		return err
	}
	return srv.Run(ctx, server.On(l, handler(srv)))
}

// open makes the service of pods. It has no other stores, so it has nothing else.
func open(ctx context.Context) (*server.Server, error) {
	cat := catalog.Sample()
	return server.New(ctx, &server.Options{
		Stores:  server.Stores{Pods: memory.NewPods()},
		Catalog: cat, Hosts: pods.SimulatedHosts(cat, memory.NewRuntime(nil)),
		API: httpapi.Options{Auth: accounts{"ann-session": "ann"}},
	})
}

// handler is all that the program serves.
func handler(srv *server.Server) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/orders", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.Handle("/gpu/", http.StripPrefix("/gpu", srv.Control()))
	return mux
}

// accounts know who a key belongs to, where a real program asks its own user database.
// Everybody may do everything with pods and nothing else.
type accounts map[string]string

func (a accounts) Authenticate(_ context.Context, key string) (httpapi.Identity, error) {
	user, ok := a[key]
	if !ok {
		return httpapi.Identity{}, httpapi.ErrKey
	}
	return httpapi.Identity{User: user, Scopes: []httpapi.Permission{{Area: "pods", Level: httpapi.Write}}}, nil
}
