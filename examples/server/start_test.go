package main

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/suite"
)

func TestTheFirstLineIsTheAddressThenComeTheKeyAndTwoCommands(t *testing.T) {
	t.Parallel()
	in := startCommand(t, command(t, nil, "-addr", "127.0.0.1:0", "-data", t.TempDir()))
	if !regexp.MustCompile(`^http://127\.0\.0\.1:[1-9]\d*$`).MatchString(in.url) {
		t.Errorf("listening on %q, want http://127.0.0.1:PORT and nothing else", in.url)
	}
	key, ok := strings.CutPrefix(in.line(), "key: ")
	if !ok || key == "" {
		t.Fatal("the second line is not the key")
	}
	first, second := in.line(), in.line()
	for _, l := range []string{first, second} {
		if !strings.HasPrefix(l, "curl -H 'Authorization: Bearer "+key+"' ") || !strings.Contains(l, " "+in.url+"/v2/") {
			t.Errorf("line %q is not a curl command with key and address", l)
		}
	}
	in.stop()
	if rest := in.rest(); len(rest) > 0 {
		t.Errorf("more on standard output: %q", rest)
	}
}

func TestWhereALogKeepsTheOutputTheFileOfTheNewKeyIsNamedInsteadOfTheKey(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	in := startCommand(t, command(t, []string{"PODYARD_FIRST_KEY=file"}, "-addr", "127.0.0.1:0", "-data", data))
	file := filepath.Join(data, "api-key")
	if l := in.line(); l != "key: in "+file {
		t.Errorf("the second line is %q, want the file that has the key", l)
	}
	in.stop()
	key, err := os.ReadFile(file)
	if err != nil || len(key) == 0 {
		t.Fatalf("%v: the file that the line names has no key", err)
	}
	if rest := strings.Join(in.rest(), "\n"); rest != "" || strings.Contains(in.stderr.String(), string(key)) {
		t.Errorf("after the line of the key come %q and a log, which must not have the key:\n%s", rest, in.stderr.String())
	}
	if text := refused(t, nil, "-data", "", "-first-key", "file"); !strings.Contains(text, "no file has the key") {
		t.Errorf("in memory: %q", text)
	}
}

func TestTheCommandsThatAStartPrintsWork(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing(t, "there is no "+tool)
		}
	}
	in := startCommand(t, command(t, nil, "-addr", "127.0.0.1:0", "-data", ""))
	in.line() // the key
	for _, want := range []string{`"status":"COMPLETED"`, `"status":"PROVISIONING"`} {
		line := in.line()
		out, err := exec.Command("bash", "-c", line+" -sS").CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s\nanswers %s (%v), want %s in it", line, out, err, want)
		}
	}
}

func TestTheKeyIsPrintedOnlyWhenItIsNew(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	data := filepath.Join(t.TempDir(), "new", "data")
	args := []string{"-addr", "127.0.0.1:0", "-data", data}
	in := startCommand(t, command(t, nil, args...))
	key := strings.TrimPrefix(in.line(), "key: ")
	in.stop()

	kept, err := os.ReadFile(filepath.Join(data, "api-key"))
	if err != nil {
		t.Fatal(err)
	}
	if string(kept) != key {
		t.Errorf("the file has another key than was printed")
	}
	for path, want := range map[string]os.FileMode{data: 0o700, filepath.Join(data, "api-key"): 0o600} {
		if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != want {
			t.Errorf("mode of %s is %v (%v), want %v", filepath.Base(path), fi.Mode().Perm(), err, want)
		}
	}

	again := startCommand(t, command(t, nil, args...))
	again.key = key
	get[any](again, "GET", "/v2/pods", "", http.StatusOK)
	again.stop()
	if rest := again.rest(); len(rest) > 0 {
		t.Errorf("the second start prints %q after its first line, want nothing", rest)
	}
	if log := again.stderr.String(); strings.Contains(log, key) {
		t.Errorf("the key is in the log:\n%s", log)
	}
}

