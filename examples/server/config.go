package main

import (
	"encoding/base64"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/podyard/podyard/httpapi"
)

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

func (s *settings) load() (err error) {
	s.Catalog, s.ServiceDomain = "host", "podyard"
	if s.configFile == "" {
		return nil
	}
	if s.source, err = os.ReadFile(s.configFile); err != nil {
		return err
	}
	return explain(json.Unmarshal(s.source, &s.config, json.RejectUnknownMembers(true)))
}

// fields are those that the file has, in the order of their names.
func (s *settings) fields() []string {
	var members map[string]jsontext.Value
	if json.Unmarshal(s.source, &members) != nil { // there is no file
		return nil
	}
	return slices.Sorted(maps.Keys(members))
}

func (c *config) validate() error {
	switch c.Catalog {
	case "host", "sample":
	default:
		return wrongAt("/catalog", "must be host or sample, not %q", c.Catalog)
	}
	if err := c.checkKeys(); err != nil {
		return err
	}
	if _, err := c.endpoints(); err != nil {
		return err
	}
	for _, n := range []struct {
		at    jsontext.Pointer
		value int
	}{
		{"/quotas/minute", c.Quotas.Minute}, {"/quotas/hour", c.Quotas.Hour}, {"/quotas/day", c.Quotas.Day},
		{"/limits/perWorkerRate", c.Limits.PerWorkerRate},
	} {
		if n.value < 0 {
			return wrongAt(n.at, "must not be negative")
		}
	}
	if c.SecretKey != "" {
		if b, err := base64.StdEncoding.DecodeString(c.SecretKey); err != nil || len(b) != 32 {
			return wrongAt("/secretKey", "must be the base64 of 32 bytes")
		}
	}
	if !isDomain(c.ServiceDomain) {
		return wrongAt("/serviceDomain", "must be labels of letters, digits and '-' with dots between, not %q", c.ServiceDomain)
	}
	return c.checkImages()
}

func (c *config) checkKeys() error {
	_, err := httpapi.NewKeys(c.keys(), time.Now)
	wrong := (*httpapi.KeyError)(nil)
	if !errors.As(err, &wrong) {
		return err
	}
	field := map[string]string{"Secret": "key", "User": "user", "Scopes": "scopes"}[wrong.Field]
	return wrongAt(at("/keys", wrong.Index).AppendToken(field), "%w", wrong.Err)
}

func (c *config) checkImages() error {
	for _, name := range slices.Sorted(maps.Keys(c.Images)) {
		img, place := c.Images[name], jsontext.Pointer("/images").AppendToken(name)
		if name == webImage || name == helloImage {
			return wrongAt(place, "is this program's own, choose another name")
		}
		if len(img.Command) == 0 {
			return wrongAt(place, "command is missing")
		}
		if img.Dir != "" && !filepath.IsAbs(img.Dir) {
			return wrongAt(place.AppendToken("dir"), "must be absolute, not %q", img.Dir)
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
