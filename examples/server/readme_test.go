package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi/server/config"
	"github.com/podyard/podyard/internal/suite"
)

// The pages whose commands are run.
const (
	readme        = "../../README.md"
	operating     = "../../docs/operating.md"
	configuration = "../../docs/configuration.md"
	trouble       = "../../docs/trouble.md"
	doubles       = "../../docs/testing.md"
)

// A block is a fenced block of a page.
type block struct{ kind, text string }

func blocks(t *testing.T, page string) (list []block) {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$").FindAllStringSubmatch(string(b), -1) {
		list = append(list, block{m[1], m[2]})
	}
	return list
}

func TestTheCommandsOfTheREADMEAnswerAsItSays(t *testing.T) {
	t.Parallel()
	runPage(t, start(t), readme, 7)
}

func TestTheCommandsForOperatorsAnswerAsThePageSays(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := start(t, "-runtime", "process")
	runPage(t, in, configuration, 2)
	runPage(t, in, operating, 20)
	runPage(t, in, trouble, 11)
}

func TestTheCommandsOfTheTestDoubleAnswerAsThePageSays(t *testing.T) {
	t.Parallel()
	in := start(t, "-test", "127.0.0.1:0")
	area, found := strings.CutPrefix(in.line(), "test area: ")
	if !found {
		t.Fatal("the second line does not name the area of the tests")
	}
	p := &pageRun{t: t, in: in, area: area, vars: map[string]string{"KEY": in.key}}
	p.run(doubles, 6)
}

// A pageRun runs the commands of a page in their order, with the addresses and variables of
// this run, and compares each answer with the block after the command.
type pageRun struct {
	t    *testing.T
	in   *instance
	area string            // of the test double
	vars map[string]string // what the commands export
}

func runPage(t *testing.T, in *instance, page string, atLeast int) {
	t.Helper()
	p := &pageRun{t: t, in: in, vars: map[string]string{"KEY": in.key}}
	p.run(page, atLeast)
}

func (p *pageRun) run(page string, atLeast int) {
	p.t.Helper()
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing(p.t, "there is no "+tool)
		}
	}
	list := append(blocks(p.t, page), block{})
	ran := 0
	for i, b := range list {
		if b.kind == "sh" {
			ran++
			p.captureVars(p.answer(b.text, list[i+1]))
		}
	}
	if ran < atLeast {
		p.t.Errorf("only %d blocks of commands were found", ran)
	}
}

// answer runs a block of commands and compares what they print with the block after it. A
// command that only reads is repeated for a while: what it reads may take a moment.
func (p *pageRun) answer(command string, want block) string {
	p.t.Helper()
	reads := !strings.Contains(command, " -d ") && !strings.Contains(command, " -X ")
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		got := p.shell(command)
		diffs := compare(want, got)
		if len(diffs) > 0 && reads && time.Since(began) < patience {
			continue
		}
		for _, d := range diffs {
			p.t.Errorf("%s%s", command, d)
		}
		return got
	}
}

// shell runs a block. Its exports have the values of this run instead of those printed.
func (p *pageRun) shell(text string) string {
	p.t.Helper()
	script := "set -eu\n"
	for name, v := range p.vars {
		script += fmt.Sprintf("export %s='%s'\n", name, v)
	}
	for line := range strings.Lines(text) {
		if name, _, ok := strings.Cut(strings.TrimPrefix(line, "export "), "="); ok && strings.HasPrefix(line, "export ") {
			if p.vars[name] == "" {
				p.t.Fatalf("the page exports %s, and no answer before told its value", name)
			}
			continue
		}
		script += p.adapt(line)
	}
	out, err := exec.Command("bash", "-c", script).CombinedOutput()
	if err != nil {
		p.t.Fatalf("%s%v: %s", text, err, out)
	}
	return string(out)
}

// adapt has a line find the servers of this run. One that follows a log ends after a while.
func (p *pageRun) adapt(line string) string {
	line = strings.ReplaceAll(line, "http://127.0.0.1:8081/_test", p.area)
	line = strings.ReplaceAll(line, "http://127.0.0.1:8080", p.in.url)
	line = strings.Replace(line, "curl ", "curl -sS ", 1)
	if strings.Contains(line, " -N ") {
		line = strings.TrimSpace(line) + " --max-time 2 2>/dev/null || true\n"
	}
	return line
}

// captureVars takes from an answer what the commands after it need. A pod is waited for.
func (p *pageRun) captureVars(answer string) {
	var a struct {
		ID, Status  string
		Key         string // of a key that was made
		RequestURLs any    `json:"requestUrls"`
	}
	var list struct{ Workers []struct{ ID string } }
	if json.Unmarshal([]byte(answer), &list) == nil && len(list.Workers) > 0 {
		p.vars["WORKER"] = list.Workers[0].ID
	}
	if json.Unmarshal([]byte(answer), &a) != nil || a.ID == "" {
		return
	}
	switch {
	case a.Key != "":
		p.vars["ID"], p.vars["NEW"] = a.ID, a.Key
	case a.RequestURLs != nil:
		p.vars["ENDPOINT"] = a.ID
	case a.Status == "PROVISIONING":
		p.vars["POD"] = a.ID
		p.in.follow(a.ID).await("container is healthy")
		port, _ := url.Parse(p.in.pod(a.ID).address())
		p.vars["PORT"] = port.Port()
	case a.Status != "":
		p.vars["JOB"] = a.ID
	}
}

