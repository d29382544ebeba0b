package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless"
)

// The end of the server, less than 10 s in all: first jobs have drainTime to end, then pods
// what is left of it and podsTime, and then requests have shutTime to be answered. A process
// has no more than podsTime; the rest is for an engine that is slow to remove containers.
const (
	drainTime = 6500 * time.Millisecond
	podsTime  = 2 * time.Second
	shutTime  = time.Second
)

// A server is the services, wired.
type server struct {
	settings *settings
	log      *slog.Logger
	key      string // full access
	newKey   bool

	pods       *pods.Service
	registries *registries.Service
	volumes    *volumes.Service
	templates  *templates.Service
	sshKeys    *sshkeys.Service
	billing    *billing.Service
	jobs       *serverless.Service
	api        httpapi.Options // but for the public URL
	stores     *stores
	gpus       gpus
	workers    base                          // where they find this server
	inside     base                          // where those in containers do, if that is elsewhere
	gateway    netip.Addr                    // of the engine to this host
	closers    []func(context.Context) error // of the runtimes, last first
	serving    bool                          // the services run
}

// open makes everything that can fail before a port is listened on.
func open(ctx context.Context, s *settings, log *slog.Logger) (v *server, err error) {
	v = &server{settings: s, log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, v.close(ctx), v.closeStores())
		}
	}()
	if err := v.wire(ctx); err != nil {
		return v, err
	}
	if v.key, v.newKey, err = adminKey(s); err != nil {
		return v, err
	}
	keys, err := s.authenticator(v.key)
	if err != nil {
		return v, err
	}
	for i, k := range s.Keys {
		if len(k.Scopes) == 0 {
			log.Warn("a key without scopes reads the catalog and the health of endpoints, and nothing else", "key", spellPath(at("/keys", i)), "user", k.User)
		}
	}
	v.api = httpapi.Options{
		Auth:   keys,
		Quotas: ratelimit.NewWindows(ratelimit.Quotas(s.Quotas)),
		Rates:  ratelimit.NewRates(s.Limits.PerWorkerRate),
		Logger: log,
	}
	return v, nil
}

// handler is the interface at the address that is listened on.
func (v *server) handler(addr net.Addr) http.Handler {
	o := v.api
	o.PublicURL = v.publicURL(addr)
	return healthBeside(httpapi.New(v.services(), &o))
}

// publicURL is what clients reach the server by: as it was said, or where it listens. A
// server that listens everywhere is where the client found it.
func (v *server) publicURL(addr net.Addr) string {
	if v.settings.publicURL != "" {
		return v.settings.publicURL
	}
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return ""
	}
	return "http://" + addr.String()
}

// services are what is served.
func (v *server) services() httpapi.Services {
	return httpapi.Services{
		Pods: v.pods, Registries: v.registries, Jobs: v.jobs,
		Volumes: v.volumes, Templates: v.templates, SSHKeys: v.sshKeys, Billing: v.billing,
	}
}

// healthBeside adds /healthz, which takes no key. A mux with both would redirect paths
// that are not clean, where api says that they do not exist.
func healthBeside(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			say(w, "ok")
			return
		}
		api.ServeHTTP(w, r)
	})
}

// close ends what open began, last first.
func (v *server) close(ctx context.Context) error {
	var errs []error
	for _, closer := range slices.Backward(v.closers) {
		errs = append(errs, closer(ctx))
	}
	v.closers = nil
	return errors.Join(errs...)
}

