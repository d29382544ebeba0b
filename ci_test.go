package podyard_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// words are those that a pattern finds in a file, in its only group.
func words(t *testing.T, path, pattern string) []string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text(t, path))
	if m == nil {
		t.Fatalf("%s has no %s", path, pattern)
	}
	return strings.Fields(strings.ReplaceAll(m[1], `"`, ""))
}

func TestTargetsOfTheMakefileAreTheStepsOfCI(t *testing.T) {
	steps := words(t, ".ci/run", `(?m)^steps=\((.*)\)$`)
	if diff := cmp.Diff(steps, words(t, "Makefile", `(?m)^steps := (.*)$`)); diff != "" {
		t.Errorf("Makefile (-.ci/run +Makefile):\n%s", diff)
	}
	script := text(t, ".ci/run")
	for _, step := range steps {
		if !strings.Contains(script, "\nstep_"+step+"() {") {
			t.Errorf(".ci/run has no step_%s", step)
		}
	}
	script = text(t, ".ci/long")
	for _, step := range words(t, ".ci/long", `(?m)^steps=\((.*)\)$`) {
		if !strings.Contains(script, "\nstep_"+step+"() {") {
			t.Errorf(".ci/long has no step_%s", step)
		}
	}
}

// A module that names an older Go release than the others would be built with faults that theirs mends.
func TestAllModulesNameOneToolchain(t *testing.T) {
	const pattern = `(?m)^toolchain (\S+)$`
	want := words(t, "go.mod", pattern)
	for _, mod := range files(t, "go.mod") {
		if diff := cmp.Diff(want, words(t, mod, pattern)); diff != "" {
			t.Errorf("toolchain of %s (-go.mod +%s):\n%s", mod, mod, diff)
		}
	}
	// Each raise says what it closes.
	_, page, _ := strings.Cut(text(t, "docs/security.md"), "\n## Go and modules\n")
	page, _, _ = strings.Cut(page, "\n## ")
	if release := strings.TrimPrefix(want[0], "go"); !strings.Contains(page, "\n| "+release+" |") || !strings.Contains(text(t, "CHANGELOG.md"), "Go "+release) {
		t.Errorf("docs/security.md (Go and modules) or CHANGELOG.md does not say what Go %s closes", release)
	}
}