// compare says how an answer differs from the one that a page shows.
func compare(want block, got string) []string {
	switch want.kind {
	case "json":
		return compareJSON(want.text, got)
	case "text":
		return compareText(want.text, got)
	}
	return nil
}

// compareJSON wants the same members, and the same values of strings and booleans. Numbers
// and times are of the moment, and so is a string with an ellipsis in it.
func compareJSON(want, got string) []string {
	w, err := values(want)
	if err != nil {
		return []string{fmt.Sprintf("the page shows %s, which is not JSON: %v", want, err)}
	}
	g, err := values(got)
	if err != nil {
		return []string{fmt.Sprintf("answers %s: %v", got, err)}
	}
	return differences("", w, g)
}

// values are the JSON values of a text, one after another.
func values(text string) (list []any, err error) {
	dec := json.NewDecoder(strings.NewReader(text))
	for {
		var v any
		if err := dec.Decode(&v); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
}

func differences(path string, want, got any) (diffs []string) {
	switch w := want.(type) {
	case map[string]any:
		g, _ := got.(map[string]any)
		if a, b := names(w), names(g); a != b {
			return []string{fmt.Sprintf("%s: the page shows members %s, the answer has %s", path, a, b)}
		}
		for k := range w {
			diffs = append(diffs, differences(path+"/"+k, w[k], g[k])...)
		}
		return diffs
	case []any:
		g, _ := got.([]any)
		if len(g) != len(w) {
			return []string{fmt.Sprintf("%s: the page shows %d elements, the answer has %d", path, len(w), len(g))}
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
		return []string{fmt.Sprintf("%s: the page shows %v, the answer has %v", path, want, got)}
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

// compareText compares lines up to their first digit: ids, times and ports follow.
func compareText(want, got string) []string {
	begin := regexp.MustCompile(`^[^0-9…]*`)
	w, g := strings.Split(strings.TrimSpace(want), "\n"), strings.Split(strings.TrimSpace(got), "\n")
	for i := range max(len(w), len(g)) {
		if i >= len(w) || i >= len(g) || !strings.HasPrefix(g[i], begin.FindString(w[i])) {
			return []string{fmt.Sprintf("answers\n%s\nwhere the page shows\n%s", got, want)}
		}
	}
	return nil
}

// The page shows every field of the configuration, with comments.
func TestTheServerTakesTheConfigurationOfThePage(t *testing.T) {
	t.Parallel()
	for _, b := range blocks(t, configuration) {
		if b.kind != "jsonc" {
			continue
		}
		c, err := config.Parse("configuration.md", []byte(b.text))
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Keys) != 3 || len(c.Images) != 1 || len(c.Endpoints) != 1 {
			t.Errorf("it reads %+v", c)
		}
		return
	}
	t.Error("the page shows no configuration")
}

// The shell lines of the page make a key, and copy, verify and restore a store: a job of
// before is there afterwards, and the key still fits.
func TestTheShellLinesForOperatorsKeepJobsAndKeys(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		missing(t, "there is no bash")
	}
	dir := t.TempDir()
	in := startIn(t, filepath.Join(dir, "podyard-data"))
	j := get[job](in, "POST", "/v2/echo/runsync", `{"input":{"kept":"yes"}}`, http.StatusOK)
	in.stop()

	if err := os.Symlink(program, filepath.Join(dir, "podyard-server")); err != nil {
		t.Skip("no symbolic links here:", err)
	}
	out := ""
	for _, b := range append(blocks(t, operating), blocks(t, trouble)...) {
		if b.kind == "bash" {
			out += shellIn(t, dir, b.text)
		}
	}
	for _, want := range []string{"sha256:", " 0 faults", "copied to ./backup"} {
		if !strings.Contains(out, want) {
			t.Errorf("the lines print no %q:\n%s", want, out)
		}
	}

	again := startIn(t, filepath.Join(dir, "restored"))
	if again.key != in.key {
		t.Errorf("the restored server has the key %q, want %q", again.key, in.key)
	}
	if got := get[job](again, "GET", "/v2/echo/status/"+j.ID, "", http.StatusOK); got.Status != "COMPLETED" {
		t.Errorf("the job of before is %+v, want COMPLETED", got)
	}
}

// startIn starts a server on a data directory, with the key that is kept there.
func startIn(t *testing.T, data string) *instance {
	t.Helper()
	in := startCommand(t, command(t, nil, "-addr", "127.0.0.1:0", "-data", data, "-runtime", "process"))
	b, err := os.ReadFile(filepath.Join(data, "api-key"))
	if err != nil {
		t.Fatal(err)
	}
	in.key = strings.TrimSpace(string(b))
	return in
}

// shellIn runs lines in a directory whose programs come first.
func shellIn(t *testing.T, dir, text string) string {
	t.Helper()
	cmd := exec.Command("bash", "-c", "set -euo pipefail\n"+text)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s%v: %s", text, err, out)
	}
	return string(out)
}

func TestTheProgramOfTheREADMEIsTheExample(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join("..", "embed", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(b), "\npackage main\n")
	for _, b := range blocks(t, readme) {
		if b.kind == "go" && b.text == "package main\n"+program {
			return
		}
	}
	t.Error("no block of the README is the program examples/embed")
}
