// Package work is the command that runs a worker of one's own.
package work

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/podyard/podyard/examples/server/demo"
	"github.com/podyard/podyard/examples/server/listen"
	"github.com/podyard/podyard/examples/server/settings"
	cli "github.com/podyard/podyard/httpapi/command"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/httpapi/server/config"
	"github.com/podyard/podyard/httpapi/worker"
)

// An Opener makes the service with its listeners.
type Opener func(ctx context.Context, s *settings.Settings, l *listen.Listeners, log *slog.Logger) (*config.Parts, *server.Server, error)

// Command runs a worker that is no image.
func Command(env func(string) string, open Opener) cli.Command {
	return cli.Command{
		Name: "work", Args: "ENDPOINT COMMAND...", Summary: "run a worker of an endpoint, and a server if there is none",
		Example: "work captions -- python handler.py",
		Help: "The worker finds the service in its environment, as on the hosted service. Where no server is at -addr, or at PODYARD_URL, " +
			"one is started with the endpoint, until the worker ends or a signal comes. Jobs that the worker leaves behind are given to the next one.",
		New: func(f *flag.FlagSet) func(context.Context, *cli.Call) error {
			s := settings.Define(f, env, "addr", "data", "config", "runtime", "log", "log-level") // of the server that it may start
			return func(ctx context.Context, c *cli.Call) error {
				maps.Copy(s.Given, c.Given)
				if err := s.Finish(); err != nil {
					return err
				}
				if !s.Given["runtime"] { // the worker is all that runs
					s.Runtime = "process"
				}
				return runWork(ctx, s, c, env("PODYARD_URL"), open)
			}
		},
	}
}

// A workplace is where a worker gets its jobs.
type workplace struct {
	url, key string
	close    func() error
}

// runWork runs the worker until it ends, or a signal ends it.
func runWork(ctx context.Context, s *settings.Settings, c *cli.Call, at string, open Opener) error {
	endpoint := c.Args[0]
	place, err := findWorkplace(ctx, s, endpoint, at)
	if err == nil && place == nil {
		place, err = startServer(ctx, s, endpoint, c.Stdout, open)
	}
	if err != nil {
		return err
	}
	for _, line := range demo.TryWorker(place.url, place.key, endpoint) {
		_, _ = fmt.Fprintln(c.Stdout, line) // who reads may have gone
	}
	id := "work-" + strings.ToLower(rand.Text()[:12])
	err = place.run(ctx, c, endpoint, id)
	return errors.Join(err, place.close())
}

// findWorkplace returns the server that runs; nil: there is none.
func findWorkplace(ctx context.Context, s *settings.Settings, endpoint, at string) (*workplace, error) {
	named := at != ""
	if !named {
		at = "http://" + cli.Reachable(s.Addr)
	}
	at = strings.TrimRight(at, "/")
	switch there := isThere(ctx, at); {
	case there:
		return joinServer(ctx, s, endpoint, at)
	case named:
		return nil, fmt.Errorf("no server answers at PODYARD_URL, %s: without it one is started", at)
	}
	return nil, nil
}

// isThere reports whether a server is there.
func isThere(ctx context.Context, at string) bool {
	status, err := statusOf(ctx, at+"/healthz", "")
	return err == nil && status == http.StatusOK
}

// statusOf returns the status of an answer that comes soon.
func statusOf(ctx context.Context, target, key string) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return 0, err
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	client := http.Client{Transport: &http.Transport{MaxResponseHeaderBytes: 64 << 10, DisableKeepAlives: true}}
	a, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	return a.StatusCode, a.Body.Close()
}

