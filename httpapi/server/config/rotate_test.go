package config_test

import (
	"encoding/base64"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podyard/podyard/httpapi/server/config"
)

// withServer opens a data directory with a configuration, and closes it after f.
func withServer(t *testing.T, data, text string, f func(*site)) error {
	t.Helper()
	parts, err := config.Open(t.Context(), parse(t, text), &config.Options{Data: data, Runtime: "process", Key: "root"})
	if err != nil {
		return err
	}
	srv, err := parts.Server(t.Context())
	if err != nil {
		return err
	}
	f(&site{t: t, parts: parts, srv: srv})
	return srv.Close(t.Context())
}

func keyText(b byte) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(b), 32)))
}

// hasRegistry fails unless there is one credential, whose secret only the key opens.
func hasRegistry(s *site) {
	s.t.Helper()
	if body := s.want(200, "root", "GET", "/v2/registries", ""); !strings.Contains(body, "hub") {
		s.t.Errorf("the registries are %s", body)
	}
}

func addRegistry(s *site) {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), "POST", "/v2/registries", strings.NewReader(`{"name":"hub","username":"u","password":"p"}`))
	r.Header.Set("Authorization", "Bearer root")
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.srv.Handler().ServeHTTP(w, r)
	if w.Code != 201 {
		s.t.Fatalf("%d %s", w.Code, w.Body)
	}
}

func TestAKeyOfTheConfigurationIsRotatedAtTheStart(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	one, two := keyText('1'), keyText('2')
	for i, step := range []struct {
		text string
		do   func(*site)
		fail bool
	}{
		{text: `{"secretKey":"` + one + `"}`, do: addRegistry},
		{text: `{"secretKey":"` + two + `"}`, fail: true},
		{text: `{"secretKey":"` + two + `","oldSecretKeys":["` + one + `"]}`, do: hasRegistry},
		{text: `{"secretKey":"` + two + `","oldSecretKeys":["` + one + `"]}`, do: hasRegistry},
		{text: `{"secretKey":"` + one + `"}`, fail: true},
		{text: `{"secretKey":"` + two + `"}`, do: hasRegistry},
	} {
		if err := withServer(t, data, step.text, step.do); (err != nil) != step.fail {
			t.Errorf("step %d: %v, want an error: %v", i, err, step.fail)
		}
	}
	if e := wrong(t, `{"oldSecretKeys":["`+one+`","x"]}`); e.Field != "oldSecretKeys[1]" {
		t.Errorf("an old key that is none is an error of %s", e.Field)
	}
}

func TestTheKeyInTheDataDirectoryIsRotatedAndACutOffRotationIsFinished(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	file := filepath.Join(data, "secret-key")
	read := func() string {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	o := &config.Options{Data: data}
	if err := config.RotateSecretKey(t.Context(), config.Default(), o); err == nil {
		t.Error("a directory without a store has its key rotated")
	}
	if err := withServer(t, data, `{}`, addRegistry); err != nil {
		t.Fatal(err)
	}
	first := read()
	err := withServer(t, data, `{}`, func(*site) {
		if err := config.RotateSecretKey(t.Context(), config.Default(), o); err == nil || !strings.Contains(err.Error(), "another server uses this directory") {
			t.Errorf("with a server there: %v, want that there is one", err)
		}
	})
	if err != nil || read() != first {
		t.Errorf("a refused rotation changed the key, or %v", err)
	}
	if err := config.RotateSecretKey(t.Context(), config.Default(), o); err != nil {
		t.Fatal(err)
	}
	second := read()
	if second == first {
		t.Error("the key is the same")
	}
	if err := withServer(t, data, `{}`, hasRegistry); err != nil {
		t.Fatal(err)
	}
	// As after a crash before the store was opened with it.
	if err := os.WriteFile(file+".new", []byte(keyText('3')), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := withServer(t, data, `{}`, hasRegistry); err != nil || read() != keyText('3') {
			t.Errorf("the next start does not finish it: %v", err)
		}
	}
	if err := os.WriteFile(file, []byte(second), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := withServer(t, data, `{}`, hasRegistry); err == nil {
		t.Error("the old key opens the store")
	}
}
