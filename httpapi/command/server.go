package command

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/podyard/podyard/httpapi/client"
)

// defaultData is the data directory of a server without the flag -data.
const defaultData = "./podyard-data"

// A server is how a command finds its server.
type server struct {
	url, key, data, owner, form string
}

// defineServer defines the flags that all remote commands have.
func defineServer(f *flag.FlagSet, env func(string) string) *server {
	s := &server{}
	f.StringVar(&s.url, "url", defaultURL(env), "`URL`: where the server is, as PODYARD_URL")
	f.StringVar(&s.key, "key", "", "the API `key`; better set PODYARD_API_KEY, which other users of this machine do not see")
	f.StringVar(&s.data, "data", cmp.Or(env("PODYARD_DATA"), defaultData), "data `directory` of a server on this machine, which has its key")
	f.StringVar(&s.owner, "owner", "", "for operators: the `user` whose records are meant, or * for all")
	f.StringVar(&s.form, "o", "table", "`form` of the output: table or json")
	return s
}

// defaultURL is that of the environment: of the server itself, or of its listen address.
func defaultURL(env func(string) string) string {
	if u := env("PODYARD_URL"); u != "" {
		return u
	}
	return "http://" + Reachable(cmp.Or(env("PODYARD_ADDR"), "127.0.0.1:8080"))
}

// Reachable is where a client on the same machine reaches a listen address.
func Reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}

// connect makes the client of a call.
func (c *Call) connect() error {
	s := c.server
	if s.form != "table" && s.form != "json" {
		return fmt.Errorf("-o %q: must be table or json", s.form)
	}
	key, err := s.findKey(c.Env)
	if err != nil {
		return err
	}
	c.Client, err = client.New(&client.Options{
		URL: strings.TrimSuffix(strings.TrimRight(s.url, "/"), "/v2"), Key: client.Secret(key), Additions: true,
		UserAgent: c.program.Name, Retry: client.Retry{Max: time.Second},
	})
	if err != nil {
		return errors.New(strings.NewReplacer("client: ", "", "URL must", fmt.Sprintf("-url %q: must", s.url), "Key has", "the key has").Replace(err.Error()))
	}
	if s.owner != "" {
		c.Client = c.Client.As(s.owner)
	}
	return nil
}

// findKey returns the key of the flag, of the environment, or of the data directory.
func (s *server) findKey(env func(string) string) (string, error) {
	if key := cmp.Or(s.key, env("PODYARD_API_KEY")); key != "" {
		return key, nil
	}
	file := filepath.Join(s.data, "api-key")
	b, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("there is no key: set PODYARD_API_KEY, or name the server's data directory with -data (there is no %s)", file)
	case err != nil:
		return "", fmt.Errorf("there is no key in PODYARD_API_KEY, and that of the data directory cannot be read: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
