package config_test

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/httpapi/server/config"
	"github.com/podyard/podyard/problem"
)

// A site is a server with a configuration file that is written anew.
type site struct {
	t     *testing.T
	file  string
	parts *config.Parts
	srv   *server.Server
}

func newSite(t *testing.T, text string) *site {
	t.Helper()
	return newSealedSite(t, text, "")
}

// newSealedSite is newSite for a program that was given a secret key.
func newSealedSite(t *testing.T, text, secret string) *site {
	t.Helper()
	s := &site{t: t, file: filepath.Join(t.TempDir(), "yard.json")}
	s.write(text)
	c, err := config.Read(s.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.UseSecretKey(secret); err != nil {
		t.Fatal(err)
	}
	s.parts, err = config.Open(t.Context(), c, &config.Options{Data: t.TempDir(), Runtime: "process", Addr: loopback(t), Endpoints: []string{"own"}})
	if err != nil {
		t.Fatal(err)
	}
	if s.srv, err = s.parts.Server(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.srv.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *site) write(text string) {
	s.t.Helper()
	if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) ask(key, method, path, body string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(s.t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+key)
	s.srv.Handler().ServeHTTP(w, r)
	return w
}

func (s *site) want(status int, key, method, path, body string) string {
	s.t.Helper()
	w := s.ask(key, method, path, body)
	if w.Code != status {
		s.t.Errorf("%s %s = %d %s, want %d", method, path, w.Code, w.Body, status)
	}
	return w.Body.String()
}

const beforeReload = `{
	"keys": [{"key":"alices","user":"alice","scopes":["*"]}, {"key":"bobs","user":"bob","scopes":["*"]}],
	"quotas": {"minute": 100},
	"images": {"local/py": {"command": ["true"]}},
	"endpoints": [
		{"id":"kept","image":"local/py","cpu":[{"id":"host","vcpuCount":2}],"workers":{"max":0}},
		{"id":"changed","image":"local/py","cpu":[{"id":"host","vcpuCount":2}],"workers":{"max":0}},
		{"id":"removed","image":"local/py","cpu":[{"id":"host","vcpuCount":2}],"workers":{"max":0}}
	]
}`

func TestAReloadTakesWhatItCanAndNamesTheRest(t *testing.T) {
	t.Parallel()
	s := newSite(t, beforeReload)
	id := strings.Split(s.want(200, "bobs", "POST", "/v2/removed/run", `{"input":{}}`), `"`)[3]
	s.write(`{
		"keys": [{"key":"alices","user":"alice","scopes":["pods:read"]}, {"key":"carols","user":"carol","scopes":["*"]}],
		"quotas": {"minute": 3}, "serviceDomain": "elsewhere",
		"images": {"local/py": {"command": ["false"]}, "local/new": {"command": ["true"]}},
		"endpoints": [
			{"id":"kept","image":"local/py","cpu":[{"id":"host","vcpuCount":2}],"workers":{"max":0}},
			{"id":"changed","image":"local/new","cpu":[{"id":"host","vcpuCount":2}],"workers":{"max":0}},
			{"id":"added","image":"local/new","cpu":[{"id":"host","vcpuCount":2}],"workers":{"max":0}}
		]
	}`)
	got, err := s.parts.Reload(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := &httpapi.ReloadReport{
		Changed: []string{"endpoints", "images", "keys", "quotas"}, Restart: []string{"serviceDomain"},
		Endpoints: httpapi.ReloadedEndpoints{Added: []string{"added"}, Changed: []string{"changed"}, Removed: []string{"removed"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Reload (-want +got):\n%s", diff)
	}
	s.want(401, "bobs", "GET", "/v2/pods", "")
	s.want(403, "alices", "POST", "/v2/registries", `{}`)
	s.want(200, "carols", "GET", "/v2/pods", "")
	s.want(404, "carols", "GET", "/v2/serverless/removed", "")
	s.want(404, "carols", "GET", "/v2/removed/status/"+id, "")
	for endpoint, image := range map[string]string{"kept": "local/py", "changed": "local/new", "added": "local/new"} {
		if body := s.want(200, s.parts.Key, "GET", "/v2/serverless/"+endpoint, ""); !strings.Contains(body, `"image":"`+image+`"`) {
			t.Errorf("the endpoint %s is %s, want the image %s", endpoint, body, image)
		}
	}
	for _, status := range []int{200, 429} { // the third and the fourth request of the user
		s.want(status, "carols", "GET", "/v2/registries", "")
	}
	if again, err := s.parts.Reload(t.Context()); err != nil || len(again.Changed) > 0 || !cmp.Equal(again.Restart, want.Restart) {
		t.Errorf("the second Reload = %+v, %v, want the domain alone", again, err)
	}
}

func TestABadFileChangesNothingAndIsNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t, beforeReload)
	for text, want := range map[string]string{
		`{"keys":[]`:  ":1:11: unexpected EOF",
		`{"keyz":[]}`: ":1:2: keyz: unknown field",
		"{\n\"keys\":[{\"key\":\"k\",\"user\":\"u\",\"scopes\":[\"all\"]}]}": ":2:31: keys[0].scopes: unknown scope",
		`{"images":{"a":{}}}`: ":1:12: images.a: command is missing",
		`{"images":{"a":{"command":["true"],"user":"nobody-of-this-name"}}}`:                        "nobody-of-this-name",
		`{"endpoints":[{"id":"own","image":"x","cpu":[{"id":"host","vcpuCount":2}]}]}`:              ":1:16: endpoints[0].id: \"own\" is there already",
		`{"endpoints":[{"id":"e","image":"x","cpu":[{"id":"cpu9","vcpuCount":2}]}]}`:                "cpu9",
		`{"processes":{"isolation":"required"}}`:                                                    ":1:2: processes: this program does not keep processes apart",
		`{"webhook":{"secrets":["whsec_short"]}}`:                                                   ":1:24: webhook.secrets[0]: must be",
		`{"keys":[{"key":"` + s.parts.Key + `","user":"u"}]}`:                                       "key is there twice",
		`{"quotas":{"minute":1},"limits":{"perWorkerRate":-1},"keys":[{"key":"new","user":"new"}]}`: ":1:34: limits.perWorkerRate: must not be negative",
	} {
		s.write(text)
		body := s.want(422, s.parts.Key, "POST", "/v2/admin/reload", "")
		var doc struct{ Detail string }
		if doc.Detail = detail(t, body); !strings.Contains(doc.Detail, s.file) || !strings.Contains(doc.Detail, want) || strings.Contains(doc.Detail, s.parts.Key) {
			t.Errorf("%s\n got %s\nwant %s%s", text, doc.Detail, s.file, want)
		}
		s.want(200, "bobs", "GET", "/v2/serverless/kept", "")
		s.want(401, "new", "GET", "/v2/pods", "")
	}
	if err := os.Remove(s.file); err != nil {
		t.Fatal(err)
	}
	if _, err := s.parts.Reload(t.Context()); problem.KindOf(err) != problem.Invalid || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Reload of a file that is gone = %v", err)
	}
	s.want(200, "bobs", "GET", "/v2/pods", "")
}

func detail(t *testing.T, body string) string {
	t.Helper()
	_, rest, ok := strings.Cut(body, `"detail":"`)
	if !ok {
		t.Errorf("%s has no detail", body)
	}
	rest, _, _ = strings.Cut(rest, `"}`)
	return strings.ReplaceAll(rest, `\"`, `"`)
}

func TestTheSecretKeyOfTheProgramStaysThroughAReload(t *testing.T) {
	t.Parallel()
	key := strings.Repeat("A", 43) + "="
	s := newSealedSite(t, `{}`, key)
	for _, row := range []struct{ text, want string }{
		{`{"quotas": {"minute": 3}}`, ""},
		{`{"secretKey": "` + key + `"}`, ""},
		{`{"secretKey": "` + strings.Repeat("B", 43) + `="}`, "secretKey: is not the key that the program was given"},
	} {
		s.write(row.text)
		r, err := s.parts.Reload(t.Context())
		switch {
		case row.want == "" && (err != nil || len(r.Restart) > 0):
			t.Errorf("Reload of %s = %+v, %v, want no restart", row.text, r, err)
		case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
			t.Errorf("Reload of %s = %v, want %q", row.text, err, row.want)
		}
	}
}

func TestAReloadIsAnOperators(t *testing.T) {
	t.Parallel()
	s := newSite(t, beforeReload)
	s.want(403, "alices", "POST", "/v2/admin/reload", "")
	if body := s.want(200, s.parts.Key, "POST", "/v2/admin/reload", ""); body != `{"changed":[],"restart":[],"endpoints":{"added":[],"changed":[],"removed":[]},"warnings":[]}` {
		t.Errorf("a reload of the same file = %s", body)
	}
	s.want(200, s.parts.Key, "POST", "/v2/admin/reload", "{}")
	for body, status := range map[string]int{`{"force":true}`: 422, `{} {}`: 400, `{`: 400, `[]`: 422, `{"a":1,"a":1}`: 400} {
		s.want(status, s.parts.Key, "POST", "/v2/admin/reload", body)
	}
}

func TestWithoutAFileAReloadChangesNothing(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Keys = []config.Key{{Key: "alices", User: "alice", Scopes: []string{"*"}}}
	parts, err := config.Open(t.Context(), c, &config.Options{Runtime: "process"})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := parts.Server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, parts: parts, srv: srv}
	if r, err := parts.Reload(t.Context()); err != nil || len(r.Changed)+len(r.Restart) > 0 {
		t.Errorf("Reload = %+v, %v, want nothing", r, err)
	}
	s.want(200, "alices", "GET", "/v2/pods", "")
	if err := srv.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStoredKeysStayThroughAReloadAndTheServersOwnKeyCountsAsAnOperators(t *testing.T) {
	s := newSite(t, beforeReload)
	var made struct{ ID, Key string }
	body := s.want(201, s.parts.Key, "POST", "/v2/account/keys", `{"user":"carol","scopes":["*","operator"]}`)
	if err := json.Unmarshal([]byte(body), &made); err != nil {
		t.Fatal(err)
	}
	s.write(`{}`)
	s.want(200, made.Key, "POST", "/v2/admin/reload", "")
	s.want(401, "alices", "GET", "/v2/pods", "")
	s.want(204, made.Key, "DELETE", "/v2/account/keys/"+made.ID, "")
	s.want(401, made.Key, "GET", "/v2/pods", "")
	s.want(200, s.parts.Key, "GET", "/v2/pods", "")
}

func TestChangesAndRefusalsAreInTheDataDirectoryWithTheAddressThatAProxyNames(t *testing.T) {
	dir := t.TempDir()
	c, err := config.Parse("yard.json", []byte(`{"trustedProxies":["192.0.2.1","10.0.0.0/8"]}`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := config.Open(t.Context(), c, &config.Options{Data: dir, Runtime: "process", Addr: loopback(t)})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := p.Server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{p.Key, "wrong"} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/v2/account/keys", strings.NewReader(`{"user":"carol","scopes":["*"]}`))
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("X-Forwarded-For", "198.51.100.1, 203.0.113.9, 10.1.2.3")
		srv.Handler().ServeHTTP(httptest.NewRecorder(), r)
	}
	if err := srv.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"changes", "refusals"} {
		b, err := os.ReadFile(filepath.Join(dir, "audit", name+"-000000000001.jsonl"))
		if err != nil || strings.Count(string(b), "\n") != 1 || !strings.Contains(string(b), `"source":"203.0.113.9"`) || strings.Contains(string(b), p.Key) {
			t.Errorf("%s: %s, %v", name, b, err)
		}
	}
}

func TestAReloadNamesUsersWhoseKeysWereTakenOutAndWhoHaveOthers(t *testing.T) {
	s := newSite(t, beforeReload)
	for _, user := range []string{"alice", "bob", "bob", "carol"} {
		s.want(201, s.parts.Key, "POST", "/v2/account/keys", `{"user":"`+user+`","scopes":["*"]}`)
	}
	s.write(`{"keys":[{"key":"alices","user":"alice","scopes":["pods:read"]}]}`)
	r, err := s.parts.Reload(t.Context())
	want := []string{"a key of the user bob was taken out of the configuration, and keys of that user that were made over the API still work: 2"}
	if err != nil || !cmp.Equal(r.Warnings, want) {
		t.Errorf("Reload warns of %q, %v, want %q", r.Warnings, err, want)
	}
	if r, err = s.parts.Reload(t.Context()); err != nil || len(r.Warnings) > 0 {
		t.Errorf("the second Reload warns of %q, %v", r.Warnings, err)
	}
}

func TestWhoIsTrustedFollowsFromTheConfigurationAndNotFromAName(t *testing.T) {
	const image = `"images":{"local/job":{"command":["true"]}}`
	s := newSite(t, `{`+image+`}`)
	for user, status := range map[string]int{"admin": 409, "ops": 201} {
		s.want(status, s.parts.Key, "POST", "/v2/account/keys", `{"user":"`+user+`","scopes":["pods:write"]}`)
	}
	s.write(`{` + image + `,"keys":[{"key":"opskey","user":"ops","scopes":["operator"]}]}`)
	r, err := s.parts.Reload(t.Context())
	if err != nil || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "the user ops may run programs of this host") {
		t.Errorf("Reload warns of %q, %v, want the key that was there before", r.Warnings, err)
	}
}

func TestUsersWithAnOperatorsKeyMayGiveProcessImagesAnyVariable(t *testing.T) {
	const image = `"images":{"local/job":{"command":["true"],"users":["tenant","ops"]}}`
	s := newSite(t, `{`+image+`,"keys":[{"key":"tenants","user":"tenant","scopes":["pods:write"]},{"key":"ops","user":"ops","scopes":["pods:write","operator"]}]}`)
	const pod = `{"name":"p","image":"local/job","cpu":{"id":"host","vcpuCount":2},"env":{"MODE":"x"}}`
	if w := s.ask("tenants", "POST", "/v2/pods", pod); w.Code != 400 || !strings.Contains(w.Body.String(), "MODE") {
		t.Errorf("a variable of a tenant = %d %s, want 400 that names it", w.Code, w.Body)
	}
	if w := s.ask("ops", "POST", "/v2/pods", pod); w.Code != 201 {
		t.Errorf("a variable of an operator = %d %s, want 201", w.Code, w.Body)
	}
	s.write(`{` + image + `,"keys":[{"key":"ops","user":"ops","scopes":["pods:write"]}]}`)
	if w := s.ask(s.parts.Key, "POST", "/v2/admin/reload", ""); w.Code != 200 {
		t.Fatalf("reload = %d %s", w.Code, w.Body)
	}
	if w := s.ask("ops", "POST", "/v2/pods", pod); w.Code != 400 {
		t.Errorf("a variable of a user who is no operator any more = %d %s, want 400", w.Code, w.Body)
	}
}
