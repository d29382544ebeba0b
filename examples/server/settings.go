package main

import (
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

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
	config
}

// A config is the configuration file. Every field has a default, and an unknown one is an
// error.
type config struct {
	Keys          []keyConfig            `json:"keys"`
	Images        map[string]imageConfig `json:"images"`
	Endpoints     []jsontext.Value       `json:"endpoints"`
	Catalog       string                 `json:"catalog"`
	Quotas        quotaConfig            `json:"quotas"`
	Limits        limitConfig            `json:"limits"`
	Webhook       webhookConfig          `json:"webhook"`
	ServiceDomain string                 `json:"serviceDomain"`
	SecretKey     string                 `json:"secretKey"`
}

type keyConfig struct {
	Key     string    `json:"key"`
	User    string    `json:"user"`
	Scopes  []string  `json:"scopes"`
	Expires time.Time `json:"expires"`
	Exempt  bool      `json:"exempt"`
}

type imageConfig struct {
	Command []string          `json:"command"`
	Dir     string            `json:"dir"`
	Env     map[string]string `json:"env"`
}

type quotaConfig struct {
	Minute int `json:"minute"`
	Hour   int `json:"hour"`
	Day    int `json:"day"`
}

type limitConfig struct {
	PerWorkerRate int `json:"perWorkerRate"`
}

type webhookConfig struct {
	Secrets      []string `json:"secrets"`
	AllowPrivate *bool    `json:"allowPrivate"` // default: when the server listens on loopback only
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
	f.Visit(func(set *flag.Flag) {
		if set.Name == "backup" && s.backup == "" {
			err = errors.New("-backup: names no directory")
		}
	})
	if err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: see -help", f.Arg(0))
	}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("-config %s: %w", s.configFile, err)
	}
	return s, s.validate()
}

func (s *settings) load() error {
	s.Catalog, s.ServiceDomain = "host", "podyard"
	if s.configFile == "" {
		return nil
	}
	b, err := os.ReadFile(s.configFile)
	if err != nil {
		return err
	}
	return explain(json.Unmarshal(b, &s.config, json.RejectUnknownMembers(true)))
}

// explain says what is wrong with the file in words of the file.
func explain(err error) error {
	if wrong := (*json.SemanticError)(nil); errors.As(err, &wrong) {
		switch {
		case errors.Is(err, json.ErrUnknownName):
			return fmt.Errorf("unknown field %q", wrong.JSONPointer)
		case wrong.JSONPointer == "":
			return errors.New("must be a JSON object")
		case errors.Is(err, strconv.ErrSyntax):
			return fmt.Errorf("%s: must be an integer", wrong.JSONPointer)
		case errors.As(err, new(*time.ParseError)):
			return fmt.Errorf("%s: must be a time like 2027-01-01T00:00:00Z", wrong.JSONPointer)
		case wrong.Err != nil:
			return fmt.Errorf("%s: %w", wrong.JSONPointer, wrong.Err)
		}
		return fmt.Errorf("%s cannot be a JSON %s", wrong.JSONPointer, kindName(wrong.JSONKind))
	}
	if wrong := (*jsontext.SyntacticError)(nil); errors.As(err, &wrong) {
		return fmt.Errorf("byte %d: %w", wrong.ByteOffset, wrong.Err)
	}
	return err
}

// kindName is what a reader calls a kind of JSON value.
func kindName(k jsontext.Kind) string {
	switch k {
	case '{':
		return "object"
	case '[':
		return "array"
	}
	return k.String()
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
		return fmt.Errorf("-config %s: %w", s.configFile, err)
	}
	return nil
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

func (c *config) validate() error {
	switch c.Catalog {
	case "host", "sample":
	default:
		return fmt.Errorf("catalog %q: must be host or sample", c.Catalog)
	}
	if _, err := httpapi.NewKeys(c.keys(), time.Now); err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	if _, err := c.endpoints(); err != nil {
		return err
	}
	for name, n := range map[string]int{
		"quotas.minute": c.Quotas.Minute, "quotas.hour": c.Quotas.Hour, "quotas.day": c.Quotas.Day,
		"limits.perWorkerRate": c.Limits.PerWorkerRate,
	} {
		if n < 0 {
			return fmt.Errorf("%s: must not be negative", name)
		}
	}
	if c.SecretKey != "" {
		if b, err := base64.StdEncoding.DecodeString(c.SecretKey); err != nil || len(b) != 32 {
			return errors.New("secretKey: must be the base64 of 32 bytes")
		}
	}
	if !isDomain(c.ServiceDomain) {
		return fmt.Errorf("serviceDomain %q: must be labels of letters, digits and '-' with dots between", c.ServiceDomain)
	}
	for name, img := range c.Images {
		if name == webImage || name == helloImage {
			return fmt.Errorf("images: %q: is this program's own, choose another name", name)
		}
		if len(img.Command) == 0 {
			return fmt.Errorf("images: %q: command is missing", name)
		}
		if img.Dir != "" && !filepath.IsAbs(img.Dir) {
			return fmt.Errorf("images: %q: dir %q must be absolute", name, img.Dir)
		}
	}
	return nil
}

// isDomain reports whether s can be the end of the name of a pod.
func isDomain(s string) bool {
	return len(s) <= 200 && regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`).MatchString(s)
}

// keys are those of the configuration, in its order.
func (c *config) keys() []httpapi.Key {
	var keys []httpapi.Key
	for _, k := range c.Keys {
		keys = append(keys, httpapi.Key{Secret: k.Key, User: k.User, Scopes: k.Scopes, Expires: k.Expires, Exempt: k.Exempt})
	}
	return keys
}

// keys are those of the configuration, and then the one with full access.
func (s *settings) keys(admin string) []httpapi.Key {
	return append(s.config.keys(), httpapi.Key{Secret: admin, User: "admin", Scopes: []string{"*"}})
}
