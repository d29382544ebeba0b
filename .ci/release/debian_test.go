package main

import (
	"flag"
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/podyard/podyard/examples/server/settings"
)

// debianFile is a file of the package before it is built.
func debianFile(t *testing.T, name string) string {
	t.Helper()
	b, err := fs.ReadFile(debian, "debian/"+name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestTheEnvironmentOfThePackageNamesEveryVariable(t *testing.T) {
	t.Parallel()
	file := debianFile(t, "podyard.env")
	known := map[string]bool{"PODYARD_API_KEY": true, "PODYARD_SECRET_KEY": true}
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	settings.Define(f, func(string) string { return "" })
	f.VisitAll(func(x *flag.Flag) {
		if v := settings.Variable(x.Name); v != "" {
			known[v] = true
		}
	})
	there := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#?(PODYARD_[A-Z_]+)=`).FindAllStringSubmatch(file, -1) {
		there[m[1]] = true
	}
	for v := range known {
		if !there[v] {
			t.Errorf("podyard.env has no line for %s", v)
		}
	}
	for v := range there {
		if !known[v] {
			t.Errorf("podyard.env has %s, which the server does not read", v)
		}
	}
}

// A flag of the unit would win over the operator's file.
func TestTheUnitLeavesEverySettingToTheOperatorsFile(t *testing.T) {
	t.Parallel()
	unit := debianFile(t, "podyard.service")
	if !strings.Contains(unit, "\nExecStart=/usr/bin/podyard serve\n") {
		t.Error("the unit starts the server with flags, which win over podyard.env")
	}
	if before, _, ok := strings.Cut(unit, "\nEnvironmentFile=-/etc/podyard/podyard.env\n"); !ok || !strings.Contains(before, "PODYARD_DATA=/var/lib/podyard") || !strings.Contains(before, "PODYARD_CONFIG=/etc/podyard/podyard.json") {
		t.Error("the unit does not set the data directory and the configuration for an operator's file without them")
	}
	if !strings.Contains(unit, "\nEnvironment=PODYARD_FIRST_KEY=file\n") {
		t.Error("the first key would be in the journal")
	}
}
