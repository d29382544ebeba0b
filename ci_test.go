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
