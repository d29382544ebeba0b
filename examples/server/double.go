package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/podyard/podyard/httpapi/double"
	"github.com/podyard/podyard/ratelimit"
)

// beDouble serves the test double in the place of the service: everything in memory, a
// clock that stands still, and at the address of -test the area that moves it.
func beDouble(ctx context.Context, s *settings, log *slog.Logger, stdout io.Writer) error {
	d, err := double.New(s.double(log))
	if err != nil {
		return err
	}
	if idle := s.idle(); len(idle) > 0 {
		log.Warn("the test double has no use for some settings", "settings", strings.Join(idle, ", "))
	}
	if err := d.Handle(ctx, echoEndpoint, echoBy(d.Sleep)); err != nil {
		return err
	}
	var lc net.ListenConfig
	api, err := lc.Listen(ctx, "tcp", s.addr)
	if err != nil {
		return err
	}
	admin, err := lc.Listen(ctx, "tcp", s.test)
	if err != nil {
		return errors.Join(err, api.Close())
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	errs := make(chan error, 3)
	serve := func(l net.Listener, h http.Handler) {
		srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
		context.AfterFunc(ctx, func() { _ = srv.Close() })
		all.Go(func() {
			defer stop()
			if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				errs <- err
			}
		})
	}
	serve(api, healthBeside(d.Handler()))
	serve(admin, d.Admin())
	all.Go(func() {
		defer stop()
		errs <- d.Run(ctx)
	})
	<-d.Ready()
	say(stdout, "listening on http://"+api.Addr().String())
	say(stdout, "test area: http://"+admin.Addr().String()+"/_test")
	say(stdout, "key: "+d.Key())
	all.Wait()
	close(errs)
	for e := range errs {
		err = errors.Join(err, e)
	}
	return err
}

// double are the settings that the test double has, too.
func (s *settings) double(log *slog.Logger) *double.Options {
	o := &double.Options{
		Key: s.apiKey, Keys: s.keys(), Quotas: ratelimit.Quotas(s.Quotas), PerWorkerRate: s.Limits.PerWorkerRate, Logger: log,
	}
	if len(s.Webhook.Secrets) > 0 {
		o.WebhookSecret = s.Webhook.Secrets[0]
	}
	if isLoopback(s.addr) { // where others ask, webhooks go no further than the inbox
		o.Receiver = &http.Transport{MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute}
	}
	return o
}

// idle are the settings that were made and that the test double does not have: it keeps
// nothing, simulates every pod and offers the sample catalog.
func (s *settings) idle() (list []string) {
	if s.given["data"] && s.data != "" {
		list = append(list, "-data")
	}
	if s.given["runtime"] && (s.runtime == "process" || s.runtime == "docker") {
		list = append(list, "-runtime")
	}
	if s.publicURL != "" {
		list = append(list, "-public-url")
	}
	for _, field := range s.fields() {
		switch {
		case slices.Contains([]string{"images", "endpoints", "serviceDomain", "secretKey"}, field),
			field == "catalog" && s.Catalog != "sample":
			list = append(list, field+" of the configuration")
		}
	}
	if s.Webhook.AllowPrivate != nil {
		list = append(list, "webhook.allowPrivate of the configuration")
	}
	return list
}