func TestAKeyFromTheEnvironmentHasFullAccessAndIsNeitherPrintedNorKept(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	in := start(t, "-data", data)
	get[any](in, "GET", "/v2/pods", "", http.StatusOK)
	get[any](in, "GET", "/v2/registries", "", http.StatusOK)
	get[any](in, "GET", "/v2/echo/requests", "", http.StatusOK)
	in.key = "another"
	get[any](in, "GET", "/v2/pods", "", http.StatusUnauthorized)
	in.stop()
	if rest := in.rest(); len(rest) > 0 {
		t.Errorf("printed: %q", rest)
	}
	if _, err := os.Stat(filepath.Join(data, "api-key")); err == nil {
		t.Error("the key was written to the data directory")
	}
}

func TestTheEnvironmentStandsInForFlags(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	config := file(t, `{"keys":[{"key":"bobs","user":"bob","scopes":["pods:read"]}],"catalog":"sample"}`)
	in := startCommand(t, command(t, []string{
		"PODYARD_ADDR=127.0.0.1:0", "PODYARD_DATA=" + data, "PODYARD_CONFIG=" + config,
		"PODYARD_RUNTIME=sim", "PODYARD_API_KEY=" + testKey, "PODYARD_SECRET_KEY=" + strings.Repeat("A", 43) + "=",
	}))
	if _, err := os.Stat(filepath.Join(data, "secret-key")); err == nil {
		t.Error("PODYARD_SECRET_KEY was not used: a key was made")
	}
	if _, err := os.Stat(filepath.Join(data, "process")); err != nil {
		t.Errorf("PODYARD_DATA was not used: %v", err)
	}
	in.key = "bobs"
	get[any](in, "GET", "/v2/pods", "", http.StatusOK)
	get[any](in, "GET", "/v2/registries", "", http.StatusForbidden)
}

func TestABadSecretKeyOfTheEnvironmentIsNamedAndNotShown(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"c2hvcnQ=":                    "must be the base64 of 32 bytes",
		strings.Repeat("B", 43) + "=": "the configuration has another secretKey",
	} {
		text := refused(t, []string{"PODYARD_SECRET_KEY=" + key}, "-addr", "127.0.0.1:0", "-data", "", "-config", file(t, `{"secretKey":"`+strings.Repeat("A", 43)+`="}`))
		if !strings.Contains(text, "PODYARD_SECRET_KEY: ") || !strings.Contains(text, want) || strings.Contains(text, key) {
			t.Errorf("%q does not say that PODYARD_SECRET_KEY is wrong, and why, without showing it", text)
		}
	}
}

func TestFlagsBeatTheEnvironment(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := startCommand(t, command(t, []string{
		"PODYARD_ADDR=256.0.0.1:1", "PODYARD_DATA=/dev/null/data", "PODYARD_CONFIG=/nonexistent",
		"PODYARD_RUNTIME=nonsense", "PODYARD_API_KEY=" + testKey,
	}, "-addr", "127.0.0.1:0", "-data", t.TempDir(), "-config", file(t, `{}`), "-runtime", "process"))
	get[any](in, "GET", "/v2/pods", "", http.StatusOK)
}

func TestHealthNeedsNoKey(t *testing.T) {
	t.Parallel()
	in := start(t)
	req := in.request("GET", "/healthz", "")
	req.Header.Del("Authorization")
	if status, _, err := send(req); status != http.StatusOK {
		t.Errorf("GET /healthz without a key: %d (%v), want 200", status, err)
	}
	for _, path := range []string{"/healthz/", "/healthz/x", "//healthz"} {
		if status, _ := in.do("GET", path, ""); status != http.StatusNotFound {
			t.Errorf("GET %s: %d, want 404", path, status)
		}
	}
}

func TestASecondServerOnADataDirectoryIsRefused(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	data := t.TempDir()
	in := start(t, "-data", data)
	for _, runtime := range []string{"process", "sim"} {
		text := refused(t, nil, "-addr", "127.0.0.1:0", "-data", data, "-runtime", runtime)
		if !strings.Contains(text, data) || !strings.Contains(text, "another server uses this directory") {
			t.Errorf("-runtime %s: %q does not say that the directory is in use, and which", runtime, text)
		}
	}
	get[any](in, "GET", "/v2/pods", "", http.StatusOK)
}

func TestAnAddressThatIsTakenIsNamedWithItsFlag(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	addr := l.Addr().String()
	for flag, args := range map[string][]string{"-addr": {"-addr", addr}, "-metrics": {"-addr", "127.0.0.1:0", "-metrics", addr}, "-ssh": {"-addr", "127.0.0.1:0", "-ssh", addr}} {
		text := refused(t, nil, append(args, "-data", "")...)
		if want := flag + " " + addr + ": another program listens there"; !strings.Contains(text, want) {
			t.Errorf("%q does not say %q", text, want)
		}
	}
}

