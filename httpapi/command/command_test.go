package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/httpapi/apitest"
	"github.com/podyard/podyard/httpapi/client"
	"github.com/podyard/podyard/httpapi/command"
	"github.com/podyard/podyard/httpapi/double"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless"
)

var update = flag.Bool("update", false, "write the golden file")

// A shell runs commands with an environment.
type shell struct {
	t     *testing.T
	env   map[string]string
	stdin string
}

// on is a shell whose commands find a server.
func on(t *testing.T, srv *apitest.Server) *shell {
	return &shell{t: t, env: map[string]string{"PODYARD_URL": srv.URL(), "PODYARD_API_KEY": srv.Key}}
}

func program() *command.Program {
	return &command.Program{Name: "podyard", About: "podyard for a test.", Commands: command.All()}
}

// run returns what a command prints, and its error.
func (s *shell) run(args ...string) (stdout string, err error) {
	s.t.Helper()
	var out, errs bytes.Buffer
	err = program().Run(s.t.Context(), args, command.IO{
		Env: func(name string) string { return s.env[name] }, Stdin: strings.NewReader(s.stdin), Stdout: &out, Stderr: &errs,
	})
	return out.String() + errs.String(), err
}

// must returns what a command prints that succeeds.
func (s *shell) must(args ...string) string {
	s.t.Helper()
	out, err := s.run(args...)
	if err != nil {
		s.t.Fatalf("%v: %v", args, err)
	}
	return out
}

// refused wants a command to fail with an exit code and some words.
func (s *shell) refused(code int, words string, args ...string) {
	s.t.Helper()
	_, err := s.run(args...)
	if command.Code(err) != code || err == nil || !strings.Contains(err.Error(), words) {
		s.t.Errorf("%v ends with %d and %v, want %d and %q", args, command.Code(err), err, code, words)
	}
}

// pod makes a pod that runs, and returns its id.
func (s *shell) pod(srv *apitest.Server) string {
	s.t.Helper()
	s.must("pods", "create", "-name", "web", "-image", "nginx", "-cpu", "cpu3c")
	srv.Advance(time.Minute)
	var made []struct{ ID string }
	if err := json.Unmarshal([]byte(s.must("pods", "list", "-o", "json")), &made); err != nil || len(made) != 1 {
		s.t.Fatalf("%+v, %v", made, err)
	}
	return made[0].ID
}

// words splits a command line as a shell does, as far as the examples need it.
func words(line string) (list []string) {
	line, _, _ = strings.Cut(line, " > ")
	for _, m := range regexp.MustCompile(`'([^']*)'|(\S+)`).FindAllStringSubmatch(line, -1) {
		list = append(list, m[1]+m[2])
	}
	return list
}

func TestEveryCommandHasHelpAndAnExampleThatItAccepts(t *testing.T) {
	t.Parallel()
	s := &shell{t: t, env: map[string]string{"PODYARD_URL": apitest.Start(t).URL(), "PODYARD_API_KEY": "unknown"}}
	for _, c := range command.All() {
		help := s.must(append([]string{"help"}, strings.Fields(c.Name)...)...)
		if !strings.Contains(help, "Usage: podyard "+c.Name) || !strings.Contains(help, "Example:\n  podyard "+c.Name) || len(c.Summary) < 8 || strings.HasSuffix(c.Summary, ".") {
			t.Errorf("the help of %s: %s", c.Name, help)
		}
		if short := s.must(append(strings.Fields(c.Name), "-h")...); short != help {
			t.Errorf("%s -h is not its help: %s", c.Name, short)
		}
		if _, err := s.run(words(c.Example)...); command.Code(err) == command.ExitUsage {
			t.Errorf("the example of %s is refused: %v", c.Name, err)
		}
	}
}

func TestTheHelpListsEveryCommand(t *testing.T) {
	t.Parallel()
	help := (&shell{t: t}).must()
	for _, c := range command.All() {
		if !strings.Contains(help, "  "+c.Name+" ") || !strings.Contains(help, c.Summary) {
			t.Errorf("the help has no %s", c.Name)
		}
	}
	if group := (&shell{t: t}).must("help", "keys"); !strings.Contains(group, "keys rotate") || strings.Contains(group, "pods") {
		t.Errorf("the help of the group is %s", group)
	}
}

