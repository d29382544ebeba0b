// Command product is a program with users, routes and metrics of its own that offers jobs beside
// them. Its sign-in is the authenticator of the interface and lets users into the console, its pages
// do jobs by calling a Go function, and webhooks are signed. /v2/ is all that the library serves.
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

	"github.com/podyard/podyard/backend"
	"github.com/podyard/podyard/backend/webhook"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/console"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/serverless"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // who reads the log may go
	must(0, serve(ctx, must(new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:8084")), "product-data", &webhook.Options{Secrets: []string{os.Getenv("WEBHOOK_SECRET")}}))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func serve(ctx context.Context, l net.Listener, where string, hooks *webhook.Options) error {
	users, mux := &accounts{}, http.NewServeMux()
	srv := must(server.New(ctx, &server.Options{
		Store: must(backend.Open(ctx, where, &backend.Options{Logger: slog.Default()})), Logger: slog.Default(),
		API: httpapi.Options{Auth: users}, Jobs: serverless.Options{Sender: must(webhook.New(hooks))},
	}))
	jobs, api := srv.Services().Jobs, srv.Handler()
	work := must(serverless.Handle(ctx, jobs, "area", area, &serverless.ServeOptions{Concurrency: 8}))
	mux.HandleFunc("POST /login", users.login)
	mux.HandleFunc("GET /floor", func(w http.ResponseWriter, r *http.Request) {
		size, err := work.Do(r.Context(), room{Width: 3, Height: 4})
		_, _ = fmt.Fprintln(w, size, err)
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		h, _ := jobs.Health(r.Context(), "area")
		_, _ = fmt.Fprintf(w, "jobs_queued %d\njobs_running %d\njobs_completed_total %d\n", h.Jobs.Queued, h.Jobs.Running, h.Jobs.Completed)
	})
	mux.Handle("/v2/", api)
	mux.Handle("/console/", must(console.New(api, &console.Options{Auth: users, Jobs: jobs, Identify: session})))
	return srv.Run(ctx, server.On(l, mux))
}

type room struct{ Width, Height int }

// area is the work that is offered.
func area(_ context.Context, in room) (int, error) { return in.Width * in.Height, nil }

// accounts are the program's own users, by the key that they get at sign-in.
type accounts struct{ sync.Map }

func (a *accounts) login(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	if user != "ann" || password != "correct horse" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	key := rand.Text()
	a.Store(key, user)
	http.SetCookie(w, &http.Cookie{Name: "session", Value: key, Path: "/", HttpOnly: true, Secure: true, SameSite: http.SameSiteStrictMode})
	_, _ = fmt.Fprint(w, key)
}

// session is the key of a browser that has signed in, for the console.
func session(r *http.Request) (key string, ok bool) {
	for _, c := range r.CookiesNamed("session") {
		key, ok = c.Value, true
	}
	return key, ok
}

// Authenticate implements httpapi.Authenticator. Users run jobs, and see their own.
func (a *accounts) Authenticate(_ context.Context, key string) (httpapi.Identity, error) {
	user, ok := a.Load(key)
	if !ok {
		return httpapi.Identity{}, httpapi.ErrKey
	}
	return httpapi.Identity{User: user.(string), Scopes: []httpapi.Permission{{Area: "endpoint", Endpoint: "*", Level: httpapi.Run}}}, nil
}