// refused runs a server that does not start and returns what it says.
func refused(t *testing.T, env []string, args ...string) string {
	t.Helper()
	// Another program may listen at the default address.
	cmd := command(t, append([]string{"PODYARD_ADDR=127.0.0.1:0"}, env...), args...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d, want 1; stderr: %s", code, &stderr)
	}
	if stdout.Len() > 0 {
		t.Errorf("a server that is refused says on standard output: %s", &stdout)
	}
	text := strings.TrimSpace(stderr.String())
	if !strings.HasPrefix(text, "server: ") || strings.Contains(text, "\n") {
		t.Errorf("not one line that begins with \"server: \": %q", text)
	}
	return text
}

func TestWhatIsWrongOrNotOfferedIsNamed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		args   []string
		config string
		want   []string
	}{
		{"UnknownFlag", []string{"-nonsense"}, "", []string{"-nonsense", "-help"}},
		{"Argument", []string{"nonsense"}, "", []string{`"nonsense"`}},
		{"Address", []string{"-addr", "nonsense"}, "", []string{"-addr", "nonsense", "HOST:PORT"}},
		{"Port", []string{"-addr", "127.0.0.1:99999"}, "", []string{"-addr", "127.0.0.1:99999", "65535"}},
		{"PublicURL", []string{"-public-url", "example.com"}, "", []string{"-public-url", "example.com"}},
		{"PublicURLWithQuery", []string{"-public-url", "https://example.com/?a=b"}, "", []string{"-public-url", "no query"}},
		{"NoSuchAddress", []string{"-addr", "192.0.2.77:0"}, "", []string{"-addr 192.0.2.77:0: this machine has no such address"}},
		{"DataIsAFile", []string{"-data", "/dev/null"}, "", []string{`-data "/dev/null": is a file`}},
		{"LogLevel", []string{"-log-level", "loud"}, "", []string{"-log-level", "debug, info, warn or error"}},
		{"DrainWait", []string{"-drain-wait", "5"}, "", []string{"-drain-wait", "with its unit, as 5s"}},
		{"OnlyACertificate", []string{"-tls-cert", "x.pem"}, "", []string{"-tls-cert, -tls-key: the file of the key is missing"}},
		{"DatabaseWithoutConfig", []string{"-data", "postgres://127.0.0.1:1/x", "-local", "/nonexistent"}, "", []string{"no -config is given: secretKey: is needed with a database"}},
		{"Budget", nil, `{"budgets":{"pods":-5}}`, []string{"config.json:1:13: budgets.pods: must be a number above 0, 0 for the default, or -1"}},
		{"BudgetOfAUser", nil, `{"budgets":{"users":{"u":{"jobs":-2}}}}`, []string{"budgets.users.u.jobs: must be a number above 0"}},
		{"Runtime", []string{"-runtime", "nonsense"}, "", []string{"-runtime", "nonsense", "process, docker, sim or auto"}},
		{"Docker", []string{"-runtime", "docker"}, "", []string{"-runtime docker", "no engine answers"}},
		{"Backup", []string{"-backup", "copy"}, "", []string{"-backup", "no store"}},
		{"Check", []string{"-check"}, "", []string{"-check", "no store"}},
		{"Repair", []string{"-repair"}, "", []string{"-repair", "no store"}},
		{"Restore", []string{"-restore", "copy"}, "", []string{"-restore", "no store"}},
		{"RestoreFromNothing", []string{"-restore", ""}, "", []string{"-restore", "no directory"}},
		{"BackupToNothing", []string{"-backup", ""}, "", []string{"-backup", "no directory"}},
		{"TestDoubleForOthers", []string{"-test", "0.0.0.0:0"}, "", []string{"-test", "loopback"}},
		{"TestDoubleChecked", []string{"-test", "127.0.0.1:0", "-data", "x", "-check"}, "", []string{"-test", "-check"}},
		{"NoConfig", []string{"-config", "nonexistent.json"}, "", []string{"-config", "nonexistent.json"}},
		{"UnknownField", nil, "{\n  \"quotas\": {\"hours\": 1}\n}", []string{"config.json:2:14: quotas.hours: unknown field"}},
		{"WrongType", nil, `{"keys":[{"key":"k","user":1}]}`, []string{"config.json:1:21: keys[0].user: cannot be a JSON number"}},
		{"NoTime", nil, `{"keys":[{"key":"k","user":"u","expires":"2027-01-01"}]}`, []string{"config.json:1:32: keys[0].expires: ", "2027-01-01T00:00:00Z"}},
		{"NoObject", nil, `[]`, []string{"config.json:1:1: must be a JSON object"}},
		{"WrongTypeOfAValueWithMembers", nil, `{"quotas":[]}`, []string{"config.json:1:2: quotas: cannot be a JSON array"}},
		{"Fraction", nil, `{"limits":{"perWorkerRate":1.5}}`, []string{"config.json:1:12: limits.perWorkerRate: must be an integer"}},
		{"ServiceDomain", nil, `{"serviceDomain":"a b"}`, []string{"config.json:1:2: serviceDomain: ", `"a b"`}},
		{"Twice", nil, "{\"catalog\":\"host\",\n \"catalog\":\"host\"}", []string{"config.json:2:2: catalog: ", "duplicate"}},
		{"Null", nil, "null", []string{"config.json:1:1: must be a JSON object"}},
		{"EmptyTLS", []string{"-tls-cert", "", "-tls-key", ""}, "", []string{"-tls-cert, -tls-key: must name a file"}},
		{"Cut", nil, `{"catalog":`, []string{"config.json:1:12: catalog: unexpected EOF"}},
		{"NoJSON", nil, "{\n\t\"serviceDomain\": \"ü\", x\n}", []string{"config.json:2:24: invalid character 'x'"}},
		{"Trailing", nil, "{}\n{}", []string{"config.json:2:1: invalid character '{'"}},
		{"Catalog", nil, `{"catalog":"nonsense"}`, []string{"config.json:1:2: catalog: must be host or sample"}},
		{"NoUser", nil, `{"keys":[{"key":"k"}]}`, []string{"config.json:1:10: keys[0].user: must be the name of a user"}},
		{"Scope", nil, `{"keys":[{"key":"k","user":"u"},{"key":"l","user":"u","scopes":["nonsense"]}]}`, []string{"config.json:1:55: keys[1].scopes: unknown scope \"nonsense\""}},
		{"KeyTwice", nil, `{"keys":[{"key":"k","user":"u"},{"key":"k","user":"v"}]}`, []string{"config.json:1:34: keys[1].key: key is there twice"}},
		{"NoCommand", nil, `{"images":{"local/x":{}}}`, []string{`config.json:1:12: images["local/x"]: command is missing`}},
		{"RelativeDir", nil, `{"images":{"local/x":{"command":["x"],"dir":"here"}}}`, []string{`config.json:1:39: images["local/x"].dir: must be absolute, not "here"`}},
		{"BlankInKey", nil, `{"keys":[{"key":"a b","user":"u"}]}`, []string{"config.json:1:11: keys[0].key: ", "blanks"}},
		{"OwnImage", nil, `{"images":{"podyard/web":{"command":["web"]}}}`, []string{`config.json:1:12: images["podyard/web"]: `, "own"}},
		{"OwnWorkerImage", nil, `{"images":{"podyard/hello":{"command":["hello"]}}}`, []string{`images["podyard/hello"]: `, "own"}},
		{"Quota", nil, `{"quotas":{"minute":-1}}`, []string{"config.json:1:12: quotas.minute: must not be negative"}},
		{"SecretKey", nil, `{"secretKey":"c2hvcnQ="}`, []string{"config.json:1:2: secretKey: ", "32 bytes"}},
		{"WebhookSecret", nil, `{"webhook":{"secrets":["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw","c2hvcnQ="]}}`, []string{"config.json:1:65: webhook.secrets[1]: must begin with whsec_"}},
		{"EndpointWithoutCompute", nil, `{"endpoints":[{"id":"py","image":"local/py","workers":{"max":2}}]}`, []string{"config.json:1:15: endpoints[0]: ", "exactly one of gpu and cpu"}},
		{"EndpointMember", nil, `{"endpoints":[{"id":"py","image":"local/py","worker":{"max":2}}]}`, []string{"config.json:1:45: endpoints[0].worker: unknown property"}},
		{"EndpointFlavor", nil, `{"endpoints":[{"id":"py","image":"local/py","cpu":[{"id":"cpu9","vcpuCount":2}]}]}`, []string{"config.json:1:53: endpoints[0].cpu[0].id: ", "cpu9"}},
		{"EndpointID", nil, `{"endpoints":[{"id":"pods","image":"local/py"}]}`, []string{"config.json:1:16: endpoints[0].id: ", `"pods"`, "reserved"}},
		{"EndpointWithoutID", nil, `{"endpoints":[{"image":"local/py"}]}`, []string{"config.json:1:15: endpoints[0].id: must be a string"}},
		{"EndpointNoObject", nil, `{"endpoints":["py"]}`, []string{"config.json:1:15: endpoints[0]: must be a JSON object"}},
		{"EndpointTwice", nil, `{"endpoints":[{"id":"hello","image":"local/py"}]}`, []string{"config.json:1:16: endpoints[0].id: ", `"hello"`, "already"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"-addr", "127.0.0.1:0", "-data", ""}, tt.args...)
			if tt.config != "" {
				args = append(args, "-config", file(t, tt.config))
			}
			text := refused(t, []string{noEngine}, args...)
			for _, want := range tt.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q does not say %q", text, want)
				}
			}
			for _, prefix := range []string{" httpapi:", " webhook:", " serverless:", " json:", " jsontext:"} {
				if strings.Contains(text, prefix) {
					t.Errorf("%q has the name of a package in it", text)
				}
			}
		})
	}
}

