package podyard_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/podyard/podyard"

// A layer says what the packages of a path may import. The longest path that is the
// package's, or contains it, decides. "x/..." is x and all below it.
type layer struct {
	path   string
	alone  bool     // it is for this package, and not for those below
	module []string // of this module
	third  []string // of others; the standard library is open to all
	never  []string // what must not be in the closure, however it got there
}

var (
	domains = []string{"pods/...", "serverless/...", "registries"}
	ground  = []string{"problem", "problem/idempotency", "ratelimit/budget", "serverless/servers", "internal/..."}
	backend = slices.Concat(domains, ground, []string{"backend/stores"})

	noHTTP    = []string{"net/http"}
	noTesting = []string{"testing"}
	noEither  = []string{"net/http", "testing"}
)

const (
	anything = "..."
	retry    = "github.com/cenkalti/backoff/v4" // for a backend that reaches an engine or a database
	postgres = "github.com/jackc/pgx/v5/..."
	strict   = "github.com/go-json-experiment/json/..."
	compare  = "github.com/google/go-cmp/..."
)

// layers are the walls of the module, lowest first.
var layers = []layer{
	{path: ""}, // documentation only
	{path: "problem", never: noEither},
	{path: "problem/idempotency", module: []string{"problem"}, never: noEither},
	{path: "serverless/servers", module: []string{"problem", "internal/..."}, never: noEither},
	{path: "serverless/servers/serverstest", module: ground, third: []string{compare}, never: noHTTP},
	{path: "internal", module: backend},
	{path: "internal/clock", never: noEither},
	{path: "internal/suite", module: []string{"problem/idempotency"}, third: []string{compare}, never: noHTTP},
	{path: "internal/sweeptest", never: noHTTP},
	{path: "internal/postgrestest", module: []string{"internal/suite", "internal/sweeptest"}, third: []string{postgres}},
	{path: "internal/enginetest", module: []string{"internal/sweeptest"}, third: []string{"github.com/google/go-containerregistry/..."}},

	{path: "internal/insideprogram", third: []string{"golang.org/x/sys/unix"}, never: noHTTP},

	{path: "ratelimit", third: []string{"golang.org/x/time/rate"}, never: noEither},

	{path: "ratelimit/budget", module: []string{"problem"}, never: noEither},

	{path: "pods", module: join(ground, "pods/catalog", "pods/telemetry"), never: noEither},
	{path: "pods/catalog", module: ground, never: noEither},
	{path: "pods/telemetry", never: noEither},
	{path: "pods/templates", module: join(ground, "pods", "pods/catalog"), never: noEither},
	{path: "pods/volumes", module: join(ground, "pods", "pods/catalog"), never: noEither},
	{path: "pods/sshkeys", module: join(ground, "pods"), never: noEither},
	{path: "pods/secrets", module: ground, never: noEither},
	{path: "pods/billing", module: join(ground, "pods", "pods/catalog"), never: noEither},
	{path: "pods/spending", module: join(ground, "pods", "pods/billing", "pods/catalog"), never: noEither},
	{path: "pods/accounts", module: ground, third: []string{"golang.org/x/text/unicode/norm"}, never: noEither},
	{path: "serverless", module: join(ground, "serverless/queue", "serverless/endpoints", "serverless/workers", "serverless/fleet", "serverless/schedules", "serverless/events", "serverless/balance", "serverless/batches", "serverless/joblog", "serverless/telemetry"), never: noEither},
	{path: "serverless/queue", module: ground, never: noEither},
	{path: "serverless/telemetry", module: join(ground, "serverless/queue"), never: noEither},
	{path: "serverless/endpoints", module: join(ground, "serverless/queue"), never: noEither},
	{path: "serverless/workers", module: join(ground, "serverless/queue"), never: noEither},
	{path: "serverless/cron", module: ground, never: noEither},
	{path: "serverless/events", module: join(ground, "serverless/queue"), never: noEither},
	{path: "serverless/schedules", module: join(ground, "serverless/cron", "serverless/queue", "serverless/endpoints"), never: noEither},
	{path: "serverless/joblog", module: join(ground, "serverless/queue"), never: noEither},
	{path: "serverless/batches", module: join(ground, "serverless/queue"), never: noEither},
	{path: "serverless/fleet", module: join(ground, "serverless/queue", "serverless/endpoints", "serverless/workers", "serverless/telemetry"), never: noEither},
	{path: "serverless/balance", module: join(ground, "serverless/queue", "serverless/endpoints", "serverless/workers", "serverless/fleet"), never: noEither},
	{path: "registries", module: ground, never: noEither},

	{path: "pods/podstest", module: join(ground, "pods/..."), third: []string{compare}, never: noHTTP},
	{path: "pods/volumes/volumestest", module: join(ground, "pods/..."), never: noHTTP},
	{path: "pods/templates/templatestest", module: join(ground, "pods/..."), third: []string{compare}, never: noHTTP},
	{path: "pods/sshkeys/sshkeystest", module: join(ground, "pods/..."), third: []string{compare}, never: noHTTP},
	{path: "pods/secrets/secretstest", module: join(ground, "pods/..."), never: noHTTP},
	{path: "pods/accounts/accountstest", module: join(ground, "pods/accounts"), third: []string{compare}, never: noHTTP},
	{path: "pods/billing/billingtest", module: join(ground, "pods/..."), third: []string{compare}, never: noHTTP},
	{path: "serverless/schedules/schedulestest", module: join(ground, "serverless/schedules"), never: noHTTP},
	{path: "serverless/joblog/joblogtest", module: join(ground, "serverless/queue", "serverless/joblog"), never: noHTTP},
	{path: "serverless/batches/batchestest", module: join(ground, "serverless/batches"), never: noHTTP},
	{path: "serverless/serverlesstest", module: join(ground, "serverless/..."), third: []string{compare}, never: noHTTP},
	{path: "registries/registriestest", module: join(ground, "registries"), never: noHTTP},

	{path: "backend", alone: true, module: join(backend, "backend/disk", "backend/memory", "backend/postgres")}, // opens any of them
	{path: "backend/stores", module: backend, never: noTesting},
	{path: "backend/memory", module: backend, third: []string{"github.com/hashicorp/go-memdb"}},
	{path: "backend/disk", module: backend, third: []string{"github.com/cockroachdb/pebble/v2/..."}},
	{path: "backend/postgres", module: backend, third: []string{postgres, retry}},
	{path: "backend/process", module: join(backend, "backend/process/internal/supervise"), third: []string{"golang.org/x/sys/unix"}},
	{path: "backend/process/internal/supervise", module: backend, third: []string{"golang.org/x/sys/unix", "golang.org/x/sys/windows"}},
	{path: "backend/nvidia", module: backend, third: []string{"github.com/NVIDIA/go-nvml/..."}},
	{path: "backend/docker", module: backend, third: []string{
		"github.com/moby/moby/...", "github.com/containerd/errdefs", "github.com/distribution/reference", "tags.cncf.io/container-device-interface/...", "golang.org/x/sys/unix", retry,
	}},
	{path: "backend/podfleet", module: backend},
	{path: "backend/prometheus", module: backend, third: []string{"github.com/prometheus/client_golang/...", "github.com/prometheus/client_model/..."}},
	{path: "backend/machine", module: backend},
	{path: "backend/router", module: backend},
	{path: "backend/shard", module: backend, third: []string{"golang.org/x/sync/semaphore"}},
	{path: "backend/shard/scale", module: join(backend, "backend/shard", "backend/memory")},
	{path: "backend/webhook", module: backend},
	{path: "backend/fault", module: backend},

	{path: "httpapi/audit", module: []string{"internal/terminal"}},
	{path: "httpapi/conns", module: []string{"problem"}},
	{path: "httpapi/incidents", never: noEither},
	{path: "httpapi", module: join(backend, "ratelimit", "httpapi/audit", "httpapi/conns", "httpapi/incidents"), third: []string{strict, "github.com/coder/websocket"}, never: noTesting},
	{path: "httpapi/server", module: join(backend, "ratelimit", "httpapi", "httpapi/conns", "httpapi/incidents", "backend/podfleet"), never: noTesting},
	{path: "httpapi/server/config", module: join(backend, "ratelimit", "httpapi", "httpapi/conns", "httpapi/incidents", "httpapi/server", "httpapi/audit", "backend/..."), third: []string{strict}, never: noTesting},
	{path: "httpapi/console", module: join(backend, "httpapi", "httpapi/incidents"), never: noTesting},
	{path: "httpapi/sshfront", module: join(backend, "httpapi", "httpapi/audit"), third: []string{"golang.org/x/crypto/ssh", "github.com/pkg/sftp"}, never: noTesting},
	{path: "httpapi/worker", module: backend, never: noTesting},
	{path: "httpapi/client", module: []string{"internal/secret"}, third: []string{retry, "github.com/coder/websocket"}, never: noTesting},      // no server comes with it
	{path: "httpapi/command", module: []string{"httpapi/client", "internal/terminal"}, third: []string{"golang.org/x/term"}, never: noTesting}, // nor with the commands
	{
		path: "httpapi/double", never: noTesting,
		module: join(backend, "ratelimit", "httpapi", "httpapi/audit", "httpapi/server", "backend/memory", "backend/fault", "backend/podfleet", "backend/webhook"),
	},
	{path: "httpapi/apitest", module: join(backend, "httpapi", "httpapi/double")},

	{path: "examples", module: []string{anything}, third: []string{anything}},
}

