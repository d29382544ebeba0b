package main

import (
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
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

// A page that the configuration, the unit or the help names must be on the machine that has the
// package and no checkout.
func TestThePackageHasThePagesThatItRefersTo(t *testing.T) {
	t.Chdir("../..")
	root := t.TempDir()
	help, err := exec.CommandContext(t.Context(), "go", "run", "./examples/server", "__manual").Output()
	if err != nil {
		t.Fatal(err)
	}
	r := &release{version: "0", manual: help}
	if err := r.layOut(root, target{os: "linux", arch: "amd64", file: "go.mod"}); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(help), `\-`, "-") + debianFile(t, "podyard.env") + debianFile(t, "podyard.json") + debianFile(t, "podyard.service")
	pages := regexp.MustCompile(`docs/[a-z]+\.md`).FindAllString(text, -1)
	if len(pages) < 4 {
		t.Fatalf("%v: this test finds no references", pages)
	}
	for _, page := range pages {
		if _, err := os.Stat(filepath.Join(root, "usr/share/doc/podyard", page)); err != nil {
			t.Errorf("the package refers to %s and does not have it: %v", page, err)
		}
	}
	for _, file := range []string{"alerts.yaml", "rules.yaml", "dashboards/overview.json"} {
		if _, err := os.Stat(filepath.Join(root, "usr/share/podyard/prometheus", file)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "usr/share/man/man1/podyard.1.gz")); err != nil {
		t.Error(err)
	}
}