func TestAKeyOfTheEnvironmentThatIsWrongIsNamed(t *testing.T) {
	t.Parallel()
	config := file(t, `{"keys":[{"key":"mine","user":"u","scopes":["*"]}]}`)
	for key, want := range map[string]string{"a b": "blanks", "mine": "twice"} {
		text := refused(t, []string{"PODYARD_API_KEY=" + key}, "-addr", "127.0.0.1:0", "-data", "", "-config", config)
		if !strings.Contains(text, "PODYARD_API_KEY: ") || !strings.Contains(text, want) || strings.Contains(text, key) {
			t.Errorf("%q does not say that PODYARD_API_KEY is wrong, and why, without showing it", text)
		}
	}
}

// noEngine keeps a server off the engine of a machine that has one.
const noEngine = "DOCKER_HOST=unix:///nonexistent/docker.sock"

func TestARefusedServerLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"-runtime", "docker"}, {"-addr", "nonsense"}, {"-addr", "127.0.0.1:65536"},
		{"-config", file(t, `{"keys":[{"key":"k","user":"u","scopes":["nonsense"]}]}`)},
	} {
		data := filepath.Join(t.TempDir(), "data")
		refused(t, []string{noEngine}, append([]string{"-addr", "127.0.0.1:0", "-data", data}, args...)...)
		if _, err := os.Stat(data); err == nil {
			t.Errorf("%s: the data directory was made", args)
		}
	}
}

func TestHelpListsTheFlagsOfTheContract(t *testing.T) {
	t.Parallel()
	out, err := command(t, nil, "-help").Output()
	if err != nil {
		t.Fatal(err)
	}
	var flags []string
	for _, m := range regexp.MustCompile(`(?m)^  (-[a-z-]+)`).FindAllStringSubmatch(string(out), -1) {
		flags = append(flags, m[1])
	}
	want := []string{"-addr", "-backup", "-check", "-config", "-data", "-drain-wait", "-first-key", "-local", "-log", "-log-level", "-metrics", "-name", "-peer-url", "-public-url", "-repair", "-restore", "-rotate-secret-key", "-runtime", "-ssh", "-test", "-tls-cert", "-tls-key", "-version"}
	if diff := cmp.Diff(want, flags); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
	for _, def := range []string{`"127.0.0.1:8080"`, `"./podyard-data"`, `"auto"`} {
		if !strings.Contains(string(out), def) {
			t.Errorf("the help does not name the default %s", def)
		}
	}
	if out, err := command(t, nil, "-version").Output(); err != nil || !strings.HasPrefix(string(out), "podyard ") {
		t.Errorf("-version prints %q (%v)", out, err)
	}
}