func join(paths []string, more ...string) []string { return slices.Concat(paths, more) }

// of is the layer of a package of this module, by its path within.
func of(pkg string) (l layer, ok bool) {
	for _, x := range layers {
		if (pkg == x.path || x.path != "" && !x.alone && strings.HasPrefix(pkg, x.path+"/")) && (!ok || len(x.path) > len(l.path)) {
			l, ok = x, true
		}
	}
	return l, ok
}

func matches(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if p == anything {
			return true
		}
		root, below := strings.CutSuffix(p, "/...")
		return path == root || below && strings.HasPrefix(path, root+"/")
	})
}

// within cuts the module off an import path.
func within(path string) (rel string, ok bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// broken is the rule that an import by a package of this module breaks, or empty.
func broken(importer, imported string) string {
	from, _ := within(importer)
	l, ok := of(from)
	if !ok {
		return "it is in no layer"
	}
	to, ours := within(imported)
	switch {
	case ours && !matches(l.module, to):
		return "its layer may import of this module only " + strings.Join(l.module, " ")
	case !ours && !standard(imported) && !matches(l.third, imported):
		return "its layer may import of other modules only " + strings.Join(l.third, " ")
	}
	return ""
}

// brokenByTest is the same for imports of test files, which may use much more. Only
// backends are held to something: they are tested alone.
func brokenByTest(importer, imported string) string {
	from, _ := within(importer)
	to, ours := within(imported)
	if !ours || !strings.HasPrefix(from, "backend/") || strings.HasPrefix(to, from) {
		return ""
	}
	if to == "httpapi" || strings.HasPrefix(to, "httpapi/") {
		return "a backend is below httpapi"
	}
	if strings.HasPrefix(to, "backend/") && to != "backend/memory" && to != "backend/shard" {
		return "of other backends a test may use memory, and shard over its own queues"
	}
	return ""
}

// A listed is what the go command says of a package.
type listed struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string
}

