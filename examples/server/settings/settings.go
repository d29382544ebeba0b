// Package settings reads the command line of the server, its environment and the configuration
// file that they name.
package settings

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/podyard/podyard/examples/server/listen"
	"github.com/podyard/podyard/examples/server/maintenance"
	"github.com/podyard/podyard/examples/server/testdouble"
	"github.com/podyard/podyard/httpapi/server/config"
	"github.com/podyard/podyard/internal/terminal"
)

// Settings are the command line, the environment and the configuration file together.
type Settings struct {
	Addr, PublicURL, Data, ConfigFile, Runtime string
	Database, Local, Name, PeerURL             string // Database is the URL of -data; then Data is Local
	Test                                       string // address of the test double's admin area
	Metrics                                    string // address of metrics; empty: none
	SSH                                        string // address of the SSH front of pods; empty: none
	TLSCert, TLSKey, LogForm                   string
	LogLevel                                   slog.Level
	DrainWait                                  time.Duration
	FirstKey                                   string // how a new key is shown: FirstKeyShown or FirstKeyFile
	Version                                    bool
	Upkeep                                     maintenance.Options
	APIKey, SecretKey                          string
	Given                                      map[string]bool // flags, or what stands in for them
	Config                                     *config.Config

	flags *flag.FlagSet
	names []string // of the flags in the set that are these settings
	env   func(string) string
	byEnv map[string]bool // flags that have their value from the environment
}

// What the lines after the first one show of a new key.
const (
	FirstKeyShown = "key"
	FirstKeyFile  = "file"
)

// acts are the flags that have the program do something else than serve. They have no variable: one
// that was forgotten in an environment would make a repair, or a test double, of a server.
func acts() []string {
	return []string{"backup", "check", "repair", "restore", "rotate-secret-key", "test", "version"}
}

