// Command product is a program with users, routes and metrics of its own that offers jobs
// beside them: its sign-in is the authenticator of the interface, jobs are kept on disk, and
// webhooks are signed. /v2/ is all that the library serves.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/podyard/podyard/backend/disk"
	"github.com/podyard/podyard/backend/webhook"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/serverless"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // who reads the log may go
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:8084")
	check(err)
	check(serve(ctx, l, "product-data", &webhook.Options{Secrets: []string{os.Getenv("WEBHOOK_SECRET")}}))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, l net.Listener, dir string, hooks *webhook.Options) error {
	store, err := disk.Open(ctx, dir, &disk.Options{Logger: slog.Default()})
	check(err)
	sender, err := webhook.New(hooks)
	check(err)
	users := &accounts{passwords: map[string]string{"ann": "correct horse"}}
	srv, err := server.New(ctx, &server.Options{
		Stores:  server.Stores{Endpoints: store.Endpoints(), Jobs: store.Jobs(), Run: store.Run, Close: store.Close},
		API:     httpapi.Options{Auth: users},
		Jobs:    serverless.Options{Sender: sender},
		Workers: []server.Worker{{Endpoint: "area", Worker: serverless.JSON(area), Options: serverless.ServeOptions{Concurrency: 8}}},
		Logger:  slog.Default(),
	})
	check(err)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", users.login)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		h, _ := srv.Services().Jobs.Health(r.Context(), "area")
		_, _ = fmt.Fprintf(w, "jobs_queued %d\njobs_running %d\njobs_completed_total %d\n", h.Jobs.Queued, h.Jobs.Running, h.Jobs.Completed)
	})
	mux.Handle("/v2/", srv.Handler())
	return srv.Run(ctx, server.On(l, mux))
}

// area is the work that is offered.
func area(_ context.Context, in map[string]int) (int, error) { return in["width"] * in["height"], nil }

// accounts are the program's own users. What they get at sign-in is what they send as a key.
type accounts struct {
	passwords map[string]string
	sessions  sync.Map // the user by key
}

func (a *accounts) login(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	if want, known := a.passwords[user]; !known || want != password {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	key := rand.Text()
	a.sessions.Store(key, user)
	_, _ = fmt.Fprint(w, key)
}

// Authenticate implements httpapi.Authenticator. Users run jobs, and see their own.
func (a *accounts) Authenticate(_ context.Context, key string) (httpapi.Identity, error) {
	user, ok := a.sessions.Load(key)
	if !ok {
		return httpapi.Identity{}, httpapi.ErrKey
	}
	return httpapi.Identity{User: user.(string), Scopes: []httpapi.Permission{{Area: "endpoint", Endpoint: "*", Level: httpapi.Run}}}, nil
}
