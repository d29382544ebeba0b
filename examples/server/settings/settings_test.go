package settings_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/podyard/podyard/examples/server/settings"
)

// environment is one of a test.
func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for _, p := range pairs {
			if value, ok := strings.CutPrefix(p, name+"="); ok {
				return value
			}
		}
		return ""
	}
}

// values are those of settings that a flag of each kind may have.
func values() map[string]string {
	return map[string]string{
		"drain-wait": "7s", "log": "json", "log-level": "warn", "runtime": "sim",
		"addr": "127.0.0.1:1", "metrics": "127.0.0.1:2", "ssh": "127.0.0.1:3",
		"public-url": "https://a.example", "peer-url": "https://b.example", "data": "postgres://db.example/x",
		"first-key": "file", "name": "one", "local": "/srv/local", "tls-cert": "cert.pem", "tls-key": "key.pem", "config": "",
	}
}

// wrong are values that a flag refuses.
func wrong() map[string]string {
	return map[string]string{
		"drain-wait": "5", "first-key": "all", "log": "xml", "log-level": "loud", "runtime": "none", "addr": "x", "metrics": "x", "ssh": "x",
		"public-url": "a.example", "peer-url": "a.example", "name": "a b", "local": "/srv", "config": "/nonexistent/podyard.json",
	}
}

func TestEveryFlagOfTheServerHasAVariableUnlessItActs(t *testing.T) {
	t.Parallel()
	acts := []string{"backup", "check", "repair", "restore", "rotate-secret-key", "test", "version"}
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	settings.Define(f, environment())
	f.VisitAll(func(x *flag.Flag) {
		variable := "PODYARD_" + strings.ToUpper(strings.ReplaceAll(x.Name, "-", "_"))
		if slices.Contains(acts, x.Name) {
			if strings.Contains(x.Usage, variable) || settings.Variable(x.Name) != "" {
				t.Errorf("-%s has the program do something else than serve, so no variable may ask for it", x.Name)
			}
			return
		}
		if settings.Variable(x.Name) != variable || !strings.HasSuffix(x.Usage, " ["+variable+"]") {
			t.Errorf("the help of -%s ends in %q, want its variable %s", x.Name, x.Usage, variable)
		}
		value, ok := values()[x.Name]
		if !ok {
			t.Fatalf("-%s is new: give it a value in this test", x.Name)
		}
		if x.Name == "config" {
			value = filepath.Join(t.TempDir(), "podyard.json")
			if err := os.WriteFile(value, []byte("{}"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := parsed(t, x.Name, variable+"="+value); got != value {
			t.Errorf("with %s=%s the flag -%s is %q", variable, value, x.Name, got)
		}
		if got := parsed(t, x.Name, variable+"=of the environment", "-"+x.Name, value); got != value {
			t.Errorf("-%s %s beside a value of the environment is %q: flags win", x.Name, value, got)
		}
	})
}

// parsed returns the value of a flag after the settings were read.
func parsed(t *testing.T, name, variable string, args ...string) (value string) {
	t.Helper()
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	s := settings.Define(f, environment(variable))
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	f.Visit(func(x *flag.Flag) { s.Given[x.Name] = true })
	// What needs another flag beside it is refused after its value was taken.
	err := s.Finish()
	if err != nil && strings.Contains(err.Error(), "of the environment") {
		t.Fatalf("a value that a flag overrides is looked at: %v", err)
	}
	switch name {
	case "data":
		return s.Database // -data is split
	case "drain-wait":
		return s.DrainWait.String()
	case "log-level":
		return strings.ToLower(s.LogLevel.String())
	}
	return f.Lookup(name).Value.String()
}

func TestAWrongValueNamesItsVariableOrItsFlag(t *testing.T) {
	t.Parallel()
	for name, value := range wrong() {
		base := []string{"server"}
		if name == "name" || name == "peer-url" {
			base = append(base, "-data", "postgres://db.example/x")
		}
		variable := settings.Variable(name)
		_, err := settings.Parse(base, environment(variable+"="+value), nil)
		if err == nil || !strings.HasPrefix(err.Error(), variable) {
			t.Errorf("%s=%s: %v, want an error that begins with the variable", variable, value, err)
		}
		_, err = settings.Parse(append(base, "-"+name, value), environment(), nil)
		if err == nil || !strings.Contains(err.Error(), "-"+name) || strings.Contains(err.Error(), "PODYARD_") {
			t.Errorf("-%s %s: %v, want an error that names the flag", name, value, err)
		}
	}
}

func TestACommandTakesNoValueOfAFlagThatItHasNot(t *testing.T) {
	t.Parallel()
	f := flag.NewFlagSet("check", flag.ContinueOnError)
	s := settings.Define(f, environment("PODYARD_RUNTIME=nonsense", "PODYARD_DRAIN_WAIT=x", "PODYARD_DATA=/srv/data"), "data")
	if err := s.Finish(); err != nil || s.Data != "/srv/data" {
		t.Errorf("%q, %v: want the value of -data alone, because the command has no other flag", s.Data, err)
	}
}

// As with the environment of the Debian package and another directory.
func TestADirectoryOfAFlagLeavesOutWhatTheEnvironmentSaysOfADatabase(t *testing.T) {
	t.Parallel()
	env := environment("PODYARD_DATA=postgres://db.example/x", "PODYARD_NAME=one", "PODYARD_LOCAL=/srv/local", "PODYARD_PEER_URL=https://a.example")
	s, err := settings.Parse([]string{"server", "-data", "/srv/data"}, env, nil)
	if err != nil || s.Data != "/srv/data" || s.Name+s.Local+s.PeerURL != "" {
		t.Errorf("%+v, %v: want the directory, and nothing of the database", s, err)
	}
	if _, err := settings.Parse([]string{"server", "-data", "/srv/data", "-name", "two"}, env, nil); err == nil || !strings.HasPrefix(err.Error(), "-name: is for a database") {
		t.Errorf("a flag for a database beside a directory: %v", err)
	}
	if _, err := settings.Parse([]string{"server"}, environment("PODYARD_DATA=/srv/data", "PODYARD_NAME=one"), nil); err == nil || !strings.HasPrefix(err.Error(), "PODYARD_NAME: is for a database") {
		t.Errorf("an environment that names a directory and a server of a database: %v", err)
	}
}

func TestTheHelpShowsTheDefaultsAndNoValueOfTheEnvironment(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	_, err := settings.Parse([]string{"server", "-help"}, environment("PODYARD_DATA=postgres://user:secret@db.example/x"), &b)
	if !errors.Is(err, flag.ErrHelp) || strings.Contains(b.String(), "secret@") || !strings.Contains(b.String(), `[PODYARD_DATA] (default "./podyard-data")`) {
		t.Errorf("%v, %s", err, b.String())
	}
}
