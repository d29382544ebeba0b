package main

import (
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
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/httpapi/server/config"
	"github.com/podyard/podyard/serverless"
)

// serve is the service until ctx ends.
func serve(ctx context.Context, s *settings, log *slog.Logger, stdout io.Writer) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.addr)
	if err != nil {
		return err
	}
	parts, srv, err := open(ctx, s, l.Addr(), log)
	if err != nil {
		return errors.Join(byFlag(err), l.Close())
	}
	listeners := []server.Listener{server.On(l, srv.Handler())}
	if l := listenForContainers(ctx, parts, log); l != nil {
		listeners = append(listeners, server.On(l, srv.Workers()))
	}
	if s.data == "" {
		log.Info("-data \"\": jobs and pods end with this process")
	}
	reloads := make(chan os.Signal, 1)
	signal.Notify(reloads, syscall.SIGHUP)
	defer signal.Stop(reloads)
	go parts.ReloadOn(ctx, reloads)
	greet(stdout, s, l.Addr(), parts, srv)
	return srv.Run(ctx, listeners...)
}

// open makes the service with all that the configuration and the demonstration have.
func open(ctx context.Context, s *settings, addr net.Addr, log *slog.Logger) (*config.Parts, *server.Server, error) {
	parts, err := config.Open(ctx, s.config, &config.Options{
		Data: s.data, Runtime: s.runtime, Addr: addr, PublicURL: s.publicURL, Key: s.apiKey, Logger: log,
		Images: demo.Images(), Launch: []string{launchCommand}, Endpoints: []string{demo.EchoEndpoint, demo.HelloEndpoint}, Workers: []serverless.WorkerID{demo.EchoWorker},
	})
	if err != nil {
		return nil, nil, err
	}
	parts.Options.Workers = []server.Worker{{
		Endpoint: demo.EchoEndpoint, Worker: serverless.WorkerFunc(demo.Echo),
		Options: serverless.ServeOptions{ID: demo.EchoWorker, Concurrency: 1024},
	}}
	srv, err := parts.Server(ctx)
	if err != nil {
		return nil, nil, err
	}
	all := srv.Services()
	if _, err := all.Jobs.DeclareEndpoint(ctx, demo.HelloEndpoint, demo.Hello(all.Pods.Catalog())); err != nil {
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
	}
	return fmt.Errorf("PODYARD_API_KEY: %w", option.Err)
}

// listenForContainers listens where workers in containers look for the service: nil where
// they need no other listener, or where there can be none. What is served there is the worker
// protocol and nothing else: it takes the key of a worker.
func listenForContainers(ctx context.Context, parts *config.Parts, log *slog.Logger) net.Listener {
	if !parts.ContainerAddr.IsValid() {
		return nil
	}
	l, err := (&net.ListenConfig{Control: anyAddress}).Listen(ctx, "tcp", parts.ContainerAddr.String())
	if err != nil {
		log.Warn("workers in containers do not reach this server", "err", err)
		return nil
	}
	log.Info("listening for workers in containers", "addr", l.Addr())
	return l
}

// greet prints the start line, the key when somebody may want to see it, and what to try.
func greet(w io.Writer, s *settings, addr net.Addr, parts *config.Parts, srv *server.Server) {
	url := s.publicURL
	if url == "" {
		url = "http://" + addr.String()
	}
	printLine(w, "listening on http://"+addr.String())
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