// serve listens until ctx ends, and then lets what is in flight end.
func (v *server) serve(ctx context.Context, stdout io.Writer) error {
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	pull, stopPull := context.WithCancel(work) // taking jobs ends before the services do
	defer stopPull()
	hold, letGo := context.WithCancel(work) // requests that are held answer with what there is
	defer letGo()

	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", v.settings.addr)
	if err != nil {
		return errors.Join(err, v.close(work), v.closeStores())
	}
	v.serving = true
	var services, workers sync.WaitGroup
	services.Go(func() { v.report("pods", v.pods.Run(work)) })
	services.Go(func() { v.report("jobs", v.jobs.Run(work)) })
	services.Go(func() { v.report("store", v.stores.run(work)) })
	workers.Go(func() {
		v.report(echoEndpoint, v.jobs.Serve(pull, echoEndpoint, serverless.WorkerFunc(echo), &serverless.ServeOptions{ID: echoWorker, Concurrency: 1024, Drain: drainTime}))
	})

	doors := []*door{v.door(hold, v.handler(l.Addr()), l)}
	if l := v.listenInside(ctx, l.Addr()); l != nil {
		doors = append(doors, v.door(hold, httpapi.NewWorkers(v.jobs, &v.api), l))
	}
	served := make(chan error, len(doors))
	for _, d := range doors {
		go func() { served <- d.serve() }()
	}
	v.workers.set(l.Addr())
	v.greet(stdout, l.Addr())

	select {
	case err = <-served:
	case <-ctx.Done():
		v.log.Info("stopping")
	}
	drain, cancel := context.WithTimeout(work, drainTime)
	defer cancel()
	end, cancel := context.WithTimeout(work, drainTime+podsTime)
	defer cancel()
	for _, d := range doors {
		d.closed.Store(true)
	}
	v.workers.clear()
	stopPull()
	workers.Wait()
	v.finish(drain)
	// While their service still looks: it sees how pods ended, and who follows their logs reads it.
	err = errors.Join(err, v.close(end))
	letGo() // nobody is left who could do what they are held for
	v.shut(work, doors)
	stopWork()
	services.Wait()
	return errors.Join(err, v.closeStores())
}

// closeStores comes last: services write to the end.
func (v *server) closeStores() error {
	if v.stores == nil {
		return nil
	}
	return v.stores.close()
}

// A door is a listener and what is behind it.
type door struct {
	gate
	l   net.Listener
	srv *http.Server
}

// door makes one, whose requests end with hold.
func (v *server) door(hold context.Context, behind http.Handler, l net.Listener) *door {
	d := &door{gate: gate{next: behind}, l: l}
	d.srv = &http.Server{
		Handler: &d.gate, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return hold },
		ErrorLog:    slog.NewLogLogger(v.log.Handler(), slog.LevelWarn),
	}
	return d
}

func (d *door) serve() error { return d.srv.Serve(d.l) }

// shut stops listening and returns when every request was answered, or has to be given up.
func (v *server) shut(ctx context.Context, doors []*door) {
	ctx, cancel := context.WithTimeout(ctx, shutTime)
	defer cancel()
	var work sync.WaitGroup
	for _, d := range doors {
		work.Go(func() {
			if err := d.srv.Shutdown(ctx); err != nil {
				v.log.Warn("requests were cut off", "err", err, "close", d.srv.Close())
			}
		})
	}
	work.Wait()
}

func (v *server) report(what string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		v.log.Error("service ended", "service", what, "err", err)
	}
}

// greet prints the start line, the key when somebody may want to see it, and what to try.
func (v *server) greet(w io.Writer, addr net.Addr) {
	url := v.settings.publicURL
	if url == "" {
		url = "http://" + addr.String()
	}
	say(w, "listening on http://"+addr.String())
	if v.settings.data == "" {
		v.log.Info("-data \"\": jobs and pods end with this process")
	}
	if !v.newKey && !isTerminal(w) {
		return
	}
	say(w, "key: "+v.key)
	curl := "curl -H 'Authorization: Bearer " + v.key + "' "
	say(w, curl+`-d '{"input":{"hello":"world"}}' `+url+"/v2/echo/runsync")
	say(w, curl+`-H 'Content-Type: application/json' -d '{"name":"web","image":"podyard/web","cpu":{"id":"`+v.flavor()+`","vcpuCount":2},"ports":["8000/http"]}' `+url+"/v2/pods")
}

// flavor is a CPU flavor to try.
func (v *server) flavor() string { return v.pods.Catalog().CPUs[0].ID }

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	fi, err := f.Stat()
	return err == nil && fi.Mode()&os.ModeCharDevice != 0
}
