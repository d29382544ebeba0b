package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/podyard/podyard/examples/server/demo"
	"github.com/podyard/podyard/examples/server/listen"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/httpapi/server/config"
	"github.com/podyard/podyard/serverless"
)

// serve is the service until ctx ends.
func serve(ctx context.Context, s *settings, log *slog.Logger, stdout io.Writer) error {
	kept, err := config.WorkerAddr(s.data)
	if err != nil {
		return byFlag(err)
	}
	l, err := listen.Open(ctx, s.addr, s.tlsCert != "" || s.config.Processes.UIDs.Count > 0, kept)
	if err != nil {
		return err
	}
	parts, srv, err := open(ctx, s, l, log)
	if err != nil {
		return errors.Join(byFlag(err), l.Close())
	}
	if s.data == "" {
		log.Info("-data \"\": jobs and pods end with this process")
	}
	reloads := make(chan os.Signal, 1)
	signal.Notify(reloads, syscall.SIGHUP)
	defer signal.Stop(reloads)
	go parts.ReloadOn(ctx, reloads)
	greet(stdout, s, l.Main.Addr(), parts, srv)
	return srv.Run(ctx, l.All(ctx, parts, srv, log)...)
}

// open makes the service with all that the configuration and the demonstration have.
func open(ctx context.Context, s *settings, l *listen.Listeners, log *slog.Logger) (*config.Parts, *server.Server, error) {
	parts, err := config.Open(ctx, s.config, &config.Options{
		Data: s.data, Runtime: s.runtime, Addr: l.Main.Addr(), WorkerAddr: l.WorkerAddr(), PublicURL: s.publicURL, TLSCert: s.tlsCert, TLSKey: s.tlsKey, Key: s.apiKey, Logger: log,
		Images: demo.Images(), Launch: []string{launchCommand}, Endpoints: []string{demo.EchoEndpoint, demo.HelloEndpoint}, Workers: []serverless.WorkerID{demo.EchoWorker},
	})
	if err != nil {
		return nil, nil, err
	}
	parts.Options.DrainWait = s.drainWait
	parts.Options.Workers = []server.Worker{{
		Endpoint: demo.EchoEndpoint, Worker: serverless.WorkerFunc(demo.Echo),
		Options: serverless.ServeOptions{ID: demo.EchoWorker, Concurrency: demo.EchoSlots},
	}}
	srv, err := parts.Server(ctx)
	if err != nil {
		return nil, nil, err
	}
	all := srv.Services()
	if err := demo.Declare(ctx, all.Jobs, all.Pods.Catalog()); err != nil {
		return nil, nil, errors.Join(err, srv.Close(ctx))
	}
	return parts, srv, nil
}

// byFlag names what is wrong as the command line does.
func byFlag(err error) error {
	var file *config.Error
	var option *config.OptionError
	switch {
	case errors.As(err, &file):
		return fmt.Errorf("-config %w", file)
	case !errors.As(err, &option):
		return err
	case option.Option == "Data":
		return fmt.Errorf("-data %q: %w", option.Value, option.Err)
	case option.Option == "Runtime":
		return fmt.Errorf("-runtime %s: %w", option.Value, option.Err)
	case option.Option == "TLSCert", option.Option == "TLSKey":
		return fmt.Errorf("-tls-cert, -tls-key: %w", option.Err)
	}
	return fmt.Errorf("PODYARD_API_KEY: %w", option.Err)
}

// greet prints the start line, the key when somebody may want to see it, and what to try.
func greet(w io.Writer, s *settings, addr net.Addr, parts *config.Parts, srv *server.Server) {
	own := listen.URL(addr, s.tlsCert != "")
	url := cmp.Or(s.publicURL, own)
	printLine(w, "listening on "+own)
	if !parts.NewKey && !isTerminal(w) {
		return
	}
	printLine(w, "key: "+parts.Key)
	curl := "curl -H 'Authorization: Bearer " + parts.Key + "' "
	flavor := srv.Services().Pods.Catalog().CPUs[0].ID
	printLine(w, curl+`-d '{"input":{"hello":"world"}}' `+url+"/v2/"+demo.EchoEndpoint+"/runsync")
	printLine(w, curl+`-H 'Content-Type: application/json' -d '{"name":"web","image":"`+demo.WebImage+`","cpu":{"id":"`+flavor+`","vcpuCount":2},"ports":["8000/http"]}' `+url+"/v2/pods")
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	fi, err := f.Stat()
	return err == nil && fi.Mode()&os.ModeCharDevice != 0
}