// joinServer checks that a server which runs has the endpoint.
func joinServer(ctx context.Context, s *settings.Settings, endpoint, at string) (*workplace, error) {
	key := s.APIKey
	if key == "" {
		b, err := os.ReadFile(filepath.Join(s.Data, "api-key"))
		if err != nil {
			return nil, fmt.Errorf("the server at %s needs a key: set PODYARD_API_KEY, or name its data directory with -data", at)
		}
		key = strings.TrimSpace(string(b))
	}
	status, err := statusOf(ctx, at+"/v2/"+url.PathEscape(endpoint)+"/health", key)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the server at %s: %w", at, err)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return nil, fmt.Errorf("the server at %s refuses the key", at)
	case status != http.StatusOK:
		return nil, fmt.Errorf(`the server at %s has no endpoint %q: add {"endpoints":[{"id":%q}]} to its configuration, or end it, and this command starts one with the endpoint`,
			at, endpoint, endpoint)
	}
	return &workplace{url: at, key: key, close: func() error { return nil }}, nil
}

// startServer starts a server with the endpoint.
func startServer(ctx context.Context, s *settings.Settings, endpoint string, stdout io.Writer, open Opener) (*workplace, error) {
	kept, err := config.WorkerAddr(s.Data)
	if err != nil {
		return nil, s.ByFlag(err)
	}
	l, err := listen.Open(ctx, s.Addr, "", "", false, kept)
	if err != nil {
		return nil, s.ByFlag(err)
	}
	log := s.NewLogger(os.Stderr)
	slog.SetDefault(log) // package net/http prints by it
	parts, srv, err := open(ctx, s, l, log)
	if err != nil {
		return nil, errors.Join(s.ByFlag(err), l.Close())
	}
	if err := ensure(ctx, srv, endpoint); err != nil {
		return nil, errors.Join(err, srv.Close(ctx), l.Close())
	}
	// The server outlives the signal: the worker reports its last job first.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	all := l.All(running, parts, srv, log)
	go func() { ended <- srv.Run(running, all...) }()
	_, _ = fmt.Fprintln(stdout, "listening on "+listen.URL(l.Main.Addr(), false)) // who reads may have gone
	return &workplace{
		url: "http://" + cli.Reachable(l.Main.Addr().String()), key: parts.Key,
		close: func() error { stop(); return <-ended },
	}, nil
}

// ensure has the endpoint be there, unless the configuration or a user has made it.
func ensure(ctx context.Context, srv *server.Server, endpoint string) error {
	jobs := srv.Services().Jobs
	if _, err := jobs.Endpoint(ctx, endpoint); err == nil {
		return nil
	}
	return jobs.EnsureEndpoint(ctx, endpoint)
}

// drainWorker is how long a worker may go on after a signal.
const drainWorker = 10 * time.Second

// run runs the command. The job that it leaves behind is given to the next worker at once, and not
// when its lease has ended.
func (w *workplace) run(ctx context.Context, c *cli.Call, endpoint, id string) error {
	words := c.Args[1:]
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, c.Stdout, c.Stderr
	cmd.Env = os.Environ()
	for name, value := range worker.Env(w.url+"/v2", w.key, endpoint, id) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.WaitDelay = drainWorker
	ownGroup(cmd)
	err := cmd.Run()
	endGroup(cmd)
	asked := ctx.Err() != nil
	back := w.giveBack(context.WithoutCancel(ctx), endpoint, id, err)
	switch {
	case asked:
		return back
	case err != nil:
		return errors.Join(fmt.Errorf("the worker %s: %w", strings.Join(words, " "), err), back)
	}
	return back
}

// giveBack says that the worker is gone.
func (w *workplace) giveBack(ctx context.Context, endpoint, id string, how error) error {
	why := "its process has ended"
	if how != nil {
		why += ": " + how.Error()
	}
	q := url.Values{"status": {"unhealthy"}, "check": {"podyard work"}, "reason": {why}}
	status, err := statusOf(ctx, w.url+"/v2/"+url.PathEscape(endpoint)+"/ping/"+id+"?"+q.Encode(), w.key)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the answer was %d", status)
	}
	if err != nil {
		return fmt.Errorf("the service was not told that the worker is gone: %w", err)
	}
	return nil
}
