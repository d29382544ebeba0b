package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/serverless"
)

// settings are the command line, the environment and the configuration file together.
type settings struct {
	addr, publicURL, data, configFile, runtime string
	backup, test                               string
	check, version                             bool
	apiKey                                     string
	webhooks                                   serverless.Sender
	given                                      map[string]bool // flags, or what stands in for them
	config
	source []byte // of the configuration
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
	f.StringVar(&s.backup, "backup", "", "copy the store to this new `directory`, for -data with the same secret-key, and exit")
	f.BoolVar(&s.check, "check", false, "verify the store and exit")
	f.StringVar(&s.test, "test", "", "be the test double at -addr, in memory, with its admin area on this loopback `address`")
	f.BoolVar(&s.version, "version", false, "print the version and exit")
	err := f.Parse(args[1:])
	if errors.Is(err, flag.ErrHelp) {
		say(w, "Usage: server [flags]")
		f.SetOutput(w)
		f.PrintDefaults()
		say(w, "PODYARD_API_KEY sets a key with full access. PODYARD_ADDR, PODYARD_DATA, PODYARD_CONFIG\nand PODYARD_RUNTIME stand in for the flags.")
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: see -help", err)
	}
	s.given = map[string]bool{"data": env("PODYARD_DATA") != "", "runtime": env("PODYARD_RUNTIME") != ""}
	f.Visit(func(set *flag.Flag) { s.given[set.Name] = true })
	if s.given["backup"] && s.backup == "" {
		return nil, errors.New("-backup: names no directory")
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: see -help", f.Arg(0))
	}
	if err := s.load(); err != nil {
		return nil, s.inConfig(err)
	}
	return s, s.validate()
}

// validate refuses what is wrong and, by name, what this server does not offer.
func (s *settings) validate() error {
	switch s.runtime {
	case "auto", "process", "docker", "sim":
	default:
		return fmt.Errorf("-runtime %q: must be process, docker, sim or auto", s.runtime)
	}
	switch {
	case s.data == "" && (s.backup != "" || s.check):
		return errors.New("-backup, -check: with -data \"\" there is no store")
	case s.test != "" && (s.backup != "" || s.check):
		return errors.New("-test: the test double has no store for -backup and -check")
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
	err := s.config.validate()
	if err == nil {
		s.webhooks, err = s.sender()
	}
	if err != nil {
		return s.inConfig(err)
	}
	if s.apiKey == "" {
		return nil
	}
	_, err = s.authenticator(s.apiKey)
	return err
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

// authenticator knows the keys of the configuration, and the one with full access.
func (s *settings) authenticator(admin string) (*httpapi.Keys, error) {
	keys, err := httpapi.NewKeys(append(s.keys(), httpapi.Key{Secret: admin, User: "admin", Scopes: []string{"*"}}), time.Now)
	wrong := (*httpapi.KeyError)(nil)
	switch {
	case !errors.As(err, &wrong):
		return keys, err
	case s.apiKey != "":
		return nil, fmt.Errorf("PODYARD_API_KEY: %w", wrong.Err)
	}
	return nil, fmt.Errorf("-data: the file api-key: %w", wrong.Err)
}
