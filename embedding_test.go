package podyard_test

import (
	"regexp"
	"strings"
	"testing"
)

// Programs of docs/embedding.md are cut out of programs that are compiled and run by tests.
func TestTheProgramsOfTheEmbeddingPageAreThoseOfTheExamples(t *testing.T) {
	programs := ""
	for _, path := range []string{"examples/embed/main.go", "examples/embed/time_test.go", "examples/product/main.go"} {
		programs += plainLines(text(t, path))
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(text(t, "docs/embedding.md"), -1)
	for _, b := range blocks {
		if !strings.Contains(programs, plainLines(b[1])) && !strings.HasPrefix(b[1], "worker.Run(") {
			t.Errorf("no example has\n%s", b[1])
		}
	}
	if len(blocks) < 6 {
		t.Errorf("the page has %d programs, want those of all steps", len(blocks))
	}
}

// The smallest program stays small: it is what a reader sees first.
func TestTheFirstProgramsStaySmall(t *testing.T) {
	for path, most := range map[string]int{"examples/embed/main.go": 32, "examples/product/main.go": 80} {
		lines := 0
		for line := range strings.Lines(text(t, path)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				lines++
			}
		}
		if lines > most {
			t.Errorf("%s has %d lines of code, want at most %d", path, lines, most)
		}
	}
}

// plainLines are the lines of a text without indentation.
func plainLines(s string) string {
	return regexp.MustCompile(`(?m)^[ \t]+`).ReplaceAllString(s, "")
}
