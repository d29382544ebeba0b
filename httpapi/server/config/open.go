package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/podyard/podyard/backend/disk"
	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/backend/process"
	"github.com/podyard/podyard/backend/prometheus"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/incidents"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless"
)

// Options has the settings of a server that are not in its configuration file.
type Options struct {
	// Data is the directory in which everything is kept; it is made if need be. Empty:
	// everything is in memory, and pods end with the server.
	Data string
	// Database is the URL of a PostgreSQL database in which everything is kept: see
	// docs/postgres.md. Data then has only what is this server's own, such as the disks of its
	// pods, and Config.SecretKey is needed. Default: none.
	Database string
	// Name is this server's among those that use one database, see CheckName. Default: the one
	// that is kept in Data, or else a new one. Without a database it is not used.
	Name string
	// Runtime is what runs pods: "process"; "docker" for containers; "sim" for pods in name
	// only; "auto" for containers where an engine answers and processes elsewhere. Default
	// "auto". Images of the configuration and of Images are processes in any case, but with
	// "sim" only those of workers.
	Runtime string
	// Addr is where the server listens. Workers are sent there, and those in containers to
	// the gateway of their network instead of a loopback address. Default: no worker is
	// started.
	Addr net.Addr
	// TLSCert and TLSKey are the files of a certificate and its key, in PEM, for Parts.TLS. The
	// program then also needs WorkerAddr, for workers. Default: none.
	TLSCert, TLSKey string
	// SSHAddr is where the program serves a sshfront.Front for Parts.Options.API. Default: there is none.
	SSHAddr net.Addr
	// WorkerAddr is where workers of this machine are sent in place of Addr: a listener
	// without TLS that serves server.Server.Workers. Default: Addr.
	WorkerAddr net.Addr
	// PublicURL is what clients reach the server by. Default: Addr, and for a server that
	// listens everywhere what the client has used.
	PublicURL string
	// PeerURL is where the other servers of Database reach this one: see server.Options.PeerURL.
	// Default: Addr, with the name of the machine for a server that listens everywhere.
	PeerURL string
	// Key is a key with full access, of the user admin. Default: the one that is kept in
	// Data, or else a new one.
	Key string
	// Images are the program's own. The configuration must not name them.
	Images map[string]process.Image
	// Launch is the arguments by which the program's main function knows that it is to call
	// process.LaunchPod. Default: none: processes of pods are not kept apart, and end with the
	// server.
	Launch []string
	// Endpoints are the ids of the program's own endpoints. The configuration must not have
	// them.
	Endpoints []string
	// Workers are the ids of workers in this process: at the next start it is known that
	// they are gone.
	Workers []serverless.WorkerID
	// Version is that of the program, for metrics. Default: the one of its module.
	Version string
	// Logger gets what nobody asked about. Lines below the level of errors come when Parts.Server has
	// made the server, so that what is wrong with a start stands alone. Default: nothing is logged.
	Logger *slog.Logger
}

// CheckRuntime says what is wrong with Options.Runtime.
func CheckRuntime(name string) error {
	switch name {
	case "", "auto", "process", "docker", "sim":
		return nil
	}
	return errors.New("must be process, docker, sim or auto")
}

// An OptionError is an option that cannot be had.
type OptionError struct {
	Option string // the name of a field of Options
	Value  string // what it is; empty for a secret
	Err    error
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("config: %s %q: %v", strings.ToLower(e.Option), e.Value, e.Err)
}

// Unwrap is what is wrong.
func (e *OptionError) Unwrap() error { return e.Err }

// wrong is an OptionError.
func (o *Options) wrong(option string, err error) error {
	value := map[string]string{"Data": o.Data, "Runtime": o.Runtime, "TLSCert": o.TLSCert, "TLSKey": o.TLSKey, "Name": o.Name}[option]
	return &OptionError{option, value, err}
}

// Parts are what a server is made of.
type Parts struct {
	// Options are for server.New. They may be changed before Server is called.
	Options server.Options
	// Key is the key with full access, and NewKey says that it was made just now. With a
	// database Key is empty if another server has made it: the database has only its digest.
	Key    string
	NewKey bool
	// Name is the name of the server; empty without a database.
	Name string
	// ContainerAddr is where workers in containers look for the server, if nobody listens
	// there yet: the program listens there too, and serves server.Server.Workers. The
	// address may come later than the listener (IP_FREEBIND on Linux). It is invalid where
	// there is nothing to do.
	ContainerAddr netip.AddrPort

	config  *Config
	own     *Options
	metrics *prometheus.Metrics
	disk    *disk.Store // nil without a data directory, and with a database
	log     *slog.Logger
	start   *heldLines // of log, until the server is made

	database *postgres.Store // nil without a database
	admin    string          // the key with full access, or its digest
	gpus     gpus
	// podAddress is where ports of pods are published.
	podAddress netip.Addr
	last       []func() error // what closes after everything else, last first

	// What a reload changes.
	live       live
	processes  *process.Runtime
	processDir string
	known      atomic.Pointer[map[string]bool] // the names of all images that there have been
	quotas     *ratelimit.Windows
	rates      *ratelimit.Rates
	budgets    *budget.Set
	jobs       *serverless.Service
	accounts   *accounts.Service         // nil: no keys are made over the API
	declared   map[string]sharedEndpoint // the endpoints of the configuration in the store
	reloading  chan struct{}             // one reload at a time
}

