package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/examples/server/testdouble"
	"github.com/podyard/podyard/httpapi/server/config"
)

// settings are the command line, the environment and the configuration file together.
type settings struct {
	addr, publicURL, data, configFile, runtime string
	backup, restore, test                      string
	tlsCert, tlsKey, logForm                   string
	logLevel                                   slog.Level
	drainWait                                  time.Duration
	check, repair, rotate, version             bool
	apiKey                                     string
	given                                      map[string]bool // flags, or what stands in for them
	config                                     *config.Config
}

// parse reads flags, for which the environment stands in, and the file they name. Help
// goes to w.
func parse(args []string, env func(string) string, w io.Writer) (*settings, error) {
	or := func(name, def string) string {
		if v := env(name); v != "" {
			return v
		}
		return def
	}
	s := &settings{apiKey: env("PODYARD_API_KEY")}
	f := flag.NewFlagSet(args[0], flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&s.addr, "addr", or("PODYARD_ADDR", "127.0.0.1:8080"), "listen `address`; port 0 picks a free one")
	f.StringVar(&s.publicURL, "public-url", "", "`URL` that goes into requestUrls (default: the listen address)")
	f.StringVar(&s.data, "data", or("PODYARD_DATA", "./podyard-data"), "`directory` of the durable store; -data \"\" keeps everything in memory")
	f.StringVar(&s.configFile, "config", env("PODYARD_CONFIG"), "configuration `file` (JSON)")
	f.StringVar(&s.runtime, "runtime", or("PODYARD_RUNTIME", "auto"), "what runs pods: process, docker, sim (in name only), or auto: docker where an engine answers, else process")
	f.StringVar(&s.backup, "backup", "", "copy the store to this new `directory`, for -data with the same secret-key, and exit; also while a server runs")
	f.StringVar(&s.restore, "restore", "", "make the store from the copy in this `directory` and exit")
	f.BoolVar(&s.check, "check", false, "verify the store and exit: with 1 when something is lost")
	f.BoolVar(&s.rotate, "rotate-secret-key", false, "seal the secrets of the store with another key, in place of secret-key, and exit")
	f.BoolVar(&s.repair, "repair", false, "drop what cannot be read of the store, name it, and exit")
	f.DurationVar(&s.drainWait, "drain-wait", 0, "after SIGTERM: how `long` /readyz says 503 before the listener closes")
	f.StringVar(&s.tlsCert, "tls-cert", "", "serve TLS with the certificate of this `file` (PEM)")
	f.StringVar(&s.tlsKey, "tls-key", "", "`file` of the certificate's key (PEM)")
	f.StringVar(&s.logForm, "log", "text", "`form` of the log: json or text")
	f.TextVar(&s.logLevel, "log-level", slog.LevelInfo, "least `level` that is logged: debug, info, warn or error")
	f.StringVar(&s.test, "test", "", "be the test double at -addr, in memory, with its admin area on this loopback `address`")
	f.BoolVar(&s.version, "version", false, "print the version and exit")
	err := f.Parse(args[1:])
	if errors.Is(err, flag.ErrHelp) {
		printLine(w, "Usage: server [flags]")
		f.SetOutput(w)
		f.PrintDefaults()
		printLine(w, "PODYARD_API_KEY sets a key with full access. PODYARD_ADDR, PODYARD_DATA, PODYARD_CONFIG\nand PODYARD_RUNTIME stand in for the flags.")
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: see -help", err)
	}
	s.given = map[string]bool{"data": env("PODYARD_DATA") != "", "runtime": env("PODYARD_RUNTIME") != ""}
	f.Visit(func(set *flag.Flag) { s.given[set.Name] = true })
	for name, dir := range map[string]string{"backup": s.backup, "restore": s.restore} {
		if s.given[name] && dir == "" {
			return nil, fmt.Errorf("-%s: names no directory", name)
		}
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: see -help", f.Arg(0))
	}
	if s.config, err = config.Read(s.configFile); err != nil {
		return nil, byFlag(err)
	}
	return s, s.validate()
}

// maintains reports whether the program looks after the store and exits.
func (s *settings) maintains() bool {
	return s.check || s.repair || s.rotate || s.backup != "" || s.restore != ""
}

// validate refuses what is wrong and, by name, what this server does not offer.
func (s *settings) validate() error {
	if err := config.CheckRuntime(s.runtime); err != nil {
		return fmt.Errorf("-runtime %q: %w", s.runtime, err)
	}
	switch {
	case s.logForm != "text" && s.logForm != "json":
		return fmt.Errorf("-log %q: must be json or text", s.logForm)
	case s.given["tls-cert"] && s.tlsCert == "", s.given["tls-key"] && s.tlsKey == "":
		return errors.New("-tls-cert, -tls-key: must name a file: without the flags there is no TLS")
	case s.drainWait < 0:
		return fmt.Errorf("-drain-wait %v: must not be negative", s.drainWait)
	case s.data == "" && s.maintains():
		return errors.New("-backup, -check, -repair, -restore: with -data \"\" there is no store")
	case s.test != "" && s.maintains():
		return errors.New("-test: the test double has no store for -backup, -check, -repair and -restore")
	case s.test != "" && !isLoopback(s.test):
		return fmt.Errorf("-test %q: must be HOST:PORT on loopback: the area asks for no key", s.test)
	}
	if s.publicURL != "" {
		u, err := url.Parse(s.publicURL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf("-public-url %q: must be an absolute http or https URL", s.publicURL)
		}
		s.publicURL = strings.TrimRight(s.publicURL, "/")
	}
	if err := checkAddr(s.addr); err != nil {
		return fmt.Errorf("-addr %q: %w", s.addr, err)
	}
	if s.apiKey == "" {
		return nil
	}
	return byFlag(s.config.CheckKey(s.apiKey))
}

// logger writes the log as the flags say.
func (s *settings) logger(w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: s.logLevel}
	if s.logForm == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// double are the settings of the test double. Where others can ask, its webhooks go no
// further than its inbox.
func (s *settings) double(log *slog.Logger) *testdouble.Options {
	o := &testdouble.Options{Addr: s.addr, Area: s.test, Key: s.apiKey, Forward: isLoopback(s.addr) && s.publicURL == "", Config: s.config, Logger: log}
	for flag, set := range map[string]bool{
		"-data":       s.given["data"] && s.data != "",
		"-runtime":    s.given["runtime"] && (s.runtime == "process" || s.runtime == "docker"),
		"-public-url": s.publicURL != "", "-tls-cert": s.tlsCert != "", "-tls-key": s.tlsKey != "", "-drain-wait": s.drainWait > 0,
	} {
		if set {
			o.Unused = append(o.Unused, flag)
		}
	}
	slices.Sort(o.Unused)
	return o
}

// checkAddr finds what is wrong with an address before anything is made.
func checkAddr(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return errors.New("must be HOST:PORT")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return errors.New("the port must be 0 to 65535")
	}
	return nil
}

// isLoopback reports whether only this machine reaches a listen address.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || host == "localhost"
}