// list asks the go command, as a build for this system would, for the packages whose files
// git knows.
func list(t *testing.T, env ...string) (pkgs []listed) {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		if os.Getenv("PODYARD_CI") == "1" {
			t.Fatal(err)
		}
		t.Skip("needs the go command: ", err)
	}
	ours := map[string]bool{}
	for _, file := range files(t, ".go") {
		ours[strings.TrimSuffix("github.com/podyard/podyard/"+path.Dir(file), "/.")] = true
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,TestImports,XTestImports,Deps", "./...")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("%v: %v\n%s", cmd, err, exit.Stderr)
		}
		t.Fatalf("%v: %v", cmd, err)
	}
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		if ours[p.ImportPath] {
			pkgs = append(pkgs, p)
		}
	}
}

func TestPackagesImportWhatTheirLayerMay(t *testing.T) {
	for _, env := range [][]string{
		nil,
		{"GOOS=linux", "CGO_ENABLED=0"}, {"GOOS=darwin", "CGO_ENABLED=0"}, {"GOOS=windows", "CGO_ENABLED=0"},
	} {
		for _, p := range list(t, env...) {
			for _, dep := range p.Imports {
				if rule := broken(p.ImportPath, dep); rule != "" {
					t.Errorf("%v: %s imports %s: %s", env, p.ImportPath, dep, rule)
				}
			}
			for _, dep := range slices.Concat(p.TestImports, p.XTestImports) {
				if rule := brokenByTest(p.ImportPath, dep); rule != "" {
					t.Errorf("%v: a test of %s imports %s: %s", env, p.ImportPath, dep, rule)
				}
			}
			rel, _ := within(p.ImportPath)
			l, _ := of(rel)
			for _, dep := range p.Deps {
				if slices.Contains(l.never, dep) {
					t.Errorf("%v: %s has %s in its closure", env, p.ImportPath, dep)
				}
			}
		}
	}
}