func TestAWrongCommandLineIsNamed(t *testing.T) {
	t.Parallel()
	s := &shell{t: t, env: map[string]string{"PODYARD_API_KEY": "k"}}
	for want, line := range map[string]string{
		`unknown command "nonsense"`:                       "nonsense",
		`unknown command "job", did you mean jobs?`:        "job",
		`jobs: unknown command "lst", want one of list`:    "jobs lst",
		"jobs: which of list, get, submit":                 "jobs",
		"jobs list: flag provided but not defined: -x":     "jobs list echo -x",
		"jobs list: ENDPOINT is missing":                   "jobs list",
		"jobs get: JOB is missing":                         "jobs get echo",
		`jobs list: unexpected argument "b"`:               "jobs list a b",
		`-o "xml": must be table or json`:                  "pods list -o xml",
		`-status "GONE": want one of`:                      "jobs list echo -status GONE",
		`-input: must be a JSON object`:                    "jobs submit echo -input []",
		"-input: open nowhere.json":                        "jobs submit echo -input @nowhere.json",
		"-on-conflict need -unique":                        "jobs submit echo -on-conflict replace",
		`-expires "soon": must be a time`:                  "keys make -expires soon",
		"say which jobs":                                   "jobs actions echo cancel",
		`ACTION "explode": want one of [cancel`:            "jobs actions echo explode -all",
		"name exactly one of -host, -endpoint and -server": "drain -host a -server b",
		`unknown shell "tcsh"`:                             "completion tcsh",
		`-url "nonsense": must be an absolute`:             "pods list -url nonsense",
	} {
		if want == "-input: open nowhere.json" {
			s.refused(command.ExitFailed, want, strings.Fields(line)...)
			continue
		}
		s.refused(command.ExitUsage, want, strings.Fields(line)...)
	}
}

func TestExitCodesSayWhatWentWrong(t *testing.T) {
	t.Parallel()
	srv := apitest.Start(t)
	srv.Endpoint("fails").Fail("no such image")
	s := on(t, srv)
	s.refused(command.ExitNotFound, "not found", "pods", "get", "nothere")
	s.refused(command.ExitNotFound, "no pod, no worker and no endpoint nothere", "logs", "nothere")
	s.refused(command.ExitFailed, "is FAILED", "jobs", "submit", "fails", "-wait")
	s.env["PODYARD_API_KEY"] = "wrong"
	s.refused(command.ExitDenied, "does not know the key", "pods", "list")
	s.env["PODYARD_URL"] = "http://127.0.0.1:1"
	s.refused(command.ExitUnreachable, "no server answers at http://127.0.0.1:1", "pods", "terminate", "a")
	s.refused(command.ExitUnreachable, "health: no server answers at http://127.0.0.1:1 (connect: ", "health")
	if command.Code(nil) != 0 || command.Code(errors.New("x")) != command.ExitFailed {
		t.Error("nil is not 0, or another error not 1")
	}
}

