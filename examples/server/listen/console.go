package listen

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/podyard/podyard/httpapi/console"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/httpapi/server/config"
)

// consolePath is where the web console is, below the address of the server.
const consolePath = "/console/"

// welcome is what a browser gets that knows only the address.
const welcome = "This is podyard. The console is at " + consolePath + ", and /v2/openapi.json describes the interface.\n"

// withConsole is the handler of the service and, until ctx ends, the console beside it. A host of a
// load-balancing endpoint or of a pod has no console: it serves nothing but its workers or the pod.
func withConsole(ctx context.Context, parts *config.Parts, srv *server.Server, log *slog.Logger) http.Handler {
	main, api := srv.Handler(), srv.API()
	domain := api.PodDomain
	if api.PodPortKeys {
		domain = ""
	}
	c, err := console.New(main, &console.Options{
		Incidents: srv.Incidents, JobTimes: parts.JobTimes,
		Auth: api.Auth, Jobs: srv.Services().Jobs, Path: consolePath, Source: api.Source, InFlight: api.InFlight, Logger: log, PodDomain: domain,
		Secret: parts.Options.Jobs.WorkerSecret, // sessions outlive a restart; nil with -data ""
	})
	if err != nil {
		log.Warn("there is no console", "err", err)
		return main
	}
	go c.Run(ctx) //nolint:errcheck // it returns nil when ctx ends
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case api.ToWorker(r):
			main.ServeHTTP(w, r)
		case r.URL.Path+"/" == consolePath || strings.HasPrefix(r.URL.Path, consolePath):
			c.ServeHTTP(w, r)
		case r.URL.Path == "/" && r.Method == http.MethodGet:
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = io.WriteString(w, welcome) // who asked may have gone
		default:
			main.ServeHTTP(w, r)
		}
	})
}