// Variable is the variable of the environment that stands in for a flag: PODYARD_PUBLIC_URL for
// public-url. It is empty for flags that have none.
func Variable(flag string) string {
	if slices.Contains(acts(), flag) {
		return ""
	}
	return "PODYARD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Define defines the flags that are named, or all of them if none is. Where one is absent, Finish
// takes its value from its variable.
func Define(f *flag.FlagSet, env func(string) string, names ...string) *Settings {
	s := &Settings{
		APIKey: env("PODYARD_API_KEY"), SecretKey: env("PODYARD_SECRET_KEY"),
		Given: map[string]bool{}, flags: f, env: env, byEnv: map[string]bool{},
	}
	all := flag.NewFlagSet("", flag.ContinueOnError)
	s.defineAll(all)
	all.VisitAll(func(x *flag.Flag) {
		if len(names) > 0 && !slices.Contains(names, x.Name) {
			return
		}
		usage := x.Usage
		if v := Variable(x.Name); v != "" {
			usage += " [" + v + "]"
		}
		f.Var(x.Value, x.Name, usage)
		s.names = append(s.names, x.Name)
	})
	return s
}

func (s *Settings) defineAll(f *flag.FlagSet) {
	f.StringVar(&s.Addr, "addr", "127.0.0.1:8080", "listen `address`; port 0 picks a free one")
	f.StringVar(&s.PublicURL, "public-url", "", "`URL` that goes into requestUrls (default: the listen address)")
	f.StringVar(&s.Data, "data", "./podyard-data", "`directory` of the durable store; -data \"\" keeps everything in memory; postgres://USER@HOST/DB keeps it in a database")
	f.StringVar(&s.Local, "local", "", "with a database: `directory` of this server's own disks, volumes and logs (default ./podyard-local, with -name ./podyard-local/NAME)")
	f.StringVar(&s.Name, "name", "", "with a database: `name` of this server (default: made once, kept in -local)")
	f.StringVar(&s.PeerURL, "peer-url", "", "with a database: `URL` by which the other servers reach this one (default: the listen address)")
	f.StringVar(&s.ConfigFile, "config", "", "configuration `file` (JSON)")
	f.StringVar(&s.Runtime, "runtime", "auto", "what runs pods: process, docker, sim (in name only), or auto: docker where an engine answers, else process")
	f.StringVar(&s.Upkeep.Backup, "backup", "", "copy the store to this new `directory`, for -data with the same secret-key, and exit; also while a server runs")
	f.StringVar(&s.Upkeep.Restore, "restore", "", "make the store from the copy in this `directory` and exit")
	f.BoolVar(&s.Upkeep.Check, "check", false, "verify the store and exit: with 1 when something is lost")
	f.BoolVar(&s.Upkeep.Rotate, "rotate-secret-key", false, "seal the secrets of the store with another key, in place of secret-key, and exit")
	f.BoolVar(&s.Upkeep.Repair, "repair", false, "drop what cannot be read of the store, name it, and exit")
	f.StringVar(&s.SSH, "ssh", "", "serve SSH into pods on this `address`")
	f.StringVar(&s.Metrics, "metrics", "", "serve /metrics, /healthz, /readyz and /debug/pprof without a key on this `address` too")
	f.Func("drain-wait", "after SIGTERM: how `long` /readyz says 503 before the listener closes, as 5s", s.setDrainWait)
	f.StringVar(&s.TLSCert, "tls-cert", "", "serve TLS with the certificate of this `file` (PEM)")
	f.StringVar(&s.TLSKey, "tls-key", "", "`file` of the certificate's key (PEM)")
	f.StringVar(&s.LogForm, "log", "text", "`form` of the log: json or text")
	f.Func("log-level", "least `level` that is logged: debug, info, warn or error (default info)", s.setLogLevel)
	f.StringVar(&s.FirstKey, "first-key", FirstKeyShown, "`what` the start prints of a new key: key, or file for the file that has it, where a log keeps standard output")
	f.StringVar(&s.Test, "test", "", "be the test double at -addr, in memory, with its admin area on this loopback `address`")
	f.BoolVar(&s.Version, "version", false, "print the version and exit")
}

// standIn takes the values of flags that are absent from the environment.
func (s *Settings) standIn() error {
	for _, name := range s.names {
		variable := Variable(name)
		if variable == "" || s.Given[name] {
			continue
		}
		value := s.env(variable)
		if value == "" {
			continue
		}
		if err := s.flags.Set(name, value); err != nil {
			return fmt.Errorf("%s %q: %w", variable, value, err)
		}
		s.Given[name], s.byEnv[name] = true, true
	}
	return nil
}

// flag is what the value of a flag was given by: "-addr", or "PODYARD_ADDR".
func (s *Settings) flag(name string) string {
	if s.byEnv[name] {
		return Variable(name)
	}
	return "-" + name
}

func (s *Settings) setDrainWait(text string) (err error) {
	if s.DrainWait, err = time.ParseDuration(text); err != nil {
		return errors.New("must be a time with its unit, as 5s or 1m30s")
	}
	return nil
}

func (s *Settings) setLogLevel(text string) error {
	if s.LogLevel.UnmarshalText([]byte(text)) != nil {
		return errors.New("must be debug, info, warn or error")
	}
	return nil
}

// Parse reads the flags and the file they name. Help goes to w.
func Parse(args []string, env func(string) string, w io.Writer) (*Settings, error) {
	f := flag.NewFlagSet(args[0], flag.ContinueOnError)
	f.SetOutput(io.Discard)
	s := Define(f, env)
	err := f.Parse(args[1:])
	if errors.Is(err, flag.ErrHelp) {
		_, _ = fmt.Fprintln(w, "Usage: server [flags]")
		f.SetOutput(w)
		f.PrintDefaults()
		_, _ = fmt.Fprintln(w, "A variable of the environment in brackets stands in for its flag. PODYARD_API_KEY sets a key\nwith full access, PODYARD_SECRET_KEY the secretKey of the configuration. The command help\nlists commands.")
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: see -help", err)
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: see -help", f.Arg(0))
	}
	f.Visit(func(set *flag.Flag) { s.Given[set.Name] = true })
	return s, s.Finish()
}

// Finish takes from the environment what the flags leave out, reads the file that they name, and
// refuses what is wrong.
func (s *Settings) Finish() (err error) {
	if err := s.standIn(); err != nil {
		return err
	}
	for name, dir := range map[string]string{"backup": s.Upkeep.Backup, "restore": s.Upkeep.Restore} {
		if s.Given[name] && dir == "" {
			return fmt.Errorf("-%s: names no directory", name)
		}
	}
	if err := s.splitData(); err != nil {
		return err
	}
	if s.Config, err = config.Read(s.ConfigFile); err != nil {
		return s.ByFlag(err)
	}
	if err = s.Config.UseSecretKey(s.SecretKey); err != nil {
		return fmt.Errorf("PODYARD_SECRET_KEY: %w", err)
	}
	return s.validate()
}

// splitData tells a database from a directory. With a database Data is the directory of what
// is this server's own.
func (s *Settings) splitData() error {
	if !config.IsDatabase(s.Data) {
		instead := s.Given["data"] && !s.byEnv["data"] // of the database that the environment may name
		for _, name := range []string{"local", "name", "peer-url"} {
			if s.Given[name] && !(instead && s.byEnv[name]) {
				return fmt.Errorf("%s: is for a database: -data postgres://USER@HOST/DB", s.flag(name))
			}
		}
		s.Local, s.Name, s.PeerURL = "", "", ""
		return nil
	}
	if err := config.CheckName(s.Name); err != nil {
		return fmt.Errorf("%s %q: %w", s.flag("name"), s.Name, err)
	}
	switch {
	case s.Given["local"] && s.Local == "":
		return errors.New("-local: names no directory")
	case s.Upkeep.Wanted():
		return errors.New("-backup, -check, -repair, -restore, -rotate-secret-key: are for a directory; docs/postgres.md says how a database is copied")
	}
	s.Database, s.Data = s.Data, cmp.Or(s.Local, filepath.Join("podyard-local", s.Name))
	return nil
}

// validate refuses what is wrong and, by name, what this server does not offer.
func (s *Settings) validate() error {
	if err := config.CheckRuntime(s.Runtime); err != nil {
		return fmt.Errorf("%s %q: %w", s.flag("runtime"), s.Runtime, err)
	}
	switch {
	case s.LogForm != "text" && s.LogForm != "json":
		return fmt.Errorf("%s %q: must be json or text", s.flag("log"), s.LogForm)
	case s.FirstKey != FirstKeyShown && s.FirstKey != FirstKeyFile:
		return fmt.Errorf("%s %q: must be key or file", s.flag("first-key"), s.FirstKey)
	case s.FirstKey == FirstKeyFile && s.Data == "" && s.Test == "" && !s.Upkeep.Wanted():
		return fmt.Errorf("%s file: with -data \"\" no file has the key", s.flag("first-key"))
	case s.Given["tls-cert"] && s.TLSCert == "", s.Given["tls-key"] && s.TLSKey == "":
		return errors.New("-tls-cert, -tls-key: must name a file: without the flags there is no TLS")
	case s.DrainWait < 0:
		return fmt.Errorf("%s %v: must not be negative", s.flag("drain-wait"), s.DrainWait)
	case s.Data == "" && s.Upkeep.Wanted():
		return errors.New("-backup, -check, -repair, -restore: with -data \"\" there is no store")
	case s.Test != "" && s.Upkeep.Wanted():
		return errors.New("-test: the test double has no store for -backup, -check, -repair and -restore")
	case s.Test != "" && !listen.IsLoopback(s.Test):
		return fmt.Errorf("-test %q: must be HOST:PORT on loopback: the area asks for no key", s.Test)
	}
	if err := cmp.Or(checkURL(s.flag("public-url"), &s.PublicURL), checkURL(s.flag("peer-url"), &s.PeerURL)); err != nil {
		return err
	}
	if err := listen.CheckAddr(s.Addr); err != nil {
		return fmt.Errorf("%s %q: %w", s.flag("addr"), s.Addr, err)
	}
	if err := listen.CheckAddr(s.Metrics); err != nil && s.Metrics != "" {
		return fmt.Errorf("%s %q: %w", s.flag("metrics"), s.Metrics, err)
	}
	if err := listen.CheckAddr(s.SSH); err != nil && s.SSH != "" {
		return fmt.Errorf("%s %q: %w", s.flag("ssh"), s.SSH, err)
	}
	if s.APIKey == "" {
		return nil
	}
	return s.ByFlag(s.Config.CheckKey(s.APIKey))
}

// checkURL takes the last slash off a URL, unless it is empty.
func checkURL(flag string, text *string) error {
	if *text == "" {
		return nil
	}
	u, err := url.Parse(*text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%s %q: must be an absolute http or https URL", flag, *text)
	}
	if u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return fmt.Errorf("%s %q: must have no user, no query and no fragment: paths are appended to it", flag, u.Redacted())
	}
	*text = strings.TrimRight(*text, "/")
	return nil
}

