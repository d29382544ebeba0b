package config

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// live is what requests and webhooks go by. A reload replaces it as a whole.
type live struct {
	current atomic.Pointer[inForce]
}

type inForce struct {
	auth   *httpapi.Keys
	sender serverless.Sender
	cert   *tls.Certificate // nil: no TLS
}

var (
	_ httpapi.Authenticator = (*live)(nil)
	_ httpapi.Permitter     = (*live)(nil)
	_ httpapi.Finder        = (*live)(nil)
	_ accounts.Fixed        = (*live)(nil)
	_ serverless.Sender     = (*live)(nil)
)

// Authenticate implements httpapi.Authenticator.
func (l *live) Authenticate(ctx context.Context, key string) (httpapi.Identity, error) {
	return l.current.Load().auth.Authenticate(ctx, key)
}

// Permits implements httpapi.Permitter.
func (l *live) Permits(ctx context.Context, user string, p httpapi.Permission) (bool, error) {
	return l.current.Load().auth.Permits(ctx, user, p)
}

// Find implements httpapi.Finder.
func (l *live) Find(ctx context.Context, name string) (httpapi.Identity, error) {
	return l.current.Load().auth.Find(ctx, name)
}

// HasOperator implements accounts.Fixed.
func (l *live) HasOperator(at time.Time) bool { return l.current.Load().auth.HasOperator(at) }

// Send implements serverless.Sender.
func (l *live) Send(ctx context.Context, d *queue.Delivery) (status int, err error) {
	return l.current.Load().sender.Send(ctx, d)
}

// newInForce makes what c says.
func (p *Parts) newInForce(c *Config) (*inForce, error) {
	auth, err := c.authenticator(p.own, p.admin)
	if err != nil {
		return nil, err
	}
	sender, err := c.sender(p.own)
	if err != nil {
		return nil, err
	}
	cert, err := p.own.certificate()
	return &inForce{auth, sender, cert}, err
}

