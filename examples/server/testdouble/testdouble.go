// Package testdouble serves the test double in the place of the service: everything in
// memory, a clock that stands still, and an area of its own that moves it.
package testdouble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/podyard/podyard/examples/server/demo"
	"github.com/podyard/podyard/httpapi/double"
	"github.com/podyard/podyard/httpapi/server/config"
	"github.com/podyard/podyard/ratelimit"
)

// Options say what is served where.
type Options struct {
	Addr    string         // of the API
	Area    string         // address of the area that moves the clock, which asks for no key
	Key     string         // with every scope; default double.DefaultKey
	Forward bool           // webhooks go on to their receivers, and not to the inbox alone
	Config  *config.Config // of which it takes keys, quotas, limits and the secret of webhooks
	Unused  []string       // settings of the program that the double does not use
	Logger  *slog.Logger
}

// Serve serves the double until ctx ends, and says on w where.
func Serve(ctx context.Context, o *Options, w io.Writer) error {
	d, err := double.New(o.double())
	if err != nil {
		return err
	}
	if unused := slices.Concat(o.Unused, unusedFields(o.Config)); len(unused) > 0 {
		o.Logger.Warn("the test double has no use for some settings", "settings", strings.Join(unused, ", "))
	}
	if err := d.Handle(ctx, demo.EchoEndpoint, demo.EchoBy(d.Sleep)); err != nil {
		return err
	}
	var lc net.ListenConfig
	api, err := lc.Listen(ctx, "tcp", o.Addr)
	if err != nil {
		return err
	}
	area, err := lc.Listen(ctx, "tcp", o.Area)
	if err != nil {
		return errors.Join(err, api.Close())
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	errs := make(chan error, 3)
	run := func(f func() error) {
		all.Go(func() {
			defer stop() // none goes on without the others
			errs <- f()
		})
	}
	run(func() error { return o.serve(ctx, api, withHealth(d.Handler())) })
	run(func() error { return o.serve(ctx, area, d.Admin()) })
	run(func() error { return d.Run(ctx) })
	<-d.Ready()
	_, err = fmt.Fprintf(w, "listening on http://%s\ntest area: http://%s/_test\nkey: %s\n", api.Addr(), area.Addr(), d.Key())
	if err != nil {
		stop()
	}
	all.Wait()
	return errors.Join(err, <-errs, <-errs, <-errs)
}

// serve is nil at the end of ctx.
func (o *Options) serve(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn)}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// double are the settings that the double has.
func (o *Options) double() *double.Options {
	c := o.Config
	d := &double.Options{
		Key: o.Key, Keys: c.APIKeys(), Quotas: ratelimit.Quotas(c.Quotas), PerWorkerRate: c.Limits.PerWorkerRate, Logger: o.Logger,
	}
	if len(c.Webhook.Secrets) > 0 {
		d.WebhookSecret = c.Webhook.Secrets[0]
	}
	if o.Forward {
		d.Receiver = &http.Transport{MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10}
	}
	return d
}

// unusedFields are those of a configuration that the double does not have: it keeps nothing,
// simulates every pod and offers the sample catalog.
func unusedFields(c *config.Config) (list []string) {
	for _, field := range c.Fields() {
		switch {
		case slices.Contains([]string{"images", "endpoints", "serviceDomain", "secretKey"}, field),
			field == "catalog" && c.Catalog != "sample":
			list = append(list, field+" of the configuration")
		}
	}
	if c.Webhook.AllowPrivate != nil {
		list = append(list, "webhook.allowPrivate of the configuration")
	}
	if len(c.Webhook.Deny) > 0 {
		list = append(list, "webhook.deny of the configuration")
	}
	return list
}

// withHealth adds /healthz, as the service has it.
func withHealth(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			_, _ = io.WriteString(w, "ok\n") // to somebody who may have gone
			return
		}
		api.ServeHTTP(w, r)
	})
}