// Open opens the stores, the runtimes and the GPUs of this machine. The caller goes on with
// Parts.Server, or calls Parts.Close. An error is an *Error, an *OptionError, or one of the
// system's; nothing is open then.
func Open(ctx context.Context, c *Config, o *Options) (*Parts, error) {
	h := slog.DiscardHandler
	if o.Logger != nil {
		h = o.Logger.Handler()
	}
	start := hold(h)
	p := &Parts{config: c, own: o, log: slog.New(start), start: start.lines, reloading: make(chan struct{}, 1)}
	p.metrics = prometheus.New(&prometheus.Options{Version: o.Version})
	if err := p.open(ctx); err != nil {
		return nil, errors.Join(err, p.Close(ctx))
	}
	return p, nil
}

func (p *Parts) open(ctx context.Context) error {
	if err := CheckRuntime(p.own.Runtime); err != nil {
		return p.own.wrong("Runtime", err)
	}
	domain, keys, err := p.config.podNames(p.own)
	if err := cmp.Or(p.config.checkOwn(p.own), p.config.checkLaunch(p.own), err); err != nil {
		return p.config.located(err)
	}
	p.findGPUs()
	rt, err := p.openStorage(ctx)
	if err != nil {
		return err
	}
	if err := p.openAudit(); err != nil {
		return err
	}
	o := &p.Options
	o.Logger = p.log
	o.Jobs.Observer, o.Pods.Observer, o.API.Observer = p.metrics.Jobs(), p.metrics.Pods(), p.metrics
	o.Jobs.Outcomes.Unlogged = true // the jobs are those of users, and so are the texts of their errors
	o.Metrics, o.API.Access = p.metrics.Handler(), true
	o.Catalog, o.Hosts = p.hosts(rt)
	o.Pods.Domain, o.KeepBilling = p.config.ServiceDomain, p.config.Billing.keep()
	o.API.PublicURL, o.PeerURL = p.publicURL(), p.peerURL()
	o.API.LoadBalancerDomain = p.config.LoadBalancer.Domain
	o.API.PodDomain, o.API.PodPortKeys = domain, keys
	o.API.PodSSH = p.podSSH()
	p.quotas = ratelimit.NewWindows(ratelimit.Quotas(p.config.Quotas))
	p.rates = ratelimit.NewRates(p.config.Limits.PerWorkerRate)
	o.API.Quotas, o.API.Rates, o.Reload = p.quotas, p.rates, p.Reload
	o.CertificateEnds = p.certificateEnds
	o.Connections = p.config.limiter(o.API.TrustedProxies)
	p.budgets = budget.NewSet(p.config.users())
	o.Budgets = p.budgets
	if addr := p.own.workerAddr(); addr != nil {
		o.Jobs.WorkerURL = func() string { return urlOf(addr) + "/v2" }
		o.Pods.KeyURL = func() string { return urlOf(addr) }
	}
	if p.Key, p.NewKey, err = adminKey(p.own); err != nil {
		return err
	}
	p.admin = p.Key
	if p.database != nil && p.own.Key == "" {
		if err := p.sharedKey(ctx); err != nil {
			return err
		}
	}
	f, err := p.newInForce(p.config)
	if err != nil {
		return err
	}
	p.live.current.Store(f)
	o.API.Auth, o.Jobs.Sender = &p.live, &p.live
	o.Accounts.Trusted = p.trusts
	p.warnOfKeys()
	p.warnOfImages()
	return nil
}

// checkOwn refuses what the program has itself.
func (c *Config) checkOwn(o *Options) error {
	for name := range c.Images {
		if _, own := o.Images[name]; own {
			return errorAt(imageAt(name), "is this program's own, choose another name")
		}
	}
	for _, e := range c.shared {
		if slices.Contains(o.Endpoints, e.id) {
			return errTaken(e)
		}
	}
	return nil
}

// checkLaunch refuses a configuration that the program cannot do.
func (c *Config) checkLaunch(o *Options) error {
	demanded := c.Processes.Isolation == process.ModeRequired || c.Processes.User != ""
	if demanded && len(o.Launch) == 0 {
		return errorAt("/processes", "this program does not keep processes apart")
	}
	if err := process.CheckUser(c.Processes.User); err != nil {
		return errorAt("/processes/user", "%w", err)
	}
	return nil
}

// warnOfKeys tells of keys that are good for nearly nothing.
func (p *Parts) warnOfKeys() {
	for i, k := range p.config.Keys {
		if len(k.Scopes) == 0 {
			p.log.Warn("a key without scopes reads the catalog and the health of endpoints, and nothing else", "key", formatPath(elementAt("/keys", i)), "user", k.User)
		}
	}
}

