package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"
	"time"
)

const readme = "../../README.md"

// A block is a fenced block of the README.
type block struct{ kind, text string }

func blocks(t *testing.T) (list []block) {
	t.Helper()
	b, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$").FindAllStringSubmatch(string(b), -1) {
		list = append(list, block{m[1], m[2]})
	}
	return list
}

// TestTheCommandsOfTheREADMEAnswerAsItSays runs the commands in their order, with the
// address and the variables of this run, and compares each answer with the block after
// the command.
func TestTheCommandsOfTheREADMEAnswerAsItSays(t *testing.T) {
	t.Parallel()
	runREADME(t, start(t))
}

func runREADME(t *testing.T, in *instance) {
	t.Helper()
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing(t, "there is no "+tool)
		}
	}
	vars := map[string]string{"KEY": in.key}
	list := blocks(t)
	ran := 0
	for i, b := range list {
		if b.kind != "sh" {
			continue
		}
		ran++
		got := shell(t, in, vars, b.text)
		if i+1 < len(list) {
			switch next := list[i+1]; next.kind {
			case "json":
				alike(t, b.text, next.text, got)
			case "text":
				alikeText(t, b.text, next.text, got)
			}
		}
		learn(in, vars, got)
	}
	if ran < 8 {
		t.Errorf("only %d blocks of commands were found", ran)
	}
}

// shell runs a block. Its exports have the values of this run instead of those printed.
func shell(t *testing.T, in *instance, vars map[string]string, text string) string {
	t.Helper()
	script := "set -eu\n"
	for name, v := range vars {
		script += fmt.Sprintf("export %s='%s'\n", name, v)
	}
	for line := range strings.Lines(text) {
		if name, _, ok := strings.Cut(strings.TrimPrefix(line, "export "), "="); ok && strings.HasPrefix(line, "export ") {
			if vars[name] == "" {
				t.Fatalf("the README exports %s, and no answer before told its value", name)
			}
			continue
		}
		line = strings.ReplaceAll(line, "http://127.0.0.1:8080", in.url)
		line = strings.Replace(line, "curl ", "curl -sS ", 1)
		if strings.Contains(line, " -N ") { // it would follow for ever
			line = strings.TrimSpace(line) + " --max-time 2 2>/dev/null || true\n"
		}
		script += line
	}
	cmd := exec.Command("bash", "-c", script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s%v: %s", text, err, out)
	}
	return string(out)
}

// learn takes from an answer what the commands after it need. A pod is waited for.
func learn(in *instance, vars map[string]string, answer string) {
	var a struct{ ID, Status string }
	if json.Unmarshal([]byte(answer), &a) != nil || a.ID == "" {
		return
	}
	if a.Status != "PROVISIONING" {
		vars["JOB"] = a.ID
		return
	}
	vars["POD"] = a.ID
	in.follow(a.ID).await("container is healthy")
	port, _ := url.Parse(in.pod(a.ID).address())
	vars["PORT"] = port.Port()
}

// alike compares answers: the same members, and the same values of texts and truths.
// Numbers and times are of the moment, and so is what has an ellipsis in it.
func alike(t *testing.T, command, want, got string) {
	t.Helper()
	var w, g any
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatalf("the answer that the README shows after\n%sis no JSON: %v", command, err)
	}
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Fatalf("%sanswers %s: %v", command, got, err)
	}
	for _, diff := range differences("", w, g) {
		t.Errorf("%s%s", command, diff)
	}
}

func differences(path string, want, got any) (diffs []string) {
	switch w := want.(type) {
	case map[string]any:
		g, _ := got.(map[string]any)
		if a, b := names(w), names(g); a != b {
			return []string{fmt.Sprintf("%s: the README shows members %s, the answer has %s", path, a, b)}
		}
		for k := range w {
			diffs = append(diffs, differences(path+"/"+k, w[k], g[k])...)
		}
		return diffs
	case []any:
		g, _ := got.([]any)
		if len(g) != len(w) {
			return []string{fmt.Sprintf("%s: the README shows %d elements, the answer has %d", path, len(w), len(g))}
		}
		for i := range w {
			diffs = append(diffs, differences(fmt.Sprintf("%s/%d", path, i), w[i], g[i])...)
		}
		return diffs
	case float64:
		if _, ok := got.(float64); ok {
			return nil
		}
	case string:
		if g, ok := got.(string); ok && (strings.Contains(w, "…") || isTime(w) && isTime(g)) {
			return nil
		}
	}
	if want != got {
		return []string{fmt.Sprintf("%s: the README shows %v, the answer has %v", path, want, got)}
	}
	return nil
}

func isTime(s string) bool {
	_, err := time.Parse(time.RFC3339Nano, s)
	return err == nil
}

func names(o map[string]any) string {
	list := make([]string, 0, len(o))
	for k := range o {
		list = append(list, k)
	}
	sort.Strings(list)
	return strings.Join(list, " ")
}

// alikeText compares lines up to their first digit: ids, times and ports follow.
func alikeText(t *testing.T, command, want, got string) {
	t.Helper()
	begin := regexp.MustCompile(`^[^0-9]*`)
	w, g := strings.Split(strings.TrimSpace(want), "\n"), strings.Split(strings.TrimSpace(got), "\n")
	for i := range max(len(w), len(g)) {
		if i >= len(w) || i >= len(g) || !strings.HasPrefix(g[i], begin.FindString(w[i])) {
			t.Errorf("%sanswers\n%s\nwhere the README shows\n%s", command, got, want)
			return
		}
	}
}

func TestTheServerTakesTheConfigurationOfTheREADME(t *testing.T) {
	t.Parallel()
	for _, b := range blocks(t) {
		if b.kind != "jsonc" {
			continue
		}
		s, err := parse([]string{"server", "-config", file(t, b.text)}, func(string) string { return "" }, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Keys) != 2 || len(s.Images) != 1 || len(s.Endpoints) != 1 {
			t.Errorf("it reads %+v", s.config)
		}
		return
	}
	t.Error("the README shows no configuration")
}

func TestTheProgramOfTheREADMEIsTheExample(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join("..", "embed", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(b), "\npackage main\n")
	for _, b := range blocks(t) {
		if b.kind == "go" && b.text == "package main\n"+program {
			return
		}
	}
	t.Error("no block of the README is the program examples/embed")
}

func TestTheREADMEsLinksLead(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(string(b), -1) {
		if strings.HasPrefix(m[1], "http") {
			continue
		}
		if _, err := os.Stat(filepath.Join("..", "..", m[1])); err != nil {
			t.Errorf("link to %s: %v", m[1], err)
		}
	}
}
