package podyard_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Programs of docs/embedding.md are cut out of programs that are compiled and run by tests.
func TestTheProgramsOfTheEmbeddingPageAreThoseOfTheExamples(t *testing.T) {
	programs := ""
	for _, path := range []string{"examples/embed/main.go", "examples/embed/time_test.go", "examples/product/main.go", "examples/shop/main.go"} {
		programs += plainLines(text(t, path))
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(text(t, "docs/embedding.md"), -1)
	for _, b := range blocks {
		if !strings.Contains(programs, plainLines(b[1])) && !strings.HasPrefix(b[1], "worker.Run(") {
			t.Errorf("no example has\n%s", b[1])
		}
	}
	if len(blocks) < 7 {
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

// codeLines are the lines of a program without imports, comments and empty lines.
func codeLines(t *testing.T, paths ...string) (lines []string) {
	t.Helper()
	for _, path := range paths {
		code := regexp.MustCompile(`(?ms)^import \(.*?^\)$`).ReplaceAllString(text(t, path), "")
		for line := range strings.Lines(code) {
			if line = strings.Join(strings.Fields(line), " "); line != "" && !strings.HasPrefix(line, "//") {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// added are the lines of a program that are not those of an earlier one: what a diff shows with a plus.
func added(before, after []string) (lines []string) {
	same := make([][]int, len(before)+1) // of the rest from line i of before and line j of after
	for i := range same {
		same[i] = make([]int, len(after)+1)
	}
	for i := range slices.Backward(before) {
		for j := len(after) - 1; j >= 0; j-- {
			if same[i][j] = max(same[i+1][j], same[i][j+1]); before[i] == after[j] {
				same[i][j] = same[i+1][j+1] + 1
			}
		}
	}
	i := 0
	for j, line := range after {
		for i < len(before) && before[i] != line && same[i+1][j] >= same[i][j+1] {
			i++
		}
		if i < len(before) && before[i] == line {
			i++
			continue
		}
		lines = append(lines, line)
	}
	return lines
}

// shopSteps are how many lines each step of the shop adds, and how many its program has after the second
// one. A line of the whole program belongs to the step that it ends with, and else to the second one.
func shopSteps(t *testing.T) (steps map[int]int, afterTwo int) {
	t.Helper()
	disk, whole := codeLines(t, "examples/shop/disk/main.go"), codeLines(t, "examples/shop/main.go")
	steps = map[int]int{1: len(disk), 4: len(codeLines(t, "examples/shop/console.go")), 5: len(codeLines(t, "examples/shop/worker/main.go"))}
	marked := regexp.MustCompile(`// step ([45])$`)
	afterTwo = len(whole)
	for _, line := range added(disk, whole) {
		step := 2
		if m := marked.FindStringSubmatch(line); m != nil {
			step, _ = strconv.Atoi(m[1])
			afterTwo--
		}
		steps[step]++
	}
	return steps, afterTwo
}

// A first user counts lines. A step that needs more of them asks for something in the library.
func TestTheStepsOfTheShopStaySmall(t *testing.T) {
	steps, afterTwo := shopSteps(t)
	for step, most := range map[int]int{1: 110, 2: 25, 3: 0, 4: 25, 5: 30} {
		if steps[step] > most {
			t.Errorf("step %d of examples/shop has %d lines of code, want at most %d", step, steps[step], most)
		}
	}
	river := len(codeLines(t, "backend/postgres/bench/shop/main.go"))
	shared := len(codeLines(t, "examples/shop/invoice/invoice.go", "examples/shop/signin/signin.go"))
	page := text(t, "docs/embedding.md")
	for _, want := range []string{
		fmt.Sprintf("| 1. on disk | %d |", steps[1]),
		fmt.Sprintf("| +%d, %d in all | %d in all |", steps[2], afterTwo, river),
		fmt.Sprintf("| 3. two copies | +%d |", steps[3]),
		fmt.Sprintf("| 4. the console behind the program's sign-in | +%d |", steps[4]),
		fmt.Sprintf("| 5. a worker elsewhere, without the database | +%d |", steps[5]),
		fmt.Sprintf("the work, %d lines,", shared),
	} {
		if !strings.Contains(page, want) {
			t.Errorf("docs/embedding.md has not %q", want)
		}
	}
}