// warn logs each text.
func (p *Parts) warn(texts []string) {
	for _, text := range texts {
		p.log.Warn(text)
	}
}

// warnOfImages tells of programs of this host that everybody may have do what he chooses.
func (p *Parts) warnOfImages() {
	for _, name := range slices.Sorted(maps.Keys(p.config.Images)) {
		img := p.config.Images[name]
		if slices.Contains(img.Users, "*") && (img.AllowArgs || len(img.AllowEnv) > 0) {
			p.log.Warn("every user may run this program of the host, with what he sets: strangers' code belongs in containers", "image", name)
		}
	}
}

// publicURL is what clients reach the server by. A server that listens everywhere is where
// the client found it.
func (p *Parts) publicURL() string {
	if p.own.PublicURL != "" || p.own.Addr == nil {
		return p.own.PublicURL
	}
	if tcp, ok := p.own.Addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return ""
	}
	if p.own.TLSCert != "" {
		return "https://" + p.own.Addr.String()
	}
	return "http://" + p.own.Addr.String()
}

// podSSH is where clients find the SSH front: by the host of the public URL, or else where it listens. One
// that listens everywhere is at the address of the ports of pods.
func (p *Parts) podSSH() *httpapi.PodSSH {
	tcp, ok := p.own.SSHAddr.(*net.TCPAddr)
	if !ok {
		return nil
	}
	host := tcp.IP.String()
	if tcp.IP.IsUnspecified() {
		host = p.podAddress.String()
	}
	if u, err := url.Parse(p.own.PublicURL); err == nil && u.Hostname() != "" {
		host = u.Hostname()
	}
	return &httpapi.PodSSH{Host: host, Port: tcp.Port}
}

// peerURL is where other servers reach this one.
func (p *Parts) peerURL() string {
	if p.own.PeerURL != "" || p.own.Addr == nil || p.database == nil {
		return p.own.PeerURL
	}
	addr := p.own.Addr.String()
	if tcp, ok := p.own.Addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		name, err := os.Hostname()
		if err != nil {
			return ""
		}
		addr = net.JoinHostPort(name, strconv.Itoa(tcp.Port))
	}
	if p.own.TLSCert != "" {
		return "https://" + addr
	}
	return "http://" + addr
}

// urlOf is where a process on this host reaches a server that listens on addr.
func urlOf(addr net.Addr) string {
	host, port := "127.0.0.1", 0
	if tcp, ok := addr.(*net.TCPAddr); ok {
		port = tcp.Port
		if !tcp.IP.IsUnspecified() {
			host = tcp.IP.String()
			if tcp.Zone != "" { // of a link-local address
				host += "%25" + tcp.Zone
			}
		}
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(port))
}

// Server makes the server and the endpoints of the configuration. From then on the server
// closes everything; after an error all is closed.
func (p *Parts) Server(ctx context.Context) (*server.Server, error) {
	s, err := server.New(ctx, &p.Options)
	if err != nil {
		return nil, errors.Join(err, p.Close(ctx))
	}
	p.accounts = s.Services().Accounts
	p.metrics.SetSources(p.gaugeSources(s))
	warnings, err := p.keysWithTrust(ctx)
	if err == nil {
		err = p.declare(ctx, s.Services().Jobs)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	p.start.release()
	p.warn(warnings)
	return s, nil
}

// gaugeSources returns what the gauges of the metrics are read from.
func (p *Parts) gaugeSources(s *server.Server) prometheus.Sources {
	all := s.Services()
	from := prometheus.Sources{Jobs: all.Jobs, Pods: all.Pods, Ready: p.Options.Stores.Ready}
	if p.disk != nil {
		from.Size, from.Dead, from.Damages = p.disk.Size, p.disk.Dead, p.disk.Damages
	}
	from.Incidents = func() []prometheus.Incident { return incidentLabels(s.Incidents()) }
	return from
}

// JobTimes is JobTimes of the metrics, for console.Options.JobTimes.
func (p *Parts) JobTimes(endpoint string) (ends []int64, waited, ran []uint64) {
	return p.metrics.JobTimes(endpoint)
}

// incidentLabels leaves out what is for users alone, because labels have no users.
func incidentLabels(list []incidents.Incident) (labels []prometheus.Incident) {
	for _, i := range list {
		if i.Severity != incidents.Note {
			labels = append(labels, prometheus.Incident{Cause: string(i.Cause), ID: i.ID, Name: i.Name, Severity: string(i.Severity)})
		}
	}
	return labels
}

// Close closes what Open has opened, for a program that does not come to call Server.
func (p *Parts) Close(ctx context.Context) error {
	var errs []error
	for _, rt := range p.Options.Runtimes {
		errs = append(errs, rt.Close(ctx))
	}
	p.Options.Runtimes = nil
	return errors.Join(append(errs, p.closeLast())...)
}

// closeLast closes what is below everything else.
func (p *Parts) closeLast() error {
	var errs []error
	for _, f := range slices.Backward(p.last) {
		errs = append(errs, f())
	}
	p.last = nil
	return errors.Join(errs...)
}
