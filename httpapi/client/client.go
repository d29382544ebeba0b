package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/podyard/podyard/internal/secret"
)

// A Secret is a text that no log and no error shows.
type Secret = secret.Text

// Options configure a Client. URL is required.
type Options struct {
	// URL is where the interface is served, without the path that begins with /v2:
	// "https://pods.example.com".
	URL string
	// JobsURL is where the jobs API is, and LegacyURL where version 1 is, if they have other
	// hosts, as the hosted service does. Default: URL.
	JobsURL, LegacyURL string
	// Key is sent as a bearer token. Without a key, only OpenAPI succeeds.
	Key Secret
	// Additions says that the server is podyard: requests then use idempotency keys and
	// pages. The hosted service has neither.
	Additions bool
	// UserAgent is sent in the header User-Agent. Default "podyard-client". One that begins
	// with "runpod-" changes the form of streams, which this package reads, too.
	UserAgent string
	// HTTP makes the requests. Its Timeout must be 0, because some answers take as long as a
	// job. Default: a client with a transport of its own.
	HTTP *http.Client
	// Retry says how requests are repeated. Default: the zero value, with its defaults.
	Retry Retry
}

// A Client makes requests with one key. It is safe for concurrent use.
type Client struct {
	Pods       *Pods
	Clusters   *Clusters
	Endpoints  *Endpoints
	Volumes    *Volumes
	Templates  *Templates
	Registries *Registries
	Catalog    *Catalog
	Billing    *Billing
	Account    *Account
	Admin      *Admin // an addition

	control, jobs, legacy *url.URL
	authorize             func(http.Header) // keeps the key where no print finds it
	additions             bool
	agent                 string
	http                  *http.Client
	retry                 Retry
	owner                 string // parameter owner of lists; empty: none
}

// New returns a Client. It makes no request. An error says which option is wrong.
func New(o *Options) (*Client, error) {
	if o == nil || o.URL == "" {
		return nil, errors.New("client: URL is missing")
	}
	if !isVisible(string(o.Key)) {
		return nil, errors.New("client: Key has characters that are not visible ASCII")
	}
	c := &Client{authorize: bearer(o.Key), additions: o.Additions, agent: o.UserAgent, http: o.HTTP, retry: o.Retry.withDefaults()}
	for _, u := range []struct {
		name, text string
		to         **url.URL
	}{{"URL", o.URL, &c.control}, {"JobsURL", o.JobsURL, &c.jobs}, {"LegacyURL", o.LegacyURL, &c.legacy}} {
		if u.text == "" {
			u.text = o.URL
		}
		parsed, err := url.Parse(strings.TrimRight(u.text, "/"))
		if err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.RawQuery != "" {
			return nil, fmt.Errorf("client: %s must be an absolute http or https URL", u.name)
		}
		*u.to = parsed
	}
	if c.agent == "" {
		c.agent = "podyard-client"
	}
	if c.http == nil {
		t := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one, and nobody replaces it before a client is made
		t.MaxResponseHeaderBytes = 64 << 10
		c.http = &http.Client{Transport: t}
	}
	c.groups()
	return c, nil
}

// bearer returns a function that adds a key to a request.
func bearer(key Secret) func(http.Header) {
	return func(h http.Header) {
		if key != "" {
			h.Set("Authorization", "Bearer "+string(key))
		}
	}
}

// groups makes the groups of operations, which refer to c.
func (c *Client) groups() {
	c.Clusters = &Clusters{c}
	c.Pods, c.Endpoints, c.Volumes, c.Templates = &Pods{c}, &Endpoints{c}, &Volumes{c}, &Templates{c}
	c.Registries, c.Catalog, c.Billing, c.Account, c.Admin = &Registries{c}, &Catalog{c}, &Billing{c}, &Account{c}, &Admin{c}
}

// As returns a Client whose lists, bills and purges are about the records of a user, or of all
// users if owner is "*". It is an addition, for keys with the scope operator
// (docs/decisions.md 35). The records then have their Owner.
func (c *Client) As(owner string) *Client {
	other := *c
	other.owner = owner
	other.groups()
	return &other
}