// expvar adds a page about the program to http.DefaultServeMux, only by being imported.
func TestOnlyTwoBackendsBringDebugVars(t *testing.T) {
	may := map[string]bool{"backend": true, "backend/disk": true, "backend/prometheus": true, "httpapi/server/config": true}
	for _, p := range list(t) {
		path := strings.TrimPrefix(p.ImportPath, module+"/")
		if slices.Contains(p.Deps, "expvar") && !may[path] && !strings.HasPrefix(path, "examples/") {
			t.Errorf("%s imports expvar through others, which adds GET /debug/vars to the mux of every program that imports it", path)
		}
	}
}

// A row for a package that is not there yet would allow it before anybody has looked at it.
func TestLayersNameOnlyWhatIsThere(t *testing.T) {
	// What is there for fewer systems is there for one of these.
	pkgs := append(list(t, "GOOS=linux", "CGO_ENABLED=1"), list(t, "GOOS=windows", "CGO_ENABLED=0")...)
	used := make(map[string][]string) // by layer: what its packages import of other modules
	var paths []string
	for _, p := range pkgs {
		rel, _ := within(p.ImportPath)
		paths = append(paths, rel)
		l, _ := of(rel)
		used[l.path] = append(used[l.path], p.Imports...)
	}
	for _, l := range layers {
		if !slices.ContainsFunc(paths, func(p string) bool { return matches([]string{l.path, l.path + "/..."}, p) }) {
			t.Errorf("layer %q has no package", l.path)
		}
		for _, pattern := range l.module {
			if !slices.ContainsFunc(paths, func(p string) bool { return matches([]string{pattern}, p) }) {
				t.Errorf("layer %q may import %q, which is no package of this module", l.path, pattern)
			}
		}
		for _, pattern := range l.third {
			if !slices.ContainsFunc(used[l.path], func(p string) bool { return matches([]string{pattern}, p) }) {
				t.Errorf("layer %q may import %q of another module, and no package of it does", l.path, pattern)
			}
		}
	}
}

