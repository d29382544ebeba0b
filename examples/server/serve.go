package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/podyard/podyard/examples/server/demo"
	"github.com/podyard/podyard/examples/server/listen"
	"github.com/podyard/podyard/examples/server/settings"
	"github.com/podyard/podyard/examples/server/version"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/httpapi/server/config"
	"github.com/podyard/podyard/serverless"
)

// serve is the service until ctx ends.
func serve(ctx context.Context, s *settings.Settings, log *slog.Logger, stdout io.Writer) error {
	kept, err := config.WorkerAddr(s.Data)
	if err != nil {
		return s.ByFlag(err)
	}
	l, err := listen.Open(ctx, s.Addr, s.Metrics, s.SSH, s.TLSCert != "", kept)
	if err != nil {
		return s.ByFlag(err)
	}
	parts, srv, err := open(ctx, s, l, log)
	if err != nil {
		return errors.Join(s.ByFlag(err), l.Close())
	}
	if s.Data == "" {
		log.Info("-data \"\": jobs and pods end with this process")
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	reloads := make(chan os.Signal, 1)
	signal.Notify(reloads, syscall.SIGHUP)
	defer signal.Stop(reloads)
	go parts.ReloadOn(ctx, reloads)
	all := l.All(ctx, parts, srv, log) // before the first line: who has read it may ask for a backup
	ssh := make(chan error, 1)
	go func() {
		err := l.ServeSSH(ctx, parts, srv, log)
		if err != nil {
			end() // users would miss it, and nobody would know
		}
		ssh <- err
	}()
	greet(stdout, s, l.Main.Addr(), parts, srv)
	err = srv.Run(ctx, all...)
	end()
	return errors.Join(err, <-ssh)
}

// open makes the service with all that the configuration and the demonstration have.
func open(ctx context.Context, s *settings.Settings, l *listen.Listeners, log *slog.Logger) (*config.Parts, *server.Server, error) {
	parts, err := config.Open(ctx, s.Config, &config.Options{
		Data: s.Data, Database: s.Database, Name: s.Name, Runtime: s.Runtime, Addr: l.Main.Addr(), SSHAddr: l.SSHAddr(), WorkerAddr: l.WorkerAddr(), PublicURL: s.PublicURL, PeerURL: s.PeerURL, TLSCert: s.TLSCert, TLSKey: s.TLSKey, Key: s.APIKey, Version: version.Number, Logger: log,
		Images: demo.Images(), Launch: []string{launchCommand}, Endpoints: []string{demo.EchoEndpoint, demo.HelloEndpoint}, Workers: []serverless.WorkerID{demo.EchoWorker},
	})
	if err != nil {
		return nil, nil, err
	}
	parts.Options.DrainWait, parts.Options.Version = s.DrainWait, version.Number
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

// greet prints the start line, the key when somebody may want to see it, and what to try.
func greet(w io.Writer, s *settings.Settings, addr net.Addr, parts *config.Parts, srv *server.Server) {
	own := listen.URL(addr, s.TLSCert != "")
	url := cmp.Or(s.PublicURL, own)
	printLine(w, "listening on "+own)
	if !parts.NewKey && !isTerminal(w) || parts.Key == "" {
		return
	}
	if s.FirstKey == settings.FirstKeyFile {
		if parts.NewKey {
			printLine(w, "key: in "+parts.KeyFile())
		}
		return
	}
	printLine(w, "key: "+parts.Key)
	for _, line := range demo.Try(url, parts.Key, srv.Services().Pods.Catalog().CPUs[0].ID) {
		printLine(w, line)
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	fi, err := f.Stat()
	return err == nil && fi.Mode()&os.ModeCharDevice != 0
}
