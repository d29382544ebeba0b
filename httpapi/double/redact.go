package double

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/podyard/podyard/httpapi"
)

const redacted = "[redacted]"

// redactHeader copies h without credentials.
func redactHeader(h http.Header) http.Header {
	c := h.Clone()
	for _, name := range [...]string{"Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie", "X-Api-Key"} {
		if c.Get(name) != "" {
			c.Set(name, redacted)
		}
	}
	return c
}

// redactURL removes user, password and the values of the query, because receivers use these as
// secrets.
func redactURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return redacted
	}
	if u.User != nil {
		u.User = url.User(redacted)
	}
	if u.RawQuery != "" {
		var parts []string
		for part := range strings.SplitSeq(u.RawQuery, "&") {
			name, _, valued := strings.Cut(part, "=")
			if valued {
				name += "=" + redacted
			} else {
				name = redacted // a value without a name
			}
			parts = append(parts, name)
		}
		u.RawQuery = strings.Join(parts, "&")
	}
	// Brackets need no escapes here; people read this.
	return strings.NewReplacer("%5Bredacted%5D", redacted).Replace(u.String())
}

// secrets are the members of bodies that the journal does not show, by name in lower case, with
// a function that returns what is shown instead.
type secrets map[string]func(v any) any

func hidden(any) any { return redacted }

// hiddenValues keeps the names of a map and hides the values.
func hiddenValues(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return redacted
	}
	for k := range m {
		m[k] = redacted
	}
	return m
}

func hiddenElements(v any) any {
	list, ok := v.([]any)
	if !ok {
		return redacted
	}
	for i := range list {
		list[i] = redacted
	}
	return list
}

func hiddenURL(v any) any {
	text, ok := v.(string)
	if !ok {
		return redacted
	}
	return redactURL(text)
}

var (
	secretsOfContainers = secrets{"env": hiddenValues}
	secretsOfReleases   = secrets{"env": hiddenValues, "diff": hiddenChanges}
	secretsOfRegistries = secrets{"password": hidden}
	secretsOfSecrets    = secrets{"value": hidden}
	secretsOfAccounts   = secrets{"keys": hiddenElements}
	secretsOfKeys       = secrets{"key": hidden}
	secretsOfJobs       = secrets{"s3config": hidden, "webhook": hiddenURL}
)

// hiddenChanges hides what a release has changed of the environment.
func hiddenChanges(v any) any {
	list, _ := v.([]any)
	for _, e := range list {
		change, ok := e.(map[string]any)
		if !ok || change["field"] != "env" {
			continue
		}
		for _, k := range [...]string{"old", "new"} {
			if change[k] != nil {
				change[k] = hiddenValues(change[k])
			}
		}
	}
	return v
}

// secretsOf returns the secrets in a request and its answer: credentials of registries, the
// environment of containers, keys, and the parts of a job that only a worker or a receiver may
// see.
func (x *exchange) secretsOf() secrets {
	switch name := x.name(); {
	case x.op == nil, x.follows():
		return nil
	case name == "listEndpointReleases":
		return secretsOfReleases
	case name == "run", name == "runSync", name == "jobTake", name == "jobTakeBatch":
		return secretsOfJobs
	}
	switch x.area() {
	case httpapi.AreaPods, httpapi.AreaTemplates, httpapi.AreaEndpoints:
		return secretsOfContainers
	case httpapi.AreaRegistries:
		return secretsOfRegistries
	case httpapi.AreaSecrets:
		return secretsOfSecrets
	case httpapi.AreaKeys:
		return secretsOfKeys
	case httpapi.AreaSchedules, httpapi.AreaBatches:
		return secretsOfJobs
	case httpapi.AreaSSHKeys:
		return secretsOfAccounts
	}
	return nil
}

// redact returns a body as the journal keeps it.
func (x *exchange) redact(b []byte, whole bool) string {
	names := x.secretsOf()
	if len(names) == 0 || len(b) == 0 {
		return string(b)
	}
	// A name can be written with escapes, and come twice.
	suspect := !whole || bytes.ContainsRune(b, '\\')
	for n := range names {
		suspect = suspect || bytes.Contains(bytes.ToLower(b), []byte(n))
	}
	switch v, err := decodeAny(b); {
	case !suspect:
		return string(b)
	case err != nil || !json.Valid(b):
		return redacted // its secrets cannot be found
	default:
		return encode(names.redact(v))
	}
}

// encode writes what was decoded.
func encode(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return redacted
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// redact goes through a value. Of a job it leaves input and output alone: they are what
// tests ask about.
func (s secrets) redact(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, member := range v {
			// Decoders may accept any letter case for a field.
			switch name := strings.ToLower(k); {
			case member == nil, name == "input", name == "output":
			case s[name] != nil:
				v[k] = s[name](member)
			default:
				v[k] = s.redact(member)
			}
		}
	case []any:
		for i := range v {
			v[i] = s.redact(v[i])
		}
	}
	return v
}
