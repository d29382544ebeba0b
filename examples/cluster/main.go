// Command cluster is a small load balancer in front of several servers over one database. The
// README beside it has the whole recipe.
//
//	go run ./examples/cluster -addr 127.0.0.1:8080 http://127.0.0.1:8081 http://127.0.0.1:8082
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/podyard/podyard/examples/cluster/balancer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // who reads the log may go
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "cluster:", err) // there is nobody else to tell
		os.Exit(1)
	}
}

// run balances until ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("cluster", flag.ContinueOnError)
	f.SetOutput(stderr)
	addr := f.String("addr", "127.0.0.1:8080", "listen `address`")
	if err := f.Parse(args); err != nil {
		return err
	}
	servers, err := parse(f.Args())
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *addr)
	if err != nil {
		return err
	}
	b := balancer.New(&balancer.Options{Logger: slog.New(slog.NewTextHandler(stderr, nil))})
	b.Set(ctx, servers...)
	go b.Run(ctx)
	if _, err := fmt.Fprintf(stdout, "listening on http://%s\n", l.Addr()); err != nil {
		return errors.Join(err, l.Close())
	}
	return serve(ctx, l, b)
}

func parse(args []string) (servers []*url.URL, err error) {
	for _, text := range args {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" || u.Host == "" || u.Path != "" {
			return nil, fmt.Errorf("%q: must be http://HOST:PORT of a server", text)
		}
		servers = append(servers, u)
	}
	if len(servers) == 0 {
		return nil, errors.New("name at least one server: http://HOST:PORT")
	}
	return servers, nil
}

// serve answers until ctx ends. Then requests that are under way get their answers.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return srv.Shutdown(end)
}