// Reload reads the configuration file again and puts it into force: keys, images, processes,
// endpoints, quotas, limits, budgets and webhook. The report names other fields that have changed; they
// need a restart. The certificate is read again, too, also without a configuration file.
// Server must have been called.
//
// The report warns of a user whose key was taken out and who has keys that were made over the
// API: these still work.
//
// An error of kind problem.Invalid names the place in the file; then nothing was changed. After
// another error some endpoints may have their old settings; a repetition finishes the rest.
//
// A removed endpoint is deleted: its jobs are cancelled, as when a user deletes one. Processes
// that run go on with the old settings; the next start of a pod has the new ones.
func (p *Parts) Reload(ctx context.Context) (*httpapi.ReloadReport, error) {
	select {
	case p.reloading <- struct{}{}:
		defer func() { <-p.reloading }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	next, err := p.config.readAgain()
	if err != nil {
		return nil, invalid(err)
	}
	r := p.config.compare(next)
	apply, err := p.prepare(ctx, next)
	if err != nil {
		return nil, invalid(next.blame(err))
	}
	out, err := p.keysTakenOut(ctx, p.config, next)
	if err != nil {
		return nil, err
	}
	apply()
	trust, err := p.keysWithTrust(context.WithoutCancel(ctx))
	r.Warnings = slices.Concat(out, trust)
	p.warn(r.Warnings)
	p.config = next
	p.warnOfKeys()
	p.warnOfImages()
	return r, errors.Join(err, p.redeclare(context.WithoutCancel(ctx), &r.Endpoints))
}

// readAgain reads the file of c; without one it is c.
func (c *Config) readAgain() (*Config, error) {
	if c.file == "" {
		return c, nil
	}
	next, err := Read(c.file)
	if err != nil {
		return nil, err
	}
	if err := next.UseSecretKey(c.givenKey); err != nil {
		return nil, next.located(errorAt("/secretKey", "is not the key that the program was given: leave it out, or restart"))
	}
	return next, nil
}

// blame names the file, unless the fault is that of the certificate.
func (c *Config) blame(err error) error {
	var o *OptionError
	if errors.As(err, &o) && (o.Option == "TLSCert" || o.Option == "TLSKey") {
		return err
	}
	return c.located(err)
}

// invalid is err for whoever asked for a reload, unless a store could not answer.
func invalid(err error) error {
	if problem.KindOf(err) == problem.Unavailable {
		return err
	}
	return problem.Newf(problem.Invalid, "%w", err)
}

// compare lists what differs in next, and gives next the present values of the fields that
// need a restart.
func (c *Config) compare(next *Config) *httpapi.ReloadReport {
	r := &httpapi.ReloadReport{}
	before, after := reflect.ValueOf(c).Elem(), reflect.ValueOf(next).Elem()
	for i := range after.NumField() {
		tag := after.Type().Field(i).Tag
		name := tag.Get("json")
		if name == "" || reflect.DeepEqual(before.Field(i).Interface(), after.Field(i).Interface()) {
			continue
		}
		if tag.Get("reload") == "live" {
			r.Changed = append(r.Changed, name)
			continue
		}
		r.Restart = append(r.Restart, name)
		after.Field(i).Set(before.Field(i))
	}
	slices.Sort(r.Changed)
	slices.Sort(r.Restart)
	return r
}

// prepare checks all of next and returns a function that puts into force what is in memory.
func (p *Parts) prepare(ctx context.Context, next *Config) (apply func(), err error) {
	for _, check := range []func(*Options) error{next.checkOwn, next.checkLaunch} {
		if err := check(p.own); err != nil {
			return nil, err
		}
	}
	f, err := p.newInForce(next)
	if err != nil {
		return nil, err
	}
	for _, e := range next.shared {
		if err := e.check(ctx, p.jobs); err != nil {
			return nil, err
		}
	}
	images := p.imagesOf(next)
	processes, err := p.processes.Reconfigure(images, p.isolation(next, p.processDir))
	if err != nil {
		return nil, fmt.Errorf("images, processes: %w", err)
	}
	return func() {
		p.live.current.Store(f)
		p.addImages(images)
		processes()
		p.quotas.SetQuotas(ratelimit.Quotas(next.Quotas))
		p.rates.SetPerWorker(next.Limits.PerWorkerRate)
		p.budgets.Replace(next.users())
	}, nil
}

// redeclare has the store's endpoints be those of the configuration, and goes on after an
// error.
func (p *Parts) redeclare(ctx context.Context, r *httpapi.ReloadedEndpoints) error {
	var errs []error
	gone := maps.Clone(p.declared)
	for _, e := range p.config.shared {
		old, known := gone[e.id]
		delete(gone, e.id)
		if known && old.bare == e.bare && reflect.DeepEqual(old.request, e.request) {
			continue
		}
		if err := e.declare(ctx, p.jobs); err != nil {
			errs = append(errs, p.config.located(err))
			continue
		}
		p.declared[e.id] = e
		if known {
			r.Changed = append(r.Changed, e.id)
		} else {
			r.Added = append(r.Added, e.id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(gone)) {
		if err := p.jobs.UndeclareEndpoint(ctx, id); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(p.declared, id)
		r.Removed = append(r.Removed, id)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("config: reload: %w", err)
	}
	return nil
}

// declare has the endpoints of the configuration be there.
func (p *Parts) declare(ctx context.Context, jobs *serverless.Service) error {
	p.jobs, p.declared = jobs, map[string]sharedEndpoint{}
	for _, e := range p.config.shared {
		if err := e.declare(ctx, jobs); err != nil {
			return p.config.located(err)
		}
		p.declared[e.id] = e
	}
	return nil
}

// ReloadOn reloads at each signal until ctx ends, and logs what came of it.
func (p *Parts) ReloadOn(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
		r, err := p.Reload(ctx)
		if err != nil {
			p.log.ErrorContext(ctx, "configuration not reloaded", "err", err)
			continue
		}
		p.log.InfoContext(ctx, "configuration reloaded", "settings", strings.Join(r.Changed, ", "))
		if len(r.Restart) > 0 {
			p.log.WarnContext(ctx, "settings that need a restart have changed", "settings", strings.Join(r.Restart, ", "))
		}
	}
}