func TestTopLevelIsWhatItWas(t *testing.T) {
	var dirs []string
	for _, path := range files(t, "") {
		if dir, _, below := strings.Cut(path, "/"); below && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	want := []string{"backend", "docs", "examples", "httpapi", "internal", "pods", "problem", "ratelimit", "registries", "serverless"}
	if diff := cmp.Diff(want, dirs); diff != "" {
		t.Errorf("directories at the top (-want +got):\n%s", diff)
	}
}

// The rules must be able to say no: each row is an import that does not exist.
func TestRulesRefuseWhatTheyShould(t *testing.T) {
	for _, row := range []struct {
		importer, imported string
		ok                 bool
	}{
		{"problem", "errors", true},
		{"problem", "internal/clock", false},
		{"problem", "github.com/google/go-cmp/cmp", false},
		{"internal/clock", "problem", false},
		{"ratelimit", "golang.org/x/time/rate", true},
		{"ratelimit", "golang.org/x/time", false},
		{"ratelimit", "problem", false},
		{"pods", "problem", true},
		{"pods", "internal/clock", true},
		{"pods", "pods/catalog", true},
		{"pods", "pods/volumes", false},
		{"pods", "serverless", false},
		{"pods", "golang.org/x/time/rate", false},
		{"pods/catalog", "pods", false},
		{"pods/volumes", "pods", true},
		{"pods/volumes", "serverless", false},
		{"serverless", "registries", false},
		{"serverless", "pods", false},
		{"serverless", "backend/memory", false},
		{"serverless/queue", "serverless/workers", false},
		{"serverless/workers", "serverless/queue", true},
		{"serverless/workers", "serverless/fleet", false},
		{"serverless/fleet", "serverless/workers", true},
		{"serverless/fleet", "serverless", false},
		{"serverless/serverlesstest", "github.com/google/go-cmp/cmp", true},
		{"serverless/serverlesstest", "pods", false},
		{"registries", "httpapi", false},
		{"backend/memory", "github.com/hashicorp/go-memdb", true},
		{"backend/memory", "github.com/hashicorp/go-memdb/internal", false},
		{"backend/memory", "backend/fault", false},
		{"backend/disk", "github.com/cockroachdb/pebble/v2", true},
		{"backend/disk", "github.com/cockroachdb/pebble/v2/vfs", true},
		{"backend/disk", "github.com/hashicorp/go-memdb", false},
		{"backend/podfleet", "pods", true},
		{"backend/podfleet", "serverless", true},
		{"backend/podfleet", "backend/process", false},
		{"backend/process", "httpapi", false},
		{"backend/unheard", "errors", false},
		{"httpapi", "net/http", true},
		{"httpapi", "ratelimit", true},
		{"httpapi", "backend/memory", false},
		{"httpapi/worker", "backend/process", false},
		{"httpapi/server", "backend/podfleet", true},
		{"httpapi/server", "backend/stores", true},
		{"httpapi/server", "backend", false},
		{"backend", "backend/postgres", true},
		{"backend", "backend/process", false},
		{"httpapi/server", "backend/memory", false},
		{"httpapi/server/config", "backend/disk", true},
		{"httpapi/server/config", "httpapi/double", false},
		{"httpapi/double", "backend/memory", true},
		{"httpapi/double", "backend/disk", false},
		{"httpapi/apitest", "httpapi/double", true},
		{"examples/server", "backend/disk", true},
		{"examples/server", "example.org/anything", true},
		{"", "pods", false},
		{"unheard", "errors", false},
	} {
		if rule := broken(full(row.importer), full(row.imported)); (rule == "") != row.ok {
			t.Errorf("%q imports %q: %q, allowed should be %v", row.importer, row.imported, rule, row.ok)
		}
	}
	for _, row := range []struct {
		importer, imported string
		ok                 bool
	}{
		{"backend/process", "backend/memory", true},
		{"backend/process", "backend/process/internal", true},
		{"backend/process", "backend/disk", false},
		{"backend/process", "httpapi", false},
		{"backend/process", "httpapi/double", false},
		{"httpapi", "backend/memory", true},
		{"registries", "backend/memory", true},
	} {
		if rule := brokenByTest(full(row.importer), full(row.imported)); (rule == "") != row.ok {
			t.Errorf("a test of %q imports %q: %q, allowed should be %v", row.importer, row.imported, rule, row.ok)
		}
	}
}

func TestLongestPathDecides(t *testing.T) {
	for pkg, want := range map[string]string{
		"": "", "pods": "pods", "pods/catalog": "pods/catalog", "pods/catalog/x": "pods/catalog", "pods/podstest": "pods/podstest",
		"httpapi/double": "httpapi/double", "internal/clock": "internal/clock", "internal/other": "internal",
	} {
		if l, ok := of(pkg); !ok || l.path != want {
			t.Errorf("layer of %q = %q, %v; want %q", pkg, l.path, ok, want)
		}
	}
	if l, ok := of("podsx"); ok {
		t.Errorf("podsx is in layer %q: its name only begins like one", l.path)
	}
}

// full is the import path of a path of this module; others are whole already.
func full(path string) string {
	if path == "" {
		return module
	}
	if _, ours := of(path); ours || strings.Contains(path, "unheard") {
		return module + "/" + path
	}
	return path
}