func TestTheKeyIsThatOfTheDataDirectoryWhereNoOtherIsSet(t *testing.T) {
	t.Parallel()
	srv := apitest.Start(t)
	s := on(t, srv)
	delete(s.env, "PODYARD_API_KEY")
	dir := t.TempDir()
	s.refused(command.ExitUsage, "there is no key: set PODYARD_API_KEY", "pods", "list", "-data", dir)
	if err := os.WriteFile(filepath.Join(dir, "api-key"), []byte(srv.Key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.must("pods", "list", "-data", dir)
	s.env["PODYARD_DATA"] = dir
	s.must("pods", "list")
	s.env["PODYARD_API_KEY"] = "wrong"
	s.refused(command.ExitDenied, "", "pods", "list")
	s.must("pods", "list", "-key", srv.Key)
}

// scene makes a server with something of each kind.
func scene(t *testing.T) *shell {
	srv := apitest.StartWith(t, &double.Options{Seed: 7})
	srv.Endpoint("echo").Reply(map[string]any{"text": "a cat"})
	srv.Endpoint("fails").Fail("no such image")
	srv.Queue("waits")
	s := on(t, srv)
	s.must("jobs", "submit", "echo", "-input", `{"image":"cat.png"}`, "-wait")
	_, _ = s.run("jobs", "submit", "fails", "-wait")
	s.must("jobs", "submit", "waits", "-queue-key", "a", "-priority", "9")
	s.must("pods", "create", "-name", "web", "-image", "nginx", "-cpu", "cpu3c", "-vcpu", "4", "-ports", "80/http", "-env", "A=b")
	srv.Advance(time.Minute)
	s.must("schedules", "create", "echo", "-cron", "0 8 * * *", "-time-zone", "Europe/Berlin")
	s.must("secrets", "create", "db_password", "-value", "hunter2", "-description", "of the tests")
	s.must("keys", "make", "-scopes", "pods:read,endpoint:echo:run", "-expires", "2030-01-01T00:00:00Z")
	return s
}

// ids are those that differ from one run to the next.
var ids = regexp.MustCompile(`\b([0-9a-f]{8}-[0-9a-f-]{27}-u1|[0-9a-z]{14})\b`)

func lines() [][]string {
	var list [][]string
	for _, line := range []string{
		"pods list", "endpoints list", "endpoints get echo", "endpoints workers echo", "jobs list echo", "jobs list fails -status FAILED", "jobs list waits",
		"keys list", "secrets list", "secrets get DB_password", "schedules list echo", "dead list fails", "why echo", "jobs actions waits cancel -all -preview", "endpoints pause waits", "top -n 1",
	} {
		list = append(list, strings.Fields(line))
	}
	return list
}

func TestTablesAreThoseOfTheGoldenFile(t *testing.T) {
	t.Parallel()
	s := scene(t)
	var b strings.Builder
	for _, line := range lines() {
		b.WriteString("$ podyard " + strings.Join(line, " ") + "\n" + ids.ReplaceAllStringFunc(s.must(line...), func(id string) string { return "ID" + strings.Repeat(".", len(id)-2) }) + "\n")
	}
	const file = "testdata/tables.txt"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if diff := cmp.Diff(string(want), b.String()); err != nil || diff != "" {
		t.Errorf("%v (-want +got; -update writes the file):\n%s", err, diff)
	}
}

func TestJSONParsesAndHasNoTable(t *testing.T) {
	t.Parallel()
	s := scene(t)
	for _, line := range append(lines(), []string{"keys", "list", "-owner", "*"}, []string{"limits"}) {
		var v any
		out := s.must(append(line, "-o", "json")...)
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			t.Errorf("%v: %v: %s", line, err, out)
		}
		if name := regexp.MustCompile(`"([A-Z][A-Za-z]+)":`).FindStringSubmatch(out); name != nil && line[0] != "pods" {
			t.Errorf("%v has a member %s, which is no name of the interface", line, name[1])
		}
	}
}

func TestLimitsSayWhatTheCallerHolds(t *testing.T) {
	t.Parallel()
	if out := scene(t).must("limits"); !regexp.MustCompile(`(?m)^tester +pods +1 `).MatchString(out) {
		t.Errorf("the limits are\n%s", out)
	}
}

func TestASecretIsShownWhenItIsMadeAndNeverAgain(t *testing.T) {
	t.Parallel()
	s := on(t, apitest.Start(t))
	var made struct{ ID, Key string }
	if err := json.Unmarshal([]byte(s.must("keys", "make", "-o", "json")), &made); err != nil || len(made.Key) < 20 {
		t.Fatalf("keys make shows %+v, %v", made, err)
	}
	s.must("pods", "list", "-key", made.Key)
	if out := s.must("keys", "list", "-o", "json") + s.must("keys", "list"); strings.Contains(out, made.Key) || strings.Contains(out, "redacted") {
		t.Errorf("keys list shows %s", out)
	}
	if out := s.must("keys", "rotate", made.ID); strings.Contains(out, made.Key) || !strings.Contains(out, "\nkey ") {
		t.Errorf("keys rotate shows %s", out)
	}
	s.must("keys", "revoke", made.ID)
	s.refused(command.ExitNotFound, "not found", "keys", "revoke", made.ID)
}

func TestANewKeyHasAnEndAndMakesNoKeysUnlessItIsAskedFor(t *testing.T) {
	t.Parallel()
	s := on(t, apitest.Start(t))
	for line, want := range map[string]struct{ ends, makes bool }{
		"keys make":                        {true, false},
		"keys make -expires never":         {false, false},
		"keys make -scopes * -expires 30d": {true, true},
	} {
		var made struct {
			Key     string
			Expires *time.Time
		}
		if err := json.Unmarshal([]byte(s.must(append(strings.Fields(line), "-o", "json")...)), &made); err != nil {
			t.Fatal(err)
		}
		s.must("pods", "create", "-name", "p", "-image", "i", "-cpu", "cpu3c", "-key", made.Key)
		_, err := s.run("keys", "list", "-key", made.Key)
		if (made.Expires != nil) != want.ends || (err == nil) != want.makes {
			t.Errorf("%s: ends %v, lists keys: %v; want %+v", line, made.Expires, err, want)
		}
	}
}

func TestTheValueOfASecretComesFromAFlagAFileOrStandardInputAndIsNeverShown(t *testing.T) {
	t.Parallel()
	s := on(t, apitest.Start(t))
	s.stdin = "of standard input\n"
	file := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(file, []byte("of a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	shown := s.must("secrets", "create", "key", "-value", "of the flag", "-o", "json")
	for _, from := range []string{"-", "@" + file} {
		shown += s.must("secrets", "update", "KEY", "-value", from)
	}
	shown += s.must("secrets", "list") + s.must("secrets", "get", "key", "-o", "json")
	if strings.Contains(shown, "of ") {
		t.Errorf("the value is shown: %s", shown)
	}
	s.refused(command.ExitUsage, "no such file", "secrets", "create", "other", "-value", "@"+file+".not")
	s.must("secrets", "delete", "key")
	s.refused(command.ExitNotFound, "not found", "secrets", "get", "key")
}

func TestAnInputIsReadFromAFlagAFileOrStandardInput(t *testing.T) {
	t.Parallel()
	srv := apitest.Start(t)
	srv.Endpoint("echo").Reply(1)
	s := on(t, srv)
	s.stdin = `{"from":"stdin"}`
	file := filepath.Join(t.TempDir(), "in.json")
	if err := os.WriteFile(file, []byte(`{"from":"file"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for from, flag := range map[string]string{"flag": `{"from":"flag"}`, "file": "@" + file, "stdin": "-"} {
		s.must("jobs", "submit", "-input", flag, "echo", "-wait")
		srv.RequireJob(t, apitest.JobMatch{Endpoint: "echo", Input: map[string]any{"from": from}, Status: "COMPLETED"})
	}
}

func TestWhatOthersWriteMovesNoCursor(t *testing.T) {
	t.Parallel()
	s := on(t, apitest.Start(t))
	s.must("pods", "create", "-name", "a\x1b[2Jb", "-image", "nginx", "-cpu", "cpu3c")
	if out := s.must("pods", "list"); strings.Contains(out, "\x1b") {
		t.Errorf("the table is %q", out)
	}
}

func TestErrorsAndJSONOfOthersMoveNoCursor(t *testing.T) {
	t.Parallel()
	srv := apitest.Start(t)
	srv.Endpoint("fails").Fail("first\x1b[2J\u009b2Jsecond\nthird")
	srv.Endpoint("echo").Reply("a\u009b2J\x7f\u202eb")
	s := on(t, srv)
	_, err := s.run("jobs", "submit", "fails", "-wait")
	if err == nil || strings.ContainsAny(err.Error(), "\x1b\u009b") || !strings.Contains(err.Error(), "second\nthird") {
		t.Errorf("the error is %q, want its lines and no escapes", err)
	}
	out := s.must("jobs", "submit", "echo", "-wait", "-o", "json")
	if strings.ContainsAny(out, "\u009b\x7f\u202e") || !strings.Contains(out, `"a\u009b2J\u007f\u202eb"`) {
		t.Errorf("the answer is %q, want escaped characters", out)
	}
}

func TestManyJobsAreCountedBeforeTheyAreCancelled(t *testing.T) {
	t.Parallel()
	srv := apitest.Start(t)
	srv.Queue("waits")
	s := on(t, srv)
	for range 3 {
		s.must("jobs", "submit", "waits")
	}
	if out := s.must("jobs", "actions", "waits", "cancel", "-status", "in_queue", "-preview"); !strings.HasPrefix(out, "3 jobs match") {
		t.Errorf("the preview says %s", out)
	}
	if out := s.must("jobs", "actions", "waits", "cancel", "-all"); !strings.HasPrefix(out, "3 of 3 jobs done") {
		t.Errorf("it says %s", out)
	}
}

func TestCompletionScriptsAreAcceptedByTheirShells(t *testing.T) {
	t.Parallel()
	s := &shell{t: t}
	for _, name := range []string{"bash", "zsh", "fish"} {
		script := s.must("completion", name)
		if !strings.Contains(script, "podyard __complete") {
			t.Errorf("the script of %s is %s", name, script)
		}
		if _, err := exec.LookPath(name); err != nil {
			t.Logf("there is no %s", name)
			continue
		}
		cmd := exec.CommandContext(t.Context(), name, "-n")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v %s", name, err, out)
		}
	}
}

func TestCompletionKnowsCommandsAndFlags(t *testing.T) {
	t.Parallel()
	s := &shell{t: t}
	for line, want := range map[string]string{
		"jo":                "jobs\n",
		"jobs ca":           "cancel\n",
		"jobs list -stat":   "-status\n",
		"jobs list echo -l": "-limit\n",
		"completion b":      "bash\n",
		"help jobs stre":    "stream\n",
		"nonsense -":        "",
	} {
		if got := s.must(append([]string{"__complete"}, strings.Fields(line)...)...); got != want {
			t.Errorf("%q is completed to %q, want %q", line, got, want)
		}
	}
}

func TestWhySaysWhyAPodDoesNotRun(t *testing.T) {
	t.Parallel()
	srv := apitest.Start(t)
	s := on(t, srv)
	pod := s.pod(srv)
	if out := s.must("why", pod); out != "it is RUNNING\n" {
		t.Errorf("why of a pod that runs: %q", out)
	}
	s.must("pods", "stop", pod)
	srv.Advance(time.Minute)
	if out := s.must("why", pod); !regexp.MustCompile(`(?m)^status +EXITED\nwhy +It has ended: stopped by its user\.\nsince +2`).MatchString(out) {
		t.Errorf("why of a pod that was stopped: %q", out)
	}
	s.refused(command.ExitNotFound, "there is no endpoint and no pod nothere", "why", "nothere")
}

func TestPodsAndHostsAreWaitedFor(t *testing.T) {
	t.Parallel()
	srv := apitest.Start(t)
	srv.Queue("waits")
	s := on(t, srv)
	pod := s.pod(srv)
	stop := make(chan struct{})
	var passes sync.WaitGroup
	passes.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				srv.Advance(5 * time.Second)
			}
		}
	})
	for _, x := range [][2]string{{"stop", "EXITED"}, {"start", "RUNNING"}, {"restart", "RUNNING"}} {
		if out := s.must("pods", x[0], pod, "-wait"); !strings.Contains(out, x[1]) {
			t.Errorf("pods %s -wait prints %q, want the pod %s", x[0], out, x[1])
		}
	}
	close(stop)
	passes.Wait()
	var state struct {
		State struct{ Hosts []struct{ ID string } }
	}
	if err := json.Unmarshal([]byte(s.must("top", "-n", "1", "-o", "json")), &state); err != nil || len(state.State.Hosts) == 0 {
		t.Fatalf("top = %+v, %v", state, err)
	}
	host := state.State.Hosts[0].ID
	if out := s.must("drain", "-host", host, "-wait"); !strings.Contains(out, host+" is cordoned") {
		t.Errorf("drain -wait prints %q", out)
	}
	s.refused(command.ExitUsage, "-wait is for a host or a server", "drain", "-endpoint", "waits", "-wait")
	if out := s.must("erase", "jobs", "nobody"); out != "nobody: 0 jobs erased\n" {
		t.Errorf("erase jobs of nobody prints %q", out)
	}
}

func TestTheJobsOfAServerAreWaitedFor(t *testing.T) {
	t.Parallel()
	srv := apitest.Start(t)
	begun, end := make(chan struct{}), make(chan struct{})
	srv.Handle("slow", func(context.Context, *serverless.Task) ([]byte, error) {
		close(begun)
		<-end
		return []byte("1"), nil
	})
	s := on(t, srv)
	s.refused(command.ExitNotFound, `server not found: "server" has answered, and each server is asked at its own address`, "drain", "-server", "two", "-wait")
	s.must("jobs", "submit", "slow", "-input", `{}`)
	<-begun
	if out := s.must("drain", "-server", "server"); out != "server is drained; its workers end after their jobs\n" {
		t.Errorf("drain prints %q", out)
	}
	ended := make(chan string)
	go func() {
		out, err := s.run("drain", "-server", "server", "-wait")
		ended <- fmt.Sprint(out, err)
	}()
	var state struct{ State client.State }
	if err := json.Unmarshal([]byte(s.must("top", "-n", "1", "-o", "json")), &state); err != nil || state.State.Server == nil || state.State.Server.Jobs == nil || *state.State.Server.Jobs != 1 {
		t.Errorf("with a job that runs the server is %+v, %v, want one job", state.State.Server, err)
	}
	select {
	case out := <-ended:
		t.Errorf("drain -wait ends with a job that runs: %s", out)
	case <-time.After(1200 * time.Millisecond): // longer than it takes to look
	}
	close(end)
	if out, want := <-ended, "server is drained; its workers have no job left, so it can be stopped\n<nil>"; !strings.HasSuffix(out, want) {
		t.Errorf("drain -wait ends with %q, want %q", out, want)
	}
	s.must("uncordon", "-server", "server")
}

func TestAnErrorNamesTheRecordAndComesWithoutAnEmptyTable(t *testing.T) {
	t.Parallel()
	srv := apitest.Start(t)
	srv.Queue("waits")
	s := on(t, srv)
	pod := s.pod(srv)
	for line, want := range map[string]string{
		"pods stop nope":           "pods stop: nope: pod not found",
		"pods terminate nope":      "pods terminate: nope: pod not found",
		"jobs cancel waits nope":   "jobs cancel: nope: job not found",
		"dead redrive waits nope":  "dead redrive: nope: dead letter not found",
		"keys revoke nope":         "keys revoke: nope: key not found",
		"endpoints workers nope":   "endpoints workers: endpoint not found",
		"pods restart nope nope.2": "pods restart: nope: pod not found",
	} {
		out, err := s.run(strings.Fields(line)...)
		if err == nil || err.Error() != want || out != "" {
			t.Errorf("%s prints %q and ends with %v, want %q", line, out, err, want)
		}
	}
	out, err := s.run("pods", "stop", pod, "nope")
	if err == nil || err.Error() != "pods stop: nope: pod not found" || !strings.Contains(out, pod) {
		t.Errorf("one of two: %q, %v, want the first pod in the table and an error about the second", out, err)
	}
}

func TestTheLogOfAnEndpointWhoseWorkersOnlyOperatorsSeeSaysSo(t *testing.T) {
	t.Parallel()
	srv := apitest.Start(t)
	srv.Queue("shared")
	s := on(t, srv)
	key := s.must("keys", "make", "-scopes", "endpoints:read", "-o", "json")
	var made struct{ Key string }
	if err := json.Unmarshal([]byte(key), &made); err != nil {
		t.Fatal(err)
	}
	s.env["PODYARD_API_KEY"] = made.Key
	s.refused(command.ExitDenied, "only an operator may do this", "logs", "shared")
}

func TestTheLogIsNotOverBeforeTheServerHasAnswered(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	srv := apitest.Start(t)
	s := on(t, srv)
	pod := s.pod(srv)
	to, err := url.Parse(srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	var wait atomic.Int64
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/logs") {
			select {
			case <-time.After(time.Duration(wait.Load())):
			case <-r.Context().Done():
				return
			}
		}
		proxy := httputil.NewSingleHostReverseProxy(to)
		proxy.FlushInterval = -1
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(slow.Close)
	s.env["PODYARD_URL"] = slow.URL
	wait.Store(int64(3 * time.Second))
	if out := s.must("logs", pod); strings.Count(out, "\n") < 2 {
		t.Errorf("the log that came after 3 s is %q", out)
	}
	wait.Store(int64(time.Minute))
	s.refused(command.ExitUnreachable, "the server has not answered within 10s", "logs", pod)
}

func TestAClusterIsMadeShownAndDeleted(t *testing.T) {
	t.Parallel()
	srv := apitest.Start(t)
	s := on(t, srv)
	var made struct{ ID string }
	if err := json.Unmarshal([]byte(s.must("clusters", "create", "-name", "train", "-image", "i", "-gpu", "NVIDIA GeForce RTX 4090", "-o", "json")), &made); err != nil {
		t.Fatal(err)
	}
	srv.Advance(time.Minute)
	for _, row := range []struct{ want, line string }{
		{"2 RUNNING  2 x 1 x NVIDIA GeForce RTX 4090", "clusters list"},
		{"other", "clusters rename " + made.ID + " other"},
		{"TRAINING", "clusters get " + made.ID},
		{"train-1", "clusters pods " + made.ID},
		{"deleted", "clusters delete " + made.ID},
	} {
		if got := s.must(strings.Fields(row.line)...); !strings.Contains(got, row.want) {
			t.Errorf("%s: %s\nwant %s", row.line, got, row.want)
		}
	}
	s.refused(command.ExitNotFound, "cluster not found", "clusters", "get", made.ID)
}