// NewLogger writes the log as the flags say.
func (s *Settings) NewLogger(w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: s.LogLevel}
	if s.LogForm == "json" {
		return slog.New(slog.NewJSONHandler(terminal.JSON(w), o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// Double are the settings of the test double. Where others can ask, its webhooks go no
// further than its inbox.
func (s *Settings) Double(log *slog.Logger) *testdouble.Options {
	o := &testdouble.Options{Addr: s.Addr, Area: s.Test, Key: s.APIKey, Forward: listen.IsLoopback(s.Addr) && s.PublicURL == "", Config: s.Config, Logger: log}
	for name, set := range map[string]bool{
		"data":       s.Given["data"] && s.Data != "",
		"local":      s.Local != "",
		"name":       s.Name != "",
		"peer-url":   s.PeerURL != "",
		"runtime":    s.Given["runtime"] && (s.Runtime == "process" || s.Runtime == "docker"),
		"public-url": s.PublicURL != "", "tls-cert": s.TLSCert != "", "tls-key": s.TLSKey != "", "drain-wait": s.DrainWait > 0, "metrics": s.Metrics != "", "ssh": s.SSH != "",
	} {
		if set {
			o.Unused = append(o.Unused, s.flag(name))
		}
	}
	slices.Sort(o.Unused)
	return o
}

// ByFlag names what is wrong as the command line does, or the environment.
func (s *Settings) ByFlag(err error) error {
	var file *config.Error
	var option *config.OptionError
	var address *listen.Error
	switch {
	case errors.As(err, &file) && file.File == "":
		return fmt.Errorf("no -config is given: %w", file)
	case errors.As(err, &file):
		return fmt.Errorf("%s %w", s.flag("config"), file)
	case errors.As(err, &address):
		return fmt.Errorf("%s %s: %w", s.flag(address.Flag), address.Addr, address.Err)
	case !errors.As(err, &option):
		return err
	case option.Option == "Data":
		return fmt.Errorf("%s %q: %w", s.flag("data"), option.Value, option.Err)
	case option.Option == "Database":
		return fmt.Errorf("%s: %w", s.flag("data"), option.Err)
	case option.Option == "Runtime":
		return fmt.Errorf("%s %s: %w", s.flag("runtime"), option.Value, option.Err)
	case option.Option == "TLSCert", option.Option == "TLSKey":
		return fmt.Errorf("%s, %s: %w", s.flag("tls-cert"), s.flag("tls-key"), option.Err)
	}
	return fmt.Errorf("PODYARD_API_KEY: %w", option.Err)
}
