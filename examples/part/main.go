// Command part is a program with an interface of its own that offers pods besides: the
// control API alone, under a prefix, so that its /v2/pods is not in the way of anything.
// The pods are simulated, on a catalog of made-up stock.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
)

func main() {
	h, err := handler(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	srv := &http.Server{Addr: "127.0.0.1:8082", Handler: h, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(srv.ListenAndServe())
}

// handler is the whole program. Pods are looked after until ctx ends.
func handler(ctx context.Context) (http.Handler, error) {
	cat := catalog.Sample()
	service, err := pods.New(memory.NewPods(), cat, pods.Hosts(cat, memory.NewRuntime(nil)), nil)
	if err != nil {
		return nil, fmt.Errorf("part: %w", err)
	}
	go func() { log.Print("pods: ", service.Run(ctx)) }()
	control := httpapi.NewControl(httpapi.Services{Pods: service}, &httpapi.Options{Auth: accounts{"ann-session": "ann"}})

	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/orders", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.Handle("/gpu/", http.StripPrefix("/gpu", control))
	return mux, nil
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
